"""The neighbors by which an exponential mechanism on rank scores tells most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from marginweave.schemas.budget import Stability
from marginweave.tasks.mechanisms.percentile import percentile_fraction, rank_scores, score_sensitivity

Histogram = NDArray[np.int64]
# More candidates reach more of the bound, which one of them, the best, cannot do; and each draw takes longer.
CANDIDATES = 40


@dataclass(frozen=True, kw_only=True)
class WorstPair:
    """Histograms of two neighboring tables; a chosen candidate of at most `at_most` speaks for `present`."""

    present: Histogram
    absent: Histogram
    at_most: int


def worst_pair(percentile: float, epsilon: float, stability: Stability, candidates: int = CANDIDATES) -> WorstPair:
    """Neighbors whose log odds of the lower candidates against the upper ones differ by almost epsilon.

    All records but one unit hold 1 or L combinations. The wanted rank is among those with L, but for the unit just: each
    score below L falls by the whole sensitivity, each above rises by as much. Of all L the one of largest mu, by the exact
    distribution.
    DP: arithmetic on public numbers and made-up data.
    """
    found = [_pair(percentile, stability, candidates, middle) for middle in range(2, candidates)]
    return max(found, key=lambda pair: _mu(pair, percentile, epsilon, stability))


def _pair(percentile: float, stability: Stability, candidates: int, middle: int) -> WorstPair:
    """With q = a/b: enough records that the unit is part of the distance of every score but that of `middle`."""
    fraction, moved = percentile_fraction(percentile), stability.records
    a, b = fraction.numerator, fraction.denominator
    unit, other = np.zeros(candidates + 1, np.int64), np.zeros(candidates + 1, np.int64)
    replaces = stability.neighbors == "replace-one"
    if replaces:
        total, needed = -(-b * moved // min(a, b - a)), 0
        unit[1], other[-1] = moved, moved
    elif 2 * a >= b:
        total, needed = -(-a * moved // (b - a)), 0
        other[-1] = moved
    else:
        total, needed = -(-(b - a) * moved // a), (b - a) * moved
        unit[1] = moved
    base = np.zeros(candidates + 1, np.int64)
    base[1] = (a * total - needed) // b
    base[middle] = total - base[1]
    if replaces:  # the unit is among the records that hold 1
        base[1] -= moved
    return WorstPair(present=base + unit, absent=base + other, at_most=middle - 1)


def _mu(pair: WorstPair, percentile: float, epsilon: float, stability: Stability) -> float:
    """The mu of the event, from the exact probabilities of both histograms."""
    chances = []
    for histogram in (pair.present, pair.absent):
        scores = rank_scores(histogram, percentile) * (epsilon / 2 / score_sensitivity(percentile, stability))
        weights = np.exp(scores - scores.max())
        chances.append(weights[: pair.at_most].sum() / weights.sum())
    if (np.array([pair.present, pair.absent]) < 0).any():
        return -np.inf
    return float(ndtri(chances[0]) - ndtri(chances[1]))
