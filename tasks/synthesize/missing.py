"""Missing as a value like any other: what released counts leave without a value becomes a count of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.released.aggregates import Aggregates, IntArray, Level
from marginweave.tasks.normalize.normalize import combination_keys, find_rows, part_rows


def count_missing(aggregates: Aggregates, optional: Sequence[bool], sets: Sequence[int]) -> Aggregates:
    """Add the combinations that contain missing values to normalized counts.

    count(t, column j missing) = max(count(t) - sum_v count(t, j = v), 0), for t with and without missing values of columns
    before j; then no combination is more frequent than its parts, and what is not positive, or has a part that is not,
    goes. From exact counts this is the exact table. Where noise or suppression leaves too much, as missing it counts.

    Args:
        aggregates: Normalized counts of lengths 1..R.
        optional: For each column whether it can be missing; of the others no missing value is counted.
        sets: For each column the set that it is a value of, or -1; what was counted of two columns of a set together is
            unknown, so that nothing is counted of them, missing or not.

    Returns:
        The same with the added combinations, a missing value being the size of its column. DP: post-processing.
    """
    none = np.zeros((1, 0), np.int64)
    lower = Level(length=0, columns=none, values=none, counts=np.array([aggregates.record_count], np.int64))
    # a column of no set is a set of its own: no column stands twice in a combination
    groups = np.where(np.asarray(sets) < 0, -1 - np.arange(len(sets)), sets)
    levels = []
    for level in aggregates.levels:
        cells = level
        for position in range(level.length):
            cells = _join(
                cells, _left_over(cells, lower, position, aggregates.domain.sizes, np.array(optional, np.bool_), groups)
            )
        lower = _consistent(cells, lower, aggregates.domain.sizes)
        levels.append(lower)
    return replace(aggregates, levels=tuple(levels))


def _left_over(
    cells: Level,
    lower: Level,
    position: int,
    sizes: tuple[int, ...],
    optional: NDArray[np.bool_],
    groups: IntArray,
) -> Level:
    """The combinations of which `position` is the last missing value: `lower` less the sum of `cells` over its values."""
    width, missing = len(sizes), np.array(sizes, np.int64)
    part_columns = np.delete(cells.columns, position, axis=1)
    part_values = np.delete(cells.values, position, axis=1)
    rows = find_rows(lower, part_columns, part_values, sizes)
    known = rows >= 0
    places = rows[known] * width + cells.columns[known, position]
    explained = np.bincount(places, weights=cells.counts[known], minlength=len(lower) * width)
    rest = lower.counts[:, None] - explained.astype(np.int64).reshape(len(lower), width)
    others, column = lower.columns[:, :, None], np.arange(width)
    fits = ((others < column).sum(axis=1) == position) & (groups[others] != groups).all(axis=1)
    last = (lower.values[:, position:] < missing[lower.columns[:, position:]]).all(axis=1, keepdims=True)
    chosen, columns = np.nonzero((rest > 0) & fits & last & optional)
    return Level(
        length=cells.length,
        columns=_insert(lower.columns[chosen], position, columns),
        values=_insert(lower.values[chosen], position, missing[columns]),
        counts=rest[chosen, columns],
    )


def _insert(codes: IntArray, position: int, column: IntArray) -> IntArray:
    return np.concatenate([codes[:, :position], column[:, None], codes[:, position:]], axis=1)


def _join(left: Level, right: Level) -> Level:
    return Level(
        length=left.length,
        columns=np.concatenate([left.columns, right.columns]),
        values=np.concatenate([left.values, right.values]),
        counts=np.concatenate([left.counts, right.counts]),
    )


def _consistent(cells: Level, lower: Level, sizes: tuple[int, ...]) -> Level:
    """At most the count of each part, only with all parts there, in canonical order.

    The record count is no such part: released values stay where its noise makes it smaller.
    """
    rows = part_rows(lower, cells, sizes)
    kept = np.flatnonzero((rows >= 0).all(axis=0))
    order = kept[np.argsort(combination_keys(cells.columns[kept], cells.values[kept], sizes))]
    counts = cells.counts[order]
    if lower.length:
        counts = np.minimum(counts, lower.counts[rows[:, order]].min(axis=0))
    return Level(length=cells.length, columns=cells.columns[order], values=cells.values[order], counts=counts)
