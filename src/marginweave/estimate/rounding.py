"""Counts from shares: whole numbers that add up to a total, and the nearest nonnegative counts (projection on a simplex)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Floats, Integers
from marginweave.base.compiled import kernel
from marginweave.observations.tables import CensoredObservation, Observation


def apportion(
    shares: Floats,
    number: int,
    generator: np.random.Generator,
) -> Integers:
    """Return how often each value occurs among `number`: share times number, rounded down or up, adding up to `number`.

    Systematic sampling (Madow 1949): one uniform u, floor(C_i + u) - floor(C_i-1 + u) for the running sum C; the
    expectation is exact. DP: post-processing.
    """
    # the sum of the smallest floating-point numbers has no finite reciprocal
    relative = shares / shares.max()
    scale = number / relative.sum()
    running_sum = np.cumsum(relative) * scale
    last = np.flatnonzero(shares)[-1]
    running_sum[last:] = number  # a share of 0 remains 0, whatever the rounding of the sum
    bounded = np.minimum(running_sum, number)
    ends = np.floor(bounded + generator.random()).astype(np.int64)
    ends = np.minimum(ends, number)
    return np.asarray(np.diff(ends, prepend=0))


def round_shares(
    shares: Floats,
    numbers: Integers,
    generator: np.random.Generator,
) -> Integers:
    """Return whole numbers near `shares[k] * numbers[k]`, shape (components, cells), row k adding up to `numbers[k]`.

    Each is rounded down or up. Rows are taken in random order. Each row rounds up the cells whose sums over the rows so far
    lack most, so that these sums are close to the expected ones, too (error diffusion with a random start). DP:
    post-processing.
    """
    counts = np.zeros(shares.shape, np.int64)
    start = generator.random(shares.shape[1])
    behind: Floats = np.asarray(start - 0.5)  # what each cell lacks so far
    order = generator.permutation(np.flatnonzero(numbers))
    _round_rows(np.ascontiguousarray(shares), numbers, order, behind, counts)
    return counts


@kernel
def _round_rows(
    shares: Floats, numbers: Integers, order: Integers, behind: Floats, counts: Integers
) -> None:  # pragma: no cover - compiled
    """Write the rounded rows of `order` to `counts`; `behind` is what each cell lacks before and after."""
    cells = counts.shape[1]
    keys = np.empty(cells)
    heap = np.empty(cells, np.int64)
    for k in order:
        missing = numbers[k]
        for i in range(cells):
            expected = shares[k, i] * numbers[k]
            counts[k, i] = int(expected)
            missing -= counts[k, i]
            behind[i] += expected - counts[k, i]
            keys[i] = -behind[i] if expected > counts[k, i] else np.inf
            heap[i] = i
        for root in range(cells // 2 - 1, -1, -1):
            _sift(heap, keys, root, cells)
        for left in range(cells, max(cells - missing, 0), -1):
            first = heap[0]
            counts[k, first] += 1
            behind[first] -= 1
            heap[0] = heap[left - 1]
            _sift(heap, keys, 0, left - 1)


@kernel
def _sift(
    heap: Integers, keys: Floats, root: int, size: int
) -> None:  # pragma: no cover - compiled
    """Move the entry at `root` down to where no entry below has a smaller key, or an equal one and a smaller number."""
    moved = heap[root]
    while 2 * root + 1 < size:
        child = 2 * root + 1
        if child + 1 < size:
            a = heap[child]
            b = heap[child + 1]
            if keys[b] < keys[a] or (keys[b] == keys[a] and b < a):
                child += 1
        lower = heap[child]
        if keys[moved] < keys[lower] or (keys[moved] == keys[lower] and moved < lower):
            break
        heap[root] = lower
        root = child
    heap[root] = moved


def project_simplex(values: Floats, total: float) -> Floats:
    """Return the nearest point with no negative entry and the sum `total` >= 0: max(values - t, 0), t found by `to_simplex`.

    Any shape, float64. DP: post-processing.
    """
    nearest = np.array(values, np.float64, order="C")
    to_simplex(nearest.reshape(-1), float(total))
    return nearest


@kernel
def to_simplex(
    values: NDArray[np.floating],
    total: float,
) -> None:  # pragma: no cover - compiled
    """Project `values`, shape (n,), in place onto the points with no negative entry and the sum `total` (`project_simplex`).

    Michelot 1986: of the remaining entries, those below t = (their sum - total) / their number are removed, until there are
    none. Exact, with few passes where few entries are negative. A total that is not positive gives zeros. DP: post-processing.
    """
    if values.size == 0 or total <= 0:
        values[:] = 0.0
        return
    # changes nothing but the rounding: the largest entry always stays positive
    largest = values[0]
    for value in values:
        largest = max(largest, value)
    for i in range(values.size):
        values[i] -= largest
    remaining = values.size + 1
    threshold = -np.inf
    while True:
        number = 0
        added = 0.0
        for value in values:
            if value > threshold:
                number += 1
                added += value
        if number >= remaining:
            break
        remaining = number
        threshold = (added - total) / number
    for i in range(values.size):
        values[i] = max(values[i] - threshold, 0.0)


def nearest_column(
    measurement: Observation,
    likely: Floats,
    total: float,
) -> Floats:
    """Return counts of one attribute that are not negative, add up to `total`, and are nearest to the measured ones.

    A suppressed code gets as many as are `likely`, but fewer than its threshold. Codes that were never counted share the
    remaining records in proportion to `likely`. Shapes (codes,). DP: post-processing.
    """
    scaled = measurement.counts * measurement.scale(total)
    counts: Floats = np.asarray(scaled, np.float64)
    if isinstance(measurement, CensoredObservation):  # always complete
        hidden = measurement.hidden
        counts[hidden] = np.clip(
            likely[hidden],
            0.0,
            max(measurement.cut, 0.0),
        )
        never = ~(measurement.released | hidden)
        if never.any():
            remaining = max(total - counts[~never].sum(), 0.0)
            shares = likely[never]
            shares_sum = shares.sum()
            counts[never] = (
                remaining * shares / shares_sum if shares_sum > 0 else remaining / len(shares)
            )
    return project_simplex(counts, total)
