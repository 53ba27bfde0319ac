"""Integer tables behind zero cells: the binomial, the conditional tail, and distinct positions."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chisquare

from marginweave.base.errors import InputError
from marginweave.mechanisms.noise_table import BITS, draw_positions, draw_tail, noise_table
from marginweave.mechanisms.zero_cells import (
    binomial_table,
    passing_noise,
    passing_probability,
    passing_zeros,
    prepare_passing,
    tail_table,
)
from tests.support.seeded_bits import SeededBits

ONE = 1 << BITS


def exact_cumulative(trials: int, p: Fraction) -> list[Fraction]:
    masses = [math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(trials + 1)]
    return list(itertools.accumulate(masses))


@given(st.integers(0, 40), st.fractions(0, Fraction(199, 200)))
@settings(deadline=None, max_examples=30)
def test_a_small_binomial_is_exact_to_its_last_bits(trials: int, p: Fraction) -> None:
    """Every entry is within a few units of 2^-128 of the exact cumulative probability."""
    table = binomial_table(trials, p)
    exact = exact_cumulative(trials, p)
    for i, entry in enumerate(table.cumulative):
        assert abs(Fraction(entry, ONE) - exact[table.first + i]) <= Fraction(4, ONE)
    assert table.cumulative[-1] == ONE


@pytest.mark.parametrize(
    ("trials", "p"),
    [
        (10**6, Fraction(1, 3)),
        (2**62, Fraction(1, 2**43)),
        (10**12, Fraction(1, 10**12)),
        (10**9, Fraction(1, 10**15)),
    ],
)
def test_a_large_binomial_agrees_with_floats(trials: int, p: Fraction) -> None:
    table = binomial_table(trials, p)
    at = table.first + np.arange(0, len(table.cumulative), max(1, len(table.cumulative) // 50))
    ours = [float(Fraction(table.cumulative[int(k) - table.first], ONE)) for k in at]
    assert ours == pytest.approx(binom.cdf(at, trials, float(p)), abs=1e-6)
    mean = sum(
        (table.first + i) * Fraction(b - a, ONE)
        for i, (a, b) in enumerate(itertools.pairwise([0, *table.cumulative]))
    )
    assert float(mean / (trials * p)) == pytest.approx(1, abs=1e-25)


def test_binomials_that_are_certain() -> None:
    assert binomial_table(0, Fraction(1, 2)).draw(SeededBits(0).stream()) == 0
    assert binomial_table(9, Fraction(0)).draw(SeededBits(0).stream()) == 0
    with pytest.raises(InputError, match="probability must lie in"):
        binomial_table(3, Fraction(1))


@pytest.mark.parametrize(("sd", "least"), [("3/2", 1), ("3/2", 6), ("20", 30), ("1/3", 1)])
def test_the_tail_has_the_probabilities_of_the_noise_table(sd: str, least: int) -> None:
    """Exactly: P(X = x | X >= T) is a fraction of whole numbers of the noise table."""
    whole = noise_table(Fraction(sd))
    tail = tail_table(least, Fraction(sd))
    *entries, sentinel = tail.cumulative
    assert sentinel == ONE
    assert 2 * entries[-1] >= ONE >= entries[-1]
    for i, (low, high) in enumerate(itertools.pairwise([0, *entries])):
        mass = whole.upper_tail(least + i) - whole.upper_tail(least + i + 1)
        assert Fraction(high - low, entries[-1]) == mass / whole.upper_tail(least)


def test_draws_of_a_tail_follow_it() -> None:
    """200,000 draws, chi-square, false alarm 1e-6; a tail that is one off is 60 deviations away."""
    table = noise_table(Fraction(4))
    drawn = draw_tail(tail_table(5, Fraction(4)), 200_000, SeededBits(2).stream())
    tails = np.array([float(table.upper_tail(t)) for t in range(5, 20)])
    expected = np.append(-np.diff(tails), tails[-1]) / tails[0] * len(drawn)
    observed = np.bincount(np.minimum(drawn - 5, len(expected) - 1), minlength=len(expected))
    assert drawn.min() == 5
    assert chisquare(observed, expected).pvalue > 1e-6


def test_positions_are_uniform_sets() -> None:
    """20,000 choices of 3 among 6, chi-square over the 20 sets, false alarm 1e-6."""
    stream, seen = SeededBits(4).stream(), Counter[tuple[int, ...]]()
    for _ in range(20_000):
        seen[tuple(draw_positions(3, 6, stream).tolist())] += 1
    assert len(seen) == 20
    assert chisquare(list(seen.values())).pvalue > 1e-6


@given(st.integers(1, 2**62), st.integers(0, 50), st.integers(0, 1000))
@settings(deadline=None, max_examples=25)
def test_positions_are_distinct_and_inside(size: int, count: int, seed: int) -> None:
    drawn = draw_positions(min(count, size), size, SeededBits(seed).stream())
    assert len(drawn) == min(count, size)
    assert (np.diff(drawn) > 0).all()
    assert 0 <= drawn.min(initial=0) <= drawn.max(initial=0) < size


def test_nothing_passes_what_no_noise_reaches() -> None:
    sd = Fraction(1)
    beyond = noise_table(sd).largest + 1
    assert passing_probability(beyond, sd) == 0
    assert list(passing_zeros(10**12, beyond, sd, SeededBits(0))) == []
    prepare_passing(10**12, beyond, sd)
    assert len(passing_noise(0, beyond, sd, SeededBits(0))) == 0
    with pytest.raises(InputError, match=r"threshold \(0\) must be at least 1"):
        list(passing_zeros(10, 0, sd, SeededBits(0)))
