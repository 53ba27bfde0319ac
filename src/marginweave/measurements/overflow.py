"""How many combinations of a length will survive, and the least threshold with which they are not too many.

Expected from the level below, before the draw: the survivors of length k - 1 say how often a candidate (s, a) may occur, as
often as s, shared among the values of the last column as they are shared beside what s has in the middle. After the draw the
number is known, and the threshold may be raised once more.

DP: post-processing of released counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marginweave.counts.candidates import CandidateSet
from marginweave.domain.combinations import Level
from marginweave.measurements.levels import LevelMechanism
from marginweave.observations.combinations import LevelNoise

# Members of the superset that are looked at, spread evenly, and passing members for each combination that may be kept.
_SAMPLE = 1 << 18
_MARKED = 64
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Expectation:
    """Guessed counts of candidates, each of which stands for `weight` members of a superset of `superset` ones."""

    guesses: NDArray[np.float64]
    weight: float
    superset: int

    @classmethod
    def of(cls, level: Level, candidates: CandidateSet) -> Expectation:
        """What `level` suggests for the candidates above it: all of them, or 2^18 members of their superset.

        A sample has a place in each of so many equal stretches, at the fraction i phi mod 1 of stretch i.
        """
        size, first = candidates.superset, 0
        number = np.arange(min(size, _SAMPLE))
        within = np.zeros(len(number)) if size <= _SAMPLE else number * _GOLDEN % 1.0
        places = (number + within) * (size / max(len(number), 1))
        counts = {columns: level.counts[rows].astype(np.float64) for columns, rows in level.by_columns()}
        guesses = []
        for columns in candidates.column_sets():
            universe = candidates.universe(columns)
            begin, end = np.searchsorted(places, [float(first), float(first + universe.size)])
            positions = np.clip((places[begin:end] - first).astype(np.int64), 0, universe.size - 1)
            first += universe.size
            if not len(positions):
                continue
            left, right = universe.pairs(positions)
            kept = candidates.allowed(columns, universe.flat((left, right)))
            left, right = left[kept], right[kept]
            others = counts[columns[1:]]
            running = np.concatenate([[0.0], np.cumsum(others)])
            stop = universe.start[left] + universe.before[left + 1] - universe.before[left]
            beside = running[stop] - running[universe.start[left]]
            guesses.append(counts[columns[:-1]][left] * others[right] / beside)
        return cls(guesses=np.concatenate([np.zeros(0), *guesses]), weight=size / max(len(number), 1), superset=size)

    def survivors(self, threshold: int, sigma: float) -> float:
        """How many combinations are expected to reach `threshold`, a sum of normal tails."""
        from scipy.special import ndtr  # a plan does without it

        return self.weight * float(ndtr((self.guesses - threshold + 0.5) / sigma).sum())

    def fits(self, threshold: int, sigma: float, most: int) -> bool:
        """Whether at most `most` are expected, and few enough members of the superset pass, of which candidates are kept."""
        from scipy.special import ndtr

        marked = self.superset * float(ndtr((0.5 - threshold) / sigma))
        return marked <= _MARKED * most and self.survivors(threshold, sigma) <= most


def raise_threshold(mechanism: LevelMechanism, expectation: Expectation, most: int) -> LevelMechanism:
    """The mechanism with the least threshold T, from its own on, with which at most `most` combinations are expected.

    DP: post-processing of released counts.
    """
    sigma = float(mechanism.sigma)
    low = mechanism.threshold
    high = low + math.ceil(float(expectation.guesses.max(initial=0.0)) + 40 * sigma)
    while low < high:
        middle = (low + high) // 2
        if expectation.fits(middle, sigma, most):
            high = middle
        else:
            low = middle + 1
    if low == mechanism.threshold:
        return mechanism
    return replace(mechanism, threshold=low, raised_from=mechanism.threshold)


def keep_most(level: Level, noise: LevelNoise, most: int) -> tuple[Level, LevelNoise]:
    """Of a drawn level what reaches the least threshold that at most `most` combinations reach, and its noise with that.

    It leaves intervals right. Given the noisy counts of all others, let t be the least threshold from the old one on that
    fewer than `most` of *them* reach. A combination that reaches t is kept, and the new threshold is t; one that does not is
    dropped. So what a kept count tells is X >= T with a T that does not depend on it, as with a threshold fixed beforehand.
    DP: post-processing of the noisy counts.
    """
    if len(level) <= most:
        return level, noise
    highest_dropped = int(np.partition(level.counts, len(level) - most - 1)[len(level) - most - 1])
    asked = noise.threshold if noise.raised_from is None else noise.raised_from
    kept = level.counts > highest_dropped
    return level.select(kept), replace(noise, threshold=highest_dropped + 1, raised_from=asked)
