"""The tables of the benchmark: as text, with the public values of every column."""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import yaml
from numpy.typing import NDArray

from tests.support.places import DATA, EXAMPLES

# what the published numbers for adult.csv are for; every other table has 1 / (n ln n), but for samples
_ADULT_DELTA, _SAMPLES_DELTA = 1e-9, 1e-6
# Its columns whose codes are numbers in order; the other codes stand for categories.
_ADULT_NUMBERS = (
    "age",
    "fnlwgt",
    "education-num",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table as text, and the public values of its columns; "" is a missing value. A column of `numbers` has those from 0 on.

    A sample also has rows of the same table that are `outside` it.
    """

    header: tuple[str, ...]
    rows: list[list[str]]
    domain: dict[str, list[str]]
    outside: list[list[str]] = field(default_factory=list)
    numbers: tuple[str, ...] = ()

    @classmethod
    def load(cls, name: str) -> Table:
        """One of the test tables."""
        folder = DATA / name.removesuffix("_cat")
        if not folder.is_dir():
            raise SystemExit(
                "the test tables are not here; MARGINWEAVE_TEST_DATA names their folder"
            )
        with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        kind = "domain.json" if name == "adult" else f"{name.removesuffix('_cat')}_domain.json"
        declared = json.loads((folder / kind).read_text(encoding="utf-8"))
        domain = {
            n: [str(v) for v in range(d)] if isinstance(d, int) else sorted(d)
            for n, d in declared.items()
        }
        return cls(
            header=tuple(header),
            rows=rows,
            domain=domain,
            numbers=_ADULT_NUMBERS if name == "adult" else (),
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of public values of each column, "" included where it is one."""
        return tuple(len(self.domain[name]) for name in self.header)

    def codes(self, rows: list[list[str]]) -> NDArray[np.int64]:
        """Codes of `rows`, shape (rows, columns); a "" that the domain does not have is the size of the domain.

        Some programs leave values out where none can be missing.
        """
        numbers = [
            {"": len(self.domain[name])}
            | {value: code for code, value in enumerate(self.domain[name])}
            for name in self.header
        ]
        columns = zip(*rows, strict=True)
        return np.array(
            [[n[v] for v in c] for n, c in zip(numbers, columns, strict=True)], np.int64
        ).T

    def columns(self) -> dict[str, dict[str, object]]:
        """The section `columns` of a configuration: a column whose domain has no missing value cannot be missing.

        A number has a bin for each of its values.
        """
        never: dict[str, object] = {"missing": [], "outside": "error"}
        return {
            name: self._number(name)
            if name in self.numbers
            else {"type": "category", "values": [v for v in values if v]}
            | ({} if "" in values else never)
            for name, values in ((name, self.domain[name]) for name in self.header)
        }

    def _number(self, name: str) -> dict[str, object]:
        bins = {"min": -0.5, "max": len(self.domain[name]) - 0.5, "step": 1}
        return {"type": "number", "bins": bins, "decimals": 0, "missing": []}

    def more(self) -> dict[str, Any]:
        """Further sections of a configuration: none, where nothing is known of columns together."""
        return {}

    def missing(self) -> list[str]:
        """The section `missing` of a configuration."""
        return [""] if any("" in values for values in self.domain.values()) else []

    def write(self, path: Path) -> None:
        """The table as CSV."""
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([self.header, *self.rows])


def fair() -> Table:
    """Statsmodels' survey of Fair (1978), in the values and bins that deployments/examples/affairs.yaml declares."""
    from statsmodels.datasets import fair as survey

    # a DataFrame, which statsmodels declares as None
    frame = cast("Any", survey.load_pandas().data)
    declared = yaml.safe_load((EXAMPLES / "affairs.yaml").read_text(encoding="utf-8"))["columns"]
    domain, columns = {}, []
    for name, column in declared.items():
        numbers = frame[name].to_numpy(float)
        if "bins" in column:
            edges = column["bins"]
            domain[name] = [f"{low:g} to {high:g}" for low, high in itertools.pairwise(edges)]
            columns.append([domain[name][i] for i in np.digitize(numbers, edges[1:-1])])
        else:
            domain[name] = [f"{value:g}" for value in column["values"]]
            columns.append([f"{number:g}" for number in numbers])
    rows = [list(row) for row in zip(*columns, strict=True)]
    return Table(header=tuple(declared), rows=rows, domain=domain)


_POPULATION = [0, 1, 5, 20, 100, 500, 8000]
_AGES = [18, 30, 40, 50, 60, 70, 100]


def anes96() -> Table:
    """Statsmodels' American National Election Study of 1996, but for the logarithm of a column; two columns are binned."""
    from statsmodels.datasets import anes96 as survey

    frame = cast("Any", survey.load_pandas().data)
    cuts = {"popul": _POPULATION, "age": _AGES}
    domain = {
        name: [str(v) for v in range(low, high + 1)]
        for name, low, high in (
            ("TVnews", 0, 7), ("selfLR", 1, 7), ("ClinLR", 1, 7), ("DoleLR", 1, 7), ("PID", 0, 6),
            ("educ", 1, 7), ("income", 1, 24), ("vote", 0, 1),
        )
    }  # fmt: skip
    columns = [[str(int(number)) for number in frame[name]] for name in domain]
    for name, edges in cuts.items():
        domain[name] = [f"{low} to {high}" for low, high in itertools.pairwise(edges)]
        columns.append(
            [domain[name][i] for i in np.digitize(frame[name].to_numpy(float), edges[1:-1])]
        )
    return Table(
        header=tuple(domain), rows=[list(row) for row in zip(*columns, strict=True)], domain=domain
    )


_LOADERS: dict[str, Callable[[], Table]] = {
    "affairs": fair,
    **{
        name: partial(Table.load, name)
        for name in ("drug_deaths_cat", "ma2019_cat", "adult_cat", "adult")
    },
}
TABLES = tuple(_LOADERS)  # the small ones first
# What other benchmarks have, by name; each enters its own here.
OTHERS: dict[str, Callable[[], Table]] = {"anes96": anes96}
SAMPLED = ("affairs", "drug_deaths_cat", "ma2019_cat", "adult_cat", "anes96")
"""The tables that the benchmark of small tables draws its samples from."""


def sample_name(name: str, rows: int, number: int) -> str:
    """What `table` calls sample `number` of so many rows of one of `SAMPLED`."""
    return f"{name}/{rows}/{number}"


def first_sample(name: str) -> str:
    """The name of the first of the samples that are as large as this one, and differ from it in their rows alone."""
    return f"{name.rsplit('/', maxsplit=1)[0]}/0" if "/" in name else name


@cache
def table(name: str) -> Table:
    """One of `TABLES` or `OTHERS`, or a random sample of it (`sample_name`), of all rows where it has no more."""
    if "/" not in name:
        return (_LOADERS | OTHERS)[name]()
    of, rows, number = name.split("/")
    whole = table(of)
    order = np.random.default_rng([int(rows), int(number)]).permutation(len(whole.rows))
    inside, outside = (
        [whole.rows[i] for i in part] for part in (order[: int(rows)], order[int(rows) :])
    )
    return replace(whole, rows=inside, outside=outside)


def is_known(name: str) -> bool:
    """Whether there is such a table."""
    return name.split("/", maxsplit=1)[0] in (*TABLES, *OTHERS)


def delta(name: str) -> float:
    """The delta of every release of a table, peers' included."""
    if name.split("/", maxsplit=1)[0] == "adult":
        return _ADULT_DELTA
    if "/" in name:
        return _SAMPLES_DELTA
    rows = len(table(name).rows)
    return 1 / (rows * math.log(rows))
