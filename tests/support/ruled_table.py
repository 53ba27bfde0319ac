"""A small table with every rule between columns, rows that break them in every way, and the rules in plain words."""

from __future__ import annotations

import datetime
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from marginweave.configuration.synthesis import AnySynthesis
from marginweave.domain.labels import Domain
from marginweave.domain.zeros import broken_records, domain_sizes, structural_masks
from marginweave.estimate.marginals import drawn_compression_of, normalize_marginals
from marginweave.observations.tables import Marginals, Observation
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import encode_table
from marginweave.records.decode import decode_table
from tests.support.configurations import configuration
from tests.support.noisy_marginals import measure_merged
from tests.support.synthesized import synthesize_codes

_SURE = {"missing": [], "outside": "error"}
COLUMNS: dict[str, Any] = {
    "age": {"type": "number", "bins": [0, 15, 65, 100], "decimals": 0},
    "income": {"type": "number", "bins": [0, 10, 50], "decimals": 0, "missing": ["N"]},
    "job": {"type": "category", "values": ["0", "a", "b", "c", "d"], **_SURE},
    "zone": {"type": "category", "values": ["x", "y", "z"]},
    "born": {"type": "date", "bounds": ["2024-01-01", "2024-03-31"], "bins": ["2024-01-01", "2024-02-15", "2024-03-31"]},
    "arrival": {"type": "date", "bounds": ["2024-01-01", "2024-03-31"], "bins": "month"},
    "leaving": {"type": "date", "bounds": ["2024-01-01", "2024-04-30"], "bins": "year"},
    "stay": {"type": "number", "bounds": [0, 30], "bins": [0, 1, 10, 30], "decimals": 0},
    "part": {"type": "number", "bounds": [-5, 10], "bins": 2, "decimals": 1},
    "other": {"type": "number", "bounds": [0, 50], "bins": [0, 20, 50], "decimals": 1},
    "total": {"type": "number", "bounds": [-5, 60], "bins": 1, "decimals": 1},
}  # fmt: skip
STRUCTURE: dict[str, Any] = {
    "applies": [
        {"columns": ["income"], "where": {"age": {"from": 15}}},
        {"columns": ["job"], "where": {"age": {"from": 15}}, "otherwise": "0"},
    ],
    "ordered": [{"columns": ["born", "arrival"], "ties": False}],
    "forbidden": [{"age": {"from": 65}, "income": {"to": 9}, "job": "b"}],
    "difference": [{"column": "stay", "of": "leaving", "since": "arrival"}],
    "sum": [{"column": "total", "of": ["part", "other"]}],
    "determined": [
        {"column": "zone", "by": "job", "mapping": {"a": "x", "b": "y"}, "default": "z"}
    ],
}
SETTINGS: dict[str, Any] = {
    "columns": COLUMNS,
    "structure": STRUCTURE,
    "aggregate": {"method": "marginals"},
}
CONFIGURATION = configuration(**SETTINGS)
SOURCE = ("age", "income", "job", "born", "arrival", "leaving", "part", "other")
KEEPING = ("40", "20", "a", "2024-01-03", "2024-02-05", "2024-02-09", "1.0", "7.5")
ROWS: dict[str, tuple[str, ...]] = {
    "keeps every rule": KEEPING,
    "a child that earns and works": ("7", "20", "c", *KEEPING[3:]),
    "an adult to whom nothing applies": ("40", "N", "0", *KEEPING[3:]),
    "what is forbidden": ("70", "5", "b", *KEEPING[3:]),
    "born after arriving": (*KEEPING[:3], "2024-03-20", "2024-01-05", *KEEPING[5:]),
    "leaves before arriving": (*KEEPING[:4], "2024-03-05", "2024-01-02", *KEEPING[6:]),
    "leaves without having arrived": (*KEEPING[:4], "", *KEEPING[5:]),
    "breaks all": ("7", "5", "b", "2024-03-20", "2024-01-05", "2024-01-01", "-9", ""),
    "has nothing": ("", "N", "0", *[""] * 5),
}
LABELS = tuple(attribute.labels for attribute in CONFIGURATION.attributes)
SIZES = domain_sizes(CONFIGURATION.attributes, LABELS)
MASKS = structural_masks(CONFIGURATION, LABELS)
COUNTED = CONFIGURATION.with_undeclared(CONFIGURATION.undeclared)
"""As tables are counted: an income can be not as declared."""
COUNTED_SIZES = domain_sizes(COUNTED.attributes, LABELS)


def keeps(row: dict[str, Any]) -> bool:
    """The rules in plain words, of the values of a record."""
    age = -1 if row["age"] is None else row["age"]
    adult = age >= 15
    if adult != (row["income"] is not None) or adult != (row["job"] != "0"):
        return False
    if age >= 65 and row["income"] <= 9 and row["job"] == "b":
        return False
    if None not in (row["born"], row["arrival"]) and row["born"] >= row["arrival"]:
        return False
    known = None not in (row["arrival"], row["stay"])
    if row["leaving"] != (row["arrival"] + datetime.timedelta(days=row["stay"]) if known else None):
        return False
    known = None not in (row["part"], row["other"])
    if row["total"] != (round(row["part"] + row["other"], 1) if known else None):
        return False
    return bool(row["zone"] == {"a": "x", "b": "y"}.get(row["job"], "z"))


def allowed_codes(number: int, rng: np.random.Generator) -> np.ndarray:
    """Random records that keep the rules, in codes; shape (attributes, number)."""
    codes = np.stack([rng.integers(0, size, 40 * number) for size in SIZES])
    return codes[:, ~broken_records(tuple(codes), MASKS)][:, :number]


def noisy_counts(codes: np.ndarray, sd: float, rng: np.random.Generator) -> Marginals:
    """All pairs of columns with noise, made consistent as a run does it; no record has a cell that is not as declared."""

    def measured(clique: tuple[int, ...]) -> Observation:
        counts = np.zeros([COUNTED_SIZES[a] for a in clique], np.int64)
        np.add.at(counts, tuple(codes[a] for a in clique), 1)
        noise = rng.normal(0, sd, counts.shape).round().astype(np.int64)
        return Observation(attributes=clique, counts=counts + noise, deviation=sd)

    every = range(len(SIZES))
    domain = Domain(
        names=tuple(attribute.name for attribute in CONFIGURATION.attributes), labels=LABELS
    )
    counts = Marginals(domain=domain, one_way=tuple(measured((a,)) for a in every), larger=())
    compression = drawn_compression_of(counts, CONFIGURATION)
    pairs = tuple(
        measure_merged(measured(pair), compression) for pair in itertools.combinations(every, 2)
    )
    return normalize_marginals(replace(counts, larger=pairs), CONFIGURATION)


def check_method(settings: AnySynthesis, seed: int, sd: float) -> None:
    """Records that a method makes of noisy counts keep every rule, as values; and each value is in the bin that was made."""
    rng = np.random.default_rng(seed)
    counts = noisy_counts(allowed_codes(300, rng), sd, rng)
    codes = synthesize_codes(counts, CONFIGURATION, settings)
    table: pa.Table = decode_table(codes, counts.domain, CONFIGURATION, seed)
    broken = [row for row in table.to_pylist() if not keeps(row)]
    assert not broken, broken[:3]
    again = encode_table(clean_table(table, CONFIGURATION), CONFIGURATION)
    assert all(np.array_equal(one, other) for one, other in zip(again.codes, codes, strict=True))
