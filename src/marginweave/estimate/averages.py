"""Tables of counts end to end, and their sums over shared attributes, read and made equal in compiled passes.

Most tables are too small for calls of numpy each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.base.compiled import kernel
from marginweave.domain.masks import Clique, StructuralZeros, allowed_cells
from marginweave.estimate.rounding import to_simplex
from marginweave.observations.tables import Observation

Places = NDArray[np.int32]


class Tables(NamedTuple):
    """Tables of counts end to end, each in C order: table i has the cells `starts[i]` to `starts[i + 1]`.

    `values` change; a cell that is not `allowed` is 0 and remains 0. `shapes` has a row for each table, with ones in front of
    those that have fewer axes than the largest. `precision` is 1/sigma^2.
    """

    values: Floats
    allowed: Flags
    starts: Integers
    shapes: Integers
    precision: Floats

    @classmethod
    def of(
        cls,
        measurements: Sequence[Observation],
        masks: Sequence[StructuralZeros],
        total: float,
    ) -> Self:
        """Return the counts of these marginals, scaled to `total` records each, without the cells that `masks` forbid."""
        shapes = [m.counts.shape for m in measurements]
        axes = max(map(len, shapes))
        padded_shapes = []
        for shape in shapes:
            padding = [1] * (axes - len(shape))
            padded_shapes.append([*padding, *shape])
        allowed = _allowed_in_tables(measurements, masks)
        counts = _scaled_counts(measurements, total)
        precision = [m.deviation**-2 for m in measurements]
        return cls(
            values=np.where(allowed, counts, 0.0),
            allowed=allowed,
            starts=np.cumsum([0, *map(math.prod, shapes)]),
            shapes=np.array(padded_shapes, np.int64),
            precision=np.array(precision, np.float64),
        )


def _allowed_in_tables(
    measurements: Sequence[Observation], masks: Sequence[StructuralZeros]
) -> Flags:
    """Return whether masks allow each cell, for all tables end to end."""
    allowed = [allowed_cells(m.attributes, m.counts.shape, masks) for m in measurements]
    return np.concatenate([cells.ravel() for cells in allowed])


def _scaled_counts(measurements: Sequence[Observation], total: float) -> NDArray[np.floating]:
    """Return the counts of all tables end to end, scaled to `total` records each."""
    scaled = [m.counts * m.scale(total) for m in measurements]
    return np.concatenate([table.ravel() for table in scaled])


class Shared(NamedTuple):
    """A set of attributes, and the tables that include it; a table of exactly this set has `cells` cells.

    `strides` has a row for each of the `members`: the step in that table for a step along each axis of the member.
    """

    attributes: int
    cells: int
    members: Integers
    strides: Integers

    @classmethod
    def of(
        cls,
        subset: Clique,
        members: Sequence[int],
        cliques: Sequence[Clique],
        sizes: Mapping[int, int],
    ) -> Self:
        """Return the shared set `subset`.

        Args:
            subset: its attributes.
            members: numbers of the tables that include it.
            cliques: attributes of every table.
            sizes: number of codes of each attribute.
        """
        axes = max(map(len, cliques))
        steps: dict[int, int] = {}
        for place, attribute in enumerate(subset):
            behind = subset[place + 1 :]
            steps[attribute] = math.prod(sizes[a] for a in behind)
        strides = []
        for member in members:
            clique = cliques[member]
            padding = [0] * (axes - len(clique))
            strides.append(padding + [steps.get(a, 0) for a in clique])
        return cls(
            attributes=len(subset),
            cells=math.prod(sizes[a] for a in subset),
            members=np.array(members, np.int64),
            strides=np.array(strides, np.int64).reshape(-1, axes),
        )


@kernel
def _rows(
    tables: Tables,
    shared: Shared,
    m: int,
) -> Places:  # pragma: no cover - compiled
    """Return the cell of the shared set's table at which each row of member m begins; a row is along the last axis."""
    shape = tables.shapes[shared.members[m]]
    places = np.zeros(shape[:-1].prod(), np.int32)
    done = 1
    # each place of the axes so far is spread over the next axis
    for axis, size in enumerate(shape[:-1]):
        for i in range(done - 1, -1, -1):
            # backwards, as all of these read place i, and i = 0 is overwritten last
            for j in range(size - 1, -1, -1):
                places[i * size + j] = places[i] + j * shared.strides[m, axis]
        done *= size
    return places


@kernel
def sums(
    tables: Tables,
    shared: Shared,
    cells: Floats,
) -> Floats:  # pragma: no cover - compiled
    """Sum `cells`, one for each cell of the tables, over the shared set, for each member: shape (members, cells)."""
    sums = np.zeros((len(shared.members), shared.cells))
    for m, member in enumerate(shared.members):
        at = tables.starts[member]
        step = shared.strides[m, -1]
        length = tables.shapes[member, -1]
        member_sums = sums[m]
        for place in _rows(tables, shared, m):
            row = cells[at : at + length]
            if step:  # two loops, each of which becomes a single instruction for several cells
                for j in range(length):
                    member_sums[place + j] += row[j]
            else:
                for j in range(length):
                    member_sums[place] += row[j]
            at += length
    return sums


@kernel
def mean(
    tables: Tables,
    shared: Shared,
    sums: Floats,
    numbers: Floats,
) -> Floats:  # pragma: no cover - compiled
    """Return the mean of the members' sums, weighted by the precision of each: shape (cells,)."""
    means = np.zeros(shared.cells)
    for cell in range(shared.cells):
        all_weights = 0.0
        for m, member in enumerate(shared.members):
            weight = tables.precision[member] / max(numbers[m, cell], 1.0)
            means[cell] += weight * sums[m, cell]
            all_weights += weight
        means[cell] /= all_weights
    return means


@kernel
def average(
    tables: Tables,
    shared: Shared,
    numbers: Floats,
    target: Floats,
) -> None:  # pragma: no cover - compiled
    """Add to every possible cell of each member, in equal parts, what its sum over the shared set lacks.

    The sums become those of `target`; their weighted mean where it is empty. `numbers` are the possible cells of each sum.
    """
    member_sums = sums(tables, shared, tables.values)
    common = target if len(target) else mean(tables, shared, member_sums, numbers)
    steps = member_sums  # which are read a last time here
    for m in range(len(steps)):
        for cell in range(shared.cells):
            lacking = common[cell] - member_sums[m, cell]
            steps[m, cell] = lacking / max(numbers[m, cell], 1.0)
    for m, member in enumerate(shared.members):
        at = tables.starts[member]
        step = shared.strides[m, -1]
        length = tables.shapes[member, -1]
        member_steps = steps[m]
        for place in _rows(tables, shared, m):
            row = tables.values[at : at + length]
            possible = tables.allowed[at : at + length]
            if step:
                for j in range(length):
                    row[j] += member_steps[place + j] if possible[j] else 0.0
            else:
                for j in range(length):
                    row[j] += member_steps[place] if possible[j] else 0.0
            at += length


@kernel
def forbid(
    tables: Tables,
    shared: Shared,
    forbidden: Flags,
) -> None:  # pragma: no cover - compiled
    """Forbid and empty the cells of every member that fall into forbidden cells of the shared set."""
    for m, member in enumerate(shared.members):
        at = tables.starts[member]
        step = shared.strides[m, -1]
        for place in _rows(tables, shared, m):
            for j in range(tables.shapes[member, -1]):
                if forbidden[place + j * step]:
                    tables.allowed[at + j] = False
                    tables.values[at + j] = 0.0
            at += tables.shapes[member, -1]


@kernel
def project_tables(tables: Tables, total: float) -> None:  # pragma: no cover - compiled
    """Replace every table by the nearest that has no negative or forbidden cell and adds up to `total`."""
    for i in range(len(tables.starts) - 1):
        values = tables.values[tables.starts[i] : tables.starts[i + 1]]
        allowed = tables.allowed[tables.starts[i] : tables.starts[i + 1]]
        possible = np.empty(len(values))
        number = 0
        for cell in range(len(values)):
            if allowed[cell]:
                possible[number] = values[cell]
                number += 1
        to_simplex(possible[:number], total)
        number = 0
        for cell in range(len(values)):
            if allowed[cell]:
                values[cell] = possible[number]
                number += 1


@kernel
def step_ahead(
    values: Floats,
    clipped: Floats,
    apart: Floats,
) -> None:  # pragma: no cover - compiled
    """Move averaged values past where they were clipped last, and write them to `apart` as well: shapes (cells,).

    v = 1.6 v - .6 clipped + apart, the over-relaxed first half of a turn of `Nearest`.
    """
    for cell in range(len(values)):
        values[cell] = values[cell] * 1.6 - clipped[cell] * 0.6 + apart[cell]
        apart[cell] = values[cell]


@kernel
def step_back(
    values: Floats,
    clipped: Floats,
    apart: Floats,
    point: Floats,
    penalty: float,
) -> None:  # pragma: no cover - compiled
    """Move clipped values towards `point`, and write them to `clipped` before: shapes (cells,).

    apart = (apart - v) / 1.1, and v = (penalty (v - apart) + point) / (1 + penalty): the second half of a turn of `Nearest`,
    whose penalty has grown by a tenth.
    """
    for cell in range(len(values)):
        clipped[cell] = values[cell]
        apart[cell] = (apart[cell] - values[cell]) / 1.1
        values[cell] = ((values[cell] - apart[cell]) * penalty + point[cell]) / (1 + penalty)
