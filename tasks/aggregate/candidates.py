"""Candidate combinations of one length: for every set of columns, which cells may be counted.

At length 1 every value of a column is a candidate. At length k >= 2 a cell is one when all its sub-combinations of length
k-1 survived (V_k of Gopi, Mahabadi, Yekhanin, Algorithm 1): the cross-join of survivors, zero cells included, a function of
released counts only. A cell is never looked up in the data.

DP: post-processing of the level below.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.aggregates import Level
from marginweave.schemas.errors import StageError
from marginweave.schemas.numbers import MAX_CELLS

Mask = NDArray[np.bool_]

_DENSE_CELLS = 1 << 22


@dataclass(frozen=True, kw_only=True)
class CandidateSet:
    """Which cells of every set of `length` columns are candidates.

    A mask has the shape (d_j + 1, …) over its columns: the last index of every axis is the missing value and never a
    candidate. `survivors` holds such masks of the level below (empty for length 1); `forbidden` the cells of this length
    that cannot be, by columns, shape (n, length): what contains them has no survivors below and needs no rule.
    """

    length: int
    sizes: tuple[int, ...]
    survivors: Mapping[tuple[int, ...], Mask] = field(default_factory=dict)
    forbidden: Mapping[tuple[int, ...], NDArray[np.int64]] = field(default_factory=dict)

    def column_sets(self) -> Iterator[tuple[int, ...]]:
        """All sets of columns of this length that have a candidate at all, in canonical order."""
        for columns in itertools.combinations(range(len(self.sizes)), self.length):
            if self.length == 1 or all(
                part in self.survivors for part in itertools.combinations(columns, self.length - 1)
            ):
                yield columns

    def mask(self, columns: tuple[int, ...]) -> Mask:
        """The candidate mask of one set of columns, C-ordered."""
        shape = tuple(self.sizes[j] + 1 for j in columns)
        if self.length == 1:
            mask = np.ones(shape, np.bool_)
            mask[-1] = False
            return mask
        check_cells(columns, self.sizes)
        mask = np.ones(shape, np.bool_)
        for left_out in range(self.length):
            part = columns[:left_out] + columns[left_out + 1 :]
            mask &= np.expand_dims(self.survivors[part], left_out)
        if columns in self.forbidden:
            mask[tuple(self.forbidden[columns].T)] = False
        return mask

    def is_dense(self, columns: tuple[int, ...]) -> bool:
        """Whether the cells of a set of columns are few enough for a mask; by public or released sizes."""
        return math.prod(self.sizes[j] + 1 for j in columns) <= _DENSE_CELLS

    def contains(self, columns: tuple[int, ...], values: NDArray[np.int64]) -> Mask:
        """Which rows of `values`, shape (n, length), are candidates; a missing value makes none. Shape (n,)."""
        found: Mask = np.all(values < np.array([self.sizes[j] for j in columns]), axis=1)
        if self.length == 1:
            return found
        for left_out in range(self.length):
            part = columns[:left_out] + columns[left_out + 1 :]
            found &= self.survivors[part][tuple(np.delete(values, left_out, axis=1).T)]
        for cell in self.forbidden.get(columns, ()):
            found &= (values != cell).any(axis=1)
        return found

    @classmethod
    def above(
        cls, level: Level, sizes: Sequence[int], forbidden: Iterable[Sequence[tuple[int, int]]] = ()
    ) -> CandidateSet:
        """The candidates of length k + 1, from the survivors of length k, less what is `forbidden` as (column, value)."""
        survivors = {}
        for columns, rows in level.by_columns():
            mask = np.zeros(tuple(sizes[j] + 1 for j in columns), np.bool_)
            mask[tuple(level.values[rows].T)] = True
            survivors[columns] = mask
        never: dict[tuple[int, ...], list[list[int]]] = {}
        for combination in forbidden:
            if len(combination) == level.length + 1:
                never.setdefault(tuple(j for j, _ in combination), []).append([v for _, v in combination])
        return cls(
            length=level.length + 1,
            sizes=tuple(sizes),
            survivors=survivors,
            forbidden={columns: np.array(cells, np.int64) for columns, cells in never.items()},
        )


def check_cells(columns: tuple[int, ...], sizes: Sequence[int]) -> None:
    """Refuse a set of columns whose cells do not fit; decided on public or released sizes alone."""
    cells = math.prod(sizes[j] + 1 for j in columns)
    if cells > MAX_CELLS:
        numbers = ", ".join(str(j + 1) for j in columns)
        raise StageError(
            f"aggregate: columns number {numbers} have {cells} combinations, more than {MAX_CELLS}; "
            "use coarser bins, fewer values or a smaller reporting_length"
        )
