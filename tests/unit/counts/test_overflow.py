"""What is expected of a length, the least threshold with which it is not too much, and intervals under a raised one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import binom

from marginweave.counts.candidates import CandidateSet
from marginweave.domain.combinations import Level
from marginweave.estimate.intervals import selected_interval
from marginweave.measurements import overflow
from marginweave.measurements.levels import LevelMechanism
from marginweave.measurements.overflow import Expectation, keep_most, raise_threshold
from marginweave.mechanisms.gaussian import add_noise
from marginweave.observations.combinations import LevelNoise
from tests.support.seeded_bits import SeededBits
from tests.support.tables import level_from

NOISE = LevelNoise(
    length=1, contribution_bound=1, deviation=5.0, threshold=3, private_threshold=0, candidates=9
)


def singles(sizes: tuple[int, ...]) -> Level:
    """Values with the count 1 + v + 10 j."""
    return level_from(
        {((j, v),): 1 + v + 10 * j for j, size in enumerate(sizes) for v in range(size)}, 1
    )


def level_of(counts: list[int]) -> Level:
    return level_from({((0, v),): count for v, count in enumerate(counts)}, 1)


def test_pairs_are_expected_as_if_columns_were_independent() -> None:
    """Count of the first value, shared as the values of the second column are; expected survivors are the sum of tails."""
    level = singles((2, 3))
    found = Expectation.of(level, CandidateSet.above(level, (2, 3)))
    guesses = np.outer([1, 2], np.array([11, 12, 13]) / 36).ravel()
    assert found.guesses == pytest.approx(guesses)
    assert (found.weight, found.superset) == (1.0, 6)
    assert found.survivors(3, 2.0) == pytest.approx(ndtr((guesses - 2.5) / 2).sum())


def test_triples_are_shared_beside_what_is_in_the_middle() -> None:
    """(s, a): the count of s times that of (middle, a) over all with that middle; parts outside S_2 make no candidate."""
    pairs = {
        ((0, 0), (1, 0)): 6,
        ((0, 1), (1, 0)): 4,
        ((0, 0), (2, 0)): 9,
        ((0, 0), (2, 1)): 3,
        ((0, 1), (2, 1)): 5,
    }
    pairs |= {((1, 0), (2, 0)): 2, ((1, 0), (2, 1)): 8}
    level = level_from(pairs, 2)
    found = Expectation.of(level, CandidateSet.above(level, (2, 1, 2)))
    assert found.superset == 4
    assert found.guesses.tolist() == pytest.approx([6 * 2 / 10, 6 * 8 / 10, 4 * 8 / 10])


def test_a_sample_expects_what_all_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 of 60,000 candidates, spread evenly, within 8 % of all of them."""
    sizes = (150, 100, 130)
    level = level_from({((j, v),): 1 + v * v for j, n in enumerate(sizes) for v in range(n)}, 1)
    candidates = CandidateSet.above(level, sizes)
    whole = Expectation.of(level, candidates)
    monkeypatch.setattr(overflow, "_SAMPLE", 2_000)
    sampled = Expectation.of(level, candidates)
    assert len(sampled.guesses) == 2_000
    for threshold in (1, 20, 60, 150):
        assert sampled.survivors(threshold, 20.0) == pytest.approx(
            whole.survivors(threshold, 20.0), rel=0.08
        )


@given(st.integers(1, 40), st.integers(1, 200), st.sampled_from([Fraction(1), Fraction(7)]))
@settings(deadline=None, max_examples=20)
def test_the_raised_threshold_is_the_least_that_fits(asked: int, most: int, sd: Fraction) -> None:
    level = singles((9, 11, 5))
    expectation = Expectation.of(level, CandidateSet.above(level, (9, 11, 5)))
    plain = LevelMechanism(length=2, contribution_bound=1, sigma=sd, threshold=asked)
    raised = raise_threshold(plain, expectation, most)
    assert expectation.fits(raised.threshold, float(sd), most)
    if raised.threshold == asked:
        assert raised == plain
    else:
        assert raised == replace(plain, threshold=raised.threshold, raised_from=asked)
        assert not expectation.fits(raised.threshold - 1, float(sd), most)


@given(st.lists(st.integers(3, 12), min_size=1, max_size=30), st.integers(1, 12))
@settings(deadline=None)
def test_at_most_so_many_are_kept_by_the_least_threshold(counts: list[int], most: int) -> None:
    kept, noise = keep_most(level_of(counts), NOISE, most)
    assert kept.counts.tolist() == [c for c in counts if c >= noise.threshold]
    assert len(kept) <= most or (len(counts) <= most and noise == NOISE)
    if noise != NOISE:
        assert noise.raised_from == 3 < noise.threshold
        assert sum(c >= noise.threshold - 1 for c in counts) > most


@given(st.lists(st.integers(3, 9), min_size=2, max_size=12), st.integers(1, 6), st.data())
@settings(deadline=None)
def test_a_kept_count_had_no_part_in_its_threshold(
    counts: list[int], most: int, data: st.DataObject
) -> None:
    """With any other value, one is kept exactly if it reaches the same threshold: what makes its interval right."""
    one = data.draw(st.integers(0, len(counts) - 1))
    kept, noise = keep_most(level_of(counts), NOISE, most)
    if one not in kept.values[:, 0]:
        return
    for other in range(3, 15):
        again, changed = keep_most(
            level_of([*counts[:one], other, *counts[one + 1 :]]), NOISE, most
        )
        assert (one in again.values[:, 0]) == (other >= noise.threshold)
        assert changed.threshold == noise.threshold or other < noise.threshold


def test_intervals_cover_under_a_threshold_raised_after_the_draw() -> None:
    """2,000 draws of 60 counts of which 20 at most are kept; 95 % intervals cover, false alarm 1e-6.

    Intervals with the threshold that was asked for cover fewer.
    """
    truth, bits = np.repeat(np.array([0, 4, 12], np.int64), 20), SeededBits(9)
    hits, unraised, trials = 0, 0, 0
    noisy = add_noise(np.tile(truth, 2_000), Fraction(5), bits).reshape(2_000, -1)
    for row in noisy:
        told = np.flatnonzero(row >= 3)
        level = Level(
            length=1,
            columns=np.zeros((len(told), 1), np.int64),
            values=told[:, None],
            counts=row[told],
        )
        kept, noise = keep_most(level, NOISE, 20)
        real = truth[kept.values[:, 0]]
        for threshold in (noise.threshold, NOISE.threshold):
            found = selected_interval(kept.counts, threshold, 5.0)
            inside = int(((found.low <= real) & (real <= found.high)).sum())
            hits, unraised = (
                (hits + inside, unraised)
                if threshold == noise.threshold
                else (hits, unraised + inside)
            )
        trials += len(kept)
    assert hits >= binom.ppf(1e-6, trials, 0.95)
    assert unraised < hits
