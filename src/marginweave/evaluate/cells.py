"""Counts of every combination of a set of attributes, on two sides at once: the input of all metrics of counts.

Records are counted block by block, so that memory does not grow with rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.base.errors import InputError
from marginweave.base.parallel import LocalEngine
from marginweave.configuration.execution import Execution
from marginweave.counts.marginals import grouped
from marginweave.domain.labels import Domain
from marginweave.estimate.normalize import LIMIT
from marginweave.evaluate.tallies import Attributes, Codes, Numbering, SetCounter, Tally, merged
from marginweave.observations.combinations import Aggregates
from marginweave.prepare.codes import code_type, value_slots

T = TypeVar("T")
# A set is counted in an array where its cells are few, or of the order of the records; else the records' keys are sorted.
FEW_CELLS = 65536
CELLS_A_RECORD = 4
# Bytes of a cell in an array; and of a distinct key in sorted runs, where two of these are added up.
_DENSE_BYTES = 8
_SPARSE_BYTES = 48
# This part of `memory` is for sets that are counted in one pass, and as much for the tallies that are stored.
_SHARE = 8
_BATCH = 1 << 18  # records of a block that are counted at a time
_GROUPS = 8  # of sets, each counted by one core at a time


class Records:
    """A table of codes in blocks, a pass over which can be repeated; a set has as many slots as values at most.

    One pass counts as many sets of attributes as fit into `room`, in bytes. So memory follows from `room` and the cells of one
    set, and not from the number of records. Tallies are stored while there is room for them, because most sets are needed more
    than once.
    """

    def __init__(
        self,
        blocks: Iterable[Codes],
        domain: Domain,
        memory: int = Execution().memory,
    ) -> None:
        """Store the blocks of records over `domain`, and count the records.

        Args:
            blocks: Codes of each attribute, shape (n,), or (n, width) for a set; at least one block.
            domain: Their domain.
            memory: Bytes that counting may take, as configured; it changes no count.

        Raises:
            InputError: if there are not as many attributes as the domain has.
        """
        widths = [0]
        self._records = 0
        for table in blocks:
            if len(table) != len(domain.names):
                raise InputError(
                    f"records must have {len(domain.names)} attributes, as the domain has"
                )
            widths = [len(list(value_slots(codes))) for codes in table]
            self._records += len(table[0])
        ends = np.cumsum(widths).tolist()
        slots = [range(end - width, end) for end, width in zip(ends, widths, strict=True)]
        self.slots = tuple(slots)
        self._blocks = blocks
        self._code_type = code_type(max(domain.sizes))
        self.room = memory // _SHARE
        self._free_room = self.room
        self._stored: dict[Attributes, Tally] = {}

    def __len__(self) -> int:
        return self._records

    def is_single(self, attribute: int) -> bool:
        """Return whether the attribute has one slot."""
        return len(self.slots[attribute]) == 1

    def each(self, numberings: Sequence[Numbering]) -> Iterator[Tally]:
        """Yield the tally of each set of attributes, in their order."""
        for group in grouped(numberings, self.needs, self.room):
            yield from self.tallies(group)

    def tallies(self, numberings: Sequence[Numbering]) -> list[Tally]:
        """Return the tally of each set of attributes, from one pass over the records.

        A record is counted once for every choice of one slot an attribute. DP: none of its own.
        """
        counters: dict[Attributes, SetCounter] = {}
        for numbering in numberings:
            if numbering.attributes not in self._stored:
                counters[numbering.attributes] = self._counter(numbering)
        if counters:
            self._count(list(counters.values()))
        every_counter = list(counters.values())
        counted = LocalEngine().map_many(lambda counter: counter.tally(), every_counter)
        fresh = dict(zip(counters, counted, strict=True))
        for numbering in numberings:
            tally = fresh.get(numbering.attributes)
            # numbers by rank are those of one comparison, so their tally is of no use to another one
            if tally is not None and not numbering.ranks and tally.nbytes <= self._free_room:
                self._stored[numbering.attributes] = tally
                self._free_room -= tally.nbytes
        tallies = self._stored | fresh
        return [tallies[numbering.attributes] for numbering in numberings]

    def _count(self, counters: Sequence[SetCounter]) -> None:
        """Add all records to each counter."""
        groups = min(_GROUPS, len(counters))
        for codes in self._batches():

            def add(group: int, codes: NDArray[np.unsignedinteger] = codes) -> None:
                for counter in counters[group::groups]:
                    counter.add(codes)

            for _ in LocalEngine().map(add, range(groups)):
                pass

    def needs(self, numbering: Numbering) -> int:
        """Return the bytes that counting a set takes; 0 if its tally is stored."""
        if numbering.attributes in self._stored:
            return 0
        _, size = self._layout(numbering)
        return size

    def beginnings(self, attributes: Attributes, before: Numbering) -> Integers:  # noqa: ARG002 - every record has them all
        """Return the distinct numbers of the first attributes of a set, those of `before`, that occur with the last ones."""
        (tally,) = self.tallies([before])
        return tally.keys

    def _counter(self, numbering: Numbering) -> SetCounter:
        """Return a counter of a set of attributes, for every choice of one slot an attribute."""
        slots = [self.slots[j] for j in numbering.attributes]
        choices = np.array(list(product(*slots)), np.int64)
        is_dense, _ = self._layout(numbering)
        return SetCounter(numbering, choices, dense=is_dense)

    def _layout(self, numbering: Numbering) -> tuple[bool, int]:
        """Return whether a set is counted in an array, and the bytes that it takes."""
        choices = math.prod(len(self.slots[j]) for j in numbering.attributes)
        additions = len(self) * choices
        dense_bytes = _DENSE_BYTES * numbering.cells
        most_cells = FEW_CELLS + CELLS_A_RECORD * additions
        if dense_bytes <= self.room and numbering.cells <= most_cells:
            return True, dense_bytes
        distinct_keys = min(numbering.cells, additions)
        return False, _SPARSE_BYTES * distinct_keys

    def _batches(self) -> Iterator[NDArray[np.unsignedinteger]]:
        """Yield the records in batches: one row a slot, all in the smallest integers that hold every domain."""
        for table in self._blocks:
            slots: list[NDArray[np.integer]] = []
            for codes in table:
                slots.extend(value_slots(codes))
            for start in range(0, len(slots[0]), _BATCH):
                end = start + _BATCH
                rows = [slot[start:end].astype(self._code_type, copy=False) for slot in slots]
                yield np.stack(rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class Released:
    """Released counts: each combination has its count as weight. Combinations with count 0 are left out."""

    aggregates: Aggregates

    def __len__(self) -> int:
        return self.aggregates.record_count

    @cached_property
    def _places(self) -> Mapping[Attributes, slice]:
        places: dict[Attributes, slice] = {}
        for level in self.aggregates.levels:
            places.update(level.by_columns())
        return places

    def tallies(self, numberings: Sequence[Numbering]) -> list[Tally]:
        """Return the released combinations of each set of attributes, none where all were suppressed."""
        return [self._tally(numbering) for numbering in numberings]

    def needs(self, numbering: Numbering) -> int:  # noqa: ARG002 - nothing has to be counted
        """Return 0, the bytes that counting a set takes."""
        return 0

    def beginnings(self, attributes: Attributes, before: Numbering) -> Integers:
        """Return the distinct numbers of the first attributes of a set, those of `before`, that occur with the last ones."""
        columns, _ = self._rows(attributes)
        first_columns = columns[: len(before.attributes)]
        return np.unique(before.keys(first_columns))

    def is_single(self, attribute: int) -> bool:  # noqa: ARG002 - one side of two
        """Return True: combinations have one value an attribute."""
        return True

    def _rows(self, attributes: Attributes) -> tuple[Integers, Integers]:
        """Return codes, shape (attributes, n), and counts of the combinations of some attributes."""
        level = self.aggregates.levels[len(attributes) - 1]
        rows = self._places.get(attributes, slice(0, 0))
        return level.values[rows].T, level.counts[rows]

    def _tally(self, numbering: Numbering) -> Tally:
        columns, counts = self._rows(numbering.attributes)
        keys = numbering.keys(columns)
        order = np.argsort(keys, kind="stable")  # keys are usually in order already
        order = order[counts[order] != 0]
        return Tally(keys[order], counts[order])


Side = Records | Released


def number_set(attributes: Attributes, sizes: Sequence[int], sides: Sequence[Side]) -> Numbering:
    """Return the numbering of the combinations of a set.

    `sides` hold all combinations that will be numbered. They are read only where numbers need more than 62 bits.
    """
    radices = tuple(sizes[j] + 1 for j in attributes)
    ranks: dict[int, Integers] = {}
    bound = radices[0]
    for place in range(1, len(radices)):
        if bound * radices[place] >= LIMIT:
            before = Numbering(
                attributes=attributes[:place], radices=radices[:place], ranks=dict(ranks)
            )
            beginnings = [side.beginnings(attributes, before) for side in sides]
            ranks[place] = np.unique(np.concatenate(beginnings))
            bound = len(ranks[place])
        bound *= radices[place]
    return Numbering(attributes=attributes, radices=radices, ranks=ranks)


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """The cells of a set of attributes that occur on a side, in canonical order.

    `keys` has the numbers of the cells, `reference` and `synthetic` their counts, shape (cells,). `complete` says which cells
    have no missing value; `one_cell_per_record` whether a record lies in one cell only.
    """

    numbering: Numbering
    keys: Integers
    reference: Floats
    synthetic: Floats
    complete: Flags
    one_cell_per_record: bool

    def scaled(self, scale: float) -> Cells:
        """Return the cells with each synthetic record counted as `scale` records."""
        return replace(self, synthetic=self.synthetic * scale)


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Two sides over one domain; `sizes[j]` is the number of values of attribute j, and the code of a missing one."""

    reference: Side
    synthetic: Records
    sizes: tuple[int, ...]

    @property
    def scale(self) -> float:
        """Return what a synthetic record counts as beside the counts of the reference: N / n; 1 where a side has no record."""
        reference = len(self.reference)
        synthetic = len(self.synthetic)
        return reference / synthetic if reference and synthetic else 1.0

    @property
    def is_exact(self) -> bool:
        """Return whether the reference is a table, in which missing values are known, too."""
        return isinstance(self.reference, Records)

    def is_single(self, attribute: int) -> bool:
        """Return whether records of both sides have one value of an attribute."""
        return self.reference.is_single(attribute) and self.synthetic.is_single(attribute)

    def measure(self, sets: Iterable[Attributes], measure: Callable[[Cells], T]) -> list[T]:
        """Return the result of `measure` for the cells of each set, in their order.

        Sets are counted in groups that fit the room of the records, each group in one pass over a side. So the cells of few
        sets are in memory at a time. A record is one addition into an array wherever this is of the order of the records; else
        keys are sorted: n records cost O(n), or O(n log n). DP: as private as the two sides are.
        """
        sides = (self.reference, self.synthetic)
        numberings = [number_set(attributes, self.sizes, sides) for attributes in sets]

        def needs(numbering: Numbering) -> int:
            return sum(side.needs(numbering) for side in sides)

        results: list[T] = []
        for group in grouped(numberings, needs, self.synthetic.room):
            reference = self.reference.tallies(group)
            synthetic = self.synthetic.tallies(group)
            jobs = list(zip(group, reference, synthetic, strict=True))
            results += LocalEngine().map_many(lambda job: measure(self._cells(*job)), jobs)
        return results

    def _cells(self, numbering: Numbering, reference: Tally, synthetic: Tally) -> Cells:
        keys, counts = merged(reference, synthetic)
        columns = zip(numbering.codes(keys), numbering.radices, strict=True)
        has_value = [codes < radix - 1 for codes, radix in columns]
        return Cells(
            numbering=numbering,
            keys=keys,
            reference=counts[0].astype(np.float64),
            synthetic=counts[1].astype(np.float64),
            complete=np.logical_and.reduce(has_value),
            one_cell_per_record=all(map(self.is_single, numbering.attributes)),
        )


def counted_sets(aggregates: Aggregates, length: int) -> list[Attributes]:
    """Return the attribute sets of one length whose counts are released, or suppressed. DP: post-processing."""
    if aggregates.measured is None:
        return list(combinations(range(len(aggregates.domain.names)), length))
    return [attributes for attributes in aggregates.measured if len(attributes) == length]
