"""Counts of every combination of a set of attributes, on two sides at once: what all metrics of counts are made from."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.schemas.aggregates import Aggregates, Domain, IntArray
from marginweave.schemas.errors import InputError
from marginweave.tasks.encode.codes import code_type, value_slots
from marginweave.tasks.normalize.keys import row_keys

Codes = Sequence[NDArray[np.integer]]
Attributes = tuple[int, ...]
FloatArray = NDArray[np.float64]
T = TypeVar("T")

_WORKERS = 2
_FEW = 65536


class Rows(NamedTuple):
    """Combinations to count: rows `places` of `codes`, shape (rows, n), with a weight each, or 1 where there are none."""

    codes: NDArray[np.integer]
    places: IntArray
    weights: IntArray


class Side(Protocol):
    """One side of a comparison."""

    def rows(self, attributes: Attributes) -> Iterator[Rows]:
        """What is to be counted for a set of attributes."""

    def is_single(self, attribute: int) -> bool:
        """Whether a record has at most one value of the attribute."""


_ONES: IntArray = np.zeros(0, np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """A table of codes, one row a slot of an attribute: a set has as many slots as values at most.

    All in the smallest unsigned integers that hold every domain: this is what an evaluation needs memory for.
    """

    codes: NDArray[np.unsignedinteger]
    slots: tuple[range, ...]

    @classmethod
    def of(cls, table: Codes, domain: Domain) -> Records:
        """Codes of each attribute, shape (n,), or (n, width) for a set, side by side.

        Raises:
            InputError: if there are not as many attributes as the domain has.
        """
        return cls.of_blocks([table], domain)

    @classmethod
    def of_blocks(cls, blocks: Iterable[Codes], domain: Domain) -> Records:
        """The same of a table in blocks, at least one.

        Raises:
            InputError: if there are not as many attributes as the domain has.
        """
        kind, parts, widths = code_type(max(domain.sizes)), [], [0]
        for table in blocks:
            if len(table) != len(domain.names):
                raise InputError(f"records must have {len(domain.names)} attributes, as the domain has")
            widths = [len(list(value_slots(codes))) for codes in table]
            parts.append(np.concatenate([np.atleast_2d(codes.T).astype(kind) for codes in table]))
        ends = np.cumsum(widths).tolist()
        slots = tuple(range(end - width, end) for end, width in zip(ends, widths, strict=True))
        return cls(codes=parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1), slots=slots)

    def __len__(self) -> int:
        return int(self.codes.shape[1])

    def rows(self, attributes: Attributes) -> Iterator[Rows]:
        """All records, once for every choice of one slot an attribute."""
        for choice in product(*(self.slots[j] for j in attributes)):
            yield Rows(self.codes, np.array(choice, np.int64), _ONES)

    def counts_at(self, attributes: Attributes, values: IntArray, sizes: Sequence[int]) -> IntArray:
        """How many records hold each combination of `values`, shape (combinations, n), in canonical order, none missing.

        At the cost of `Comparison.cells`. DP: none of its own.
        """
        radices = [sizes[j] + 1 for j in attributes]
        if math.prod(radices) <= _FEW + 2 * len(self):
            dense = np.zeros(math.prod(radices), np.int64)
            for part in self.rows(attributes):
                _add(part.codes, part.places, np.array(radices), part.weights, dense)
            cells = np.ravel_multi_index(tuple(values.T), radices)
            return np.asarray(dense[cells])
        counts = np.zeros(len(values), np.int64)
        for part in self.rows(attributes):
            both = [np.concatenate([values[:, i], part.codes[place]]) for i, place in enumerate(part.places)]
            keys, _ = row_keys(both, radices)
            known, held = keys[: len(values)], keys[len(values) :]
            place = np.minimum(np.searchsorted(known, held), len(known) - 1)
            counts += np.bincount(place[known[place] == held], minlength=len(known))
        return counts

    def is_single(self, attribute: int) -> bool:
        """Whether the attribute has one slot."""
        return len(self.slots[attribute]) == 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Released:
    """Released counts: each combination weighs what it counts."""

    aggregates: Aggregates

    @cached_property
    def _places(self) -> Mapping[Attributes, slice]:
        return {chosen: rows for level in self.aggregates.levels for chosen, rows in level.by_columns()}

    def rows(self, attributes: Attributes) -> Iterator[Rows]:
        """The released combinations of the attributes; none where all were suppressed."""
        level, place = self.aggregates.levels[len(attributes) - 1], self._places.get(attributes, slice(0, 0))
        codes = np.ascontiguousarray(level.values[place].T, code_type(max(self.aggregates.domain.sizes)))
        yield Rows(codes, np.arange(len(attributes)), level.counts[place])

    def is_single(self, attribute: int) -> bool:  # noqa: ARG002 - one side of two
        """Combinations have one value an attribute."""
        return True


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """The cells of a set of attributes that occur on a side, in canonical order.

    `reference` and `synthetic` have the counts, shape (cells,); `complete` says which cells have no missing value; `single`
    whether a record lies in one cell only.
    """

    attributes: Attributes
    keys: IntArray
    radices: tuple[int, ...]
    reference: FloatArray
    synthetic: FloatArray
    complete: NDArray[np.bool_]
    single: bool

    @property
    def pair_codes(self) -> tuple[IntArray, IntArray]:
        """The two values of each cell, of a pair of attributes: the keys of so few are never ranks."""
        rows, columns = np.divmod(self.keys, self.radices[1])
        return rows, columns


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Two sides over one domain; `sizes[j]` is the number of values of attribute j, and the code of a missing one."""

    reference: Side
    synthetic: Records
    sizes: tuple[int, ...]

    def cells(self, attributes: Attributes) -> Cells:
        """Count one set of attributes. DP: none of its own; as private as the two sides are.

        A record is one addition into a dense array wherever this is of the order of the records, at most two int64 arrays of
        twice as many cells; else the records' keys are sorted. Sides of n and m records cost O(n + m), or O(n log n + m log m).
        """
        radices = tuple(self.sizes[j] + 1 for j in attributes)
        sides = [list(side.rows(attributes)) for side in (self.reference, self.synthetic)]
        rows = sum(part.codes.shape[1] for side in sides for part in side)
        count = _dense if math.prod(radices) <= _FEW + 2 * rows else _sparse
        keys, reference, synthetic, complete = count(sides, radices)
        return Cells(
            attributes=attributes,
            keys=keys,
            radices=radices,
            reference=reference.astype(np.float64),
            synthetic=synthetic.astype(np.float64),
            complete=complete,
            single=all(self.reference.is_single(j) and self.synthetic.is_single(j) for j in attributes),
        )

    def measure(self, sets: Iterable[Attributes], measure: Callable[[Cells], T]) -> list[T]:
        """What `measure` says of the cells of each set, in their order; two at a time, so that few cells are held at once."""
        with ThreadPoolExecutor(min(_WORKERS, os.cpu_count() or 1)) as pool:
            return list(pool.map(lambda attributes: measure(self.cells(attributes)), sets))


Counted = tuple[IntArray, IntArray, IntArray, NDArray[np.bool_]]


def _dense(sides: list[list[Rows]], radices: tuple[int, ...]) -> Counted:
    counts = np.zeros((len(sides), math.prod(radices)), np.int64)
    for side, counted in zip(sides, counts, strict=True):
        for part in side:
            _add(part.codes, part.places, np.array(radices), part.weights, counted)
    complete = np.zeros(radices, np.bool_)
    complete[tuple(slice(radix - 1) for radix in radices)] = True
    keys = np.flatnonzero(counts[0] | counts[1])
    return keys, counts[0][keys], counts[1][keys], complete.ravel()[keys]


@njit(cache=True, nogil=True)
def _add(
    codes: NDArray[np.integer], places: IntArray, radices: IntArray, weights: IntArray, counts: IntArray
) -> None:  # pragma: no cover - compiled
    for i in range(codes.shape[1]):
        cell = 0
        for j in range(places.shape[0]):
            cell = cell * radices[j] + codes[places[j], i]
        counts[cell] += weights[i] if weights.shape[0] else 1


def _sparse(sides: list[list[Rows]], radices: tuple[int, ...]) -> Counted:
    columns = [
        np.concatenate([part.codes[part.places[j]] for side in sides for part in side]) for j in range(len(radices))
    ]
    keys, _ = row_keys(columns, radices)
    complete = np.logical_and.reduce([c < radix - 1 for c, radix in zip(columns, radices, strict=True)])
    keys = 2 * keys + complete  # row_keys stays below 2^62
    split = sum(part.codes.shape[1] for part in sides[0])
    union, counts = _merge(*_ordered(keys[:split], sides[0]), *_ordered(keys[split:], sides[1]))
    return union >> 1, counts[0], counts[1], (union & 1).astype(np.bool_)


def _ordered(keys: IntArray, side: list[Rows]) -> tuple[IntArray, IntArray]:
    """Keys in order, with their weights where there are any."""
    weights = np.concatenate([part.weights for part in side])
    if not len(weights):
        return np.sort(keys), weights
    order = np.argsort(keys)
    return keys[order], weights[order]


@njit(cache=True, nogil=True)
def _merge(
    left: IntArray, left_weights: IntArray, right: IntArray, right_weights: IntArray
) -> tuple[IntArray, IntArray]:  # pragma: no cover - compiled
    """Distinct keys of two sorted arrays, in order, and what each counts on either side."""
    union = np.empty(len(left) + len(right), np.int64)
    counts = np.zeros((2, len(union)), np.int64)
    i = j = found = 0
    while i < len(left) or j < len(right):
        key = left[i] if j == len(right) or (i < len(left) and left[i] <= right[j]) else right[j]
        while i < len(left) and left[i] == key:
            counts[0, found] += left_weights[i] if len(left_weights) else 1
            i += 1
        while j < len(right) and right[j] == key:
            counts[1, found] += right_weights[j] if len(right_weights) else 1
            j += 1
        union[found] = key
        found += 1
    return union[:found], counts[:, :found]
