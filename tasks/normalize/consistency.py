"""Noisy marginals that agree with each other, have no negative cell, and no count where none can be.

Weighted averaging over shared attributes (PrivSyn, section 4.3) and projection onto the simplex, in turns: both are
projections in the norm that weighs every marginal by 1/deviation^2, so the turns approach a common point.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from marginweave.schemas.arrays import Floats
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.measurements import Clique, Mask, Measurement, allowed_cells
from marginweave.tasks.aggregate.marginals import estimate_total
from marginweave.tasks.normalize.averaging import Shared, Tables, project_tables


def bits(attributes: Iterable[int]) -> int:
    """A set of attributes as a number, one bit each: where many sets are compared, numbers are compared fastest."""
    return sum(1 << attribute for attribute in attributes)


class Holders:
    """Finds the sets among `cliques` that have all of some attributes: it looks at those only that have the rarest of them."""

    def __init__(self, cliques: Sequence[Clique]) -> None:
        self._all = range(len(cliques))
        self._with: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for place, clique in enumerate(cliques):
            mine = bits(clique)
            for attribute in clique:
                self._with[attribute].append((place, mine))

    def of(self, attributes: Clique) -> list[int]:
        """Places of the sets that have all of these, in order; of no attributes, all places."""
        if not attributes:
            return list(self._all)
        wanted = bits(attributes)
        fewest = min((self._with.get(a, []) for a in attributes), key=len)
        return [place for place, mine in fewest if mine & wanted == wanted]


# What averaging may leave below zero, or apart, as a share of the record count: far below one record.
TOLERANCE = 1e-8


def make_consistent(
    measurements: Sequence[Measurement], masks: Sequence[Mask] = (), rounds: int = 1000, total: float | None = None
) -> tuple[Measurement, ...]:
    """The marginals with equal sums over whatever attributes they share, one total, no negative and no forbidden cell.

    A shared set A of attributes gets T_A = sum_i w_i M_i[A], w_i proportional to 1 / (g_i deviation_i^2), g_i the cells of
    marginal i that add up to one of A; each such cell takes (T_A - M_i[A]) / g_i. Sets go from small to large, the empty
    one (the record count of `estimate_total`) first; without structural zeros no step undoes another, with them it may, as
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
    _check_shapes(measurements, masks)
    cliques = [m.attributes for m in measurements]
    tables = Tables.of(
        [np.asarray(m.counts * m.scale(total), np.float64) for m in measurements],
        [allowed_cells(m.attributes, m.counts.shape, masks) for m in measurements],
        [m.deviation**-2 for m in measurements],
    )
    shared = list(_shared(cliques, tables))
    masked = not tables.allowed.all()
    if masked:
        _spread_zeros(tables, shared)
    anchors: dict[int, Floats] = {}
    for turn in range(rounds):
        for place, subset in enumerate(shared):
            if turn == 0 and subset.attributes <= 1:
                anchors[place] = subset.likely(tables, total)
            subset.average(tables, anchors.get(place))
        wrong = -float(tables.values.min(initial=0.0))
        if masked:  # without zeros every step keeps what the ones before it have made equal
            wrong = max(wrong, *(subset.disagreement(tables) for subset in shared))
        project_tables(tables, total)
        if wrong <= TOLERANCE * total:
            break
        if masked and turn + 1 == rounds // 2:  # zeros may be at odds with what is held
            anchors = {place: target for place, target in anchors.items() if not shared[place].attributes}
    return tuple(replace(m, counts=tables.table(i, m.counts.shape), complete=True) for i, m in enumerate(measurements))


def _shared(cliques: Sequence[Clique], tables: Tables) -> Iterator[Shared]:
    """Every set that cliques share, with the tables that have it."""
    holders = Holders(cliques)
    for subset in _shared_sets([bits(clique) for clique in cliques]):
        attributes = tuple(a for a in range(subset.bit_length()) if subset >> a & 1)
        yield Shared.of(attributes, holders.of(attributes), cliques, tables)


def _shared_sets(cliques: Sequence[int]) -> list[int]:
    """All intersections of two and more of the cliques, and the empty set, from small to large, as `bits`."""
    found = {clique for clique, times in Counter(cliques).items() if times > 1} | {0}
    fresh = _intersections(set(cliques)) - found
    while fresh:
        found |= fresh
        fresh = _intersections(found) - found
    return sorted(found, key=lambda subset: (subset.bit_count(), subset))


def _intersections(sets: set[int]) -> set[int]:
    """What two of the sets share, where they share an attribute."""
    found: set[int] = set()
    for attribute in range(max(sets).bit_length()):
        holders = [members for members in sets if members >> attribute & 1]
        found.update(one & other for one, other in itertools.combinations(holders, 2))
    return found


def _spread_zeros(tables: Tables, shared: Sequence[Shared]) -> None:
    """Structural zeros reach every marginal that shares the attributes, until nothing changes."""
    while sum(subset.spread_zeros(tables) for subset in shared):
        continue
    if not np.logical_or.reduceat(tables.allowed, tables.starts[:-1]).all():
        raise InputError("masks must allow at least one record")


def _check_shapes(measurements: Sequence[Measurement], masks: Sequence[Mask]) -> None:
    sizes: dict[int, int] = {}
    shaped = [(m.attributes, m.counts.shape) for m in measurements] + [(k.attributes, k.allowed.shape) for k in masks]
    for attributes, shape in shaped:
        for attribute, size in zip(attributes, shape, strict=True):
            if sizes.setdefault(attribute, size) != size or size < 1:
                raise InputError(f"attribute {attribute} must have the same size in every marginal and mask")
