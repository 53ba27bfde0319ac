"""Released combinations as a numbered lattice, laid out for walking from a combination to those with one value more."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.aggregates import Aggregates, IntArray, Level
from marginweave.schemas.errors import InputError
from marginweave.tasks.normalize.normalize import combination_keys, parts_of


class Combinations(NamedTuple):
    """Numbered combinations: 0 is the empty one, then length by length; an attribute is one value of one column.

    The combinations that extend node t by one attribute are `children[starts[t]:starts[t + 1]]`, in increasing order of the
    attribute, which is `extensions` at the same place. `starts` ends with the nodes of length R - 1. Every attribute
    extends the empty combination.
    """

    counts: IntArray
    """Count of each node, shape (nodes,); that of the empty combination is the record count."""
    columns: IntArray
    """Column of each attribute, shape (attributes,)."""
    values: IntArray
    """Value of each attribute, shape (attributes,)."""
    starts: IntArray
    """Where the children of each node of length below R begin, shape (inner nodes + 1,)."""
    extensions: IntArray
    """The attribute by which each child extends its node, shape (children,)."""
    children: IntArray
    """Node number of each child, shape (children,)."""
    valued: int
    """Attributes below this number are values; the others are missing values."""


def number_combinations(aggregates: Aggregates) -> Combinations:
    """Number the combinations of normalized counts and link each to its extensions.

    DP: post-processing.

    Raises:
        InputError: if there are no levels, or a part of a released combination is not released itself.
    """
    levels = aggregates.levels
    if not levels:
        raise InputError("aggregates must have counts of length 1 at least")
    sizes = aggregates.domain.sizes
    first = levels[0]
    attribute_keys = combination_keys(first.columns, first.values, sizes)
    below = [np.zeros(len(first), np.int64)]
    added = [np.arange(len(first))]
    above = [1 + np.arange(len(first))]
    offset = 1  # number of the first node of the level below
    for lower, level in pairwise(levels):
        below.append(offset + _rows(lower, *parts_of(level), sizes))
        keys = combination_keys(level.columns.T.reshape(-1, 1), level.values.T.reshape(-1, 1), sizes)
        added.append(np.searchsorted(attribute_keys, keys))
        offset += len(lower)
        above.append(np.tile(offset + np.arange(len(level)), level.length))
    return _link(
        counts=np.concatenate([[aggregates.record_count], *(level.counts for level in levels)]),
        columns=first.columns[:, 0],
        values=first.values[:, 0],
        links=(np.concatenate(below), np.concatenate(added), np.concatenate(above)),
        inner=offset,
        valued=len(first),
    )


def add_missing(combinations: Combinations, sizes: tuple[int, ...]) -> Combinations:
    """Let the missing value of a column extend every combination of the other columns, as one attribute more.

    count(t, column j missing) = max(count(t) - sum_v count(t, j = v), 0) for t of length below R: the records of t that the
    released counts leave without a value. No combination has two missing values, and columns whose values account for all
    records get no missing attribute. DP: post-processing.
    """
    inner, width = len(combinations.starts) - 1, len(sizes)
    parents = np.repeat(np.arange(inner), np.diff(combinations.starts))
    cells = parents * width + combinations.columns[combinations.extensions]
    explained = np.bincount(cells, weights=combinations.counts[combinations.children], minlength=inner * width)
    rest = np.maximum(combinations.counts[:inner, None] - explained.astype(np.int64).reshape(inner, width), 0)
    columns = np.flatnonzero(rest[0] > 0)
    nodes, positions = np.nonzero(~_occupied(combinations, inner, width)[:, columns])
    counts = rest[nodes, columns[positions]]
    return _link(
        counts=np.concatenate([combinations.counts, counts]),
        columns=np.concatenate([combinations.columns, columns]),
        values=np.concatenate([combinations.values, np.array(sizes, np.int64)[columns]]),
        links=(
            np.concatenate([parents, nodes]),
            np.concatenate([combinations.extensions, combinations.valued + positions]),
            np.concatenate([combinations.children, len(combinations.counts) + np.arange(len(counts))]),
        ),
        inner=inner,
        valued=combinations.valued,
    )


def _occupied(combinations: Combinations, inner: int, width: int) -> NDArray[np.bool_]:
    """Whether each inner node has a value in each column, shape (inner, columns)."""
    occupied = np.zeros((inner, width), np.bool_)
    below = combinations.children < inner
    occupied[combinations.children[below], combinations.columns[combinations.extensions[below]]] = True
    return occupied


def _link(
    *,
    counts: IntArray,
    columns: IntArray,
    values: IntArray,
    links: tuple[IntArray, IntArray, IntArray],
    inner: int,
    valued: int,
) -> Combinations:
    """Sort the links (node, attribute, child) by node and attribute."""
    nodes, extensions, children = links
    order = np.lexsort((extensions, nodes))
    return Combinations(
        counts=counts,
        columns=np.ascontiguousarray(columns),
        values=np.ascontiguousarray(values),
        starts=np.searchsorted(nodes[order], np.arange(inner + 1)),
        extensions=extensions[order],
        children=children[order],
        valued=valued,
    )


def _rows(lower: Level, columns: IntArray, values: IntArray, sizes: tuple[int, ...]) -> IntArray:
    """Row of `lower` at which each combination stands."""
    keys = combination_keys(np.concatenate([lower.columns, columns]), np.concatenate([lower.values, values]), sizes)
    known, wanted = keys[: len(lower)], keys[len(lower) :]
    rows = np.searchsorted(known, wanted)
    if np.any(rows == len(known)) or np.any(known[rows] != wanted):
        raise InputError("aggregates must be normalized: a part of a released combination is not released itself")
    return rows
