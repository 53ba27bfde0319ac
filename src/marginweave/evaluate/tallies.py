"""Combinations of values as integers, one for each cell of a set of attributes, and the number of records that hold each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Integers
from marginweave.base.compiled import kernel

Codes = Sequence[NDArray[np.integer]] | NDArray[np.integer]
Attributes = tuple[int, ...]
_ROWS = 1 << 12  # of numbers at once: they fit into the nearest cache


@dataclass(frozen=True, kw_only=True, eq=False)
class Numbering:
    """One integer for every combination of some attributes, in canonical order: mixed radix, a missing value being the last.

    Where that would leave 62 bits, the digits before place i are replaced by their rank in `ranks[i]`, which has all of them
    that occur, ascending.
    """

    attributes: Attributes
    radices: tuple[int, ...]
    ranks: Mapping[int, Integers] = field(default_factory=dict)

    @property
    def cells(self) -> int:
        """Number of combinations."""
        return math.prod(self.radices)

    def keys(self, columns: Sequence[NDArray[np.integer]] | NDArray[np.integer]) -> Integers:
        """Return the number of every row of `columns`, the codes of each attribute, shape (n,)."""
        keys: Integers = columns[0].astype(np.int64)
        for place in range(1, len(self.radices)):
            if place in self.ranks:
                keys = np.searchsorted(self.ranks[place], keys)
            keys *= self.radices[place]
            keys += columns[place]
        return keys

    def codes(self, keys: Integers) -> list[Integers]:
        """Return the codes of each attribute, from the numbers `keys` of their combinations."""
        columns: list[Integers] = []
        for place in range(len(self.radices) - 1, 0, -1):
            keys, codes = np.divmod(keys, self.radices[place])
            columns.append(codes)
            if place in self.ranks:
                keys = self.ranks[place][keys]
        return [keys, *reversed(columns)]


class Tally(NamedTuple):
    """The combinations of a set of attributes that occur: their numbers, ascending, and the number of records of each."""

    keys: Integers
    counts: Integers

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in memory."""
        return self.keys.nbytes + self.counts.nbytes

    def at(self, keys: Integers) -> Integers:
        """Return the number of records that hold each combination of `keys`, 0 where none does."""
        if not len(self.keys):
            return np.zeros(len(keys), np.int64)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.counts[place], 0)


class SetCounter:
    """Counts the records that hold each combination of a set, block by block.

    With `dense` in one array, else by sorting keys: runs are added up when the last one is about as long as the one before it,
    so that each key is moved about log2(blocks) times. A record is counted once for each of `choices`.
    """

    def __init__(self, numbering: Numbering, choices: Integers, *, dense: bool) -> None:
        self._numbering = numbering
        self._choices = choices
        self._runs: list[Tally] = []
        self._cells = np.zeros(numbering.cells, np.int64) if dense else None

    def add(self, codes: NDArray[np.unsignedinteger]) -> None:
        """Count some records. `codes` has one row for each slot, shape (slots, n)."""
        for slots in self._choices:
            if self._cells is not None:
                _add(codes, slots, np.array(self._numbering.radices), self._cells)
                continue
            keys = self._numbering.keys(codes[slots])
            run = Tally(*np.unique(keys, return_counts=True))
            while self._runs and len(self._runs[-1].keys) <= 2 * len(run.keys):
                run = _sum(self._runs.pop(), run)
            self._runs.append(run)

    def tally(self) -> Tally:
        """Return the combinations that occur, and the number of records that hold each."""
        if self._cells is not None:
            keys = np.flatnonzero(self._cells)
            return Tally(keys, self._cells[keys])
        nothing = Tally(np.zeros(0, np.int64), np.zeros(0, np.int64))
        return reduce(_sum, reversed(self._runs), nothing)


def _sum(first: Tally, second: Tally) -> Tally:
    keys, counts = merged(first, second)
    return Tally(keys, counts.sum(axis=0))


@kernel
def _add(
    codes: NDArray[np.integer],
    places: Integers,
    radices: Integers,
    counts: Integers,
) -> None:  # pragma: no cover - compiled
    """Add the rows of codes to the counts of their cells; some rows at a time, so that their numbers are vectors."""
    cells = np.empty(_ROWS, np.uint64)  # no sign: no index is from the end
    for start in range(0, codes.shape[1], _ROWS):
        number = min(_ROWS, codes.shape[1] - start)
        row = codes[places[0]]
        for i in range(number):
            cells[i] = np.uint64(row[start + i])
        for j in range(1, len(places)):
            row = codes[places[j]]
            radix = np.uint64(radices[j])
            for i in range(number):
                cells[i] = cells[i] * radix + np.uint64(row[start + i])
        for i in range(number):
            counts[cells[i]] += 1


@kernel
def merged(first: Tally, second: Tally) -> tuple[Integers, Integers]:  # pragma: no cover - compiled
    """Return the keys of two tallies, ascending, and the counts of each in both, shape (2, keys)."""
    first_keys = first.keys
    second_keys = second.keys
    union = np.empty(len(first_keys) + len(second_keys), np.int64)
    counts = np.zeros((2, len(union)), np.int64)
    i = 0
    j = 0
    size = 0
    while i < len(first_keys) or j < len(second_keys):
        is_first = j == len(second_keys) or (
            i < len(first_keys) and first_keys[i] <= second_keys[j]
        )
        key = first_keys[i] if is_first else second_keys[j]
        if i < len(first_keys) and first_keys[i] == key:
            counts[0, size] = first.counts[i]
            i += 1
        if j < len(second_keys) and second_keys[j] == key:
            counts[1, size] = second.counts[j]
            j += 1
        union[size] = key
        size += 1
    return union[:size].copy(), counts[:, :size].copy()
