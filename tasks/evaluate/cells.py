"""Counts of every combination of a set of attributes, on two sides at once: what all metrics of counts are made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.released.aggregates import Aggregates, IntArray
from marginweave.tasks.aggregate.marginals import grouped
from marginweave.tasks.engine.local import LocalEngine
from marginweave.tasks.evaluate.numbering import Attributes, Numbering, Pending, Side, Tally, number_set
from marginweave.tasks.evaluate.tallies import Records, merged

FloatArray = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, eq=False)
class Released:
    """Released counts: each combination weighs what it counts. None takes part that counts 0."""

    aggregates: Aggregates

    @cached_property
    def _places(self) -> Mapping[Attributes, slice]:
        return {chosen: rows for level in self.aggregates.levels for chosen, rows in level.by_columns()}

    def tallies(self, numberings: Sequence[Numbering]) -> list[Pending]:
        """See `Side`: the released combinations of each set of attributes, none where all were suppressed."""
        return [lambda numbering=numbering: self._tally(numbering) for numbering in numberings]  # type: ignore[misc]

    def needs(self, numbering: Numbering) -> int:  # noqa: ARG002 - they are there already
        """See `Side`."""
        return 0

    def beginnings(self, attributes: Attributes, before: Numbering) -> IntArray:
        """See `Side`."""
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

    @property
    def pair_codes(self) -> tuple[IntArray, IntArray]:
        """The two values of each cell, of a pair of attributes."""
        rows, columns = self.numbering.codes(self.keys)
        return rows, columns


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Two sides over one domain; `sizes[j]` is the number of values of attribute j, and the code of a missing one."""

    reference: Side
    synthetic: Records
    sizes: tuple[int, ...]

    def cells(self, attributes: Attributes) -> Cells:
        """Count one set of attributes. DP: none of its own; as private as the two sides are."""
        return self.measure([attributes], lambda cells: cells)[0]

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
