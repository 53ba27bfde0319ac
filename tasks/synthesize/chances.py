"""Drawing one of many values by weight without looking at each of them, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.schemas.released.aggregates import IntArray


class Chances(NamedTuple):
    """Weights of attributes, of which those of one column stand together, as a tree of partial sums.

    The binary indexed tree of Fenwick (1994): a weight changes, and an attribute is found, in steps that grow with the
    logarithm of how many there are.
    """

    tree: IntArray
    """`tree[i]` is the sum of the lowbit(i) weights before place i, shape (attributes + 1,)."""
    sums: IntArray
    """Sum of the weights of each column, shape (columns,)."""
    starts: IntArray
    """Where the attributes of each column begin, shape (columns + 1,)."""

    @classmethod
    def of(cls, columns: NDArray[np.int32], width: int) -> Chances:
        """Without any weight; `columns` has the column of each attribute, ascending."""
        return cls(
            tree=np.zeros(len(columns) + 1, np.int64),
            sums=np.zeros(width, np.int64),
            starts=np.searchsorted(columns, np.arange(width + 1)).astype(np.int64),
        )


@njit(cache=True)
def change(chances: Chances, attribute: int, column: int, by: int) -> None:
    """Add to the weight of an attribute of a column."""
    chances.sums[column] += by
    place = attribute + 1
    while place < len(chances.tree):
        chances.tree[place] += by
        place += place & -place


@njit(cache=True)
def clear(chances: Chances) -> None:
    """Take all weight away."""
    chances.tree[:] = 0
    chances.sums[:] = 0


@njit(cache=True)
def draw_free(chances: Chances, used: NDArray[np.bool_], chance: float) -> int:
    """An attribute of a column that is not used, by weight, given a uniform number in [0, 1); -1 where none has weight.

    The first a for which the weights up to a exceed floor(chance * sum). DP: post-processing.
    """
    total = 0
    for column in range(len(used)):
        if not used[column]:
            total += chances.sums[column]
    if total == 0:
        return -1
    point, column = min(int(chance * total), total - 1), 0
    while used[column] or point >= chances.sums[column]:
        point -= 0 if used[column] else chances.sums[column]
        column += 1
    place = chances.starts[column]
    while place > 0:
        point += chances.tree[place]
        place -= place & -place
    return _find(chances, point)


@njit(cache=True)
def _find(chances: Chances, point: int) -> int:
    """The first attribute for which the weights up to it exceed `point`."""
    step, place = 1, 0
    while 2 * step < len(chances.tree):
        step *= 2
    while step > 0:
        if place + step < len(chances.tree) and chances.tree[place + step] <= point:
            place += step
            point -= chances.tree[place]
        step //= 2
    return place
