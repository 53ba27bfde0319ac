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

from marginweave.base.arrays import Integers
from marginweave.base.errors import InputError
from marginweave.base.parallel import LocalEngine
from marginweave.configuration.execution import Execution
from marginweave.counts.marginals import grouped
from marginweave.domain.labels import Domain
from marginweave.estimate.normalize import LIMIT
from marginweave.evaluate.tallies import Attributes, Codes, Numbering, SetCounter, Tally, merged
from marginweave.observations.combinations import Aggregates
from marginweave.prepare.codes import code_type, value_slots

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


class Records:
    """A table of codes in blocks, a pass over which can be repeated; a set has as many slots as values at most.

    As many sets of attributes are counted in one pass as have room beside each other, so that memory follows from `room`, in
    bytes, and the cells of one set, and not from the number of records. Tallies are kept as long as there is room for them:
    most sets are asked for more than once.
    """

    def __init__(self, blocks: Iterable[Codes], domain: Domain, memory: int = Execution().memory) -> None:
        """Records over `domain`.

        Args:
            blocks: Codes of each attribute, shape (n,), or (n, width) for a set; at least one block.
            domain: Their domain.
            memory: What counting may take, in bytes, as it is configured; it changes no count.

        Raises:
            InputError: if there are not as many attributes as the domain has.
        """
        widths, self._records = [0], 0
        for table in blocks:
            if len(table) != len(domain.names):
                raise InputError(f"records must have {len(domain.names)} attributes, as the domain has")
            widths = [len(list(value_slots(codes))) for codes in table]
            self._records += len(table[0])
        ends = np.cumsum(widths).tolist()
        self.slots = tuple(range(end - width, end) for end, width in zip(ends, widths, strict=True))
        self._blocks, self._kind = blocks, code_type(max(domain.sizes))
        self.room = self._left = memory // _SHARE
        self._known: dict[Attributes, Tally] = {}

    def __len__(self) -> int:
        return self._records

    def is_single(self, attribute: int) -> bool:
        """Whether the attribute has one slot."""
        return len(self.slots[attribute]) == 1

    def each(self, numberings: Sequence[Numbering]) -> Iterator[Tally]:
        """The tally of each set of attributes, in their order."""
        for group in grouped(numberings, self.needs, self.room):
            yield from self.tallies(group)

    def tallies(self, numberings: Sequence[Numbering]) -> list[Tally]:
        """The tally of each set of attributes, of one pass over the records.

        A record is counted once for every choice of one slot an attribute. DP: none of its own.
        """
        counting = {n.attributes: self._counter(n) for n in numberings if n.attributes not in self._known}
        counters = list(counting.values())
        parts = min(_PARTS, len(counters))
        for codes in self._parts() if counters else ():

            def add(part: int, codes: NDArray[np.unsignedinteger] = codes) -> None:
                for counter in counters[part::parts]:
                    counter.add(codes)

            for _ in LocalEngine().map(add, range(parts)):
                pass
        tallies = LocalEngine().map_many(lambda counter: counter.tally(), counters)
        fresh = dict(zip(counting, tallies, strict=True))
        for numbering in numberings:  # numbers by rank are those of one comparison
            tally = fresh.get(numbering.attributes)
            if tally is not None and not numbering.ranks and tally.nbytes <= self._left:
                self._known[numbering.attributes] = tally
                self._left -= tally.nbytes
        found = self._known | fresh
        return [found[numbering.attributes] for numbering in numberings]

    def needs(self, numbering: Numbering) -> int:
        """Bytes that counting a set takes; none if its tally is kept."""
        return 0 if numbering.attributes in self._known else self._layout(numbering)[1]

    def beginnings(self, attributes: Attributes, before: Numbering) -> Integers:  # noqa: ARG002 - every record has the others
        """The distinct numbers of the first attributes of a set, those of `before`, that occur with the others."""
        return self.tallies([before])[0].keys

    def _counter(self, numbering: Numbering) -> SetCounter:
        choices = np.array(list(product(*(self.slots[j] for j in numbering.attributes))), np.int64)
        return SetCounter(numbering, choices, dense=self._layout(numbering)[0])

    def _layout(self, numbering: Numbering) -> tuple[bool, int]:
        """Whether a set is counted in an array, and the bytes that it takes."""
        additions = len(self) * math.prod(len(self.slots[j]) for j in numbering.attributes)
        dense = _DENSE_BYTES * numbering.cells
        if dense <= self.room and numbering.cells <= FEW_CELLS + CELLS_A_RECORD * additions:
            return True, dense
        return False, _SPARSE_BYTES * min(numbering.cells, additions)

    def _parts(self) -> Iterator[NDArray[np.unsignedinteger]]:
        """The records, part by part: one row a slot, all in the smallest integers that hold every domain."""
        for table in self._blocks:
            slots = [slot for codes in table for slot in value_slots(codes)]
            for start in range(0, len(slots[0]), _PART):
                yield np.stack([slot[start : start + _PART].astype(self._kind, copy=False) for slot in slots])


@dataclass(frozen=True, kw_only=True, eq=False)
class Released:
    """Released counts: each combination weighs what it counts. None takes part that counts 0."""

    aggregates: Aggregates

    def __len__(self) -> int:
        return self.aggregates.record_count

    @cached_property
    def _places(self) -> Mapping[Attributes, slice]:
        return {chosen: rows for level in self.aggregates.levels for chosen, rows in level.by_columns()}

    def tallies(self, numberings: Sequence[Numbering]) -> list[Tally]:
        """As `Records.tallies`: the released combinations of each set of attributes, none where all were suppressed."""
        return [self._tally(numbering) for numbering in numberings]

    def needs(self, numbering: Numbering) -> int:  # noqa: ARG002 - they are there already
        """As `Records.needs`."""
        return 0

    def beginnings(self, attributes: Attributes, before: Numbering) -> Integers:
        """As `Records.beginnings`."""
        columns, _ = self._rows(attributes)
        return np.unique(before.keys(columns[: len(before.attributes)]))

    def is_single(self, attribute: int) -> bool:  # noqa: ARG002 - one side of two
        """Combinations have one value an attribute."""
        return True

    def _rows(self, attributes: Attributes) -> tuple[Integers, Integers]:
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
    radices, ranks = tuple(sizes[j] + 1 for j in attributes), dict[int, Integers]()
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
    keys: Integers
    reference: FloatArray
    synthetic: FloatArray
    complete: NDArray[np.bool_]
    single: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Two sides over one domain; `sizes[j]` is the number of values of attribute j, and the code of a missing one."""

    reference: Side
    synthetic: Records
    sizes: tuple[int, ...]

    @property
    def is_exact(self) -> bool:
        """Whether the reference is a table, of which missing values are known, too."""
        return isinstance(self.reference, Records)

    def is_single(self, attribute: int) -> bool:
        """Whether records of both sides have one value of an attribute."""
        return self.reference.is_single(attribute) and self.synthetic.is_single(attribute)

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

    def _cells(self, numbering: Numbering, reference: Tally, synthetic: Tally) -> Cells:
        keys, counts = merged(reference, synthetic)
        columns = zip(numbering.codes(keys), numbering.radices, strict=True)
        return Cells(
            numbering=numbering,
            keys=keys,
            reference=counts[0].astype(np.float64),
            synthetic=counts[1].astype(np.float64),
            complete=np.logical_and.reduce([codes < radix - 1 for codes, radix in columns]),
            single=all(map(self.is_single, numbering.attributes)),
        )


def counted_sets(aggregates: Aggregates, length: int) -> list[Attributes]:
    """Attribute sets of one length whose counts the release has, if they were not suppressed. DP: post-processing."""
    if aggregates.measured is None:
        return list(combinations(range(len(aggregates.domain.names)), length))
    return [attributes for attributes in aggregates.measured if len(attributes) == length]
