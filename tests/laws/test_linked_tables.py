"""A column derived from a linked table moves with its unit alone: brute force over all small tables and their neighbors.

A unit is present with its row, or without one, and has up to two rows of the linked table, each of two values. Neighbors differ
in one unit, whose rows in both tables come, go or are replaced.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.configuration.sections import UNDECLARED
from marginweave.linked import derivations
from marginweave.linked.derivations import NO_DATE, DatedRows, units_with_near_rows
from marginweave.prepare.clean import CleanBlocks, pack_clean
from marginweave.prepare.encode import encode_blocks
from marginweave.prepare.rows import prepare_blocks
from tests.support.linked_tables import (
    Stay,
    derived_by_definition,
    derived_rows,
    hospital,
    linked_source,
)
from tests.support.samples import every

HOSPITAL = hospital()
UNITS = ("a", "b", "c")
VALUES = (
    Stay("planned", "3", "2024-02-01", "2024-02-04"),
    Stay("emergency", "9", "2024-02-20", "2024-02-29"),
)
STAYS = [stays for number in range(3) for stays in combinations_with_replacement(VALUES, number)]
STATES = [(has_row, stays) for has_row in (False, True) for stays in STAYS]
"""Whether the unit has a row in the source, and its rows in the linked table: without the former the latter are orphans."""
Unit = tuple[bool, tuple[Stay, ...]]


@cache
def outcome(table: tuple[Unit, ...]) -> dict[str, dict[str, Any]]:
    """The row of each unit of the source, as the program derives it; the rows are in an order of chance."""
    chance = random.Random(repr(table))
    patients = [(unit, "f") for unit, (has_row, _) in zip(UNITS, table, strict=True) if has_row]
    stays = [
        (chance.choice([unit, f" {unit}", f"{unit} "]), stay)
        for unit, (_, those) in zip(UNITS, table, strict=True)
        for stay in those
    ]
    stays += [(None, VALUES[1]), ("", VALUES[0])]
    chance.shuffle(patients)
    chance.shuffle(stays)
    rows = derived_rows(linked_source(HOSPITAL, patients, stays))
    return {row.pop("patient"): row for row in rows}


CASES = list(product(range(len(UNITS)), STATES))
"""A unit, and its state: in the tables of a case the other two units are in any state."""


def tables_of(place: int, state: Unit) -> Iterator[tuple[Unit, ...]]:
    for states in product(STATES, repeat=len(UNITS) - 1):
        yield (*states[:place], state, *states[place:])


@pytest.mark.parametrize(("place", "state"), every(9, CASES))
def test_a_derived_cell_is_what_the_definition_says(place: int, state: Unit) -> None:
    for table in tables_of(place, state):
        rows = outcome(table)
        assert set(rows) == {u for u, (has_row, _) in zip(UNITS, table, strict=True) if has_row}
        for unit, (has_row, stays) in zip(UNITS, table, strict=True):
            if has_row:
                assert rows[unit] == {"sex": "f", **derived_by_definition(stays)}


@pytest.mark.parametrize(("place", "state"), every(9, CASES))
def test_a_unit_changes_no_row_of_another(place: int, state: Unit) -> None:
    """Of every table and each of its neighbors, in both relations, with all rows of the unit in both tables."""
    for table in tables_of(place, state):
        rows = outcome(table)
        for changed, other in product({*range(len(UNITS))} - {place}, STATES):
            neighbor = outcome((*table[:changed], other, *table[changed + 1 :]))
            others = [unit for number, unit in enumerate(UNITS) if number != changed]
            assert [rows.get(unit) for unit in others] == [neighbor.get(unit) for unit in others]


ODD = "?"
"""A cell that is not as declared: no missing text, no value, no number, no date."""
OTHERS: dict[str, list[str | None]] = {
    "kind": ["planned", "emergency", "birth", None],
    "days": ["0", "3", "60", None],
    "admitted": ["2024-01-01", "2024-02-15", "2024-06-15", "2024-12-31", None],
    "discharged": ["2024-01-01", "2024-02-05", "2024-12-31", None],
}
"""Cells that could be in place of one: bounds, values near to others, values that meet a condition or none, a missing one."""
READ = {
    "emergency": ("kind",),
    "longest": ("kind", "days"),
    "first": ("admitted",),
    "readmitted": ("admitted", "discharged"),
}
ODD_STAYS = [
    Stay(*cells)
    for cells in product(
        ("planned", "emergency", ODD),
        ("3", "60", ODD),
        ("2024-02-10", None, ODD),
        ("2024-02-05", "2024-06-01", ODD),
    )
]


@cache
def possible(name: str, cells: tuple[tuple[str | None, ...], ...]) -> set[Any]:
    """All values of a derived column, with each other cell in place of those that are not as declared."""
    columns = READ[name]
    choices = [
        [
            OTHERS[column] if cell == ODD else [cell]
            for column, cell in zip(columns, row, strict=True)
        ]
        for row in cells
    ]
    rows = [list(product(*row)) for row in choices]
    return {
        derived_by_definition([Stay(**dict(zip(columns, row, strict=True))) for row in stays])[name]
        for stays in product(*rows)
    }


def test_a_value_is_not_as_declared_where_another_cell_could_change_it() -> None:
    """And only there: of units with one row, or two, each with any of its cells not as declared."""
    pairs = list(combinations_with_replacement(ODD_STAYS, 2))
    stays_of_units = [(stay,) for stay in ODD_STAYS] + random.Random(5).sample(pairs, 700)
    units = [str(number) for number in range(len(stays_of_units))]
    stays = [(u, stay) for u, those in zip(units, stays_of_units, strict=True) for stay in those]
    source = linked_source(HOSPITAL, [(unit, "f") for unit in units], stays)
    columns = [column for name in READ for column in (name, UNDECLARED + name)]
    rows = pa.concat_tables(source.tables(("patient", *columns))).to_pylist()
    undeclared = dict.fromkeys(READ, 0)
    for row, those in zip(rows, stays_of_units, strict=True):
        for name, read in READ.items():
            cells = tuple(tuple(getattr(stay, column) for column in read) for stay in those)
            values = possible(name, cells)
            assert row[UNDECLARED + name] == (len(values) > 1), (name, cells)
            assert row[name] == (None if len(values) > 1 else min(values)), (name, cells)
            undeclared[name] += row[UNDECLARED + name]
    assert all(50 < number < len(rows) - 50 for number in undeclared.values()), undeclared


def test_a_unit_whose_cells_are_not_as_declared_is_one_record_with_that_code(tmp_path: Any) -> None:
    """The last code, behind that of "no such row": for each way to count a unit, and whatever global missing texts are."""
    for unit, missing in product(({"max_records": 1}, {"join": True}), ([""], ["", "NA"])):
        privacy = {"epsilon": 1, "delta": 1e-6, "unit": {"column": "patient", **unit}}
        config = hospital(privacy=privacy, missing=missing)
        config = config.with_undeclared(config.undeclared)
        odd = Stay(ODD, "3", ODD, "2024-02-05")
        source = linked_source(config, [("a", "f"), ("b", "f")], [("a", odd), ("a", odd)])
        raw = list(source.tables((*config.source_names, *config.undeclared_flags)))
        blocks = prepare_blocks(raw, config, bytes(32), tmp_path)
        clean = CleanBlocks([*pack_clean(blocks)])
        tables = list(encode_blocks(clean, config, bytes(32)))
        for place, attribute in enumerate(config.attributes):
            size = len(attribute.labels)
            last = size + len(attribute.gaps) - 1
            codes = [code for table in tables for code in table.codes[place].tolist()]
            if attribute.name in READ:
                assert codes == [last, size if attribute.name in ("longest", "first") else 0]


def prepared(tables: Iterator[pa.Table], config: Any, folder: Any) -> list[tuple[Any, ...]]:
    """The records that are counted, for one choice among the rows of each subject."""
    blocks = prepare_blocks(list(tables), config, bytes(32), folder)
    return [tuple(row.values()) for block in blocks for row in block.table.to_pylist()]


@pytest.mark.parametrize(
    "unit", [{"max_records": 1}, {"max_records": 2}, {"join": True}], ids=["1", "2", "joined"]
)
def test_a_unit_moves_as_many_records_as_without_linked_tables(unit: Any, tmp_path: Any) -> None:
    """Of patients with three rows: records of others stay, and at most theta are the unit's, with the same derived cells."""
    config = hospital(privacy={"epsilon": 1, "delta": 1e-6, "unit": {"column": "patient", **unit}})
    most = unit.get("max_records", 1)
    others = [("b", "m"), ("b", "m"), ("c", "f")]
    stays_of_others = [("b", VALUES[0]), ("c", VALUES[1]), ("c", VALUES[0])]
    for number in (0, 1, 3):
        for stays in STAYS:
            patients = [*others, *([("a", "f")] * number)]
            linked = [*stays_of_others, *(("a", stay) for stay in stays)]
            source = linked_source(config, patients, linked)
            records = prepared(source.tables(config.source_names), config, tmp_path)
            without = linked_source(config, others, stays_of_others)
            expected = prepared(without.tables(config.source_names), config, tmp_path)
            more = [*records]
            for record in expected:
                more.remove(record)
            assert len(more) == min(number, most)
            assert len(set(more)) <= 1
            assert all(record[1] == len(stays) for record in more)


DAYS = st.one_of(st.none(), st.integers(-40, 40))
ROWS = st.lists(st.tuples(st.integers(0, 2), DAYS, DAYS), max_size=8)


@given(ROWS, st.integers(0, 40))
@settings(max_examples=300, deadline=None)
def test_near_rows_are_those_of_all_pairs(rows: list[tuple[int, Any, Any]], most: int) -> None:
    dates = [[NO_DATE if day is None else day for day in days] for days in zip(*rows, strict=True)]
    units, starts, ends = (np.array(column, np.int64) for column in dates or ([], [], []))
    found = units_with_near_rows(DatedRows(units.astype(np.int32), starts, ends), most)
    expected = {
        unit
        for i, (unit, start, _) in enumerate(rows)
        for j, (other, _, end) in enumerate(rows)
        if i != j and unit == other and None not in (start, end) and 0 <= end - start <= most
    }
    assert set(found.tolist()) == expected


def test_near_rows_of_more_units_than_one_number_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units are looked at after others where dates are far apart: as all at once."""
    chance = np.random.default_rng(6)
    units = chance.integers(0, 40, 300).astype(np.int32)
    starts = chance.integers(-10_000, 10_000, 300)
    rows = DatedRows(units, starts, starts + chance.integers(0, 2000, 300))
    at_once = set(units_with_near_rows(rows, 200).tolist())
    monkeypatch.setattr(derivations, "_WIDEST", 100_000)
    assert set(units_with_near_rows(rows, 200).tolist()) == at_once
    assert 10 < len(at_once) < 39
