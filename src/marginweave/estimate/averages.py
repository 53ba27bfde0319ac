"""Tables of counts end to end, and their sums over shared attributes, read and made equal in compiled passes.

Most tables are too small for calls of numpy each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.domain.masks import Clique, StructuralZeros, allowed_cells
from marginweave.estimate.rounding import to_simplex
from marginweave.observations.tables import Observation

Places = NDArray[np.int32]


class Tables(NamedTuple):
    """Tables of counts end to end, each in C order: table i has the cells `starts[i]` to `starts[i + 1]`.

    `values` change; a cell that is not `allowed` is 0 and stays so. `shapes` has a row for each table, with ones in front of
    those of fewer axes than others. `precision` is 1/sigma^2.
    """

    values: Floats
    allowed: Flags
    starts: Integers
    shapes: Integers
    precision: Floats

    @classmethod
    def of(cls, measurements: Sequence[Observation], masks: Sequence[StructuralZeros], total: float) -> Self:
        """The counts of these marginals, of `total` records each, without what `masks` forbid."""
        shapes = [m.counts.shape for m in measurements]
        axes = max(map(len, shapes))
        allowed = np.concatenate([allowed_cells(m.attributes, m.counts.shape, masks).ravel() for m in measurements])
        return cls(
            values=np.where(allowed, np.concatenate([np.ravel(m.counts * m.scale(total)) for m in measurements]), 0.0),
            allowed=allowed,
            starts=np.cumsum([0, *map(math.prod, shapes)]),
            shapes=np.array([[1] * (axes - len(shape)) + list(shape) for shape in shapes], np.int64),
            precision=np.array([m.deviation**-2 for m in measurements], np.float64),
        )


class Shared(NamedTuple):
    """A set of attributes and the tables that have it: a table of it alone has `cells` cells.

    `strides` has a row for each of the `members`, the step in that table for a step along each axis of the member.
    """

    attributes: int
    cells: int
    members: Integers
    strides: Integers

    @classmethod
    def of(cls, subset: Clique, members: Sequence[int], cliques: Sequence[Clique], sizes: Mapping[int, int]) -> Self:
        """For the tables `members`, of the attributes that `cliques` say of all of them, whose numbers of codes are `sizes`."""
        axes = max(map(len, cliques))
        steps = {a: math.prod(sizes[b] for b in subset[place + 1 :]) for place, a in enumerate(subset)}
        strides = [[0] * (axes - len(cliques[m])) + [steps.get(a, 0) for a in cliques[m]] for m in members]
        cells = math.prod(sizes[a] for a in subset)
        return cls(len(subset), cells, np.array(members, np.int64), np.array(strides, np.int64).reshape(-1, axes))


@njit(cache=True, nogil=True)
def _rows(tables: Tables, shared: Shared, m: int) -> Places:  # pragma: no cover - compiled
    """Where the first cell of each row of member m belongs in the table of the shared set; a row is along the last axis."""
    shape = tables.shapes[shared.members[m]]
    places, done = np.zeros(shape[:-1].prod(), np.int32), 1
    for axis, size in enumerate(shape[:-1]):  # each place of the axes so far is spread over the next one
        for i in range(done - 1, -1, -1):
            for j in range(size - 1, -1, -1):  # backwards: place 0 is read by all of its own
                places[i * size + j] = places[i] + j * shared.strides[m, axis]
        done *= size
    return places


@njit(cache=True, nogil=True)
def sums(tables: Tables, shared: Shared, cells: Floats | Flags) -> Floats:  # pragma: no cover - compiled
    """Of each member the sums of `cells`, one for each cell of the tables, over the shared set: shape (members, cells)."""
    sums = np.zeros((len(shared.members), shared.cells))
    for m, member in enumerate(shared.members):
        at, step, length = tables.starts[member], shared.strides[m, -1], tables.shapes[member, -1]
        mine = sums[m]
        for place in _rows(tables, shared, m):
            row = cells[at : at + length]
            if step:  # two loops of which each is a single instruction for several cells
                for j in range(length):
                    mine[place + j] += row[j]
            else:
                for j in range(length):
                    mine[place] += row[j]
            at += length
    return sums


@njit(cache=True, nogil=True)
def mean(tables: Tables, shared: Shared, sums: Floats, numbers: Floats) -> Floats:  # pragma: no cover - compiled
    """The weighted mean of the members' sums, by the precision of each: shape (cells,)."""
    weights = tables.precision[shared.members].reshape(-1, 1) / np.maximum(numbers, 1)
    return np.asarray((weights * sums).sum(axis=0) / weights.sum(axis=0))


@njit(cache=True, nogil=True)
def average(tables: Tables, shared: Shared, numbers: Floats, target: Floats) -> None:  # pragma: no cover - compiled
    """Add to every possible cell of each member, in equal parts, what its sum over the shared set lacks.

    The sums become those of `target`; their weighted mean where it is empty. `numbers` are the possible cells of each sum.
    """
    found = sums(tables, shared, tables.values)
    common = target if len(target) else mean(tables, shared, found, numbers)
    steps = (common - found) / np.maximum(numbers, 1)
    for m, member in enumerate(shared.members):
        at, step, length = tables.starts[member], shared.strides[m, -1], tables.shapes[member, -1]
        mine = steps[m]
        for place in _rows(tables, shared, m):
            row, possible = tables.values[at : at + length], tables.allowed[at : at + length]
            if step:
                for j in range(length):
                    row[j] += mine[place + j] if possible[j] else 0.0
            else:
                for j in range(length):
                    row[j] += mine[place] if possible[j] else 0.0
            at += length


@njit(cache=True, nogil=True)
def forbid(tables: Tables, shared: Shared, forbidden: Flags) -> None:  # pragma: no cover - compiled
    """Forbid and empty what falls into forbidden cells of the shared set."""
    for m, member in enumerate(shared.members):
        at, step = tables.starts[member], shared.strides[m, -1]
        for place in _rows(tables, shared, m):
            for j in range(tables.shapes[member, -1]):
                if forbidden[place + j * step]:
                    tables.allowed[at + j] = False
                    tables.values[at + j] = 0.0
            at += tables.shapes[member, -1]


@njit(cache=True, nogil=True)
def project_tables(tables: Tables, total: float) -> None:  # pragma: no cover - compiled
    """Every table becomes the nearest without a negative or forbidden cell that adds up to `total`, in place."""
    for i in range(len(tables.starts) - 1):
        values = tables.values[tables.starts[i] : tables.starts[i + 1]]
        allowed = tables.allowed[tables.starts[i] : tables.starts[i + 1]]
        possible = values[allowed]
        to_simplex(possible, total)
        values[allowed] = possible
