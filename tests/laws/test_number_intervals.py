"""Intervals of means and quantiles from noisy counts cover the truth, and what a tally says of a table is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from marginweave.configuration.columns import NumberColumn
from marginweave.evaluate.numbers import PROBABILITIES, NumberTally, _intervals, mean_floor, quantile_interval
from marginweave.measurements.combinations import Domain
from marginweave.measurements.tables import Marginals, Measurement
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
        found = [quantile_interval(counts, bins, EDGES, SIGMA, p) for counts in noisy]
        wrong = sum(not (low <= EDGES[at] and EDGES[at + 1] <= high) for low, high in found)
        assert wrong <= most
        assert sum(high - low < EDGES[-1] for low, high in found) > 250  # they say something


def test_noise_alone_says_nothing() -> None:
    counts = np.array([3.0, -4, 1, 0, -2])
    assert mean_floor(counts, EDGES[:-1], SIGMA) == 0.0
    assert quantile_interval(counts, np.arange(5), EDGES, SIGMA, 0.5) == (0.0, 400.0)


def _stated(counts: list[int], deviation: float, **keys: Any) -> list[tuple[float | None, float | None]]:
    """Intervals of the mean and of quantiles of a column with these noisy counts of its bins, and of no missing values."""
    columns = {"x": {"type": "number", **keys}, "y": {"type": "category", "values": ["a", "b"]}}
    config = configuration(columns=columns, aggregate={"method": "marginals", "cliques": [["x", "y"]]})
    domain = Domain(names=("x", "y"), labels=(column(**keys).labels, ("a", "b")))
    one_way = Measurement(attributes=(0,), counts=np.array([*counts, 0]), deviation=deviation)
    return _intervals("x", column(**keys), Marginals(domain=domain, one_way=(one_way,), larger=()), config)


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
