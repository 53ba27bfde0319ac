"""Noisy marginals that agree with each other, have no negative cell, and no count where none can be.

Weighted averaging over shared attributes (PrivSyn, section 4.3) and projection onto the simplex, in turns: both are
projections in the norm that weighs every marginal by 1/sigma^2, so the turns approach a common point, ever more slowly. After
thirty turns the point that is common and nearest to where they are is found instead, in an eighth of the turns: no cell of four
releases was more than 8 records from where a thousand turns end, and errors were the same to .1 %. The nearest to the measured
counts themselves would be 3 to 7 % farther from the truth (L1 of triples, adult_cat and ma2019_cat at epsilon 1, adult at 10).
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from marginweave.base.arrays import Floats
from marginweave.base.errors import InputError
from marginweave.base.progress import listener
from marginweave.domain.masks import Clique, StructuralZeros
from marginweave.estimate.averages import Shared, Tables, average, forbid, mean, project_tables, sums
from marginweave.estimate.rounding import project_simplex
from marginweave.observations.means import estimate_total
from marginweave.observations.tables import Observation


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
# Turns after which the nearest common point is looked for: then it is as near to the truth as after a thousand.
ALTERNATING = 30


@dataclass
class Nearest:
    """The point that is in two convex sets and nearest to another one, by turns of projecting onto each of them.

    Alternating direction method of multipliers (Boyd et al. 2011, sections 3.4 and 5): `clipped` is what was projected onto
    the simplex last, `apart` how far both projections were apart in all turns. The penalty grows, so that the sets meet soon.
    """

    point: Floats
    clipped: Floats
    apart: Floats
    penalty: float = 3.0

    @classmethod
    def to(cls, point: Floats) -> Self:
        """Before the first turn: the point itself."""
        return cls(point=point.copy(), clipped=point.copy(), apart=np.zeros(len(point)))

    def approach(self, tables: Tables, total: float) -> None:
        """Averaged tables become what is to be averaged next."""
        ahead = 1.6 * tables.values - 0.6 * self.clipped  # over-relaxed
        tables.values[:] = ahead + self.apart
        project_tables(tables, total)
        self.clipped[:] = tables.values
        self.penalty *= 1.1
        self.apart = (self.apart + ahead - self.clipped) / 1.1
        tables.values[:] = (self.point + self.penalty * (self.clipped - self.apart)) / (1 + self.penalty)


def make_consistent(
    measurements: Sequence[Observation],
    masks: Sequence[StructuralZeros] = (),
    rounds: int = 1000,
    total: float | None = None,
) -> tuple[Observation, ...]:
    """The marginals with equal sums over whatever attributes they share, one total, no negative and no forbidden cell.

    A shared set A of attributes gets T_A = sum_i w_i M_i[A], w_i proportional to 1 / (g_i sigma_i^2), g_i the cells of
    marginal i that add up to one of A; each such cell takes (T_A - M_i[A]) / g_i. Sets go from small to large, the empty
    one first; without structural zeros no step undoes another, with them it may, as g_i then differs from cell to cell. Then
    the simplex (from turn 30 on by `Nearest`); again, until averaging leaves at most 1e-8 of the count below zero, and apart in
    any shared sum, or `rounds` are over. Consistent marginals are returned as they are. A total or a cell below zero becomes
    0, incomplete marginals are first scaled up to the record count.

    T_A of single attributes stays what it was before the first cell was clipped, the nearest without a negative count: clipped
    tables of many cells that are mostly noise say too much of rare values, all of them, and would draw the sums along. Any
    counts of single attributes are within reach of the rest; where structural zeros forbid these, they move after a tenth of
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
    numbers = [sums(tables, subset, tables.allowed) for subset in shared]
    weighted_mean = np.zeros(0)
    anchors: dict[int, Floats] = {}
    nearest = Nearest.to(tables.values)
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
            wrong = max(float(np.ptp(sums(tables, subset, tables.values), axis=0).max()) for subset in shared)
        if wrong <= TOLERANCE * total:
            break
        if masked and turn == rounds // 10:  # zeros may be at odds with the anchors
            anchors = {place: target for place, target in anchors.items() if not shared[place].attributes}
        if turn in {ALTERNATING, rounds // 10}:
            nearest = Nearest.to(tables.values)
        if turn < ALTERNATING:
            project_tables(tables, total)
        else:
            nearest.approach(tables, total)
    project_tables(tables, total)
    parts = zip(measurements, np.split(tables.values, tables.starts[1:-1]), strict=True)
    return tuple(replace(m, counts=counts.reshape(m.counts.shape), complete=True) for m, counts in parts)


def _sizes(measurements: Sequence[Observation], masks: Sequence[StructuralZeros]) -> dict[int, int]:
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
            possible = sums(tables, subset, tables.allowed) > 0
            forbidden = ~np.asarray(possible.all(axis=0))
            if (possible & forbidden).any():
                forbid(tables, subset, forbidden)
                changed = True
    if not np.logical_or.reduceat(tables.allowed, tables.starts[:-1]).all():
        raise InputError("masks must allow at least one record")


def _likely(tables: Tables, shared: Shared, numbers: Floats, total: float) -> Floats:
    """The weighted mean of the members' sums, the nearest to it that adds up to `total`: shape (cells,)."""
    nearest, possible = mean(tables, shared, sums(tables, shared, tables.values), numbers), numbers[0] > 0
    nearest[~possible] = 0.0
    nearest[possible] = project_simplex(nearest[possible], total)
    return nearest
