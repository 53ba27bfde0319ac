"""Counts of every combination of a set of attributes, on two sides at once: what all metrics of counts are made from.

Records are counted block by block, so that memory does not grow with rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.configuration.execution import Execution
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.aggregates import Aggregates, Domain, IntArray
from marginweave.tasks.aggregate.marginals import grouped
from marginweave.tasks.encode.codes import code_type, value_slots
from marginweave.tasks.engine.local import LocalEngine
from marginweave.tasks.evaluate.tallies import (
    Attributes,
    Codes,
    DenseCounter,
    KnownTallies,
    Numbering,
    Pending,
    SparseCounter,
    Tally,
    merged,
)
from marginweave.tasks.normalize.normalize import LIMIT

FloatArray = NDArray[np.float64]
T = TypeVar("T")
# A set is counted in an array where its cells are few, or of the order of the records; else the records' keys are sorted.
FEW_CELLS, CELLS_A_RECORD = 65536, 4
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
        """The tally of each set of attributes, made where it is asked for, of what one pass over the records has counted.

        A record is counted once for every choice of one slot an attribute. DP: none of its own.
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
        """Bytes that are taken until a tally is asked for."""
        if self.known.get(numbering) is not None:
            return 0
        if self._is_dense(numbering):
            return _DENSE_BYTES * numbering.cells
        return _SPARSE_BYTES * min(numbering.cells, self._additions(numbering))

    def beginnings(self, attributes: Attributes, before: Numbering) -> IntArray:  # noqa: ARG002 - every record has the others
        """The distinct numbers of the first attributes of a set, those of `before`, that occur with the others."""
        return self.tallies([before])[0]().keys

    def _pending(self, numbering: Numbering, counter: DenseCounter | SparseCounter | None) -> Pending:
        if counter is None:
            known = self.known.get(numbering)
            assert known is not None
            return lambda: known
        return lambda: self.known.keep(numbering, counter.tally())

    def _counter(self, numbering: Numbering) -> DenseCounter | SparseCounter:
        choices = np.array(list(product(*(self.slots[j] for j in numbering.attributes))), np.int64)
        return (DenseCounter if self._is_dense(numbering) else SparseCounter)(numbering, choices)

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Released:
    """Released counts: each combination weighs what it counts. None takes part that counts 0."""

    aggregates: Aggregates

    @cached_property
    def _places(self) -> Mapping[Attributes, slice]:
        return {chosen: rows for level in self.aggregates.levels for chosen, rows in level.by_columns()}

    def tallies(self, numberings: Sequence[Numbering]) -> list[Pending]:
        """As `Records.tallies`: the released combinations of each set of attributes, none where all were suppressed."""
        return [lambda numbering=numbering: self._tally(numbering) for numbering in numberings]  # type: ignore[misc]

    def needs(self, numbering: Numbering) -> int:  # noqa: ARG002 - they are there already
        """As `Records.needs`."""
        return 0

    def beginnings(self, attributes: Attributes, before: Numbering) -> IntArray:
        """As `Records.beginnings`."""
        columns, _ = self._rows(attributes)
        return np.unique(before.keys(columns[: len(before.attributes)]))

    def is_single(self, attribute: int) -> bool:  # noqa: ARG002 - one side of two
        """Combinations have one value an attribute."""
        return True

    def _rows(self, attributes: Attributes) -> tuple[IntArray, IntArray]:
        """Codes, shape (attributes, n), and counts of the combinations of some attributes."""
        level, place = self.aggregates.levels[len(attributes) - 1], self._places.get(attributes, slice(0, 0))
        return level.values[place].T, level.counts[place]

    def _tally(self, numbering: Numbering) -> Tally:
        columns, counts = self._rows(numbering.attributes)
        keys = numbering.keys(columns)
        order = np.argsort(keys, kind="stable")  # in order as a rule
        order = order[counts[order] != 0]
        return Tally(keys[order], counts[order])


Side = Records | Released


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """The cells of a set of attributes that occur on a side, in canonical order.

    `reference` and `synthetic` have the counts, shape (cells,); `complete` says which cells have no missing value; `single`
    whether a record lies in one cell only.
    """

    numbering: Numbering
    keys: IntArray
    reference: FloatArray
    synthetic: FloatArray
    complete: NDArray[np.bool_]
    single: bool

    @property
    def attributes(self) -> Attributes:
        """Whose values the cells are combinations of."""
        return self.numbering.attributes


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Two sides over one domain; `sizes[j]` is the number of values of attribute j, and the code of a missing one."""

    reference: Side
    synthetic: Records
    sizes: tuple[int, ...]

    def measure(self, sets: Iterable[Attributes], measure: Callable[[Cells], T]) -> list[T]:
        """What `measure` says of the cells of each set, in their order.

        Sets are counted in groups that fit the room of the records, each group in one pass over a side; then cells of few sets
        are there at once. A record is one addition into an array wherever this is of the order of the records; else keys are
        sorted: n records cost O(n), or O(n log n). DP: as private as the two sides are.
        """
        sides = (self.reference, self.synthetic)
        numberings = [number_set(attributes, self.sizes, sides) for attributes in sets]
        found: list[T] = []
        for group in grouped(numberings, lambda n: sum(side.needs(n) for side in sides), self.synthetic.room):
            jobs = list(zip(group, *(side.tallies(group) for side in sides), strict=True))
            found += LocalEngine().map_many(lambda job: measure(self._cells(*job)), jobs)
        return found

    def _cells(self, numbering: Numbering, reference: Pending, synthetic: Pending) -> Cells:
        keys, counts = merged(reference(), synthetic())
        columns = zip(numbering.codes(keys), numbering.radices, strict=True)
        return Cells(
            numbering=numbering,
            keys=keys,
            reference=counts[0].astype(np.float64),
            synthetic=counts[1].astype(np.float64),
            complete=np.logical_and.reduce([codes < radix - 1 for codes, radix in columns]),
            single=all(self.reference.is_single(j) and self.synthetic.is_single(j) for j in numbering.attributes),
        )


def counted_sets(aggregates: Aggregates, length: int) -> list[Attributes]:
    """Attribute sets of one length whose counts the release has, if they were not suppressed. DP: post-processing."""
    if aggregates.measured is None:
        return list(combinations(range(len(aggregates.domain.names)), length))
    return [attributes for attributes in aggregates.measured if len(attributes) == length]
