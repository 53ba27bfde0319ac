"""Candidate combinations of one length: for every set of columns, which cells may be counted.

At length 1 every value of a column is a candidate. At length k >= 2 a cell is one when all its sub-combinations of length
k-1 survived (V_k of Gopi, Mahabadi, Yekhanin, Algorithm 1): the cross-join of survivors, zero cells included, a function of
released counts only. A cell is never looked up in the data.

A cell has a flat key, its mixed-radix number with the radices d_j + 1 (the missing value is the last digit). If there is a
dense array of that shape, C-ordered, the key is its place in it. Keys fit 63 bits; larger ones are refused from sizes.

DP: post-processing of the level below.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from marginweave.base.arrays import Flags, Integers
from marginweave.base.errors import StageError
from marginweave.configuration.values import MAX_CELLS, MAX_KEY
from marginweave.domain.combinations import Level

Columns = tuple[int, ...]

MOST_COUNTED = 1 << 26
"""Candidates, or members of their superset, that are counted from length 3 on."""
# Sets of columns with at most _DENSE cells are counted in dense arrays.
_DENSE = 1 << 22
_CHUNK = 1 << 18
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Universe:
    """Pairs of survivors (s, t) of the columns but the last, and but the first, that agree in the middle.

    `left` and `right` are their sorted flat keys, `radix` that of the last column. `start` is where in `right` the partners of
    each s begin, `before` (one longer) how many pairs come before those of each s.
    """

    left: Integers
    right: Integers
    radix: int
    start: Integers
    before: Integers

    @classmethod
    def join(
        cls,
        left: Integers,
        right: Integers,
        *,
        middle: int,
        radix: int,
    ) -> Universe:
        """Return the pairs of sorted keys; `middle` is the product of the radices of the columns in the middle."""
        shared = left % middle * radix
        start = np.searchsorted(right, shared)
        stop = np.searchsorted(right, shared + radix)
        before = np.concatenate([[0], np.cumsum(stop - start)])
        return cls(
            left=left,
            right=right,
            radix=radix,
            start=start,
            before=before,
        )

    @property
    def size(self) -> int:
        """Number of pairs."""
        return int(self.before[-1])

    def pairs(self, positions: Integers) -> tuple[Integers, Integers]:
        """Return the rows of `left` and of `right` at each position; shape of `positions`."""
        row = np.searchsorted(self.before, positions, side="right") - 1
        return row, self.start[row] + positions - self.before[row]

    def stretch(self, first: int, last: int) -> tuple[Integers, Integers]:
        """Return the rows of `pairs` for all positions from `first` up to `last`."""
        ends = np.searchsorted(self.before, [first, last - 1], side="right") - 1
        begin, end = ends.tolist()
        edges = np.clip(self.before[begin : end + 2], first, last)
        row = np.repeat(np.arange(begin, end + 1), np.diff(edges))
        positions = np.arange(first, last)
        return row, self.start[row] + positions - self.before[row]

    def flat(self, pairs: tuple[Integers, Integers]) -> Integers:
        """Return flat keys of pairs, which grow with their position."""
        rows, partners = pairs
        last_digit = self.right[partners] % self.radix
        return self.left[rows] * self.radix + last_digit


@dataclass(frozen=True, kw_only=True)
class CandidateSet:
    """The cells of every set of `length` columns that are candidates.

    `survivors` has the sorted flat keys of the level below by columns (empty for length 1). `forbidden` has those of the
    impossible cells of this length: longer cells that contain them have no survivors below and need no rule. A missing value
    is never a candidate.
    """

    length: int
    sizes: tuple[int, ...]
    survivors: Mapping[Columns, Integers] = field(default_factory=dict)
    forbidden: Mapping[Columns, Integers] = field(default_factory=dict)

    def column_sets(self) -> Iterator[Columns]:
        """Yield all sets of columns of this length that have a candidate at all, in canonical order."""
        for columns in itertools.combinations(range(len(self.sizes)), self.length):
            parts = itertools.combinations(columns, self.length - 1)
            if self.length == 1 or all(part in self.survivors for part in parts):
                yield columns

    def is_dense(self, columns: Columns) -> bool:
        """Return whether the cells of a set of columns are few; from its public or released sizes alone."""
        return math.prod(self.shape(columns)) <= _DENSE

    def shape(self, columns: Columns) -> tuple[int, ...]:
        """Return the number of values of each column, the missing one included."""
        return tuple(self.sizes[j] + 1 for j in columns)

    def mask(self, columns: Columns) -> Flags:
        """Return the candidates of one set of columns as a dense array of `shape`, C-ordered.

        Raises:
            StageError: more than 2^26 cells, which `contains` and `cells` are for.
        """
        shape = self.shape(columns)
        if math.prod(shape) > MAX_CELLS:
            raise StageError(f"a mask ({math.prod(shape)} cells) must have at most {MAX_CELLS}")
        mask = np.zeros(math.prod(shape), np.bool_)
        for cells in self.cells(columns):
            mask[cells] = True
        return mask.reshape(shape)

    def contains(self, columns: Columns, values: Integers) -> Flags:
        """Return whether each combination of `values` is a candidate; values of shape (n, k), result (n,)."""
        if self.length == 1:
            return values[:, 0] < self.sizes[columns[0]]
        contained = self._holds(columns, values, range(self.length))
        keys = flat_keys(values.T, self.shape(columns))
        return contained & ~_member(keys, self.forbidden.get(columns, _NONE))

    def universe(self, columns: Columns) -> Universe:
        """Return the canonical superset of the candidates of one set of columns."""
        shape = self.shape(columns)
        if self.length == 1:  # all values of the column
            first_keys = np.zeros(1, np.int64)
            last_keys = np.arange(self.sizes[columns[0]])
        else:
            first_keys = self.survivors[columns[:-1]]
            last_keys = self.survivors[columns[1:]]
        middle = math.prod(shape[1:-1])
        return Universe.join(first_keys, last_keys, middle=middle, radix=shape[-1])

    def allowed(self, columns: Columns, flat: Integers) -> Flags:
        """Return which members of the superset, by flat key, are candidates; shape of `flat`."""
        inner = range(1, self.length - 1)
        allowed = ~_member(flat, self.forbidden.get(columns, _NONE))
        if inner:
            values = np.unravel_index(flat, self.shape(columns))
            allowed &= self._holds(columns, np.stack(values, axis=1), inner)
        return allowed

    def cells(self, columns: Columns) -> Iterator[Integers]:
        """Yield flat keys of all candidates of one set of columns, ascending, some at a time."""
        universe = self.universe(columns)
        for first in range(0, universe.size, _CHUNK):
            flat = universe.flat(universe.stretch(first, min(first + _CHUNK, universe.size)))
            flat = flat[self.allowed(columns, flat)]
            if len(flat):
                yield flat

    def any(self) -> bool:
        """Return whether there is a candidate at all."""
        return any(True for columns in self.column_sets() for _ in self.cells(columns))

    @cached_property
    def superset(self) -> int:
        """Number of members that the supersets of all sets of columns have in total."""
        return sum(self.universe(columns).size for columns in self.column_sets())

    @cached_property
    def counts(self) -> dict[Columns, int]:
        """Number of candidates of every set of columns: exact up to length 2, and where the supersets have 2^26 members.

        Beyond that, the number of members of its superset, which is no less.
        """
        if self.length > 2 and self.superset <= MOST_COUNTED:
            return {columns: sum(map(len, self.cells(columns))) for columns in self.column_sets()}
        numbers = {columns: self.universe(columns).size for columns in self.column_sets()}
        if self.length == 2:
            for columns in numbers.keys() & self.forbidden.keys():
                values = np.unravel_index(self.forbidden[columns], self.shape(columns))
                would_be_candidate = self._holds(columns, np.stack(values, axis=1), range(2))
                numbers[columns] -= int(would_be_candidate.sum())
        return numbers

    @property
    def total(self) -> int:
        """Sum of all `counts`."""
        return sum(self.counts.values())

    def _holds(
        self,
        columns: Columns,
        values: Integers,
        left_out: Iterable[int],
    ) -> Flags:
        """Return whether the parts of each combination, without one of the positions `left_out` at a time, all survived."""
        contained = np.ones(len(values), np.bool_)
        for position in left_out:
            part = columns[:position] + columns[position + 1 :]
            shape = self.shape(part)
            keys = flat_keys(np.delete(values, position, axis=1).T, shape)
            survivors = self.survivors[part]
            # a small table is read faster than a list is searched
            if math.prod(shape) <= 4 * len(keys) + (1 << 12):
                table = np.zeros(math.prod(shape), np.bool_)
                table[survivors] = True
                contained &= table[keys]
            else:
                contained &= _member(keys, survivors)
        return contained

    @classmethod
    def above(
        cls,
        level: Level,
        sizes: Sequence[int],
        forbidden: Iterable[Sequence[tuple[int, int]]] = (),
    ) -> CandidateSet:
        """Return the candidates of length k + 1, from the survivors of length k, without the `forbidden` (column, value) sets.

        Raises:
            StageError: keys that do not fit 63 bits.
        """
        check_keys(sizes, level.length + 1)

        def keys_of(columns: Columns, values: Integers) -> Integers:
            return flat_keys(values.T, [sizes[j] + 1 for j in columns])

        survivors = {
            columns: keys_of(columns, level.values[rows]) for columns, rows in level.by_columns()
        }
        never: dict[Columns, list[list[int]]] = {}
        for combination in forbidden:
            if len(combination) == level.length + 1:
                columns = tuple(j for j, _ in combination)
                never.setdefault(columns, []).append([value for _, value in combination])
        forbidden_keys = {}
        for columns, cells in never.items():
            keys = keys_of(columns, np.array(cells, np.int64))
            forbidden_keys[columns] = np.unique(keys)
        return cls(
            length=level.length + 1,
            sizes=tuple(sizes),
            survivors=survivors,
            forbidden=forbidden_keys,
        )


def flat_keys(values: Sequence[Integers] | Integers, shape: Sequence[int]) -> Integers:
    """Return the mixed-radix number of each combination, `values` by position; shape (n,), int64."""
    return np.ravel_multi_index(tuple(values), tuple(shape))


def check_keys(sizes: Sequence[int], length: int) -> None:
    """Refuse columns whose combinations cannot be numbered in 63 bits; decided on public or released sizes alone."""
    largest = sorted(range(len(sizes)), key=lambda j: sizes[j])[-length:]
    if length > 1 and math.prod(sizes[j] + 1 for j in largest) > MAX_KEY:
        numbers = ", ".join(str(j + 1) for j in sorted(largest))
        raise StageError(
            f"aggregate: columns number {numbers} have more than 2^63 combinations; "
            "use coarser bins, fewer values or a smaller reporting_length"
        )


def _member(keys: Integers, members: Integers) -> Flags:
    """Return which of `keys` are among the sorted `members`; shape of `keys`."""
    if not len(members):
        return np.zeros(len(keys), np.bool_)
    place = np.minimum(np.searchsorted(members, keys), len(members) - 1)
    is_member: Flags = members[place] == keys
    return is_member
