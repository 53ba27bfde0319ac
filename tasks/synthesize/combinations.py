"""Released combinations as a numbered lattice, laid out for walking from a combination to those with one value more."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from marginweave.schemas.aggregates import Aggregates, IntArray
from marginweave.schemas.errors import InputError
from marginweave.tasks.normalize.normalize import combination_keys, find_rows, parts_of


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
    sets: IntArray
    """The set of values that each attribute belongs to, or -1; attributes of one set are never released together."""
    starts: IntArray
    """Where the children of each node of length below R begin, shape (inner nodes + 1,)."""
    extensions: IntArray
    """The attribute by which each child extends its node, shape (children,)."""
    children: IntArray
    """Node number of each child, shape (children,)."""


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
    first = levels[0]
    attribute_keys = combination_keys(first.columns, first.values, sizes)
    below = [np.zeros(len(first), np.int64)]
    added = [np.arange(len(first))]
    above = [1 + np.arange(len(first))]
    offset = 1  # number of the first node of the level below
    for lower, level in pairwise(levels):
        rows = find_rows(lower, *parts_of(level), sizes)
        if np.any(rows < 0):
            raise InputError("aggregates must be normalized: a part of a released combination is not released itself")
        below.append(offset + rows)
        keys = combination_keys(level.columns.T.reshape(-1, 1), level.values.T.reshape(-1, 1), sizes)
        added.append(np.searchsorted(attribute_keys, keys))
        offset += len(lower)
        above.append(np.tile(offset + np.arange(len(level)), level.length))
    parents, extensions, children = (np.concatenate(arrays) for arrays in (below, added, above))
    order = np.lexsort((extensions, parents))
    return Combinations(
        counts=np.concatenate([[aggregates.record_count], *(level.counts for level in levels)]),
        columns=first.columns[:, 0].copy(),
        values=first.values[:, 0].copy(),
        sets=np.asarray(sets, np.int64)[first.columns[:, 0]],
        starts=np.searchsorted(parents[order], np.arange(offset + 1)),
        extensions=extensions[order],
        children=children[order],
    )
