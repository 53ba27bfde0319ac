"""The noise of the production source: the right distribution, and never the same twice. Tests are statistical."""

from __future__ import annotations

import multiprocessing
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from marginweave.mechanisms.gaussian import add_noise
from marginweave.mechanisms.randomness import fresh_bits

DRAWS = 1_000_000
FALSE_ALARM = 1e-6


def draws(scale: Fraction) -> np.ndarray:
    return add_noise(np.zeros(DRAWS, np.int64), scale, fresh_bits())


def binned(scale: float, least: float) -> tuple[np.ndarray, np.ndarray]:
    """Bin edges between integers and exact probabilities, from the normal distribution function, not from the table."""
    reach = int(6 * scale) + 2
    edges = np.arange(-reach, reach + 2) - 0.5
    width = max(1, int(scale / 8))
    edges = edges[::width]
    mass = np.diff(np.concatenate(([0.0], ndtr(edges / scale), [1.0])))
    keep = [0]
    total = 0.0
    for i, m in enumerate(mass[:-1]):
        total += m * DRAWS
        if total >= least:
            keep.append(i + 1)
            total = 0.0
    if (1 - ndtr(edges[keep[-1] - 1] / scale)) * DRAWS < least:
        keep.pop()
    cuts = edges[np.array(keep[1:]) - 1]
    return cuts, np.diff(np.concatenate(([0.0], ndtr(cuts / scale), [1.0])))


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(3), Fraction(20), Fraction(300)], ids=str)
def test_noise_has_the_exact_distribution(scale: Fraction) -> None:
    """Chi-square of 1e6 draws against the rounded normal, both signs apart: false alarm 1e-6."""
    cuts, probabilities = binned(float(scale), 50)
    observed = np.bincount(np.searchsorted(cuts, draws(scale)), minlength=len(probabilities))
    assert len(probabilities) > 8
    assert stats.chisquare(observed, probabilities * DRAWS).pvalue > FALSE_ALARM


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(3), Fraction(20), Fraction(300)], ids=str)
def test_the_goodness_of_fit_would_see_one_percent(scale: Fraction) -> None:
    """Noise that is 1 % too small fails the same test by far: it has power at every scale."""
    cuts, probabilities = binned(float(scale), 50)
    observed = np.bincount(
        np.searchsorted(cuts, draws(scale * Fraction(99, 100))), minlength=len(probabilities)
    )
    assert stats.chisquare(observed, probabilities * DRAWS).pvalue < FALSE_ALARM / 1000


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(2), Fraction(300)], ids=str)
def test_noise_has_mean_zero_and_its_variance(scale: Fraction) -> None:
    """Mean within 5.1 standard errors, mean square within 5.1 of its own, exact values from the normal: 1e-6 together."""
    x = draws(scale).astype(float)
    j = np.arange(-int(12 * scale) - 3, int(12 * scale) + 4)
    mass = ndtr((j + 0.5) / float(scale)) - ndtr((j - 0.5) / float(scale))
    second, fourth = mass @ j**2, mass @ j.astype(float) ** 4
    assert abs(x.mean()) < 5.1 * np.sqrt(second / DRAWS)
    assert abs((x**2).mean() - second) < 5.1 * np.sqrt((fourth - second**2) / DRAWS)


def test_cells_and_calls_are_independent() -> None:
    """Neighboring cells, cells a chunk apart, and two calls: |r| < 5.2/sqrt(N), false alarm 2e-7 for each of 4."""
    first, second = draws(Fraction(20)).astype(float), draws(Fraction(20)).astype(float)
    pairs = [(first[1:], first[:-1]), (first[1 << 17 :], first[: -(1 << 17)]), (first, second)]
    pairs.append((np.abs(first[1:]), np.abs(first[:-1])))
    for left, right in pairs:
        assert abs(np.corrcoef(left, right)[0, 1]) < 5.2 / np.sqrt(len(left))


def test_two_releases_differ_by_twice_the_variance() -> None:
    """The same counts twice never share noise: the difference has variance 2 sd^2 within 5.1 standard errors (5e-7)."""
    counts = np.full(DRAWS, 1234)
    difference = (
        add_noise(counts, Fraction(30), fresh_bits())
        - add_noise(counts, Fraction(30), fresh_bits())
    ).astype(float)
    expected = 2 * (900 + 1 / 12)
    assert abs(difference.var() / expected - 1) < 5.1 * np.sqrt(2 / DRAWS)


def _first_draws(_: int) -> tuple[int, ...]:
    return tuple(add_noise(np.zeros(12, np.int64), Fraction(300), fresh_bits()).tolist())


def test_forked_workers_never_share_noise() -> None:
    """First draws of 8 tasks in 4 forks and of the parent are pairwise distinct: a chance equality is below 1e-35."""
    add_noise(np.zeros(1, np.int64), Fraction(300), fresh_bits())
    with multiprocessing.get_context("fork").Pool(4) as pool:
        seen = [*pool.map(_first_draws, range(8), chunksize=1), _first_draws(0)]
    assert len(set(seen)) == len(seen)
