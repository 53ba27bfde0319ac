"""Combinations of values as integers, one for each cell of a set of attributes, and how many records hold each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.schemas.released.aggregates import IntArray

Codes = Sequence[NDArray[np.integer]] | NDArray[np.integer]
Attributes = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Numbering:
    """One integer for every combination of some attributes, in canonical order: mixed radix, a missing value being the last.

    Where that would leave 62 bits, the digits before place i are replaced by their rank in `ranks[i]`, which has all of them
    that occur, ascending.
    """

    attributes: Attributes
    radices: tuple[int, ...]
    ranks: Mapping[int, IntArray] = field(default_factory=dict)

    @property
    def cells(self) -> int:
        """How many combinations there are."""
        return math.prod(self.radices)

    def keys(self, columns: Sequence[NDArray[np.integer]] | NDArray[np.integer]) -> IntArray:
        """The number of every row of `columns`, the codes of each attribute, shape (n,)."""
        keys: IntArray = columns[0].astype(np.int64)
        for place in range(1, len(self.radices)):
            if place in self.ranks:
                keys = np.searchsorted(self.ranks[place], keys)
            keys *= self.radices[place]
            keys += columns[place]
        return keys

    def codes(self, keys: IntArray) -> list[IntArray]:
        """The codes of each attribute, of which `keys` are the numbers."""
        columns = []
        for place in range(len(self.radices) - 1, 0, -1):
            keys, codes = np.divmod(keys, self.radices[place])
            columns.append(codes)
            if place in self.ranks:
                keys = self.ranks[place][keys]
        return [keys, *reversed(columns)]


class Tally(NamedTuple):
    """The combinations of a set of attributes that occur, by their numbers, ascending, and how many records hold each."""

    keys: IntArray
    counts: IntArray

    def at(self, keys: IntArray) -> IntArray:
        """How many records hold each of other combinations, 0 where none does."""
        if not len(self.keys):
            return np.zeros(len(keys), np.int64)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.counts[place], 0)


Pending = Callable[[], Tally]


class KnownTallies:
    """Tallies of sets that were counted before, so many bytes of them; threads may share it."""

    def __init__(self, room: int) -> None:
        self._left, self._tallies, self._lock = room, dict[Attributes, Tally](), Lock()

    def get(self, numbering: Numbering) -> Tally | None:
        """The tally of a set, if it is here. One whose numbers hold in one comparison only never is."""
        return None if numbering.ranks else self._tallies.get(numbering.attributes)

    def keep(self, numbering: Numbering, tally: Tally) -> Tally:
        """The tally, which is here from now on if there is room for it."""
        taken = tally.keys.nbytes + tally.counts.nbytes
        with self._lock:
            if not numbering.ranks and taken <= self._left and numbering.attributes not in self._tallies:
                self._tallies[numbering.attributes] = tally
                self._left -= taken
        return tally


class DenseCounter:
    """A set that is counted in one array."""

    def __init__(self, numbering: Numbering, choices: IntArray) -> None:
        self._counts, self._radices, self._choices = np.zeros(numbering.cells, np.int64), numbering.radices, choices

    def add(self, codes: NDArray[np.unsignedinteger]) -> None:
        """Count some records: one row a slot."""
        for places in self._choices:
            _add(codes, places, np.array(self._radices), self._counts)

    def tally(self) -> Tally:
        """What was counted."""
        keys = np.flatnonzero(self._counts)
        return Tally(keys, self._counts[keys])


class SparseCounter:
    """A set whose keys are sorted, part by part; runs are added up when the last one is as long as the one before it.

    So each key is moved as often as the number of parts has binary digits.
    """

    def __init__(self, numbering: Numbering, choices: IntArray) -> None:
        self._numbering, self._choices, self._runs = numbering, choices, list[Tally]()

    def add(self, codes: NDArray[np.unsignedinteger]) -> None:
        """Count some records: one row a slot."""
        for places in self._choices:
            run = Tally(*np.unique(self._numbering.keys(codes[places]), return_counts=True))
            while self._runs and len(self._runs[-1].keys) <= 2 * len(run.keys):
                run = _sum(self._runs.pop(), run)
            self._runs.append(run)

    def tally(self) -> Tally:
        """What was counted."""
        total = Tally(np.zeros(0, np.int64), np.zeros(0, np.int64))
        while self._runs:
            total = _sum(self._runs.pop(), total)
        return total


def _sum(left: Tally, right: Tally) -> Tally:
    keys, counts = merged(left, right)
    return Tally(keys, counts[0] + counts[1])


@njit(cache=True, nogil=True)
def _add(
    codes: NDArray[np.integer], places: IntArray, radices: IntArray, counts: IntArray
) -> None:  # pragma: no cover - compiled
    for i in range(codes.shape[1]):
        cell = 0
        for j in range(places.shape[0]):
            cell = cell * radices[j] + codes[places[j], i]
        counts[cell] += 1


@njit(cache=True, nogil=True)
def merged(left: Tally, right: Tally) -> tuple[IntArray, IntArray]:  # pragma: no cover - compiled
    """The keys of two tallies, ascending, and what each counts on either side, shape (2, keys)."""
    one, other = left.keys, right.keys
    union = np.empty(len(one) + len(other), np.int64)
    counts = np.zeros((2, len(union)), np.int64)
    i = j = found = 0
    while i < len(one) or j < len(other):
        key = one[i] if j == len(other) or (i < len(one) and one[i] <= other[j]) else other[j]
        if i < len(one) and one[i] == key:
            counts[0, found] = left.counts[i]
            i += 1
        if j < len(other) and other[j] == key:
            counts[1, found] = right.counts[j]
            j += 1
        union[found] = key
        found += 1
    return union[:found].copy(), counts[:, :found].copy()
