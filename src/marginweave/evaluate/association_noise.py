"""A test of independence that knows the noise: how often independent columns depend as much as released counts do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from marginweave.base.arrays import Floats, Integers

CHANCE = 0.001
"""The probability with which any of all tested pairs passes for associated, where all are of independent columns."""
_TURNS = 8
"""Number of times that a follows from b, and then b from a: the distance is at its minimum after a few."""


def pair_chance(pairs: int) -> float:
    """Return the probability with which each of so many tested pairs passes, so that any of them does with `CHANCE`."""
    return CHANCE / max(pairs, 1)


@dataclass(frozen=True, kw_only=True)
class Dependence:
    """The distance of a pair from independent columns, nearly chi^2 of `freedom` degrees where they are independent.

    Where the noise has heavier tails, it is `spread` times chi^2 of fewer degrees: with the same mean, and the variance that
    these tails allow.
    """

    distance: float
    freedom: int
    spread: float = 1.0

    @property
    def p(self) -> float:
        """Probability that independent columns have this distance, or more; 1 where one of them has a single value."""
        if not self.freedom:
            return 1.0
        degrees = self.freedom / self.spread
        return float(chdtrc(degrees, self.distance / self.spread))


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
    """Return the distance of a released pair from independent columns.

    Let n be the records, p and q the shares of the values that occur, and y = n p q + x the counts, x of a sample of n records
    with noise of variance s^2 in each cell. Each cell is weighted by what it may vary by,

        T = min over a, b of sum_ij (y_ij - a_i b_j)^2 / (m n p_i q_j + s_ij^2).

    m is 1 for records that are independent draws. Of persons with up to m records each, sums of records vary by no more than m
    times as much, so T is no larger than it would be. m is 0 where the records themselves are of interest: then only the noise
    is unknown. Where counts are `signed`, as drawn, s_ij = s; where none is negative s_ij = min(s, n p_i, n q_j), as
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
    a, row_places = _sums(rows, counts)
    b, column_places = _sums(columns, counts)
    n = float(counts.sum())
    freedom = (len(a) - 1) * (len(b) - 1)
    if not freedom or n <= 0:
        return Dependence(distance=0.0, freedom=0)
    # values that are equally frequent have the same weights
    row_sums, sum_of_row = np.unique(a, return_inverse=True)
    column_sums, sum_of_column = np.unique(b, return_inverse=True)
    if signed:
        noise = np.full((len(row_sums), len(column_sums)), sigma)
    else:
        noise = np.minimum(sigma, np.minimum.outer(row_sums, column_sums))
    # w_ij = 1 / (m n p_i q_j + s_ij^2), where n p_i and n q_j are the sums of rows and of columns
    records = np.outer(np.maximum(row_sums, 0), np.maximum(column_sums, 0))
    weights = 1 / (sampling * records / n + noise**2)
    weighted = counts * weights[sum_of_row[row_places], sum_of_column[column_places]]
    # a_i = sum_j w_ij y_ij b_j / sum_j w_ij b_j^2, and b_j likewise
    b_weights = np.zeros_like(b)
    for _ in range(_TURNS):
        a_weights = (weights @ np.bincount(sum_of_column, weights=b**2))[sum_of_row]
        a = np.bincount(row_places, weights=weighted * b[column_places]) / a_weights
        b_weights = (np.bincount(sum_of_row, weights=a**2) @ weights)[sum_of_column]
        b = np.bincount(column_places, weights=weighted * a[row_places]) / b_weights
    # at the minimum T = sum_ij w_ij y_ij^2 - sum_j b_j^2 sum_i w_ij a_i^2
    distance = float(weighted @ counts - b_weights @ b**2)
    spread = 1 + (kurtosis - 3) / 2 * freedom / (len(a) * len(b))
    return Dependence(distance=distance, freedom=freedom, spread=spread)


def _sums(codes: Integers, counts: Floats) -> tuple[Floats, Integers]:
    """Return the records of each value that occurs, and the place of each cell's value among these."""
    places: Integers = np.unique(codes, return_inverse=True)[1]
    sums = np.bincount(places, weights=counts).astype(np.float64)
    return sums, places
