"""How many records hold each combination of some attributes: counted block by block, so that memory does not grow with rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.schemas.configuration.execution import Execution
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.aggregates import Domain, IntArray
from marginweave.tasks.aggregate.marginals import grouped
from marginweave.tasks.encode.codes import code_type, value_slots
from marginweave.tasks.engine.local import LocalEngine
from marginweave.tasks.evaluate.numbering import (
    CELLS_A_RECORD,
    FEW_CELLS,
    Attributes,
    Codes,
    KnownTallies,
    Numbering,
    Pending,
    Tally,
)

# Bytes that a cell takes of an array; and that a distinct key takes of sorted runs, where two of these are added up.
_DENSE_BYTES, _SPARSE_BYTES = 8, 48
# Of `memory`, for what is counted together, and as much for the tallies that are kept.
_SHARE = 8
_PART = 1 << 18  # records of a block that are worked on together
_PARTS = 8  # of the sets, for the cores to take


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
    known: KnownTallies

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
        return cls(blocks=blocks, slots=slots, kind=kind, records=records, room=room, known=KnownTallies(room))

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
        return fitting and numbering.cells <= FEW_CELLS + CELLS_A_RECORD * self._additions(numbering)

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
