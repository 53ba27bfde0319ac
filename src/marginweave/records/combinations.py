"""Numbers released combinations as a lattice, missing values included, and links each to those with one value more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Flags, Integers
from marginweave.base.errors import InputError
from marginweave.domain.combinations import Level
from marginweave.estimate.normalize import combination_keys, find_rows, part, part_rows
from marginweave.observations.combinations import Aggregates

Numbers = NDArray[np.int32] | Integers
Index = NDArray[np.uint32]  # compiled code asks of no unsigned place whether it counts from the end

# Most pairs of a node and an attribute for which all of them have a place in a table: 256 MB. Public sizes and counts.
# A record of adult (14 columns, R = 4: 145 MB) grows 2.4 times as fast as where its extensions are searched for.
_TABLE = 2**26


class Combinations(NamedTuple):
    """Numbered combinations: 0 is the empty one, then length by length; an attribute is one value of one column.

    With i = t * width + c, the combinations that extend node t by a value of column c are `children[starts[i]:starts[i + 1]]`,
    in increasing order of the attribute, which is `extensions` at the same place; so those of all columns are adjacent, too.
    `starts` ends with the nodes of length R - 1. Every attribute extends the empty combination, which extends none: 0 is no
    child's number.
    """

    # count of each node, shape (nodes,), in 32 bits where they fit; that of the empty combination is the record count
    counts: Numbers
    width: int  # number of columns
    columns: NDArray[np.int32]  # of each attribute, shape (attributes,), ascending
    values: NDArray[np.int32]  # of each attribute, shape (attributes,)
    # the set of values that each attribute belongs to, or -1; attributes of one set are never released together
    sets: NDArray[np.int32]
    # where the children of each node of length below R begin, column by column, shape (inner nodes * width + 1,)
    starts: Index
    extensions: Index  # the attribute by which each child extends its node, shape (children,)
    children: Index  # node number of each child, shape (children,)
    # the child of each node of length below R by each attribute, or 0, shape (attributes, inner nodes); empty where that would
    # take too much memory
    table: Index


class _Links(NamedTuple):
    """Links of nodes to their children, in order of the node and then of the attribute that is added."""

    nodes: Integers  # shape (links,)
    attributes: Integers  # shape (links,)
    children: Index  # shape (links,)
    inner: int  # number of nodes that can have children: those shorter than R


def number_combinations(aggregates: Aggregates, sets: Sequence[int]) -> Combinations:
    """Number the combinations of normalized counts and link each to its extensions.

    `sets` has for each column the set that it is a value of, or -1.

    DP: post-processing.

    Raises:
        InputError: if there are no levels, or a part of a released combination is not released itself.
    """
    levels = aggregates.levels
    if not levels:
        raise InputError("aggregates must have counts of length 1 at least")
    sizes = aggregates.domain.sizes
    width = len(sizes)
    first = levels[0]
    columns = first.columns[:, 0]
    links = _links(levels, sizes)
    has_table = links.inner * len(first) <= _TABLE
    table = np.zeros((len(first), links.inner if has_table else 0), np.uint32)
    if table.size:
        table[links.attributes, links.nodes] = links.children
    places = links.nodes * width + columns[links.attributes]
    run_lengths = np.bincount(places, minlength=links.inner * width)
    descending = [np.sort(level.counts)[::-1] for level in levels]
    return Combinations(
        counts=packed(np.concatenate([[aggregates.record_count], *descending])),
        width=width,
        columns=columns.astype(np.int32),
        values=first.values[:, 0].astype(np.int32),
        sets=np.asarray(sets, np.int32)[columns],
        starts=np.concatenate([[0], np.cumsum(run_lengths)]).astype(np.uint32),
        extensions=links.attributes.astype(np.uint32),
        children=links.children,
        table=table,
    )


def _links(levels: Sequence[Level], sizes: tuple[int, ...]) -> _Links:
    """Return the links of all nodes to their children. Raises InputError if a part of a combination is not released."""
    first = levels[0]
    attributes = len(first)
    attribute_keys = combination_keys(first.columns, first.values, sizes)
    # A link's place is its node times the number of attributes plus the attribute that it adds.
    places = [np.arange(attributes)]
    children = [_numbers(first, 1)]
    offset = 1  # number of the first node of the level below
    for lower, level in pairwise(levels):
        rows = part_rows(lower, level, sizes)
        if np.any(rows < 0):
            raise InputError(
                "aggregates must be normalized: a part of a released combination is not released itself"
            )
        level_places = _numbers(lower, offset)[rows] * attributes
        for j in range(level.length):
            place = slice(j, j + 1)
            added = combination_keys(level.columns[:, place], level.values[:, place], sizes)
            level_places[j] += np.searchsorted(attribute_keys, added)
        places.append(level_places.ravel())
        offset += len(lower)
        children.append(np.tile(_numbers(level, offset), level.length))
    joined = np.concatenate(places)
    order = np.argsort(joined)
    return _Links(
        nodes=joined[order] // attributes,
        attributes=joined[order] % attributes,
        children=np.concatenate(children)[order].astype(np.uint32),
        inner=offset,
    )


def _numbers(level: Level, offset: int) -> Integers:
    """Return the number of each combination of a length: frequent ones are adjacent, to stay in the processor's cache."""
    return offset + np.argsort(np.argsort(-level.counts, kind="stable"))


def packed(counts: Numbers) -> Numbers:
    """Return counts in 32 bits where they fit."""
    fits = counts.max(initial=0) <= np.iinfo(np.int32).max
    return counts.astype(np.int32) if fits else counts.astype(np.int64)


def count_missing(
    aggregates: Aggregates, optional: Sequence[bool], sets: Sequence[int]
) -> Aggregates:
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
    lower = Level(
        length=0,
        columns=none,
        values=none,
        counts=np.array([aggregates.record_count], np.int64),
    )
    # a column of no set counts as a set with one column: no column is twice in a combination
    groups = np.where(np.asarray(sets) < 0, -1 - np.arange(len(sets)), sets)
    may_lack = np.array(optional, np.bool_)
    sizes = aggregates.domain.sizes
    levels = []
    for level in aggregates.levels:
        cells = level
        for position in range(level.length):
            cells = _with_missing(cells, lower, position, sizes, may_lack, groups)
        lower = _consistent(cells, lower, sizes)
        levels.append(lower)
    return replace(aggregates, levels=tuple(levels))


def _with_missing(
    cells: Level,
    lower: Level,
    position: int,
    sizes: tuple[int, ...],
    optional: Flags,
    groups: Integers,
) -> Level:
    """Return `cells` and the combinations of which `position` is the last missing value.

    The count of such a combination is that of its other values, in `lower`, minus the sum of `cells` over the column's values.
    """
    width = len(sizes)
    missing = np.array(sizes, np.int64)
    rows = find_rows(lower, *part(cells, position), sizes)
    is_found = rows >= 0
    places = rows[is_found] * width + cells.columns[is_found, position]
    explained = np.bincount(places, weights=cells.counts[is_found], minlength=len(lower) * width)
    explained = explained.astype(np.int64).reshape(len(lower), width)
    unexplained = lower.counts[:, None] - explained
    # shape (combinations of `lower`, columns): whether the column can be added at `position`
    before = lower.columns[:, :, None] < np.arange(width)
    is_in_order = before.sum(axis=1) == position
    is_other_group = (groups[lower.columns[:, :, None]] != groups).all(axis=1)
    later = slice(position, None)
    has_value = lower.values[:, later] < missing[lower.columns[:, later]]
    is_last_missing = has_value.all(axis=1, keepdims=True)
    chosen, columns = np.nonzero(
        (unexplained > 0) & is_in_order & is_other_group & is_last_missing & optional
    )
    added_columns = np.insert(lower.columns[chosen], position, columns, axis=1)
    added_values = np.insert(lower.values[chosen], position, missing[columns], axis=1)
    return Level(
        length=cells.length,
        columns=np.concatenate([cells.columns, added_columns]),
        values=np.concatenate([cells.values, added_values]),
        counts=np.concatenate([cells.counts, unexplained[chosen, columns]]),
    )


def _consistent(cells: Level, lower: Level, sizes: tuple[int, ...]) -> Level:
    """Return the cells that have all their parts in `lower`, with at most the count of each part, in canonical order.

    The record count is no such part: released values remain where its noise makes it smaller.
    """
    rows = part_rows(lower, cells, sizes)
    complete = np.flatnonzero((rows >= 0).all(axis=0))
    keys = combination_keys(cells.columns[complete], cells.values[complete], sizes)
    order = complete[np.argsort(keys)]
    counts = cells.counts[order]
    if lower.length:
        counts = np.minimum(counts, lower.counts[rows[:, order]].min(axis=0))
    return Level(
        length=cells.length,
        columns=cells.columns[order],
        values=cells.values[order],
        counts=counts,
    )
