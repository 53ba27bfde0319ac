"""Intervals of means and quantiles from noisy counts cover the truth, and what a tally says of a table is right."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import binom

from marginweave.columns import values_of
from marginweave.configuration.columns import NumberColumn
from marginweave.domain.labels import Domain
from marginweave.evaluate.numbers import (
    PROBABILITIES,
    NumberTally,
    _intervals,
    mean_floor,
    quantile_interval,
)
from marginweave.observations.tables import Marginals, Observation
from tests.support.configurations import configuration

EDGES = np.array([0.0, 2, 7, 30, 100, 400])
EXACT = np.array([60.0, 90, 40, 8, 2])
SIGMA, TRIES = 6.0, 4000
# Of 4,000 intervals so many are wrong at one end at most, but with probability 2.5e-7; each end is wrong with 0.025.
MOST = int(binom.isf(2.5e-7, TRIES, 0.025))


def column(**keys: Any) -> NumberColumn:
    found = configuration(columns={"x": {"type": "number", **keys}}).columns["x"]
    assert isinstance(found, NumberColumn)
    return found


def test_the_mean_is_covered_and_no_more_than_that() -> None:
    """Values at the lower edges, where the lower end is exact: as many misses as told, to seven standard errors."""
    rng, low = np.random.default_rng(5), EDGES[:-1]
    truth = EXACT @ low / EXACT.sum()
    noisy = EXACT + rng.normal(0, SIGMA, (TRIES, len(EXACT)))
    missed = sum(mean_floor(counts, low, SIGMA) > truth for counts in noisy)
    assert binom.ppf(2.5e-7, TRIES, 0.025) <= missed <= MOST


def test_every_quantile_is_covered() -> None:
    """The interval has the bin of the quantile; its ends are wrong as often as told at most: false alarm 5e-7 in all."""
    rng, bins = np.random.default_rng(6), np.arange(len(EXACT))
    noisy = EXACT + rng.normal(0, SIGMA, (500, len(EXACT)))
    most = int(binom.isf(1e-7, 500, 0.05))
    for p in PROBABILITIES:
        at = int(np.searchsorted(np.cumsum(EXACT), p * EXACT.sum()))
        found = [
            quantile_interval(counts, bins, (EDGES[:-1], EDGES[1:]), SIGMA, p) for counts in noisy
        ]
        wrong = sum(not (low <= EDGES[at] and EDGES[at + 1] <= high) for low, high in found)
        assert wrong <= most
        assert sum(high - low < EDGES[-1] for low, high in found) > 250  # they say something


def test_noise_alone_says_nothing() -> None:
    counts = np.array([3.0, -4, 1, 0, -2])
    assert mean_floor(counts, EDGES[:-1], SIGMA) == 0.0
    assert quantile_interval(counts, np.arange(5), (EDGES[:-1], EDGES[1:]), SIGMA, 0.5) == (
        0.0,
        400.0,
    )


def _stated(
    counts: list[int], deviation: float, **keys: Any
) -> list[tuple[float | None, float | None]]:
    """Intervals of the mean and of quantiles of a column with these noisy counts of its bins, and of no missing values."""
    columns = {"x": {"type": "number", **keys}, "y": {"type": "category", "values": ["a", "b"]}}
    config = configuration(
        columns=columns, aggregate={"method": "marginals", "cliques": [["x", "y"]]}
    )
    domain = Domain(names=("x", "y"), labels=(column(**keys).labels, ("a", "b")))
    one_way = Observation(attributes=(0,), counts=np.array([*counts, 0]), deviation=deviation)
    return _intervals(
        "x", column(**keys), Marginals(domain=domain, one_way=(one_way,), larger=()), config
    )


def test_what_open_bins_leave_unknown_has_no_interval() -> None:
    """A fifth of the records lies below the edges and a fifth above: deciles have one end, the mean none, the median both."""
    mean, *quantiles = _stated([200, 350, 250, 200], 1.0, bins=[0, 50, 100], outer="open")
    assert mean == (None, None)
    assert quantiles == [(None, 0.0), (0.0, 50.0), (0.0, 50.0), (50.0, 100.0), (100.0, None)]


def test_a_mean_whose_ends_noise_takes_past_each_other_has_no_interval() -> None:
    """A wide bin of -300 records, by noise alone: its upper end counts less than its lower one."""
    mean, *_ = _stated([3000, -300, 3000], 20.0, bounds=[0, 101], bins=[0, 5, 100, 101])
    assert mean == (None, None)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=60), st.integers(1, 5))
def test_a_tally_is_exact_on_a_small_grid(numbers: list[int], blocks: int) -> None:
    """Oracle: NumPy's mean and its inverted distribution function; blocks and gaps make no difference."""
    tally = NumberTally.of(column(bounds=[0, 300], bins=[0, 3, 90, 300], decimals=0))
    for part in np.array_split(np.array(numbers), blocks):
        tally.add(pa.array([*part.tolist(), None], pa.int64()))
    mean, *quantiles = tally.statistics()
    assert mean is not None
    assert np.isclose(mean, np.mean(numbers))
    assert quantiles == np.quantile(numbers, PROBABILITIES, method="inverted_cdf").tolist()


@st.composite
def _edges_on_a_grid(draw: st.DrawFn) -> tuple[int, list[int]]:
    """Decimals, and edges in steps of their grid."""
    edges = draw(st.lists(st.integers(-3000, 3000), min_size=2, max_size=6, unique=True))
    return draw(st.integers(0, 3)), sorted(edges)


@given(_edges_on_a_grid())
@example((2, [7, 100]))  # 0.07 * 100 is more than 7
def test_a_bin_holds_the_numbers_of_its_decimals(drawn: tuple[int, list[int]]) -> None:
    """Least, largest and mean of all of them, as listed one by one: of a closed bin its upper edge too."""
    decimals, edges = drawn
    scale = 10**decimals
    found = column(bins=[edge / scale for edge in edges], decimals=decimals)
    for place, (first, after) in enumerate(pairwise(edges)):
        held = np.arange(first, after + (place == len(edges) - 2)) / scale
        assert found.number_limits[place] == (held[0], held[-1])
        assert np.isclose(sum(found.number_limits[place]) / 2, held.mean(), rtol=0, atol=1e-9)


def test_ends_stay_where_nothing_says_what_lies_inside() -> None:
    """Without decimals, of open bins, and of bounds between two numbers, to which numbers are clamped."""
    assert column(bins=[0, 10, 20]).number_limits == ((0, 10), (10, 20))
    assert column(bins=[0, 10], outer="open", decimals=0).number_limits == (
        (-np.inf, -1),
        (0, 9),
        (10, np.inf),
    )
    assert column(bins=[0.5, 10, 20.5], decimals=0).number_limits == ((0.5, 9), (10, 20.5))


def test_whole_numbers_are_not_half_a_unit_too_high() -> None:
    """Of 0 to 29 in thirds, 1,000 records each, with next to no noise: the mean is 14.5, and its ends are the bins' own."""
    mean, *quantiles = _stated([1000, 1000, 1000], 1e-6, bins=[0, 10, 20, 29], decimals=0)
    assert mean[0] is not None
    assert mean[1] is not None
    assert abs(mean[0] - 10) < 0.01
    # the last bin ends at 29: (9 + 19 + 29) / 3, and the noise of rounding
    assert abs(mean[1] - 19) < 0.35
    assert quantiles[0] == (0.0, 9.0)


@given(st.lists(st.floats(-5, 40, allow_nan=False), min_size=1, max_size=20), st.integers(0, 3))
def test_every_number_that_is_counted_is_one_that_its_bin_holds(
    numbers: list[float], decimals: int
) -> None:
    """Also a cell with more decimals than are declared: it is rounded, so that no interval leaves it out."""
    found = column(bins=[0, 10, 20, 29], bounds=[0, 30], decimals=decimals, outer="open")
    values = values_of(found, ())
    cleaned = values.clean(pa.array(numbers))
    for number, code in zip(
        cleaned.to_pylist(), values.encode(cleaned, None).tolist(), strict=True
    ):
        low, high = found.number_limits[code]
        assert low <= number <= high
        assert number == round(number, decimals)
