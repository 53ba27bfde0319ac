"""No unit moves a histogram of a linked table further than is charged: brute force over small tables and their neighbors.

Two patients are in any state: with a row of the source or without, and with up to three stays of two values. A third one is
always there. A patient without a row leaves a row without an id, so that the others keep their numbers, and with these their
secret words (docs/privacy.md, coupling).
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.base.arrays import Counts, Integers
from marginweave.measurements.linked_counts import LinkedHistograms, RowHistograms, UnitHistograms
from marginweave.measurements.split import plan_budget
from marginweave.mechanisms.randomness import KeyedBits, RecordWords
from marginweave.observations.linked import spread_of
from marginweave.observations.payloads import unpack_observations
from marginweave.prepare.nested import NestedCodes
from tests.support.linked_counts import (
    AT_MOST,
    KEY,
    counted_hospital,
    encoded_records,
    exact_histograms,
)
from tests.support.linked_tables import Stay
from tests.support.stage_draws import MeasuredTable, assert_noise

P, E = Stay("planned", "3"), Stay("emergency", "40")
U = Stay("unheard-of", "x")
STATES: tuple[tuple[bool, tuple[Stay, ...]], ...] = (
    (False, ()),
    (False, (P, E)),
    (True, ()),
    (True, (P,)),
    (True, (E,)),
    (True, (P, P)),
    (True, (P, E)),
    (True, (P, P, E)),
    (True, (E, E, E)),
    (True, (U,)),
    (True, (P, U, U)),
)
"""Whether a patient has a row in the source, and the stays: without the former the latter are orphans."""
TABLES = list(itertools.product(range(len(STATES)), range(len(STATES))))
PLAN = plan_budget(counted_hospital())
DRAWS = [draw for draw in PLAN.draws if isinstance(draw, LinkedHistograms)]
NAMES = [draw.name for draw in DRAWS]


@cache
def outcome(table: tuple[int, int], seed: int = 0) -> dict[str, list[Counts]]:
    """All exact histograms of a table, in steps; the order of the stays in their file is one of chance."""
    chance = random.Random(f"{table} {seed}")
    patients: list[tuple[str | None, str]] = [("c", "m")]
    stays: list[tuple[str | None, Stay]] = [("c", P), ("c", E), (None, E), ("", P)]
    for unit, state in zip("ab", table, strict=True):
        has_row, those = STATES[state]
        patients.append((unit if has_row else None, "f"))
        stays += [(chance.choice([unit, f" {unit}"]), stay) for stay in those]
    chance.shuffle(stays)
    with TemporaryDirectory() as folder:
        return exact_histograms(counted_hospital(), patients, stays, Path(folder))


def moves(one: tuple[int, int], other: tuple[int, int]) -> Iterator[tuple[str, Integers]]:
    for name in NAMES:
        for first, second in zip(outcome(one)[name], outcome(other)[name], strict=True):
            yield name, first - second


def neighbors() -> Iterator[tuple[tuple[int, int], tuple[int, int], bool]]:
    """All pairs of tables that differ in one patient, and whether the patient comes or goes."""
    for table in TABLES:
        for place, state in itertools.product(range(2), range(len(STATES))):
            other = (state, table[1]) if place == 0 else (table[0], state)
            if other > table:
                yield table, other, not (STATES[table[place]][0] and STATES[state][0])


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_no_unit_moves_a_histogram_further_than_its_sensitivity(relation: str) -> None:
    """In L1 and L2, of every histogram; the largest move is reached."""
    config = counted_hospital(relation)
    allowed = {draw.name: draw.sensitivity(config) for draw in DRAWS}
    largest = dict.fromkeys(NAMES, 0)
    for one, other, comes in neighbors():
        if relation == "add-remove" and not comes:
            continue
        for name, move in moves(one, other):
            assert int(np.abs(move).sum()) <= allowed[name].l1
            squares = int((move**2).sum())
            assert squares <= allowed[name].l2_squared
            largest[name] = max(largest[name], squares)
    assert largest == {name: allowed[name].l2_squared for name in NAMES}


def test_what_is_charged_covers_the_sensitivity() -> None:
    """Sum of S^2 / sigma^2 over the histograms of a draw is at most its mu^2, in both relations."""
    for relation in ("add-remove", "replace-one"):
        config = counted_hospital(relation)
        for draw in plan_budget(config).draws:
            if isinstance(draw, LinkedHistograms):
                squares = draw.sensitivity(config).l2_squared
                spent = sum(Fraction(squares) / sigma**2 for sigma in draw.parts(config))
                assert 0.99 * float(draw.cost.mu2) < spent <= draw.cost.mu2


def test_a_unit_adds_what_the_definition_says() -> None:
    """By units: D steps in all, of each row one of the two numbers next to D/n. By rows: 1 for each of `at_most` rows."""
    steps = DRAWS[0].steps(counted_hospital())
    for place, (has_row, stays) in enumerate(STATES):
        alone = {n: kind - without for n, kind, without in _kinds(place)}
        emergencies = sum(stay is E for stay in stays) * has_row
        number = len(stays) * has_row
        by_units = alone["linked-units-1"]
        assert int(by_units.sum()) == (steps if number else 0)
        share = steps * emergencies / max(number, 1)
        assert abs(int(by_units[1]) - share) < max(emergencies, 1)
        assert int(alone["linked-rows-1"].sum()) == min(number, AT_MOST)
        assert max(0, emergencies + min(number, AT_MOST) - number) <= alone["linked-rows-1"][1]
        assert alone["linked-rows-1"][1] <= emergencies


def _kinds(place: int) -> Iterator[tuple[str, Integers, Integers]]:
    """The histogram of the kinds of stays with a patient in a state, and without that patient."""
    config = counted_hospital()
    for draw in DRAWS:
        columns = draw.columns(config)
        kind = draw.cliques(config).index((len(columns.attributes),))
        yield draw.name, outcome((place, 0))[draw.name][kind], outcome((0, 0))[draw.name][kind]


def test_the_rest_of_a_table_does_not_matter() -> None:
    """Neither the order of stays in their file, nor orphans, nor rows without an id."""
    for table, seed in itertools.product([(7, 3), (8, 7), (2, 6)], range(1, 4)):
        for name in NAMES:
            for one, other in zip(outcome(table)[name], outcome(table, seed)[name], strict=True):
                assert np.array_equal(one, other)
    for name in NAMES:
        for one, other in zip(outcome((0, 7))[name], outcome((1, 7))[name], strict=True):
            assert np.array_equal(one, other)


LENGTHS = st.lists(st.integers(0, 70), min_size=1, max_size=6)


@given(LENGTHS, st.sampled_from([1, 2, 8, 64, 1024]))
def test_the_rows_of_a_unit_weigh_one_together(lengths: list[int], steps: int) -> None:
    rows = NestedCodes(lengths=np.array(lengths, np.int64), codes=())
    weights = _draw(UnitHistograms).weights(rows, steps)
    starts = np.cumsum([0, *lengths])
    for start, length in zip(starts, lengths, strict=False):
        of_unit = weights[start : start + length]
        assert of_unit.sum() == (steps if length else 0)
        assert all(steps // length <= weight <= -(-steps // length) for weight in of_unit)


@given(LENGTHS, st.integers(1, 9))
def test_at_most_so_many_rows_of_a_unit_are_counted(lengths: list[int], most: int) -> None:
    rows = NestedCodes(lengths=np.array(lengths, np.int64), codes=())
    weights = _draw(RowHistograms).weights(rows, most)
    starts = np.cumsum([0, *lengths])
    for start, length in zip(starts, lengths, strict=False):
        assert weights[start : start + length].tolist() == [1] * min(length, most) + [0] * (
            length - min(length, most)
        )


def _draw(kind: type[LinkedHistograms]) -> LinkedHistograms:
    return next(draw for draw in DRAWS if isinstance(draw, kind))


def test_the_order_of_a_unit_depends_on_the_unit_alone() -> None:
    """Rows keep their order whatever other records are beside theirs, as long as the record has its number."""
    bits = KeyedBits(key=KEY, purpose="rows")
    codes = np.arange(12, dtype=np.uint8)

    def order(lengths: list[int], numbers: list[int], record: int) -> list[int]:
        rows = NestedCodes(lengths=np.array(lengths), codes=(codes[: sum(lengths)],))
        shuffled = rows.shuffled(RecordWords(words=bits, records=np.array(numbers, np.int64)))
        own = shuffled.owners == record
        chosen: list[int] = shuffled.codes[0][own].astype(int).tolist()
        return [code - sum(lengths[:record]) for code in chosen]

    alone = order([5], [7], 0)
    assert sorted(alone) == [0, 1, 2, 3, 4]
    assert order([3, 5], [2, 7], 1) == alone
    assert order([1, 5, 4], [6, 7, 9], 1) == alone
    assert len({tuple(order([5], [number], 0)) for number in range(40)}) > 20


def test_each_row_is_first_equally_often() -> None:
    """Of three rows each of 30,000 records: one third of the times; false alarm 1e-6 for all at 5.1 sigmas."""
    number = 30_000
    rows = NestedCodes(
        lengths=np.full(number, 3), codes=(np.tile(np.arange(3, dtype=np.uint8), number),)
    )
    words = RecordWords(words=KeyedBits(key=KEY, purpose="rows"), records=np.arange(number))
    shuffled = rows.shuffled(words)
    first = np.bincount(shuffled.codes[0][shuffled.ranks == 0], minlength=3)
    assert first.sum() == number
    assert (abs(first - number / 3) < 5.1 * math.sqrt(number * 2 / 9)).all()


def test_chance_on_the_grid_is_as_small_as_the_interval_says() -> None:
    """Of a unit with n rows, k of them in a cell: the variance of its part of the cell is at most k/n/D (hypergeometric)."""
    for steps, n in itertools.product((1, 2, 8, 64), range(1, 90)):
        drawn = steps % n if n <= steps else steps
        for k in range(1, n + 1):
            p = k / n
            variance = drawn * p * (1 - p) * (n - drawn) / max(n - 1, 1) / steps**2
            assert variance <= spread_of(0.0, np.array([k / n]), steps) ** 2 + 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_a_histogram_has_the_planned_noise(name: str, tmp_path: Path) -> None:
    """Of 300 draws of its cells: mean and variance, in steps; false alarm 1e-6 (`assert_noise`)."""
    config = counted_hospital()
    records = encoded_records(config, [("a", "f")], [("a", P)], tmp_path)
    measured = MeasuredTable(config, records, tmp_path)
    measured.draw(name)
    draw = measured.plan.by_name[name]
    assert isinstance(draw, LinkedHistograms)
    exact = measured.exact[name].counts.tables
    drawn = [unpack_observations(measured.again(name)) for _ in range(300)]
    for place, sigma in list(enumerate(draw.parts(config)))[:: len(exact) - 1]:
        noise = np.array([seen[place].counts - exact[place] for seen in drawn])
        assert_noise(noise.astype(np.float64), float(sigma))
        assert drawn[0][place].deviation == float(sigma)
