"""How many records hold each combination of some attributes: counted block by block, so that memory does not grow with rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from threading import Lock
from typing import NamedTuple, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.schemas.configuration.execution import Execution
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.aggregates import Domain, IntArray
from marginweave.tasks.aggregate.marginals import grouped
from marginweave.tasks.encode.codes import code_type, value_slots
from marginweave.tasks.engine.local import LocalEngine
from marginweave.tasks.normalize.keys import LIMIT

Codes = Sequence[NDArray[np.integer]]
Attributes = tuple[int, ...]

# A set is counted in an array where its cells are few, or of the order of the records; else the records' keys are sorted.
_FEW, _CELLS_A_RECORD = 65536, 4
# Bytes that a cell takes of an array; and that a distinct key takes of sorted runs, where two of these are added up.
_DENSE_BYTES, _SPARSE_BYTES = 8, 48
# Of `memory`, for what is counted together, and as much for the tallies that are kept.
_SHARE = 8
_PART = 1 << 18  # records of a block that are worked on together
_PARTS = 8  # of the sets, for the cores to take


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

    def needs(self, numbering: Numbering) -> int:
        """Bytes that are taken until a tally is asked for."""

    def beginnings(self, attributes: Attributes, before: Numbering) -> IntArray:
        """The distinct numbers of the first attributes of a set, those of `before`, that occur with the others."""

    def is_single(self, attribute: int) -> bool:
        """Whether a record has at most one value of the attribute."""


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


class _Known:
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """A table of codes in blocks, a pass over which can be repeated; a set has as many slots as values at most.

    As many sets of attributes are counted in one pass as have room beside each other, so that what is held follows from
    `room`, in bytes, and the cells of one set, and not from the number of records. Tallies are kept as long as there is room
    for them: most sets are asked for more than once.
    """

    blocks: Iterable[Codes]
    slots: tuple[range, ...]
    kind: type[np.unsignedinteger]
    records: int
    room: int
    known: _Known

    @classmethod
    def of(cls, table: Codes, domain: Domain) -> Records:
        """Codes of each attribute, shape (n,), or (n, width) for a set.

        Raises:
            InputError: if there are not as many attributes as the domain has.
        """
        return cls.of_blocks([table], domain)

    @classmethod
    def of_blocks(cls, blocks: Iterable[Codes], domain: Domain, memory: int = Execution().memory) -> Records:
        """The same of a table in blocks, at least one; `memory` as it is configured changes no count.

        Raises:
            InputError: if there are not as many attributes as the domain has.
        """
        widths, records = [0], 0
        for table in blocks:
            if len(table) != len(domain.names):
                raise InputError(f"records must have {len(domain.names)} attributes, as the domain has")
            widths = [len(list(value_slots(codes))) for codes in table]
            records += len(table[0])
        ends = np.cumsum(widths).tolist()
        slots = tuple(range(end - width, end) for end, width in zip(ends, widths, strict=True))
        kind = code_type(max(domain.sizes))
        room = memory // _SHARE
        return cls(blocks=blocks, slots=slots, kind=kind, records=records, room=room, known=_Known(room))

    def __len__(self) -> int:
        return self.records

    def is_single(self, attribute: int) -> bool:
        """Whether the attribute has one slot."""
        return len(self.slots[attribute]) == 1

    def each(self, numberings: Sequence[Numbering]) -> Iterator[Tally]:
        """The tally of each set of attributes, in their order."""
        for group in grouped(numberings, self.needs, self.room):
            yield from LocalEngine().map_many(lambda pending: pending(), self.tallies(group))

    def tallies(self, numberings: Sequence[Numbering]) -> list[Pending]:
        """See `Side`: in one pass over the records. A record is counted once for every choice of one slot an attribute.

        DP: none of its own.
        """
        counters = {n: self._counter(n) for n in numberings if self.known.get(n) is None}
        counting = list(counters.values())
        parts = min(_PARTS, len(counting))
        for codes in self._parts() if counting else ():

            def add(part: int, codes: NDArray[np.unsignedinteger] = codes) -> None:
                for counter in counting[part::parts]:
                    counter.add(codes)

            for _ in LocalEngine().map(add, range(parts)):
                pass
        return [self._pending(numbering, counters.get(numbering)) for numbering in numberings]

    def needs(self, numbering: Numbering) -> int:
        """See `Side`."""
        if self.known.get(numbering) is not None:
            return 0
        if self._is_dense(numbering):
            return _DENSE_BYTES * numbering.cells
        return _SPARSE_BYTES * min(numbering.cells, self._additions(numbering))

    def beginnings(self, attributes: Attributes, before: Numbering) -> IntArray:  # noqa: ARG002 - every record has the others
        """See `Side`."""
        return self.tallies([before])[0]().keys

    def _pending(self, numbering: Numbering, counter: _Dense | _Sparse | None) -> Pending:
        if counter is None:
            known = self.known.get(numbering)
            assert known is not None
            return lambda: known
        return lambda: self.known.keep(numbering, counter.tally())

    def _counter(self, numbering: Numbering) -> _Dense | _Sparse:
        choices = np.array(list(product(*(self.slots[j] for j in numbering.attributes))), np.int64)
        return (_Dense if self._is_dense(numbering) else _Sparse)(numbering, choices)

    def _is_dense(self, numbering: Numbering) -> bool:
        fitting = _DENSE_BYTES * numbering.cells <= self.room
        return fitting and numbering.cells <= _FEW + _CELLS_A_RECORD * self._additions(numbering)

    def _additions(self, numbering: Numbering) -> int:
        return self.records * math.prod(len(self.slots[j]) for j in numbering.attributes)

    def _parts(self) -> Iterator[NDArray[np.unsignedinteger]]:
        """The records, part by part: one row a slot, all in the smallest integers that hold every domain."""
        for table in self.blocks:
            slots = [slot for codes in table for slot in value_slots(codes)]
            for start in range(0, len(slots[0]), _PART):
                yield np.stack([slot[start : start + _PART].astype(self.kind, copy=False) for slot in slots])


class _Dense:
    """A set that is counted in one array."""

    def __init__(self, numbering: Numbering, choices: IntArray) -> None:
        self._counts, self._radices, self._choices = np.zeros(numbering.cells, np.int64), numbering.radices, choices

    def add(self, codes: NDArray[np.unsignedinteger]) -> None:
        for places in self._choices:
            _add(codes, places, np.array(self._radices), self._counts)

    def tally(self) -> Tally:
        keys = np.flatnonzero(self._counts)
        return Tally(keys, self._counts[keys])


class _Sparse:
    """A set whose keys are sorted, part by part; runs are added up when the last one is as long as the one before it.

    So each key is moved as often as the number of parts has binary digits.
    """

    def __init__(self, numbering: Numbering, choices: IntArray) -> None:
        self._numbering, self._choices, self._runs = numbering, choices, list[Tally]()

    def add(self, codes: NDArray[np.unsignedinteger]) -> None:
        for places in self._choices:
            run = Tally(*np.unique(self._numbering.keys(codes[places]), return_counts=True))
            while self._runs and len(self._runs[-1].keys) <= 2 * len(run.keys):
                run = _sum(self._runs.pop(), run)
            self._runs.append(run)

    def tally(self) -> Tally:
        total = Tally(np.zeros(0, np.int64), np.zeros(0, np.int64))
        while self._runs:
            total = _sum(self._runs.pop(), total)
        return total


def _sum(left: Tally, right: Tally) -> Tally:
    keys, counts = merged(left, right)
    return Tally(keys, counts[0] + counts[1])


def merged(left: Tally, right: Tally) -> tuple[IntArray, IntArray]:
    """The keys of two tallies, ascending, and what each counts on either side, shape (2, keys)."""
    keys, counts = _merge(*left, *right)
    return keys, counts


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
def _merge(
    left: IntArray, left_counts: IntArray, right: IntArray, right_counts: IntArray
) -> tuple[IntArray, IntArray]:  # pragma: no cover - compiled
    """Distinct keys of two ascending arrays, in order, and what each counts on either side."""
    union = np.empty(len(left) + len(right), np.int64)
    counts = np.zeros((2, len(union)), np.int64)
    i = j = found = 0
    while i < len(left) or j < len(right):
        key = left[i] if j == len(right) or (i < len(left) and left[i] <= right[j]) else right[j]
        if i < len(left) and left[i] == key:
            counts[0, found] = left_counts[i]
            i += 1
        if j < len(right) and right[j] == key:
            counts[1, found] = right_counts[j]
            j += 1
        union[found] = key
        found += 1
    return union[:found].copy(), counts[:, :found].copy()
