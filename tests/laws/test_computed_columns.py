"""Columns that are computed from counted ones: differences and sums hold in every record, and codes come back."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.domain.labels import Domain
from marginweave.domain.zeros import broken_records, domain_sizes, structural_masks
from marginweave.evaluate.rules import broken_rules
from marginweave.mechanisms.randomness import KeyedBits, RecordWords
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import encode_table
from marginweave.prepare.repair import Repair
from marginweave.prepare.rows import prepare_blocks
from marginweave.records.decode import decode_table
from tests.support.configurations import configuration

DAY = datetime.timedelta(days=1)
COLUMNS: dict[str, Any] = {
    "leaving": {"type": "date", "bounds": ["2024-01-01", "2024-04-30"], "bins": "year"},
    "arrival": {"type": "date", "bounds": ["2024-01-01", "2024-03-31"], "bins": "month"},
    "stay": {"type": "number", "bounds": [0, 30], "bins": [0, 1, 3, 10, 30], "decimals": 0},
    "total": {"type": "number", "bounds": [-5, 60], "bins": 1, "decimals": 1},
    "part": {"type": "number", "bounds": [-5, 10], "bins": 3, "decimals": 1},
    "other": {"type": "number", "bounds": [0, 50], "bins": [0, 2, 7, 20, 50], "decimals": 1},
}
STRUCTURE: dict[str, Any] = {
    "difference": [{"column": "stay", "of": "leaving", "since": "arrival"}],
    "sum": [{"column": "total", "of": ["part", "other"]}],
}
CONFIGURATION = configuration(
    columns=COLUMNS, structure=STRUCTURE, aggregate={"method": "marginals"}
)


def changed(name: str, structure: dict[str, Any] = STRUCTURE, **keys: Any) -> Configuration:
    """The configuration with other keys in one column."""
    return configuration(columns={**COLUMNS, name: {**COLUMNS[name], **keys}}, structure=structure)


def labels(config: Configuration) -> tuple[tuple[str, ...], ...]:
    return tuple(attribute.labels for attribute in config.attributes)


def allowed_codes(
    config: Configuration, rng: np.random.Generator, rows: int
) -> tuple[np.ndarray, ...]:
    """Random codes that keep what is structural."""
    sizes = zip(config.attributes, map(len, labels(config)), strict=True)
    codes = tuple(rng.integers(0, size + attribute.optional, rows) for attribute, size in sizes)
    kept = ~broken_records(codes, structural_masks(config, labels(config)))
    return tuple(code[kept] for code in codes)


def decoded(config: Configuration, codes: tuple[np.ndarray, ...], seed: int) -> pa.Table:
    names = tuple(attribute.name for attribute in config.attributes)
    return decode_table(codes, Domain(names=names, labels=labels(config)), config, seed)


def read(table: pa.Table, config: Configuration) -> tuple[np.ndarray, ...]:
    return tuple(encode_table(clean_table(table, config), config).codes)


def test_a_computed_column_is_no_further_one() -> None:
    """The difference is counted in the place of a date, a sum not at all; the source needs what they are made of."""
    assert [attribute.name for attribute in CONFIGURATION.attributes] == [
        "arrival",
        "stay",
        "part",
        "other",
    ]
    assert CONFIGURATION.names == ("arrival", "stay", "part", "other")
    assert CONFIGURATION.source_names == ("leaving", "arrival", "part", "other")
    assert CONFIGURATION.output_names == tuple(COLUMNS)
    assert Configuration.model_validate(CONFIGURATION.model_dump(mode="json")) == CONFIGURATION


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    form=st.sampled_from([None, "%d.%m.%Y"]),
    step=st.sampled_from(["month", "weekday", "year"]),
)
def test_differences_and_sums_hold_in_every_record(seed: int, form: str | None, step: str) -> None:
    """Whatever was drawn inside the bins; texts of a format too, and what is written is read back into the same codes."""
    columns = {**COLUMNS, "leaving": {**COLUMNS["leaving"], "format": form}}
    columns["arrival"] = {**COLUMNS["arrival"], "bins": step}
    config = configuration(columns=columns, structure=STRUCTURE)
    codes = allowed_codes(config, np.random.default_rng(seed), 300)
    table = decoded(config, codes, seed)
    assert table.column_names == list(COLUMNS)
    date = pa.date32() if form is None else pa.string()
    number = pa.float64()
    assert table.schema.types == [date, pa.date32(), pa.int64(), number, number, number]
    for row in table.to_pylist():
        known = None not in (row["arrival"], row["stay"])
        assert (row["leaving"] is not None) == known
        if known:
            leaving = (
                row["leaving"]
                if form is None
                else datetime.datetime.strptime(row["leaving"], form).date()  # noqa: DTZ007
            )
            assert leaving - row["arrival"] == row["stay"] * DAY
        known = None not in (row["part"], row["other"])
        assert row["total"] == (round(row["part"] + row["other"], 1) if known else None)
    assert all(
        np.array_equal(one, other) for one, other in zip(read(table, config), codes, strict=True)
    )
    assert {
        (entry.rule, entry.subject): entry.records for entry in broken_rules(table, config)
    } == {
        ("difference", "leaving"): 0,
        ("sum", "total"): 0,
    }


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), decimals=st.sampled_from([0, 2]))
def test_differences_of_moments_and_of_numbers(seed: int, decimals: int) -> None:
    """Seconds of moments; numbers of as many decimals, negative ones too."""
    columns = {
        "b": {"type": "datetime", "bounds": ["2024-01-01", "2024-01-09"], "bins": "week"},
        "a": {"type": "datetime", "bounds": ["2024-01-01", "2024-01-07"], "bins": "weekday"},
        "c": {
            "type": "number",
            "bounds": [0, 100000],
            "bins": [0, 60, 3600, 100000],
            "decimals": 0,
        },
        "z": {"type": "number", "bounds": [-50, 150], "bins": 1, "decimals": decimals},
        "y": {"type": "number", "bounds": [0, 100], "bins": 7, "decimals": decimals},
        "x": {"type": "number", "bounds": [-50, 50], "bins": 3, "decimals": decimals},
    }
    rules = [{"column": "c", "of": "b", "since": "a"}, {"column": "x", "of": "z", "since": "y"}]
    config = configuration(columns=columns, structure={"difference": rules})
    codes = allowed_codes(config, np.random.default_rng(seed), 300)
    table = decoded(config, codes, seed)
    assert table.schema.field("b").type == pa.timestamp("s")
    assert table.schema.field("z").type == (pa.float64() if decimals else pa.int64())
    for row in table.to_pylist():
        if None not in (row["a"], row["c"]):
            assert (row["b"] - row["a"]).total_seconds() == row["c"]
        if None not in (row["x"], row["y"]):
            assert row["z"] == round(row["x"] + row["y"], decimals)
    assert all(
        np.array_equal(one, other) for one, other in zip(read(table, config), codes, strict=True)
    )


ROWS = {
    "leaving": ["2024-01-05", "2024-01-01", "2024-03-31", "", "2024-02-02", "2024-01-09"],
    "arrival": ["2024-01-03", "2024-01-03", "2024-01-03", "2024-01-03", "", "2024-01-09"],
    "total": ["4.5", "4.4", "", "4.5", "4.5", "0"],
    "part": ["4.2", "4.2", "4.2", "", "4.2", "0"],
    "other": ["0.3"] * 5 + ["0"],
}


def test_a_difference_is_computed_of_each_row_and_bounded() -> None:
    """Nobody needs the column in the source, and what stands there counts nothing; who leaves too early stays 0 days."""
    clean = clean_table(pa.table(ROWS), CONFIGURATION)
    assert clean.column("stay").to_pylist() == [2, 0, 30, None, None, 0]
    assert clean_table(pa.table({**ROWS, "stay": ["9"] * 6}), CONFIGURATION) == clean
    for row in range(6):  # whatever other rows there are
        assert clean_table(pa.table(ROWS).slice(row, 1), CONFIGURATION) == clean.slice(row, 1)


def test_rows_that_break_a_rule_are_told() -> None:
    """A negative or too large difference; a total that is not the sum. What lacks a part breaks nothing."""
    found = {entry.rule: entry.records for entry in broken_rules(pa.table(ROWS), CONFIGURATION)}
    assert (found["difference"], found["sum"]) == (2, 1)
    without = pa.table({name: column for name, column in ROWS.items() if name != "total"})
    assert "sum" not in {entry.rule for entry in broken_rules(without, CONFIGURATION)}


def test_nothing_has_passed_since_what_is_missing(tmp_path: Path) -> None:
    """Joined rows of a subject can disagree on the date alone: the date stays missing, and so does the difference become."""
    config = configuration(
        columns=COLUMNS, structure=STRUCTURE, privacy__unit={"column": "id", "join": True}
    )
    rows = {
        "leaving": ["2024-01-05", "2024-01-06", "2024-01-07"],
        "arrival": ["2024-01-03", "2024-01-04", "2024-01-06"],
    }
    rows |= {"part": ["1"] * 3, "other": ["1"] * 3, "id": ["a", "a", "b"]}
    (block,) = prepare_blocks([pa.table(rows)], config, b"k" * 32, tmp_path)
    assert block.table.column("arrival").to_pylist() == [None, datetime.date(2024, 1, 6)]
    assert block.table.column("stay").to_pylist() == [2, 1]
    encoded = encode_table(block.table, config)
    assert broken_records(encoded.codes, structural_masks(config, labels(config))).tolist() == [
        True,
        False,
    ]
    words = RecordWords(words=KeyedBits(key=b"k" * 32, purpose="rules"), records=np.arange(2))
    repaired = Repair(config, labels(config))(encoded, words)
    assert [code.tolist() for code in repaired.codes] == [[3, 0], [4, 1], [1, 1], [0, 0]]


def test_a_difference_can_be_missing_where_its_columns_can() -> None:
    sure = {"missing": [], "outside": "error"}
    columns = {
        **COLUMNS,
        "arrival": {**COLUMNS["arrival"], **sure},
        "leaving": {**COLUMNS["leaving"], **sure},
    }
    config = configuration(columns=columns, structure=STRUCTURE)
    assert config.optional[:2] == (False, False)
    assert [config.can_be_missing(name) for name in COLUMNS] == [
        False,
        False,
        False,
        True,
        True,
        True,
    ]
    assert domain_sizes(config.attributes, labels(config))[:2] == (3, 4)
    assert CONFIGURATION.optional[:2] == (True, True)
    assert CONFIGURATION.can_be_missing("leaving")


@pytest.mark.parametrize(
    ("name", "keys", "words"),
    [
        (
            "leaving",
            {"bounds": ["2024-01-01", "2024-04-29"]},
            "bounds must hold 2024-01-01 to 2024-04-30",
        ),
        ("stay", {"bounds": [-1, 30], "bins": 2}, "bounds must hold 2023-12-31 to 2024-04-30"),
        (
            "stay",
            {"bounds": [0, 10**7], "bins": 2},
            "2024-01-01 to a date outside of the years 1 to 9999",
        ),
        (
            "total",
            {"bounds": [0, 60]},
            "'total' from part and other; its bounds must hold -5 to 60",
        ),
        (
            "stay",
            {"decimals": 1},
            "dates of one type and a number of 0 decimals, or numbers of as many decimals",
        ),
        (
            "part",
            {"decimals": 0},
            "part (number, decimals: 0), other (number, decimals: 1), which must be numbers of as many decimals",
        ),
        ("arrival", {"type": "datetime"}, "must be dates of one type"),
        (
            "arrival",
            {"format": "%Y-%m"},
            "'arrival', whose format must write each date in its own way",
        ),
        (
            "total",
            {"missing": ["9"]},
            "structure.sum has 'total', whose missing or special codes must lie outside",
        ),
        (
            "part",
            {"codes": {"9": "many"}},
            "structure.sum has 'part', whose codes are no amounts",
        ),
        ("leaving", {"impute": {"distribution": "uniform"}}, "must not stand in a computed column"),
        (
            "stay",
            {"impute": {"distribution": "uniform"}},
            "'stay', which is imputed, since 'arrival', which can be missing",
        ),
    ],
)
def test_columns_that_cannot_be_added_up_are_refused(
    name: str, keys: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError) as refusal:
        changed(name, **keys)
    assert words in str(refusal.value)


STAY, TOTAL = STRUCTURE["difference"][0], STRUCTURE["sum"][0]
CHAIN = [{"column": "other", "of": "total", "since": "part"}, {**STAY, "column": "part"}]


@pytest.mark.parametrize(
    ("structure", "words"),
    [
        (
            {"sum": [{"column": "total", "of": ["part", "part"]}]},
            "has a column twice among total, part, part",
        ),
        ({"sum": [{"column": "total", "of": ["part"]}]}, "structure.sum, entry 1: of"),
        ({"sum": [{**TOTAL, "column": "gone"}]}, "names 'gone', which is not among columns"),
        (
            {"sum": [TOTAL, {"column": "part", "of": ["total", "other"]}]},
            "'part', which must be a separate column",
        ),
        ({"difference": [STAY, STAY]}, "determined, difference and sum names 'leaving' twice"),
        (
            {"difference": [STAY, {**STAY, "of": "total"}]},
            "structure.difference names 'stay' twice",
        ),
        (
            {"difference": [STAY], "ordered": [{"columns": ["arrival", "leaving"]}]},
            "names 'leaving', which rules cannot name",
        ),
        ({"difference": CHAIN}, "since: part, which must not be a difference itself"),
    ],
)
def test_rules_that_do_not_go_together_are_refused(structure: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as refusal:
        configuration(columns=COLUMNS, structure=structure)
    assert words in str(refusal.value)
