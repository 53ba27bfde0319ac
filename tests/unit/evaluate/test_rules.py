"""Records that break declared rules are counted, each kind; what is decoded from codes breaks none but what codes can break."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.domain.labels import Domain
from marginweave.evaluate.rules import add_rules, broken_rules
from marginweave.records.decode import decode_table
from tests.support.configurations import configuration

SURE = {"missing": [], "outside": "error"}
COLUMNS = {
    "sex": {"type": "category", "values": ["f", "m"], **SURE},
    "signs": {"type": "set", "values": ["a", "b", "c"], "max_values": 2},
    "age": {"type": "number", "bins": [0, 15, 50, 100], "decimals": 0},
    "town": {"type": "category", "values": ["x", "y"]},
    "region": {"type": "category", "values": ["n", "s", "w"]},
    "adult": {"type": "boolean"},
    "grade": {"type": "number", "bins": [0, 1, 5, 9], "decimals": 0},
}
STRUCTURE = {
    "determined": [
        {"column": "adult", "by": "sex", "mapping": {"f": "true"}, "default": "false"},
        {"column": "grade", "by": "age", "mapping": {"9": "5"}},
    ],
    "forbidden": [{"sex": "m", "signs": ["a", "b"]}, {"age": "[0, 15)", "signs": "c", "sex": "f"}],
}
CONFIGURATION = configuration(columns=COLUMNS, structure=STRUCTURE)
GOOD = {
    "sex": "f",
    "signs": "a",
    "age": "40",
    "town": "y",
    "region": "w",
    "adult": "true",
    "grade": "",
}


def broken(*changes: dict[str, str]) -> dict[tuple[str, str], int]:
    """Broken rules of a table of good records, each with a change."""
    rows = [{**GOOD, **change} for change in changes]
    found = broken_rules(
        pa.table({name: [row[name] for row in rows] for name in COLUMNS}), CONFIGURATION
    )
    assert all(entry.share == pytest.approx(entry.records / len(rows)) for entry in found)
    return {(entry.rule, entry.subject): entry.records for entry in found}


def test_good_records_break_nothing() -> None:
    """Every declared rule is told, with 0."""
    assert broken({}, {"signs": ""}, {"age": "9", "grade": "5"}, {"town": "", "region": ""}) == {
        ("structural zeros", ""): 0,
        ("max_values", "signs"): 0,
        ("determined", "adult"): 0,
        ("determined", "grade"): 0,
        ("never missing", "sex"): 0,
    }


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"sex": "m", "adult": "false"}, ("structural zeros", "")),
        ({"age": "9", "signs": "b;c", "grade": "5"}, ("structural zeros", "")),
        ({"signs": "a;b;c"}, ("max_values", "signs")),
        ({"adult": "no"}, ("determined", "adult")),
        ({"adult": ""}, ("determined", "adult")),
        ({"grade": "5"}, ("determined", "grade")),
        ({"age": "9"}, ("determined", "grade")),
    ],
)
def test_one_fault_breaks_one_rule(change: dict[str, str], rule: tuple[str, str]) -> None:
    """Two of five records are at fault, in one rule and no other."""
    found = broken({}, change, {}, {"signs": ""}, change)
    assert {name for name, records in found.items() if records} == {rule}
    assert found[rule] == 2


def test_a_gap_where_none_may_be() -> None:
    """What the output can never lack is looked at, whatever else depends on it."""
    config = configuration(columns={name: COLUMNS[name] for name in ("sex", "age")})
    table = pa.table({"sex": ["f", None, None], "age": ["3", None, "4"]})
    (entry,) = broken_rules(table, config)
    assert (entry.rule, entry.subject, entry.records) == ("never missing", "sex", 2)


def test_a_value_without_a_number_orders_nothing() -> None:
    """Of a code list of numbers and one letter, the letter is before and behind nothing."""
    codes = {"type": "category", "values": ["0", "1", "2", "N"]}
    ordered = configuration(
        columns={"children": codes, "people": codes},
        structure={"ordered": [{"columns": ["children", "people"]}]},
    )
    table = pa.table({"children": ["2", "N", "2", "0"], "people": ["1", "0", "N", "0"]})
    orders = [entry.records for entry in broken_rules(table, ordered) if entry.rule == "ordered"]
    assert orders == [1]


def test_determined_columns_that_the_table_lacks_are_left_out() -> None:
    """A source need not have what is computed."""
    table = pa.table({name: [GOOD[name]] for name in COLUMNS if name not in {"adult", "grade"}})
    assert not [entry for entry in broken_rules(table, CONFIGURATION) if entry.rule == "determined"]


@settings(max_examples=12)
@given(st.integers(0, 2**32 - 1), st.integers(0, 40))
def test_decoded_records_break_nothing_but_structural_zeros(seed: int, rows: int) -> None:
    """Groups, caps, determined columns and gaps hold by construction; zeros where the codes have none of them."""
    rng = np.random.default_rng(seed)
    attributes = CONFIGURATION.attributes
    domain = Domain(
        names=tuple(a.name for a in attributes), labels=tuple(a.labels for a in attributes)
    )
    codes = []
    for attribute, size in zip(attributes, domain.sizes, strict=True):
        drawn = rng.integers(0, size + attribute.optional, rows)
        if attribute.is_set:  # increasing values, then missing
            other = rng.integers(0, size + 1, rows)
            drawn = np.sort(
                np.stack([drawn, np.where(other == drawn, size, other)], axis=1), axis=1
            )
        codes.append(drawn)
    sex, signs, age = codes[0], codes[1], codes[2]
    zeros = (sex == 1) & (signs < 2).any(axis=1) | (sex == 0) & (age == 0) & (signs == 2).any(
        axis=1
    )
    table = decode_table(codes, domain, CONFIGURATION, seed)
    found = {(e.rule, e.subject): e.records for e in broken_rules(table, CONFIGURATION)}
    assert found.pop(("structural zeros", "")) == zeros.sum()
    assert set(found.values()) == {0}


@given(st.lists(st.integers(0, 6), max_size=4))
def test_blocks_break_what_the_table_breaks(cuts: list[int]) -> None:
    """Records that break a rule add up over blocks, empty ones included, and shares are of all records."""
    rows = [
        GOOD | change
        for change in ({}, {"town": "x"}, {"adult": "no"}, {}, {"town": "x", "adult": ""}, {})
    ]
    table = pa.table({name: [row[name] for row in rows] for name in COLUMNS})
    parts = [table.slice(low, high - low) for low, high in pairwise([0, *sorted(cuts), 6])]
    told = [(broken_rules(part, CONFIGURATION), part.num_rows) for part in parts]
    assert add_rules(told) == broken_rules(table, CONFIGURATION)
