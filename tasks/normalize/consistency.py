"""Noisy marginals that agree with each other, have no negative cell, and no count where none can be.

Weighted averaging over shared attributes (PrivSyn, section 4.3) and projection onto the simplex, in turns: both are
projections in the norm that weighs every marginal by 1/sigma^2, so the turns approach a common point. Sums that many tables
have in common are made equal in compiled passes: most tables are too small for calls of numpy each.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.schemas.arrays import Flags, Floats, Integers
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.measurements import Clique, Mask, Measurement, allowed_cells
from marginweave.tasks.aggregate.marginals import estimate_total
from marginweave.tasks.estimate.rounding import project_simplex, to_simplex
from marginweave.tasks.progress import listener

Places = NDArray[np.int32]


class Holders:
    """Finds the sets among `cliques` that have all of some attributes, without a look at every set."""

    def __init__(self, cliques: Sequence[Clique]) -> None:
        self._all = range(len(cliques))
        self._with: dict[int, set[int]] = defaultdict(set)
        for place, clique in enumerate(cliques):
            for attribute in clique:
                self._with[attribute].add(place)

    def of(self, attributes: Clique) -> list[int]:
        """Places of the sets that have all of these, in order; of no attributes, all places."""
        if not attributes:
            return list(self._all)
        return sorted(set.intersection(*(self._with.get(a, set()) for a in attributes)))


# What averaging may leave below zero, or apart, as a share of the record count: far below one record.
TOLERANCE = 1e-8


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
    def of(cls, measurements: Sequence[Measurement], masks: Sequence[Mask], total: float) -> Self:
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


def make_consistent(
    measurements: Sequence[Measurement], masks: Sequence[Mask] = (), rounds: int = 1000, total: float | None = None
) -> tuple[Measurement, ...]:
    """The marginals with equal sums over whatever attributes they share, one total, no negative and no forbidden cell.

    A shared set A of attributes gets T_A = sum_i w_i M_i[A], w_i proportional to 1 / (g_i sigma_i^2), g_i the cells of
    marginal i that add up to one of A; each such cell takes (T_A - M_i[A]) / g_i. Sets go from small to large, the empty
    one first; without structural zeros no step undoes another, with them it may, as
    g_i then differs from cell to cell. Then the simplex; again, until averaging leaves at most 1e-8 of the count below zero,
    and apart in any shared sum, or `rounds` are over. Consistent marginals are returned as they are. A total or a cell below
    zero becomes 0, incomplete marginals are first scaled up to the record count.

    T_A of single attributes stays what it was before the first cell was clipped, the nearest without a negative count: clipped
    tables of many cells that are mostly noise say too much of rare values, all of them, and would draw the sums along. Any
    counts of single attributes are within reach of the rest; where structural zeros forbid these, they move after half of
    the rounds.

    Args:
        measurements: any marginals; the same attributes may come more than once.
        masks: structural zeros; a mask applies to every marginal that has all of its attributes, and through shared
            attributes to the others.
        rounds: most turns; what is left then is a disagreement, never a negative cell.
        total: the record count, where it is known better than by `estimate_total`.

    Returns:
        As many marginals, in the same order, float64. DP: post-processing.

    Raises:
        InputError: no measurements, shapes that disagree on an attribute, or masks that allow no record.
    """
    total = float(estimate_total(measurements) if total is None else total)
    sizes, cliques = _sizes(measurements, masks), [m.attributes for m in measurements]
    tables, holders = Tables.of(measurements, masks, total), Holders(cliques)
    shared = [Shared.of(subset, holders.of(subset), cliques, sizes) for subset in _shared_sets(cliques)]
    masked = not tables.allowed.all()
    if masked:
        _spread_zeros(tables, shared)
    numbers = [_sums(tables, subset, tables.allowed) for subset in shared]
    weighted_mean = np.zeros(0)
    anchors: dict[int, Floats] = {}
    say = listener()
    for turn in range(rounds):
        say(f"turn {turn + 1} ({rounds} at most)")
        for place, subset in enumerate(shared):
            if turn == 0 and subset.attributes <= 1:
                anchors[place] = _likely(tables, subset, numbers[place], total)
            average(tables, subset, numbers[place], anchors.get(place, weighted_mean))
        wrong = -float(tables.values.min(initial=0.0))
        # without zeros every step keeps what the ones before it have made equal
        if masked and wrong <= TOLERANCE * total:
            wrong = max(float(np.ptp(_sums(tables, subset, tables.values), axis=0).max()) for subset in shared)
        project_tables(tables, total)
        if wrong <= TOLERANCE * total:
            break
        if masked and turn + 1 == rounds // 2:  # zeros may be at odds with the anchors
            anchors = {place: target for place, target in anchors.items() if not shared[place].attributes}
    parts = zip(measurements, np.split(tables.values, tables.starts[1:-1]), strict=True)
    return tuple(replace(m, counts=counts.reshape(m.counts.shape), complete=True) for m, counts in parts)


def _sizes(measurements: Sequence[Measurement], masks: Sequence[Mask]) -> dict[int, int]:
    """The number of codes of each attribute, which all marginals and masks have to agree on."""
    sizes: dict[int, int] = {}
    shaped = [(m.attributes, m.counts.shape) for m in measurements] + [(k.attributes, k.sizes) for k in masks]
    for attributes, shape in shaped:
        for attribute, size in zip(attributes, shape, strict=True):
            if sizes.setdefault(attribute, size) != size or size < 1:
                raise InputError(f"attribute {attribute} must have the same size in every marginal and mask")
    return sizes


def _shared_sets(cliques: Sequence[Clique]) -> list[Clique]:
    """All intersections of two and more of the cliques, and the empty set, from small to large."""
    found: set[frozenset[int]] = {frozenset(clique) for clique, times in Counter(cliques).items() if times > 1} | {
        frozenset()
    }
    fresh = _intersections(set(map(frozenset, cliques))) - found
    while fresh:
        found |= fresh
        fresh = _intersections(found) - found
    return [tuple(reversed(last_first)) for _, last_first in sorted((len(s), sorted(s, reverse=True)) for s in found)]


def _intersections(sets: set[frozenset[int]]) -> set[frozenset[int]]:
    """What two of the sets share, where they share an attribute."""
    holders = defaultdict[int, list[frozenset[int]]](list)
    for members in sets:
        for attribute in members:
            holders[attribute].append(members)
    return {one & other for some in holders.values() for one, other in itertools.combinations(some, 2)}


def _spread_zeros(tables: Tables, shared: Sequence[Shared]) -> None:
    """Structural zeros reach every marginal that shares the attributes, until nothing changes."""
    changed = True
    while changed:
        changed = False
        for subset in shared:
            possible = _sums(tables, subset, tables.allowed) > 0
            forbidden = ~np.asarray(possible.all(axis=0))
            if (possible & forbidden).any():
                _forbid(tables, subset, forbidden)
                changed = True
    if not np.logical_or.reduceat(tables.allowed, tables.starts[:-1]).all():
        raise InputError("masks must allow at least one record")


def _likely(tables: Tables, shared: Shared, numbers: Floats, total: float) -> Floats:
    """The weighted mean of the members' sums, the nearest to it that adds up to `total`: shape (cells,)."""
    mean, possible = _mean(tables, shared, _sums(tables, shared, tables.values), numbers), numbers[0] > 0
    mean[~possible] = 0.0
    mean[possible] = project_simplex(mean[possible], total)
    return mean


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
def _sums(tables: Tables, shared: Shared, cells: Floats | Flags) -> Floats:  # pragma: no cover - compiled
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
def _mean(tables: Tables, shared: Shared, sums: Floats, numbers: Floats) -> Floats:  # pragma: no cover - compiled
    """The weighted mean of the members' sums, by the precision of each: shape (cells,)."""
    weights = tables.precision[shared.members].reshape(-1, 1) / np.maximum(numbers, 1)
    return np.asarray((weights * sums).sum(axis=0) / weights.sum(axis=0))


@njit(cache=True, nogil=True)
def average(tables: Tables, shared: Shared, numbers: Floats, target: Floats) -> None:  # pragma: no cover - compiled
    """Add to every possible cell of each member, in equal parts, what its sum over the shared set lacks.

    The sums become those of `target`; their weighted mean where it is empty. `numbers` are the possible cells of each sum.
    """
    sums = _sums(tables, shared, tables.values)
    common = target if len(target) else _mean(tables, shared, sums, numbers)
    steps = (common - sums) / np.maximum(numbers, 1)
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
def _forbid(tables: Tables, shared: Shared, forbidden: Flags) -> None:  # pragma: no cover - compiled
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
