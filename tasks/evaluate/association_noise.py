"""How strongly independent columns seem to be associated, by chance and by the noise of the released counts alone."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import chdtri

from marginweave.schemas.released.aggregates import IntArray
from marginweave.tasks.evaluate.cells import FloatArray

CHANCE = 0.001
"""So often independent columns pass for associated ones."""


def noise_limit(rows: IntArray, columns: IntArray, counts: FloatArray, sigma: float) -> float:
    """The Cramér's V that a released pair of independent columns exceeds once in a thousand times.

    Let n be the records, p and q the shares of the values that occur, and y = n p q + x the
    counts, x of a sample of n records with noise of variance s^2 in each cell. Then n V^2 (min(r, c) - 1) = chi^2, and to first
    order chi^2 = |B x / sqrt(n p q)|^2, B the projection that takes the sums of rows and columns away. It is a weighted sum of
    chi^2 of one degree of freedom (M. Gaboardi, H. Lim, R. Rogers, S. Vadhan, Differentially private chi-squared hypothesis
    testing, ICML 2016, section 5), here with the mean E = sum w and sum of squares F = sum w^2 rc / ((r - 1)(c - 1)) of

        w_ij = (1 - p_i)(1 - q_j) (1 + min(s, n p_i, n q_j)^2 / (n p_i q_j)),

    as no count is further off than the sums of its row and its column, and its quantile is F/E times that of chi^2 with E^2/F
    degrees of freedom (F. Satterthwaite 1946), one at least.

    Args:
        rows: First value of each occupied cell of the pair's table, shape (cells,).
        columns: Second value, likewise.
        counts: Its count, above 0.
        sigma: Standard deviation s of the noise of a cell, and whatever a count may lack by suppression.

    Returns:
        The limit of V, infinite where one of them has a single value. DP: post-processing.
    """
    by_row, by_column = (np.bincount(codes, weights=counts) for codes in (rows, columns))
    by_row, by_column, n = by_row[by_row > 0], by_column[by_column > 0], float(counts.sum())
    r, c = len(by_row), len(by_column)
    if min(r, c) < 2:
        return math.inf
    # values that are equally frequent are one, so many times
    (x, times_x), (y, times_y) = (np.unique(sums, return_counts=True) for sums in (by_row, by_column))
    least = np.minimum(sigma, np.minimum.outer(x, y))
    w = np.outer(1 - x / n, 1 - y / n) * (1 + n * least**2 / np.outer(x, y))
    mean = float(times_x @ w @ times_y)
    squares = min(float(times_x @ w**2 @ times_y) * r * c / ((r - 1) * (c - 1)), mean**2)
    quantile = squares / mean * float(chdtri(mean**2 / squares, CHANCE))
    return math.sqrt(quantile / n / (min(r, c) - 1))
