"""How strongly independent columns seem to be associated, by chance and by the noise of the released counts alone."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import chdtri

from marginweave.evaluate.cells import FloatArray
from marginweave.measurements.combinations import IntArray

CHANCE = 0.001
"""So often independent columns pass for associated ones."""
_TURNS = 8
"""a follows from b, then b from a, so many times: counts of independent columns are at their nearest after a few."""


def dependence(
    rows: IntArray, columns: IntArray, counts: FloatArray, sigma: float, *, signed: bool = False
) -> tuple[float, float]:
    """How far a released pair is from independent columns, and what those exceed once in a thousand times.

    Let n be the records, p and q the shares of the values that occur, and y = n p q + x the counts, x of a sample of n records
    with noise of variance s^2 in each cell. Each cell is weighted by the noise it may have,

        T = min over a, b of sum_ij (y_ij - a_i b_j)^2 / (n p_i q_j + s_ij^2).

    Where counts are `signed`, as they were drawn, s_ij = s; where none is negative s_ij = min(s, n p_i, n q_j), as no count is
    further off than the sums of its row and its column. Cramér's V weighs rare values most, which are mostly
    noise; and what noise adds to counts that cannot be negative spoils sums, not the nearest a and b. T is nearly chi^2 with
    (r - 1)(c - 1) degrees of freedom (M. Gaboardi, H. Lim, R. Rogers, S. Vadhan, Differentially private chi-squared hypothesis
    testing, ICML 2016, section 5).

    Args:
        rows: First value of each occupied cell of the pair's table, or of each, shape (cells,).
        columns: Second value, likewise.
        counts: Its count.
        signed: Whether counts may be negative.
        sigma: Standard deviation s of the noise of a cell, and whatever a count may lack by suppression.

    Returns:
        T and the limit, which is infinite where one of them has a single value. DP: post-processing.
    """
    (a, row), (b, column) = (_sums(codes, counts) for codes in (rows, columns))
    n, free = float(counts.sum()), (len(a) - 1) * (len(b) - 1)
    if not free or n <= 0:
        return 0.0, math.inf
    # values that are equally frequent have the same weights
    (x, of_row), (y, of_column) = (np.unique(sums, return_inverse=True) for sums in (a, b))
    noise = np.full((len(x), len(y)), sigma) if signed else np.minimum(sigma, np.minimum.outer(x, y))
    weights = 1 / (np.outer(np.maximum(x, 0), np.maximum(y, 0)) / n + noise**2)
    weighted = counts * weights[of_row[row], of_column[column]]
    held = np.zeros_like(b)
    for _ in range(_TURNS):
        a = np.bincount(row, weights=weighted * b[column]) / (weights @ np.bincount(of_column, weights=b**2))[of_row]
        held = (np.bincount(of_row, weights=a**2) @ weights)[of_column]
        b = np.bincount(column, weights=weighted * a[row]) / held
    return float(weighted @ counts - held @ b**2), float(chdtri(free, CHANCE))


def _sums(codes: IntArray, counts: FloatArray) -> tuple[FloatArray, IntArray]:
    """The records of each value that occurs, and the place of each cell's value among them."""
    place: IntArray = np.unique(codes, return_inverse=True)[1]
    return np.bincount(place, weights=counts).astype(np.float64), place
