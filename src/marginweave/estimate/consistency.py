"""Noisy marginals that agree with each other, have no negative cell, and no count where none can be.

Weighted averaging over shared attributes (PrivSyn, section 4.3) alternates with projection onto the simplex. Both are
projections in the norm that weighs every marginal by 1/sigma^2, so the turns approach a common point, ever more slowly. After
thirty turns the common point that is nearest to the tables so far is computed instead, in an eighth of the turns. No cell of
four releases was then more than 8 records from where a thousand turns end, and errors were the same to .1 %. The point nearest
to the measured counts themselves would be 3 to 7 % farther from the truth (L1 of triples, adult_cat and ma2019_cat at epsilon
1, adult at 10).
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
from marginweave.estimate.averages import (
    Shared,
    Tables,
    average,
    forbid,
    mean,
    project_tables,
    step_ahead,
    step_back,
    sums,
)
from marginweave.estimate.holders import Holders
from marginweave.estimate.rounding import project_simplex
from marginweave.observations.means import estimate_total
from marginweave.observations.tables import Observation

# The largest negative count, and the largest difference of shared sums, that averaging may leave: as a share of the record
# count, far below one record.
TOLERANCE = 1e-8
# Turns after which the nearest common point is computed: it is then as close to the truth as after a thousand turns.
ALTERNATING = 30


@dataclass
class Nearest:
    """The point that is in two convex sets and nearest to another point, approached by projections onto each set in turn.

    Alternating direction method of multipliers (Boyd et al. 2011, sections 3.4 and 5): `clipped` is the last projection onto
    the simplex, `apart` the sum over all turns of the difference of both projections. The penalty grows, so that the sets
    meet soon.
    """

    point: Floats
    clipped: Floats
    apart: Floats
    penalty: float = 3.0

    @classmethod
    def to(cls, point: Floats) -> Self:
        """Return the state before the first turn: the point itself."""
        return cls(
            point=point.copy(),
            clipped=point.copy(),
            apart=np.zeros(len(point)),
        )

    def approach(self, tables: Tables, total: float) -> None:
        """Replace averaged tables by the ones that are to be averaged next."""
        step_ahead(tables.values, self.clipped, self.apart)
        project_tables(tables, total)
        self.penalty *= 1.1
        step_back(tables.values, self.clipped, self.apart, self.point, self.penalty)


def make_consistent(
    measurements: Sequence[Observation],
    masks: Sequence[StructuralZeros] = (),
    rounds: int = 1000,
    total: float | None = None,
) -> tuple[Observation, ...]:
    """Return the marginals with equal sums over the attributes they share, one total, and no negative or forbidden cell.

    A shared set A of attributes gets T_A = sum_i w_i M_i[A], w_i proportional to 1 / (g_i sigma_i^2), g_i the cells of
    marginal i that add up to one of A; each such cell takes (T_A - M_i[A]) / g_i. Sets go from small to large, the empty
    one first. Without structural zeros no step undoes another; with them it may, as g_i then differs from cell to cell.
    Then every table is projected onto the simplex (from turn 30 on by `Nearest`). These turns are repeated until averaging
    leaves at most 1e-8 of the count below zero, and between sums over the same shared set, or until `rounds` are over.
    Consistent marginals are returned as they are. A total or a cell below zero becomes 0, incomplete marginals are first
    scaled up to the record count.

    T_A of single attributes remains what it was before the first cell was clipped: the nearest without a negative count.
    Clipped tables of many cells that are mostly noise overestimate all rare values, and would move the sums with them. Any
    counts of single attributes are within reach of the other tables. With structural zeros, which may forbid these counts, they
    move from turn 30 on.

    Args:
        measurements: any marginals; the same attributes may come more than once.
        masks: structural zeros; a mask applies to every marginal that has all of its attributes, and through shared
            attributes to the others.
        rounds: most turns; a disagreement may remain after them, but never a negative cell.
        total: the record count, where it is known better than by `estimate_total`.

    Returns:
        As many marginals, in the same order, float64. DP: post-processing.

    Raises:
        InputError: no measurements, shapes that disagree on an attribute, or masks that allow no record.
    """
    total = float(estimate_total(measurements) if total is None else total)
    sizes = _sizes(measurements, masks)
    cliques = [m.attributes for m in measurements]
    tables = Tables.of(measurements, masks, total)
    holders = Holders(cliques)
    shared = []
    for subset in _shared_sets(cliques):
        members = holders.of(subset)
        shared.append(Shared.of(subset, members, cliques, sizes))
    masked = not tables.allowed.all()
    if masked:
        _spread_zeros(tables, shared)
    _alternate(tables, shared, total, rounds, masked=masked)
    project_tables(tables, total)
    tables_of_counts = np.split(tables.values, tables.starts[1:-1])
    consistent = []
    for m, counts in zip(measurements, tables_of_counts, strict=True):
        table = counts.reshape(m.counts.shape)
        consistent.append(replace(m, counts=table, complete=True))
    return tuple(consistent)


def _alternate(
    tables: Tables,
    shared: Sequence[Shared],
    total: float,
    rounds: int,
    *,
    masked: bool,
) -> None:
    """Average and project the tables in turn, until averaged tables are consistent or `rounds` are over."""
    numbers = _possible_cells(tables, shared)
    weighted_mean = np.zeros(0)
    anchors: dict[int, Floats] = {}
    nearest = Nearest.to(tables.values)
    report = listener()
    for turn in range(rounds):
        report(f"turn {turn + 1} ({rounds} at most)")
        for place, subset in enumerate(shared):
            if turn == 0 and subset.attributes <= 1:
                anchors[place] = _likely(tables, subset, numbers[place], total)
            average(
                tables,
                subset,
                numbers[place],
                anchors.get(place, weighted_mean),
            )
        if _is_consistent(tables, shared, total, masked=masked):
            return
        if turn == ALTERNATING:
            nearest = Nearest.to(tables.values)
            if masked:  # zeros may be at odds with the anchors
                anchors = _anchor_of_no_attributes(anchors, shared)
        if turn < ALTERNATING:
            project_tables(tables, total)
        else:
            nearest.approach(tables, total)


def _anchor_of_no_attributes(
    anchors: dict[int, Floats], shared: Sequence[Shared]
) -> dict[int, Floats]:
    """Return only the anchor of the set without attributes: the total."""
    places = [place for place in anchors if not shared[place].attributes]
    return {place: anchors[place] for place in places}


def _is_consistent(
    tables: Tables,
    shared: Sequence[Shared],
    total: float,
    *,
    masked: bool,
) -> bool:
    """Return whether averaged tables have neither negative cells nor different shared sums, up to `TOLERANCE`."""
    error = -float(tables.values.min(initial=0.0))
    # without zeros, no averaging step changes the sums that earlier steps made equal
    if masked and error <= TOLERANCE * total:
        error = max(_difference(tables, subset) for subset in shared)
    return error <= TOLERANCE * total


def _difference(tables: Tables, shared: Shared) -> float:
    """Return the largest difference between the members' sums over a shared set."""
    member_sums = sums(tables, shared, tables.values)
    return float(np.ptp(member_sums, axis=0).max())


def _sizes(measurements: Sequence[Observation], masks: Sequence[StructuralZeros]) -> dict[int, int]:
    """Return the number of codes of each attribute. Raises InputError where marginals and masks disagree on it."""
    sizes: dict[int, int] = {}
    shaped = [(m.attributes, m.counts.shape) for m in measurements]
    shaped += [(mask.attributes, mask.sizes) for mask in masks]
    for attributes, shape in shaped:
        for attribute, size in zip(attributes, shape, strict=True):
            if sizes.setdefault(attribute, size) != size or size < 1:
                raise InputError(
                    f"attribute {attribute} must have the same size in every marginal and mask"
                )
    return sizes


def _shared_sets(cliques: Sequence[Clique]) -> list[Clique]:
    """Return all intersections of two and more of the cliques, and the empty set, from small to large."""
    times = Counter(cliques)
    repeated = {frozenset(clique) for clique in cliques if times[clique] > 1}
    shared: set[frozenset[int]] = repeated | {frozenset()}
    fresh = _intersections(set(map(frozenset, cliques))) - shared
    while fresh:
        shared |= fresh
        fresh = _intersections(shared) - shared
    descending = [sorted(members, reverse=True) for members in shared]
    ordered = sorted(descending, key=lambda members: (len(members), members))
    return [tuple(reversed(members)) for members in ordered]


def _intersections(sets: set[frozenset[int]]) -> set[frozenset[int]]:
    """Return the intersections of two of the sets that are not empty."""
    holders = defaultdict[int, list[frozenset[int]]](list)
    for members in sets:
        for attribute in members:
            holders[attribute].append(members)
    intersections = set()
    for sets_with_attribute in holders.values():
        for first, second in itertools.combinations(sets_with_attribute, 2):
            intersections.add(first & second)
    return intersections


def _possible_cells(tables: Tables, shared: Sequence[Shared]) -> list[Floats]:
    """Return how many possible cells each sum over each shared set has, of each member: shape (members, cells)."""
    possible = tables.allowed.astype(np.float64)
    return [sums(tables, subset, possible) for subset in shared]


def _spread_zeros(tables: Tables, shared: Sequence[Shared]) -> None:
    """Apply structural zeros to every marginal that shares their attributes, until nothing changes."""
    changed = True
    while changed:
        changed = False
        for subset in shared:
            (cells,) = _possible_cells(tables, [subset])
            possible = cells > 0
            forbidden = ~np.asarray(possible.all(axis=0))
            if (possible & forbidden).any():
                forbid(tables, subset, forbidden)
                changed = True
    has_records = np.logical_or.reduceat(tables.allowed, tables.starts[:-1])
    if not has_records.all():
        raise InputError("masks must allow at least one record")


def _likely(
    tables: Tables,
    shared: Shared,
    numbers: Floats,
    total: float,
) -> Floats:
    """Return the nearest counts to the weighted mean of the members' sums that add up to `total`: shape (cells,)."""
    member_sums = sums(tables, shared, tables.values)
    nearest = mean(tables, shared, member_sums, numbers)
    possible = numbers[0] > 0
    nearest[~possible] = 0.0
    nearest[possible] = project_simplex(nearest[possible], total)
    return nearest
