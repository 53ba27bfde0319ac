"""Intervals of counts against exact tails of the noise table, cell by cell."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.estimate.intervals import (
    Intervals,
    count_interval,
    release_intervals,
    selected_interval,
)
from marginweave.estimate.normalize import normalize
from marginweave.mechanisms.noise_table import noise_table
from marginweave.observations.combinations import Aggregates, LevelNoise
from marginweave.publish.tables import counts_table, csv_bytes, read_counts
from tests.support.configurations import PRIVATE, configuration
from tests.support.noisy_counts import domain_of
from tests.support.tables import level_from

DEVIATIONS = [Fraction(1, 2), Fraction(3, 2), Fraction(7), Fraction(300, 7)]
# The ends of an interval are where a tail is 0.025; the oracle does not decide about tails this close to it.
NEAR = Fraction(1, 10**9)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def ends(intervals: Intervals) -> list[tuple[int, int]]:
    return list(zip(intervals.low.tolist(), intervals.high.tolist(), strict=True))


@pytest.mark.parametrize("deviation", DEVIATIONS, ids=str)
@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
def test_counts_are_inside_as_far_as_the_tails_of_the_noise_reach(
    deviation: Fraction, level: float
) -> None:
    """Check P(X >= half) >= (1 - level)/2 > P(X >= half + 1), for the exact noise, on both sides and never below 0."""
    table = noise_table(deviation)
    tail = (1 - Fraction(level)) / 2
    x = 10_000
    ((low, high),) = ends(count_interval(ints(x), float(deviation), level=level))
    half = high - x
    assert x - low == half
    assert table.upper_tail(half) >= tail > table.upper_tail(half + 1)
    not_positive = count_interval(ints(-x, 0), float(deviation), level=level)
    assert ends(not_positive) == [(0, half)] * 2


@given(
    deviation=st.sampled_from(DEVIATIONS),
    threshold=st.floats(0, 6),
    above=st.floats(0, 7),
    level=st.sampled_from([0.8, 0.95, 0.99]),
)
@settings(deadline=None, max_examples=50)
def test_selected_ends_are_those_of_the_exact_conditional_tails(
    deviation: Fraction, threshold: float, above: float, level: float
) -> None:
    """Check that low is inside and the count below it is not, by P(X >= x)/P(X >= T) from the 128-bit table.

    `high` is that of `count_interval`.
    """
    table = noise_table(deviation)
    tail = (1 - Fraction(level)) / 2
    least = 1 + math.floor(threshold * deviation)
    x = least + math.floor(above * deviation)
    ((low, high),) = ends(selected_interval(ints(x), least, float(deviation), level=level))

    def upper(mean: int) -> Fraction:
        return table.upper_tail(x - mean) / table.upper_tail(least - mean)

    assert upper(low) >= tail - NEAR
    assert low == 0 or upper(low - 1) < tail + NEAR
    assert low <= x
    assert high == ends(count_interval(ints(x), float(deviation), level=level))[0][1]


COUNTS = st.lists(st.integers(0, 10**6), min_size=1, max_size=12).map(sorted)


@given(COUNTS, st.integers(1, 10**6), st.floats(0.05, 10**4), st.floats(0.5, 0.999))
@settings(deadline=None)
def test_selected_intervals_grow_with_the_count_and_begin_below_the_others(
    above: list[int], threshold: int, deviation: float, level: float
) -> None:
    """Check that both ends rise with the count, that low is not above its end without selection, and single counts."""
    counts = ints(*above) + threshold
    selected = selected_interval(counts, threshold, deviation, level=level)
    nominal = count_interval(counts, deviation, level=level)
    assert (np.diff(selected.low) >= 0).all()
    assert (np.diff(selected.high) >= 0).all()
    assert (selected.low >= 0).all()
    assert (selected.low <= nominal.low).all()
    assert (selected.high == nominal.high).all()
    single = []
    for count in counts.tolist():
        single += ends(selected_interval(ints(count), ints(threshold), deviation, level=level))
    assert ends(selected) == single


@given(COUNTS, st.floats(0, 10**4), st.floats(0.5, 0.999), st.integers(1, 50))
def test_nominal_intervals_grow_with_the_count_and_the_number_of_cells(
    counts: list[int], deviation: float, level: float, cells: int
) -> None:
    intervals = count_interval(ints(*counts), deviation, level=level, cells=cells)
    wider = count_interval(ints(*counts), deviation, level=level, cells=cells + 1)
    assert (intervals.low <= ints(*counts)).all()
    assert (ints(*counts) <= intervals.high).all()
    assert (wider.low <= intervals.low).all()
    assert (intervals.high <= wider.high).all()
    single = []
    for count in counts:
        single += ends(count_interval(ints(count), deviation, level=level, cells=cells))
    assert ends(intervals) == single


def test_far_from_the_threshold_nothing_is_left_of_it_and_far_tails_have_ends() -> None:
    """Check that the ends are nominal 50 deviations above T, and near 0 where only an extreme tail released a count."""
    assert ends(selected_interval(ints(1000), 1, 20.0)) == ends(count_interval(ints(1000), 20.0))
    ((low, high),) = ends(selected_interval(ints(10_001), 10_001, 5.6))
    assert low == 0
    assert high > 10_001
    ((low, high),) = ends(selected_interval(ints(10**9), 10**9 - 2, 0.3))
    assert 0 <= low <= 10**9 <= high <= 10**9 + 1
    assert ends(selected_interval(ints(400), 400, 100.0))[0][0] == 0


def test_a_public_number_is_its_own_interval() -> None:
    assert ends(count_interval(ints(640), 0.0)) == [(640, 640)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 3.0, 1.0), "level"),
        ((1, -1.0, 0.9), "sigma"),
        ((1, 0.0, 0.9), "sigma"),
        ((9, 3.0, 0.9), "counts"),
    ],
)
def test_impossible_intervals_are_refused(
    arguments: tuple[int, float, float], message: str
) -> None:
    threshold, deviation, level = arguments
    with pytest.raises(InputError, match=message):
        selected_interval(ints(8), threshold, deviation, level=level)


def test_cells_must_be_at_least_one() -> None:
    with pytest.raises(InputError, match="cells"):
        count_interval(ints(8), 3.0, cells=0)


PEOPLE = configuration(columns={"a": {"type": "category", "values": ["x", "y"]}, "b": PRIVATE})
NOISE = tuple(
    LevelNoise(
        length=k,
        contribution_bound=2 // k,
        deviation=10.0,
        threshold=t,
        private_threshold=p,
        candidates=None,
    )
    for k, t, p in ((1, 4, 30), (2, 12, 0))
)
FIRST = {((0, 0),): 90, ((0, 1),): 5, ((1, 0),): 33, ((1, 1),): 40, ((1, 2),): 31}


def drawn() -> Aggregates:
    """Return counts in which one pair is above a part of it, so that normalization lowers it."""
    pairs = {((0, 0), (1, 0)): 60, ((0, 1), (1, 2)): 13}
    return Aggregates(
        domain=domain_of((2, 3)),
        record_count=130,
        record_deviation=4.0,
        levels=(level_from(FIRST, 1), level_from(pairs, 2)),
        noise=NOISE,
    )


def test_intervals_of_a_release_come_from_the_draw_and_its_thresholds() -> None:
    """Check that T of the private domain applies to its values only, and that a pair lowered to 33 has the interval of 60."""
    source = drawn()
    published = normalize(source)
    first, second = release_intervals(published, source, PEOPLE)
    public = ends(selected_interval(ints(90, 5), 4, 10.0))
    private = ends(selected_interval(ints(33, 40, 31), 30, 10.0))
    assert ends(first) == [*public, *private]
    assert published.levels[1].counts.tolist() == [33, 5]
    assert ends(second) == ends(selected_interval(ints(60, 13), 12, 10.0))
    without_pairs = replace(source, levels=(source.levels[0], level_from({}, 2)))
    with pytest.raises(InputError, match="not drawn"):
        release_intervals(published, without_pairs, PEOPLE)


def test_the_published_table_has_every_interval_and_is_read_back() -> None:
    """Check the interval of the record count, too, and that the bytes are the same every time."""
    published = normalize(drawn())
    intervals = release_intervals(published, drawn(), PEOPLE)
    table = counts_table(published, intervals, 2)
    assert table.column_names[:7] == [
        "length",
        "count",
        "noise_sd",
        "low",
        "high",
        "adjusted",
        "column_1",
    ]
    assert all(row["low"] <= row["count"] <= row["high"] for row in table.to_pylist())
    assert (table.column("low")[0].as_py(), table.column("high")[0].as_py()) == (122, 138)
    aggregates, read = read_counts(table, published.domain, published.noise)
    assert [ends(i) for i in read] == [ends(i) for i in intervals]
    read_back = [level.counts.tolist() for level in aggregates.levels]
    assert read_back == [level.counts.tolist() for level in published.levels]
    assert csv_bytes(table) == csv_bytes(counts_table(aggregates, read, 2))
