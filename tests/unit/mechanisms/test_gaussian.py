"""Mechanisms: deviations rounded up, noise that is exactly the table's, refusals."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.arrays import Words
from marginweave.base.budget import Stability
from marginweave.base.errors import InputError, StageError
from marginweave.mechanisms.gaussian import add_noise, count_sigma, noise_sigma, select_percentile
from marginweave.mechanisms.noise_table import CumulativeTable, draw_signed, noise_table
from tests.support.seeded_bits import SeededBits

SCALES = [
    Fraction(1, 64),
    Fraction(3, 10),
    Fraction(1),
    Fraction(17),
    Fraction(300),
    Fraction(2500),
]
ONE_ROW = Stability(records=1, neighbors="add-remove")


class Script(SeededBits):
    """One cell whose 128 bits and sign a test writes down in advance: cell 7 of table 3."""

    uniform: int
    negative: bool

    def __init__(self, uniform: int, negative: bool = False) -> None:
        super().__init__(0)
        object.__setattr__(self, "uniform", uniform)
        object.__setattr__(self, "negative", negative)

    def words(self, table: int, start: int, count: int) -> Words:
        assert (table, start, count) == (3, 7, 1)
        return np.array([(self.uniform >> 65) << 1 | self.negative], np.uint64)

    def rest(self, table: int, cell: int) -> int:
        assert (table, cell) == (3, 7)
        return self.uniform & (2**65 - 1)


@given(
    st.floats(1e-3, 1e4),
    st.integers(1, 10**6),
    st.sampled_from(["add-remove", "replace-one"]),
    st.integers(1, 10**4),
)
def test_deviation_is_the_next_multiple_above_the_sensitivity(
    multiplier, bound, neighbors, records: int
) -> None:
    """sd >= multiplier theta sqrt(Delta (or 2 Delta)) > sd - 1/1024, decided in exact fractions; theta alone for the count."""
    unit = Stability(records=records, neighbors=neighbors)
    sd, count = noise_sigma(multiplier, bound, unit), count_sigma(multiplier, unit)
    square = (
        (Fraction(multiplier) * records) ** 2 * bound * (2 if neighbors == "replace-one" else 1)
    )
    assert count >= Fraction(multiplier) * records > count - Fraction(1, 1024)
    assert (sd * 1024).denominator == 1
    assert sd**2 >= square > (sd - Fraction(1, 1024)) ** 2


@pytest.mark.parametrize("scale", SCALES, ids=str)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_draws_compare_all_128_bits(scale: Fraction, data: st.DataObject) -> None:
    """A uniform number at, just below or anywhere near an entry selects |x| = entries at most it, with the sign of its bit."""
    table = noise_table(scale)
    entry = data.draw(st.sampled_from((0, *table.cumulative[:8], *table.cumulative[-8:])))
    offset = data.draw(
        st.one_of(st.integers(-3, 3), st.integers(-(2**66), 2**66), st.integers(-(2**127), 2**127))
    )
    uniform = min(max(entry + offset, 0), 2**128 - 1)
    negative = data.draw(st.booleans())
    drawn = add_noise(np.zeros(1, np.int64), scale, Script(uniform, negative), table=3, start=7)
    expected = sum(1 for value in table.cumulative if value <= uniform)
    assert drawn[0] == (-expected if negative else expected)


@pytest.mark.parametrize("around", [-(1 << 65), -1, 0, 1, 1 << 65])
@pytest.mark.parametrize("distance", [-(1 << 65), -1, 0, 1, 1 << 65])
def test_entries_on_the_edges_of_the_guide_are_compared_too(around: int, distance: int) -> None:
    """An entry at, just below or just above a multiple of 2^112, where the guide's ranges meet, is not overlooked."""
    entry = (12_345 << 112) + around
    table = CumulativeTable(cumulative=(entry, 1 << 128))
    uniform = entry + distance
    assert draw_signed(table, Script(uniform), 3, 7, 1).tolist() == [int(entry <= uniform)]


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_the_guided_search_finds_what_a_plain_search_does(scale: Fraction) -> None:
    """20000 draws of a known stream equal a scan of the exact table."""
    words = SeededBits(9).words(0, 0, 20_000).tolist()
    drawn = add_noise(np.zeros(20_000, np.int64), scale, SeededBits(9))
    cumulative = noise_table(scale).cumulative
    expected = [
        bisect_right(cumulative, (word >> 1) << 65) * (-1 if word & 1 else 1) for word in words
    ]
    assert np.array_equal(drawn, expected)


def test_noise_does_not_depend_on_the_counts() -> None:
    """The same bits add the same noise to any counts of any shape, across chunks, and leave the input alone."""
    counts = np.arange(300_000, dtype=np.int64).reshape(3, -1) * 7
    before = counts.copy()
    noise = add_noise(np.zeros(300_000, np.int64), Fraction(17), SeededBits(1))
    assert np.array_equal(
        add_noise(counts, Fraction(17), SeededBits(1)), counts + noise.reshape(3, -1)
    )
    assert np.array_equal(counts, before)
    assert add_noise(np.zeros((0, 4), np.int64), Fraction(1), SeededBits(1)).shape == (0, 4)


def test_counts_that_could_overflow_or_are_no_int64_are_refused() -> None:
    """No wrapping, no silent casts, and no count in the message."""
    for extreme in (np.iinfo(np.int64).max, np.iinfo(np.int64).min):
        with pytest.raises(StageError, match=r"^counts with noise must fit 64 bits$"):
            add_noise(np.array([0, extreme]), Fraction(3), SeededBits(1))
    near = np.iinfo(np.int64).max - noise_table(Fraction(3)).largest
    assert add_noise(np.array([near]), Fraction(3), SeededBits(1)).shape == (1,)
    with pytest.raises(InputError, match=r"counts \(float64\) must be int64"):
        add_noise(np.zeros(2), Fraction(1), SeededBits(1))  # pyright: ignore[reportArgumentType]  # the fault


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1, ONE_ROW), "multiplier"),
        ((float("nan"), 1, ONE_ROW), "multiplier"),
        ((1.0, 0, ONE_ROW), "contribution_bound"),
    ],
)
def test_impossible_deviations_are_refused(arguments, message: str) -> None:
    """Multiplier positive and finite, bound at least 1."""
    with pytest.raises(InputError, match=message):
        noise_sigma(*arguments)


@pytest.mark.parametrize(
    ("histogram", "percentile", "epsilon", "message"),
    [
        (np.array([1.0, 2.0]), 99, 1.0, "histogram"),
        (np.array([3]), 99, 1.0, "histogram"),
        (np.array([1, 2]), 99, 0.0, "epsilon"),
        (np.array([1, 2]), 100, 1.0, "strictly between 0 and 100"),
        (np.array([1, 2]), 99.00001, 1.0, "at most 4 decimals"),
    ],
)
def test_impossible_selections_are_refused(histogram, percentile, epsilon, message: str) -> None:
    """Every parameter has its rule."""
    with pytest.raises(InputError, match=message):
        select_percentile(histogram, percentile, epsilon, ONE_ROW, SeededBits(1))


def test_the_only_candidate_is_chosen() -> None:
    """With a public cap of 1 the answer is 1, whatever the data."""
    assert select_percentile(np.array([5, 9]), 99, 0.1, ONE_ROW, SeededBits(1)) == 1
    assert (
        select_percentile(
            np.array([0, 0]), 99, 0.1, Stability(records=3, neighbors="replace-one"), SeededBits(1)
        )
        == 1
    )
