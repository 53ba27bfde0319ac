"""Combinations of values as integers: one for each cell of a set of attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.released.aggregates import IntArray
from marginweave.tasks.normalize.normalize import LIMIT

Codes = Sequence[NDArray[np.integer]] | NDArray[np.integer]


Attributes = tuple[int, ...]


# A set is counted in an array where its cells are few, or of the order of the records; else the records' keys are sorted.
FEW_CELLS, CELLS_A_RECORD = 65536, 4


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


class Side(Protocol):
    """One side of a comparison."""

    def tallies(self, numberings: Sequence[Numbering]) -> Sequence[Pending]:
        """What is to be counted for each set of attributes, counted; each tally is made where it is asked for."""
        ...

    def needs(self, numbering: Numbering) -> int:
        """Bytes that are taken until a tally is asked for."""
        ...

    def beginnings(self, attributes: Attributes, before: Numbering) -> IntArray:
        """The distinct numbers of the first attributes of a set, those of `before`, that occur with the others."""
        ...

    def is_single(self, attribute: int) -> bool:
        """Whether a record has at most one value of the attribute."""
        ...


def number_set(attributes: Attributes, sizes: Sequence[int], sides: Sequence[Side]) -> Numbering:
    """How combinations of a set are numbered; `sides` hold all that will be, and are looked at beyond 62 bits only."""
    radices, ranks = tuple(sizes[j] + 1 for j in attributes), dict[int, IntArray]()
    bound = radices[0]
    for place in range(1, len(radices)):
        if bound * radices[place] >= LIMIT:
            before = Numbering(attributes=attributes[:place], radices=radices[:place], ranks=dict(ranks))
            ranks[place] = np.unique(np.concatenate([side.beginnings(attributes, before) for side in sides]))
            bound = len(ranks[place])
        bound *= radices[place]
    return Numbering(attributes=attributes, radices=radices, ranks=ranks)


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
