"""Sums that many tables have in common, made equal in compiled passes: most tables are too small for calls of numpy each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.schemas.arrays import Flags, Floats, Integers
from marginweave.schemas.released.measurements import Clique
from marginweave.tasks.estimate.rounding import project_simplex, to_simplex

Places = NDArray[np.int32]


class Tables(NamedTuple):
    """Tables of counts end to end, each in C order: table i has the cells `starts[i]` to `starts[i + 1]`.

    `values` change; a cell that is not `allowed` is 0 and stays so. `shapes` has a row for each table, with ones in front of
    those of fewer axes than others. `precision` is 1/deviation^2.
    """

    values: Floats
    allowed: Flags
    starts: Integers
    shapes: Integers
    precision: Floats

    @classmethod
    def of(cls, values: Sequence[Floats], allowed: Sequence[Flags], precision: Sequence[float]) -> Self:
        """Copies of these tables; their forbidden cells are emptied."""
        axes = max(table.ndim for table in values)
        flags = np.concatenate([table.ravel() for table in allowed])
        return cls(
            values=np.where(flags, np.concatenate([table.ravel() for table in values]), 0.0),
            allowed=flags,
            starts=np.cumsum([0, *(table.size for table in values)]),
            shapes=np.array([[1] * (axes - table.ndim) + list(table.shape) for table in values], np.int64),
            precision=np.array(precision, np.float64),
        )

    def table(self, number: int, shape: tuple[int, ...]) -> Floats:
        """One of them, of the shape that it came in: a view."""
        return self.values[self.starts[number] : self.starts[number + 1]].reshape(shape)


class Shared(NamedTuple):
    """A set of attributes and the tables that have it: a table of it alone has `cells` cells.

    `strides` has a row for each of the `members`, the step in that table for a step along each axis of the member.
    """

    attributes: int
    cells: int
    members: Integers
    strides: Integers

    @classmethod
    def of(cls, subset: Clique, members: Sequence[int], cliques: Sequence[Clique], tables: Tables) -> Self:
        """For the tables `members`, of the attributes that `cliques` say of all of them."""
        strides = np.zeros((len(members), tables.shapes.shape[1]), np.int64)
        first, front = members[0], tables.shapes.shape[1] - len(cliques[members[0]])
        sizes = [int(tables.shapes[first, front + cliques[first].index(a)]) for a in subset]
        steps = {a: math.prod(sizes[place + 1 :]) for place, a in enumerate(subset)}
        for row, member in zip(strides, members, strict=True):
            clique = cliques[member]
            row[len(row) - len(clique) :] = [steps.get(a, 0) for a in clique]
        return cls(len(subset), math.prod(sizes), np.array(members, np.int64), strides)

    def likely(self, tables: Tables, total: float) -> Floats:
        """The weighted mean of the sums over this set, the nearest to it that adds up to `total`: shape (cells,)."""
        sums, numbers, _ = _sums(tables, self)
        mean, possible = _mean(tables, self, sums, numbers), numbers[0] > 0
        mean[~possible] = 0.0
        mean[possible] = project_simplex(mean[possible], total)
        return mean

    def average(self, tables: Tables, target: Floats | None = None) -> None:
        """Make the sums over this set equal: to `target`, or to their weighted mean."""
        _average(tables, self, np.zeros(0) if target is None else target)

    def disagreement(self, tables: Tables) -> float:
        """The largest difference between two members in a sum over this set, in records."""
        return float(np.ptp(_sums(tables, self)[0], axis=0).max())

    def spread_zeros(self, tables: Tables) -> bool:
        """Forbid in every member what any of them cannot have, and empty it; whether something changed."""
        possible = _sums(tables, self)[1] > 0
        forbidden = ~np.asarray(possible.all(axis=0))
        changed = bool((possible & forbidden).any())
        if changed:
            _forbid(tables, self, forbidden)
        return changed


@njit(cache=True, nogil=True)
def _places(tables: Tables, shared: Shared) -> Places:  # pragma: no cover - compiled
    """Where each cell of each member belongs in the table of the shared set, member after member."""
    places = np.zeros((tables.starts[shared.members + 1] - tables.starts[shared.members]).sum(), np.int32)
    begin = 0
    for m, member in enumerate(shared.members):
        mine, done = places[begin:], 1
        for axis, size in enumerate(tables.shapes[member]):  # each place of the axes so far is spread over the next one
            for i in range(done - 1, -1, -1):
                for j in range(size - 1, -1, -1):  # backwards: place 0 is read by all of its own
                    mine[i * size + j] = mine[i] + j * shared.strides[m, axis]
            done *= size
        begin += done
    return places


@njit(cache=True, nogil=True)
def _sums(tables: Tables, shared: Shared) -> tuple[Floats, Integers, Places]:  # pragma: no cover - compiled
    """Of each member the sums over the shared set, and how many possible cells add up to each: shape (members, cells).

    And the `_places` of these cells.
    """
    places = _places(tables, shared)
    sums = np.zeros((len(shared.members), shared.cells))
    numbers = np.zeros((len(shared.members), shared.cells), np.int64)
    at = 0
    for m, member in enumerate(shared.members):
        for cell in range(tables.starts[member], tables.starts[member + 1]):
            if tables.allowed[cell]:
                sums[m, places[at]] += tables.values[cell]
                numbers[m, places[at]] += 1
            at += 1
    return sums, numbers, places


@njit(cache=True, nogil=True)
def _mean(tables: Tables, shared: Shared, sums: Floats, numbers: Integers) -> Floats:  # pragma: no cover - compiled
    """The weighted mean of the members' sums, by the precision of each: shape (cells,)."""
    weights = tables.precision[shared.members].reshape(-1, 1) / np.maximum(numbers, 1)
    return np.asarray((weights * sums).sum(axis=0) / weights.sum(axis=0))


@njit(cache=True, nogil=True)
def _average(tables: Tables, shared: Shared, target: Floats) -> None:  # pragma: no cover - compiled
    """Add to every possible cell of each member what its sum over the shared set lacks, in equal parts."""
    sums, numbers, places = _sums(tables, shared)
    common = target if len(target) else _mean(tables, shared, sums, numbers)
    steps = (common - sums) / np.maximum(numbers, 1)
    at = 0
    for m, member in enumerate(shared.members):
        for cell in range(tables.starts[member], tables.starts[member + 1]):
            if tables.allowed[cell]:
                tables.values[cell] += steps[m, places[at]]
            at += 1


@njit(cache=True, nogil=True)
def _forbid(tables: Tables, shared: Shared, forbidden: Flags) -> None:  # pragma: no cover - compiled
    """Forbid and empty what falls into forbidden cells of the shared set."""
    places, at = _places(tables, shared), 0
    for member in shared.members:
        for cell in range(tables.starts[member], tables.starts[member + 1]):
            if forbidden[places[at]]:
                tables.allowed[cell] = False
                tables.values[cell] = 0.0
            at += 1


@njit(cache=True, nogil=True)
def project_tables(tables: Tables, total: float) -> None:  # pragma: no cover - compiled
    """Every table becomes the nearest without a negative or forbidden cell that adds up to `total`, in place."""
    for i in range(len(tables.starts) - 1):
        values = tables.values[tables.starts[i] : tables.starts[i + 1]]
        allowed = tables.allowed[tables.starts[i] : tables.starts[i + 1]]
        possible = values[allowed]
        to_simplex(possible, total)
        values[allowed] = possible
