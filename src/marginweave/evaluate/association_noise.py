"""A test of independence that knows the noise: how often independent columns are as far apart as released counts are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from marginweave.base.arrays import Floats, Integers

CHANCE = 0.001
"""So often independent columns pass for associated ones."""
_TURNS = 8
"""a follows from b, then b from a, so many times: counts of independent columns are at their nearest after a few."""


@dataclass(frozen=True, kw_only=True)
class Dependence:
    """How far a pair is from independent columns: `distance`, nearly chi^2 of `freedom` degrees where they are independent.

    It is `spread` times chi^2 of fewer degrees where the noise has heavier tails: with the same mean, and the variance that
    these allow.
    """

    distance: float
    freedom: int
    spread: float = 1.0

    @property
    def p(self) -> float:
        """So often independent columns are as far apart, or farther; 1 where one of them has a single value."""
        return float(chdtrc(self.freedom / self.spread, self.distance / self.spread)) if self.freedom else 1.0


def dependence(
    rows: Integers,
    columns: Integers,
    counts: Floats,
    sigma: float,
    *,
    signed: bool = False,
    sampling: float = 1.0,
    kurtosis: float = 3.0,
) -> Dependence:
    """How far a released pair is from independent columns.

    Let n be the records, p and q the shares of the values that occur, and y = n p q + x the counts, x of a sample of n records
    with noise of variance s^2 in each cell. Each cell is weighted by what it may vary by,

        T = min over a, b of sum_ij (y_ij - a_i b_j)^2 / (m n p_i q_j + s_ij^2).

    m is 1 for records that are independent draws. Of persons with up to m records each, sums of records vary by no more than m
    times as much, so T is no larger than it would be. m is 0 where the records themselves are asked for: noise is all that
    is not known. Where counts are `signed`, as drawn, s_ij = s; where none is negative s_ij = min(s, n p_i, n q_j), as
    no count is further off than the sums of its row and its column. Cramér's V weighs rare values most, which are mostly
    noise; and what noise adds to counts that cannot be negative spoils sums, not the nearest a and b. T is nearly chi^2 with
    (r - 1)(c - 1) degrees of freedom (M. Gaboardi, H. Lim, R. Rogers, S. Vadhan, Differentially private chi-squared hypothesis
    testing, ICML 2016, section 5). Squares of noise vary by (kurtosis - 1) s^4: by 2 s^4 of normal
    noise, by 5 s^4 of Laplace noise.

    Args:
        rows: First value of each occupied cell of the pair's table, or of each, shape (cells,).
        columns: Second value, likewise.
        counts: Its count.
        signed: Whether counts may be negative.
        sigma: Standard deviation s of the noise of a cell, and whatever a count may lack by suppression.
        sampling: m.
        kurtosis: Of the noise, or of the part of it that has the largest.

    Returns:
        T. DP: post-processing.
    """
    (a, row), (b, column) = (_sums(codes, counts) for codes in (rows, columns))
    n, free = float(counts.sum()), (len(a) - 1) * (len(b) - 1)
    if not free or n <= 0:
        return Dependence(distance=0.0, freedom=0)
    # values that are equally frequent have the same weights
    (x, of_row), (y, of_column) = (np.unique(sums, return_inverse=True) for sums in (a, b))
    noise = np.full((len(x), len(y)), sigma) if signed else np.minimum(sigma, np.minimum.outer(x, y))
    weights = 1 / (sampling * np.outer(np.maximum(x, 0), np.maximum(y, 0)) / n + noise**2)
    weighted = counts * weights[of_row[row], of_column[column]]
    held = np.zeros_like(b)
    for _ in range(_TURNS):
        a = np.bincount(row, weights=weighted * b[column]) / (weights @ np.bincount(of_column, weights=b**2))[of_row]
        held = (np.bincount(of_row, weights=a**2) @ weights)[of_column]
        b = np.bincount(column, weights=weighted * a[row]) / held
    spread = 1 + (kurtosis - 3) / 2 * free / (len(a) * len(b))
    return Dependence(distance=float(weighted @ counts - held @ b**2), freedom=free, spread=spread)


def _sums(codes: Integers, counts: Floats) -> tuple[Floats, Integers]:
    """The records of each value that occurs, and the place of each cell's value among them."""
    place: Integers = np.unique(codes, return_inverse=True)[1]
    return np.bincount(place, weights=counts).astype(np.float64), place
