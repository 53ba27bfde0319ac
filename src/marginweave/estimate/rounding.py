"""Counts from shares: whole numbers that add up to a total, and the nearest nonnegative counts (projection on a simplex)."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.base.arrays import Floats, Integers
from marginweave.observations.tables import CensoredObservation, Observation


def apportion(shares: Floats, number: int, generator: np.random.Generator) -> Integers:
    """How often each value comes among `number`: share times number, rounded down or up, adding up to `number`.

    Systematic sampling (Madow 1949): one uniform u, floor(C_i + u) - floor(C_i-1 + u) for the running sum C; the
    expectation is exact. DP: post-processing.
    """
    relative = shares / shares.max()  # the sum of the smallest numbers there are has no finite reciprocal
    reached = np.cumsum(relative) * (number / relative.sum())
    reached[np.flatnonzero(shares)[-1] :] = number  # a share of 0 stays 0, whatever the rounding of the sum
    ends = np.floor(np.minimum(reached, number) + generator.random()).astype(np.int64)
    return np.asarray(np.diff(np.minimum(ends, number), prepend=0))


def round_shares(shares: Floats, numbers: Integers, generator: np.random.Generator) -> Integers:
    """Whole numbers near `shares[k] * numbers[k]`, shape (components, cells), row k adding up to `numbers[k]`.

    Each is rounded down or up. Row after row, in random order, what is rounded up are the cells that the rows so far have left
    farthest behind, so that the sums over the rows are near theirs, too (error diffusion, begun by chance). DP:
    post-processing.
    """
    counts = np.zeros(shares.shape, np.int64)
    behind: Floats = np.asarray(generator.random(shares.shape[1]) - 0.5)
    _diffuse(shares, numbers, generator.permutation(np.flatnonzero(numbers)), behind, counts)
    return counts


@njit(cache=True, nogil=True)
def _diffuse(shares: Floats, numbers: Integers, order: Integers, behind: Floats, counts: Integers) -> None:
    """Fill in rows of `counts` in an order, and how far behind each cell is."""
    for k in order:
        more = numbers[k]
        keys = np.full(len(behind), np.inf)
        for i in range(len(behind)):
            expected = shares[k, i] * numbers[k]
            counts[k, i] = int(expected)
            behind[i] += expected - counts[k, i]
            more -= counts[k, i]
            if expected > counts[k, i]:
                keys[i] = -behind[i]
        for i in np.argsort(keys, kind="mergesort")[: max(more, 0)]:  # stable
            counts[k, i] += 1
            behind[i] -= 1


def project_simplex(values: Floats, total: float) -> Floats:
    """The nearest point with no negative entry and the sum `total` >= 0: max(values - t, 0), t found by `to_simplex`.

    Any shape, float64. DP: post-processing.
    """
    nearest = np.array(values, np.float64, order="C")
    to_simplex(nearest.reshape(-1), float(total))
    return nearest


@njit(cache=True, nogil=True)
def to_simplex(values: NDArray[np.floating], total: float) -> None:  # pragma: no cover - compiled
    """The same in place, for one axis.

    Michelot 1986: of the entries that are left, as many as lie below t = (their sum - total) / their number go, until none
    does; exact, and few passes where few entries are negative. A total that is not positive leaves zeros. DP: post-processing.
    """
    if values.size == 0 or total <= 0:
        values[:] = 0.0
        return
    values -= values.max()  # changes nothing but the rounding: the largest entry always stays positive
    left, threshold = values.size + 1, -np.inf
    while True:
        number, added = 0, 0.0
        for value in values:
            if value > threshold:
                number += 1
                added += value
        if number >= left:
            break
        left, threshold = number, (added - total) / number
    for i in range(values.size):
        values[i] = max(values[i] - threshold, 0.0)


def nearest_column(measurement: Observation, likely: Floats, total: float) -> Floats:
    """Counts of one attribute that are not negative and add up to `total`, as near as can be to those that are known.

    Of a suppressed code as many as are `likely`, but fewer than its threshold; codes that were never counted share what is
    left, in proportion. Shapes (codes,). DP: post-processing.
    """
    counts: Floats = np.asarray(measurement.counts * measurement.scale(total), np.float64)
    if isinstance(measurement, CensoredObservation):  # always complete
        counts[measurement.hidden] = np.clip(likely[measurement.hidden], 0.0, max(measurement.cut, 0.0))
        never = ~(measurement.released | measurement.hidden)
        if never.any():
            rest, shares = max(total - counts[~never].sum(), 0.0), likely[never]
            counts[never] = rest * shares / shares.sum() if shares.sum() > 0 else rest / len(shares)
    return project_simplex(counts, total)
