"""NIST's excerpt ma2019 by feature sets: what its dictionary says of columns, and of columns together.

All of it is from the data dictionary and the questionnaire: who is not asked has "N". Three lists the dictionary leaves to
others: industry codes with their categories and the PUMAs with their density are those of the published excerpt; edges of
bins of incomes, weights and poverty ratios are round numbers.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from benchmarks.accuracy.tables import OTHERS, Table
from tests.support.places import DATA

FOLDER = DATA / "ma2019"
TABLE, DICTIONARY = FOLDER / "ma2019.csv", FOLDER / "data_dictionary.json"
SETS: Mapping[str, tuple[str, ...]] = {
    "demographic": (
        "AGEP",
        "SEX",
        "MSP",
        "RAC1P",
        "HOUSING_TYPE",
        "OWN_RENT",
        "EDU",
        "PINCP_DECILE",
        "DVET",
        "DEYE",
    ),
    "industry": (
        "PUMA",
        "SEX",
        "MSP",
        "HISP",
        "RAC1P",
        "OWN_RENT",
        "INDP_CAT",
        "EDU",
        "PINCP_DECILE",
    ),
    "family": (
        "PUMA",
        "AGEP",
        "SEX",
        "MSP",
        "HISP",
        "RAC1P",
        "NOC",
        "NPF",
        "OWN_RENT",
        "PINCP_DECILE",
        "POVPIP",
    ),
    "all": (),
}
PREFIX, BINNED = "ma2019-", "-binned"
# Whole numbers by bins that hold their lower edge, and not their upper one; and a number that stands for something else.
EDGES: Mapping[str, tuple[int, ...]] = {
    "PINCP": (
        -9000, 0, 1, 2500, 5000, 7500, 10000, 12500, 15000, 20000, 25000, 30000, 35000, 40000, 50000, 60000, 70000, 80000,
        100000, 125000, 150000, 200000, 300000, 500000, 1341001,
    ),
    "POVPIP": (*range(0, 500, 25), 501),
    "PWGTP": (1, *range(10, 200, 10), 200, 250, 300, 400, 500, 1000, 10000),
    "WGTP": (0, 1, *range(10, 200, 10), 200, 250, 300, 400, 500, 1000, 10000),
}  # fmt: skip
CODES: Mapping[str, dict[int, str]] = {"POVPIP": {501: "more than five times"}}
_ROWS = 7600  # about so many are in the excerpt, as NIST says
_DIPLOMAS = [str(code) for code in range(5, 13)]
# Columns that have "N" where a condition does not hold, and never where it does.
_APPLIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("MSP", {"AGEP": {"from": 15}}),
    ("PINCP", {"AGEP": {"from": 15}}),
    ("PINCP_DECILE", {"AGEP": {"from": 15}}),
    ("PINCP_DECILE", {"MSP": {"but": "N"}}),
    ("EDU", {"AGEP": {"from": 3}}),
    ("DREM", {"AGEP": {"from": 5}}),
    ("DPHY", {"AGEP": {"from": 5}}),
    ("NOC", {"HOUSING_TYPE": "1"}),
    ("NOC", {"OWN_RENT": {"but": "0"}}),
    ("OWN_RENT", {"HOUSING_TYPE": "1"}),
)
_FORBIDDEN: tuple[dict[str, Any], ...] = (
    {"AGEP": {"below": 15}, "DVET": {"but": "N"}},
    {"AGEP": {"below": 15}, "EDU": _DIPLOMAS},
    {"AGEP": {"below": 16}, "INDP": {"but": "N"}},
    {"MSP": "N", "INDP_CAT": {"but": "N"}},
    {"HOUSING_TYPE": ["2", "3"], "NPF": {"but": "N"}},
    {"OWN_RENT": "0", "NPF": {"but": "N"}},
    {"HOUSING_TYPE": "1", "WGTP": {"to": 0}},
    {"HOUSING_TYPE": ["2", "3"], "WGTP": {"above": 0}},
    {"NOC": {"from": 1}, "NPF": "N"},
    *({"NOC": {"from": size}, "NPF": {"to": size}} for size in range(2, 20)),
)
_DETERMINED = (("DENSITY", "PUMA"), ("INDP_CAT", "INDP"))


@dataclass(frozen=True, kw_only=True)
class Excerpt(Table):
    """The columns of a feature set as NIST published them; `mappings` are of columns that follow from others."""

    mappings: dict[str, dict[str, str]] = field(default_factory=dict)

    def columns(self) -> dict[str, dict[str, object]]:
        """Categories with their codes, "N" among them; ages by year, incomes, weights and ratios by bins."""
        return {name: self._column(name) for name in self.header}

    def _column(self, name: str) -> dict[str, object]:
        never = {"missing": [], "outside": "error"}
        if name == "AGEP":
            return {
                "type": "number",
                "bins": {"min": 0, "max": 100, "step": 1},
                "decimals": 0,
                **never,
            }
        if name not in EDGES:
            return {"type": "category", "values": self.domain[name], **never}
        missing = {"missing": ["N"]} if "N" in self.domain[name] else never
        *edges, end = EDGES[name]
        codes = {"codes": CODES[name]} if name in CODES else {}
        return {
            "type": "number",
            "bins": [*edges, end - 1],
            "decimals": 0,
            **codes,
            **missing,
        }  # the last bin holds its end

    def more(self) -> dict[str, Any]:
        """About how many rows, and what holds between columns."""
        return {"rows": _ROWS, "structure": self.structure()}

    def structure(self) -> dict[str, Any]:
        """The rules whose columns are all here; one a column, where a column could be told by two."""
        determined = [
            {"column": name, "by": by, "mapping": self.mappings[name]}
            for name, by in _DETERMINED
            if name in self.header and by in self.header
        ]
        left_out = {entry["column"] for entry in determined}
        here = set(self.header) - left_out
        applies = {name: where for name, where in reversed(_APPLIES) if {name, *where} <= here}
        return {
            "determined": determined,
            "applies": [
                {"columns": [name], "where": where, "otherwise": "0" if name == "OWN_RENT" else "N"}
                for name, where in applies.items()
            ],
            "forbidden": [rule for rule in _FORBIDDEN if set(rule) <= here],
        }

    def binned(self) -> Table:
        """The same in codes and labels of bins, as programs need it that know of categories alone."""
        domain = {name: labels(name, values) for name, values in self.domain.items()}
        rows = [
            [label(name, value) for name, value in zip(self.header, row, strict=True)]
            for row in self.rows
        ]
        return Table(header=self.header, rows=rows, domain=domain)


def labels(name: str, values: list[str]) -> list[str]:
    """The labels of the bins of a column and what stands beside them, or its values."""
    if name not in EDGES:
        return values
    return [
        *(str(edge) for edge in EDGES[name][:-1]),
        *map(str, CODES.get(name, ())),
        *({"N"} & set(values)),
    ]


def is_binned(name: str, value: str) -> bool:
    """Whether a value lies in a bin."""
    return name in EDGES and value != "N" and float(value) not in CODES.get(name, ())


def label(name: str, value: str) -> str:
    """The label of a value: the lower edge of its bin."""
    if not is_binned(name, value):
        return value
    return str(EDGES[name][int(np.searchsorted(EDGES[name], float(value), side="right")) - 1])


def unbinned(header: tuple[str, ...], rows: list[list[str]], seed: int) -> list[list[str]]:
    """A whole number of each bin, each as likely, in the place of its label."""
    rng = np.random.default_rng(seed)

    def drawn(name: str, value: str) -> str:
        if not is_binned(name, value):
            return value
        place = EDGES[name].index(int(value))
        return str(rng.integers(EDGES[name][place], EDGES[name][place + 1]))

    return [[drawn(name, value) for name, value in zip(header, row, strict=True)] for row in rows]


def excerpt(features: str) -> Excerpt:
    """The excerpt with one of `SETS`."""
    if not FOLDER.is_dir():
        raise SystemExit("the test tables are not here; MARGINWEAVE_TEST_DATA names their folder")
    with TABLE.open(encoding="utf-8", newline="") as file:
        every, *rows = csv.reader(file)
    header = SETS[features] or tuple(every)
    places = [every.index(name) for name in header]
    kept = [[shown(name, row[i]) for name, i in zip(header, places, strict=True)] for row in rows]
    columns = dict(zip(header, zip(*kept, strict=True), strict=True))
    described = json.loads(DICTIONARY.read_text(encoding="utf-8"))
    mappings = {
        name: dict(sorted(set(zip(columns[by], columns[name], strict=True))))
        for name, by in _DETERMINED
        if name in columns and by in columns
    }
    domain = {
        name: public(columns[name], described[name].get("values", {}), name) for name in header
    }
    return Excerpt(header=header, rows=kept, domain=domain, mappings=mappings)


def shown(name: str, value: str) -> str:
    """Incomes are whole dollars, written with a decimal."""
    return value.removesuffix(".0") if name == "PINCP" else value


def public(values: tuple[str, ...], described: Mapping[str, Any], name: str) -> list[str]:
    """The values of a column: those of the dictionary, or of the excerpt where that has none or has more."""
    if name in ("PUMA", "DENSITY", "INDP") or name in EDGES:
        return sorted(set(values))
    ends = (int(described[end]) for end in ("min", "max") if end in described)
    between = (
        [str(v) for v in range(*(end + i for i, end in enumerate(ends)))]
        if "min" in described
        else []
    )
    return [*(str(value) for value in described if value not in ("min", "max")), *between]


OTHERS |= {PREFIX + name: partial(excerpt, name) for name in SETS}
OTHERS |= {PREFIX + name + BINNED: lambda name=name: excerpt(name).binned() for name in SETS}
