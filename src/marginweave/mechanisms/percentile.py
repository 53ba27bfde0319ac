"""Computes the scores by which a percentile is chosen privately, in exact integers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.base.budget import Stability
from marginweave.base.errors import InputError

# A finer percentile could carry an integer score beyond 64 bits.
_FINEST = 10**6


def percentile_fraction(percentile: float) -> Fraction:
    """Return `percentile` / 100 as written: 99.9 is 999/1000. Raises InputError outside (0, 100) or beyond 4 decimals."""
    fraction = Fraction(str(percentile)) / 100
    if not 0 < fraction < 1:
        raise InputError(f"percentile ({percentile}) must lie strictly between 0 and 100")
    if fraction.denominator > _FINEST:
        raise InputError(f"percentile ({percentile}) must have at most 4 decimals")
    return fraction


def rank_scores(histogram: Integers, percentile: float) -> Integers:
    """Return scores of the candidates 1 … cap: minus the distance of the wanted rank from the ranks that a candidate covers.

    With q = a/b the percentile, F(c) the number of records with at most c, N = F(cap): the rank q N is compared with
    [F(c-1), F(c)], s(c) = -max(0, a N - b F(c), b F(c-1) - a N), in units of 1/b. (The score of
    Synthetic Data Showcase compares positions of values that occur, and moves by a multiple of n when one record is added.)

    Args:
        histogram: shape (cap + 1,), int64; entry c is the number of records with c combinations, clipped to cap.
        percentile: in (0, 100).

    Returns:
        shape (cap,), int64. Private: never to be released as it is.
    """
    fraction = percentile_fraction(percentile)
    # wanted = a N, up_to[c] = b F(c)
    up_to = np.cumsum(histogram) * fraction.denominator
    wanted = fraction.numerator * int(histogram.sum())
    distances = np.maximum(wanted - up_to[1:], up_to[:-1] - wanted)
    return -np.maximum(0, distances)


def score_sensitivity(percentile: float, stability: Stability) -> int:
    """Return how much one unit can move any of `rank_scores`: theta max(a, b - a) under add-remove, theta b under replace-one.

    One more record with v combinations raises a N by a and b F(c) by b where v <= c, so each difference moves by a or by
    a - b; maxima with 0 move no more, and theta records move it theta times as far. Of theta records that give way to theta
    others, the first may take off up to theta (b - a) and the second add up to theta a, or the other way round.
    """
    fraction = percentile_fraction(percentile)
    above = fraction.denominator - fraction.numerator
    moved = (
        fraction.denominator
        if stability.neighbors == "replace-one"
        else max(fraction.numerator, above)
    )
    return stability.records * moved


def rank_error(
    percentile: float, stability: Stability, epsilon: float, candidates: int, failure: float = 0.05
) -> float:
    """Return how many records the chosen rank is off at most, with probability 1 - failure.

    It is (2 sensitivity/epsilon) ln(m/failure), the exponential mechanism's bound (McSherry, Talwar 2007) over m candidates,
    the score in units of one record.
    DP: arithmetic on public numbers.
    """
    sensitivity = (
        score_sensitivity(percentile, stability) / percentile_fraction(percentile).denominator
    )
    return 2 * sensitivity / epsilon * math.log(candidates / failure)
