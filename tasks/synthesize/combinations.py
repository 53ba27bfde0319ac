"""Released combinations as a numbered lattice, laid out for walking from a combination to those with one value more."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from marginweave.schemas.aggregates import Aggregates, IntArray, Level
from marginweave.schemas.errors import InputError
from marginweave.tasks.normalize.normalize import combination_keys, parts_of


class Combinations(NamedTuple):
    """Numbered combinations: 0 is the empty one, 1 + a the attribute a, then the longer ones length by length.

    The combinations that extend node t by one attribute are `children[starts[t]:starts[t + 1]]`, in increasing order of the
    attribute, which is `extensions` at the same place. `starts` ends with the nodes of length R - 1.
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


def number_combinations(aggregates: Aggregates) -> Combinations:
    """Number the combinations of normalized counts and link each to its extensions.

    DP: post-processing.

    Raises:
        InputError: if a part of a released combination is not released itself.
    """
    levels = aggregates.levels
    sizes = aggregates.domain.sizes
    first = levels[0]
    attribute_keys = combination_keys(first.columns, first.values, sizes)
    below = [np.zeros(len(first), np.int64)]
    added = [np.arange(len(first))]
    above = [1 + np.arange(len(first))]
    offset = 1  # number of the first node of the level below
    for lower, level in zip(levels[:-1], levels[1:], strict=True):
        below.append(offset + _rows(lower, *parts_of(level), sizes))
        keys = combination_keys(level.columns.T.reshape(-1, 1), level.values.T.reshape(-1, 1), sizes)
        added.append(np.searchsorted(attribute_keys, keys))
        offset += len(lower)
        above.append(np.tile(offset + np.arange(len(level)), level.length))
    parents, extensions, children = (np.concatenate(arrays).astype(np.int64) for arrays in (below, added, above))
    order = np.lexsort((extensions, parents))
    return Combinations(
        counts=np.concatenate([[aggregates.record_count], *(level.counts for level in levels)]),
        columns=first.columns[:, 0].copy(),
        values=first.values[:, 0].copy(),
        starts=np.searchsorted(parents[order], np.arange(offset + 1)),
        extensions=extensions[order],
        children=children[order],
    )


def _rows(lower: Level, columns: IntArray, values: IntArray, sizes: tuple[int, ...]) -> IntArray:
    """Row of `lower` at which each combination stands."""
    keys = combination_keys(np.concatenate([lower.columns, columns]), np.concatenate([lower.values, values]), sizes)
    known, wanted = keys[: len(lower)], keys[len(lower) :]
    rows = np.searchsorted(known, wanted)
    if np.any(rows == len(known)) or np.any(known[rows] != wanted):
        raise InputError("aggregates must be normalized: a part of a released combination is not released itself")
    return rows
