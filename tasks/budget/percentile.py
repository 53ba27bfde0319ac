"""Scores by which a percentile is chosen privately, in exact integers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.budget import Neighbors
from marginweave.schemas.errors import InputError

# A finer percentile could carry an integer score beyond 64 bits.
_FINEST = 10**6


def percentile_fraction(percentile: float) -> Fraction:
    """`percentile` / 100 as written: 99.9 is 999/1000. Raises InputError outside (0, 100) or beyond 4 decimals."""
    fraction = Fraction(str(percentile)) / 100
    if not 0 < fraction < 1:
        raise InputError(f"percentile ({percentile}) must lie strictly between 0 and 100")
    if fraction.denominator > _FINEST:
        raise InputError(f"percentile ({percentile}) must have at most 4 decimals")
    return fraction


def rank_scores(histogram: NDArray[np.int64], percentile: float) -> NDArray[np.int64]:
    """Score of each candidate 1 … cap: minus the distance of the wanted rank from the ranks that the candidate covers.

    With q = a/b the percentile, F(c) the number of records with at most c, N = F(cap): the rank q N is compared with
    [F(c-1), F(c)], s(c) = -max(0, a N - b F(c), b F(c-1) - a N), in units of 1/b. (SDS's score compares positions of values
    that occur, and moves by a multiple of n when one record is added: `notes/privacy.md` 4.1.)

    Args:
        histogram: shape (cap + 1,), int64; entry c is the number of records with c combinations, clipped to cap.
        percentile: in (0, 100).

    Returns:
        shape (cap,), int64. Private: never to be released as it is.
    """
    fraction = percentile_fraction(percentile)
    upto = np.cumsum(histogram) * fraction.denominator
    wanted = fraction.numerator * int(histogram.sum())
    return -np.maximum(0, np.maximum(wanted - upto[1:], upto[:-1] - wanted))


def score_sensitivity(percentile: float, neighbors: Neighbors) -> int:
    """How much one record can move any of `rank_scores`: max(a, b - a) under add-remove, b under replace-one.

    One more record with v combinations raises a N by a and b F(c) by b where v <= c, so each difference moves by a or by
    a - b; maxima with 0 move no more. A replaced record leaves N and moves F by at most 1.
    """
    fraction = percentile_fraction(percentile)
    above = fraction.denominator - fraction.numerator
    return fraction.denominator if neighbors == "replace-one" else max(fraction.numerator, above)
