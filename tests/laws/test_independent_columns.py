"""A test of independence that knows the noise: it rejects independent columns as often as it says, and finds dependent ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, chi2_contingency

from marginweave.answers.least_squares import NotMeasuredError
from marginweave.evaluate.association_noise import dependence
from tests.support.dense_least_squares import Survey

FALSE_ALARM, RELEASES = 1e-6, 1000
EVEN = np.outer(np.full(4, 1 / 4), np.full(6, 1 / 6))
STEEP = np.outer(1 / np.arange(1, 9) ** 2, 1 / np.arange(1, 7))
SMALL = np.outer([0.9, 0.1], [0.7, 0.3])


def _tests(
    shares: np.ndarray[Any, Any],
    sigma: float,
    *,
    rows: int = 2000,
    alike: int = 1,
    sampling: float = 1.0,
    laplace: bool = False,
) -> np.ndarray[Any, Any]:
    """The p of releases of a population with these shares, where `alike` rows of a person are all the same."""
    rng, found = np.random.default_rng(8), []
    row_codes, column_codes = np.indices(shares.shape).reshape(2, -1)
    for drawn in alike * rng.multinomial(rows // alike, shares.ravel() / shares.sum(), RELEASES):
        if laplace:
            p = 1 - np.exp(-np.sqrt(2) / sigma)
            noise = rng.geometric(p, drawn.shape) - rng.geometric(p, drawn.shape)
        else:
            noise = np.rint(rng.normal(0, sigma, drawn.shape))
        pair = dependence(
            row_codes,
            column_codes,
            drawn + noise,
            sigma,
            signed=True,
            sampling=sampling,
            kurtosis=6.0 if laplace else 3.0,
        )
        found.append(pair.p)
    return np.array(found)


@pytest.mark.parametrize("shares", [EVEN, STEEP, SMALL], ids=["even", "steep", "small"])
@pytest.mark.parametrize("sigma", [3.0, 30.0])
@pytest.mark.parametrize(("alike", "laplace"), [(1, False), (1, True), (4, False)])
def test_independent_columns_are_rejected_as_often_as_said(
    shares: np.ndarray[Any, Any], sigma: float, alike: int, laplace: bool
) -> None:
    """5 and 1 % of 1,000 releases at most, with rows of a person kept together too; false alarms 1e-6 each."""
    found = _tests(shares, sigma, alike=alike, sampling=alike, laplace=laplace)
    for level in (0.05, 0.01):
        assert (found < level).sum() <= binom.isf(FALSE_ALARM, RELEASES, level)


def test_what_does_not_know_noise_or_persons_rejects_independent_columns() -> None:
    """A usual chi-square of noisy counts nearly always; one that takes four rows a person for four people too often."""
    rng, naive = np.random.default_rng(8), 0
    for drawn in rng.multinomial(2000, EVEN.ravel(), 100):
        counts = np.maximum(drawn + np.rint(rng.normal(0, 30, drawn.shape)), 1).reshape(EVEN.shape)
        naive += bool(chi2_contingency(counts).pvalue < 0.05)
    assert naive > 95
    assert (_tests(EVEN, 3.0, alike=4, sampling=1.0) < 0.05).sum() > binom.isf(
        FALSE_ALARM, RELEASES, 0.05
    )


def test_dependent_columns_are_found() -> None:
    """Of columns with Cramer's V .12: nearly always where noise is small, and mostly where it is a fifth of a count."""
    shares = EVEN.copy()
    shares[:2, :3] *= 1.2
    shares[2:, 3:] *= 1.2
    shares[:2, 3:] *= 0.8
    shares[2:, :3] *= 0.8
    assert (_tests(shares, 3.0) < 0.05).mean() > 0.99
    assert (_tests(shares, 15.0) < 0.05).mean() > 0.5


def test_all_tables_with_both_columns_count_in_the_order_that_was_asked() -> None:
    """The pooled table is the sum of what all tables say, weighted by their noise, and its variance is that of its cells."""
    sets = (*(((a,), 5.0, False) for a in range(3)), ((0, 1), 9.0, False), ((0, 1, 2), 4.0, False))
    survey = Survey(sizes=(4, 3, 2), sets=sets, merged=((0, 1, 2, 3), (0, 1, 2), (0, 1)))
    rng, found = np.random.default_rng(2), []
    table = rng.integers(50, 200, (4, 3, 2)).astype(np.float64)
    for _ in range(300):
        squares = survey.measure(table, rng)
        parts, counts, variance = squares.pooled([1, 0])
        assert [part.axis for part in parts] == [1, 0]
        found.append((counts - table.sum(axis=2).T) / np.sqrt(variance))
    away = np.stack(found)
    assert np.abs(away.mean(axis=0)).max() < 5.5 / np.sqrt(300)
    assert np.mean(away**2) == pytest.approx(1, abs=0.12)  # 5 standard deviations
    with pytest.raises(NotMeasuredError):
        Survey(sizes=(4, 3, 2), sets=sets[:4], merged=survey.merged).measure(table, rng).pooled(
            [0, 2]
        )
