"""Normalization of combination counts: a combination is never more frequent than any part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Integers
from marginweave.domain.combinations import Level
from marginweave.observations.combinations import Aggregates

LIMIT = 2**62  # numbers of rows stay below it


def row_keys(columns: Sequence[NDArray[np.integer]], sizes: Sequence[int]) -> tuple[Integers, int]:
    """Number the rows of a table of codes so that the numbers sort as the rows do, column by column.

    The mixed-radix number sum_j code_j * prod_{i>j} size_i; wherever it would leave 62 bits, the digits so far are replaced
    by their ranks among the rows, which keeps order and equality. Two rows have the same key exactly when they are equal.

    Args:
        columns: Codes of each column, shape (n,), 0 <= code < size.
        sizes: Number of codes of each column, each below 2^31, as the number of rows is.

    Returns:
        The keys, shape (n,), int64, and a number that is above all of them. DP: post-processing.
    """
    keys = columns[0].astype(np.int64)
    bound = sizes[0]
    for codes, size in zip(columns[1:], sizes[1:], strict=True):
        if bound * size >= LIMIT:
            distinct, keys = np.unique(keys, return_inverse=True)
            bound = len(distinct)
        keys = keys * size + codes
        bound *= size
    return keys, bound


def normalize(aggregates: Aggregates) -> Aggregates:
    """Make released counts monotone and closed under sub-combinations, as SDS does.

    A sub-combination s that is missing is added with max{count(t) : t contains s}; then
    count(t) := min{count(s) : s part of t, t itself included}, and what is not positive goes, with everything above it
    (as in Synthetic Data Showcase). The result is a fixed point: normalizing again changes nothing.

    Args:
        aggregates: Noisy counts of lengths 1..R, in canonical order.

    Returns:
        The same domain, record count and noise with the normalized levels. DP: post-processing.
    """
    levels = list(aggregates.levels)
    if not levels:
        return aggregates
    reach = levels[-1].counts  # the largest count of a combination and all that contain it
    part_rows_of_levels: list[Integers] = []
    for k in range(len(levels) - 1, 0, -1):
        levels[k - 1], reach, rows = _close(
            levels[k - 1],
            levels[k],
            reach,
            aggregates.domain.sizes,
        )
        part_rows_of_levels.insert(0, rows)
    greatest = np.iinfo(np.int64).max
    lowest = levels[0].counts
    normalized = [levels[0].positive(lowest)]
    for level, rows in zip(levels[1:], part_rows_of_levels, strict=True):
        lowest_part = lowest[rows].min(axis=1, initial=greatest)
        lowest = np.minimum(level.counts, lowest_part)
        normalized.append(level.positive(lowest))
    return replace(aggregates, levels=tuple(normalized))


def part(level: Level, position: int) -> tuple[Integers, Integers]:
    """Return columns and values of the combinations without those at one position. DP: post-processing."""
    columns = np.delete(level.columns, position, axis=1)
    values = np.delete(level.values, position, axis=1)
    return columns, values


def combination_keys(
    columns: Integers,
    values: Integers,
    sizes: tuple[int, ...],
) -> Integers:
    """Return keys of combinations that sort in canonical order, by columns and then by values; shape (n,).

    `values` may include the code of a missing value. DP: post-processing.
    """
    count, length = columns.shape
    if not length:
        return np.zeros(count, np.int64)
    radices = [len(sizes)] * length + [max(sizes) + 1] * length
    keys, _ = row_keys([*columns.T, *values.T], radices)
    return keys


def find_rows(
    level: Level,
    columns: Integers,
    values: Integers,
    sizes: tuple[int, ...],
) -> Integers:
    """Return the row of `level` that has each combination, or -1; shape (n,). DP: post-processing."""
    if not len(level):
        return np.full(len(columns), -1)
    keys = combination_keys(
        np.concatenate([level.columns, columns]),
        np.concatenate([level.values, values]),
        sizes,
    )
    level_keys = keys[: len(level)]
    searched_keys = keys[len(level) :]
    rows = np.searchsorted(level_keys, searched_keys)
    rows = np.minimum(rows, len(level_keys) - 1)
    return np.where(level_keys[rows] == searched_keys, rows, -1)


def part_rows(
    lower: Level,
    level: Level,
    sizes: tuple[int, ...],
) -> Integers:
    """Return the row of `lower` that has each part of each combination of `level`, or -1; shape (k, n).

    Row j is about the parts without position j. They are searched one position at a time, as all of them at once would be many
    times as large as the level. DP: post-processing.
    """
    rows = np.empty((level.length, len(level)), np.int64)
    for j in range(level.length):
        columns, values = part(level, j)
        rows[j] = find_rows(lower, columns, values, sizes)
    return rows


def _close(
    lower: Level,
    level: Level,
    reach: Integers,
    sizes: tuple[int, ...],
) -> tuple[Level, Integers, Integers]:
    """Return the lower level with every part of `level` in it, its reach, and the rows of the parts, shape (n, k).

    The reach of a combination is the largest count of itself and of all that contain it; `reach` is that of `level`.
    """
    parts = [part(level, j) for j in range(level.length)]
    columns = np.concatenate([lower.columns, *(columns for columns, _ in parts)])
    values = np.concatenate([lower.values, *(values for _, values in parts)])
    keys = combination_keys(columns, values, sizes)
    distinct, first, row = np.unique(keys, return_index=True, return_inverse=True)
    closed_reach = np.full(len(distinct), np.iinfo(np.int64).min)
    reach_of_parts = np.tile(reach, level.length)
    reach_of_rows = np.concatenate([lower.counts, reach_of_parts])
    np.maximum.at(closed_reach, row, reach_of_rows)
    counts = closed_reach.copy()
    counts[row[: len(lower)]] = lower.counts
    closed = Level(
        length=lower.length,
        columns=columns[first],
        values=values[first],
        counts=counts,
    )
    rows_of_parts = row[len(lower) :].reshape(level.length, len(level))
    return closed, closed_reach, rows_of_parts.T
