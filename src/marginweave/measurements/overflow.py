"""Expected number of surviving combinations of a length, and the least threshold at which they are not too many.

The expectation comes from the level below, before the draw: the survivors of length k - 1 say how often a candidate (s, a)
may occur. That is the count of s, divided among the values of the last column in proportion to their counts with the middle
columns of s. After the draw the number is known, and the threshold may be raised a second time.

DP: post-processing of released counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from marginweave.base.arrays import Floats
from marginweave.counts.candidates import CandidateSet
from marginweave.domain.combinations import Level
from marginweave.measurements.levels import LevelMechanism
from marginweave.observations.combinations import LevelNoise

# _SAMPLE members of the superset are examined, spread evenly. At most _MARKED may pass for each combination to be kept.
_SAMPLE = 1 << 18
_MARKED = 64
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Expectation:
    """Guessed counts of candidates, each of which represents `weight` members of a superset of `superset` ones."""

    guesses: Floats
    weight: float
    superset: int

    @classmethod
    def of(cls, level: Level, candidates: CandidateSet) -> Expectation:
        """Return what `level` suggests for the candidates above it: all of them, or 2^18 members of their superset.

        A sample has a place in each of 2^18 equal stretches, at the fraction i phi mod 1 of stretch i.
        """
        size = candidates.superset
        number = np.arange(min(size, _SAMPLE))
        within = np.zeros(len(number)) if size <= _SAMPLE else number * _GOLDEN % 1.0
        weight = size / max(len(number), 1)
        places = (number + within) * weight
        counts = {
            columns: level.counts[rows].astype(np.float64) for columns, rows in level.by_columns()
        }
        guesses = [np.zeros(0)]
        first = 0
        for columns in candidates.column_sets():
            universe = candidates.universe(columns)
            begin, end = np.searchsorted(places, [float(first), float(first + universe.size)])
            positions = (places[begin:end] - first).astype(np.int64)
            positions = np.clip(positions, 0, universe.size - 1)
            first += universe.size
            if not len(positions):
                continue
            pairs = universe.pairs(positions)
            allowed = candidates.allowed(columns, universe.flat(pairs))
            rows, partners = (places_of_side[allowed] for places_of_side in pairs)
            # count(s) * count(middle, a) / sum over a' of count(middle, a')
            right_counts = counts[columns[1:]]
            running = np.concatenate([[0.0], np.cumsum(right_counts)])
            start = universe.start[rows]
            stop = start + universe.before[rows + 1] - universe.before[rows]
            middle_counts = running[stop] - running[start]
            left_counts = counts[columns[:-1]]
            guesses.append(left_counts[rows] * right_counts[partners] / middle_counts)
        return cls(
            guesses=np.concatenate(guesses),
            weight=weight,
            superset=size,
        )

    def survivors(self, threshold: int, sigma: float) -> float:
        """Return how many combinations are expected to reach `threshold`, a sum of normal tails."""
        from scipy.special import ndtr  # a plan does without it

        reach = ndtr((self.guesses - threshold + 0.5) / sigma)
        return self.weight * float(reach.sum())

    def fits(
        self,
        threshold: int,
        sigma: float,
        most: int,
    ) -> bool:
        """Return whether at most `most` are expected, and few enough members of the superset pass before any are dropped."""
        from scipy.special import ndtr

        marked = self.superset * float(ndtr((0.5 - threshold) / sigma))
        return marked <= _MARKED * most and self.survivors(threshold, sigma) <= most


def raise_threshold(
    mechanism: LevelMechanism,
    expectation: Expectation,
    most: int,
) -> LevelMechanism:
    """Return the mechanism with the least threshold T, not below its present one, at which at most `most` are expected.

    DP: post-processing of released counts.
    """
    sigma = float(mechanism.sigma)
    low = mechanism.threshold
    largest_guess = float(expectation.guesses.max(initial=0.0))
    high = low + math.ceil(largest_guess + 40 * sigma)
    while low < high:
        middle = (low + high) // 2
        if expectation.fits(middle, sigma, most):
            high = middle
        else:
            low = middle + 1
    if low == mechanism.threshold:
        return mechanism
    return replace(mechanism, threshold=low, raised_from=mechanism.threshold)


def keep_most(
    level: Level,
    noise: LevelNoise,
    most: int,
) -> tuple[Level, LevelNoise]:
    """Return a drawn level, and its noise, with the least threshold that at most `most` combinations reach.

    It leaves intervals right. Given the noisy counts of all others, let t be the least threshold from the old one on that
    fewer than `most` of *them* reach. A combination that reaches t is kept, and the new threshold is t; one that does not is
    dropped. So what a kept count tells is X >= T with a T that does not depend on it, as with a threshold fixed beforehand.
    DP: post-processing of the noisy counts.
    """
    if len(level) <= most:
        return level, noise
    place = len(level) - most - 1
    highest_dropped = int(np.partition(level.counts, place)[place])
    configured = noise.threshold if noise.raised_from is None else noise.raised_from
    reach = level.counts > highest_dropped
    return level.select(reach), replace(
        noise, threshold=highest_dropped + 1, raised_from=configured
    )
