"""Noisy marginals that agree with each other, have no negative cell, and no count where none can be.

Weighted averaging over shared attributes (PrivSyn, section 4.3) and projection onto the simplex, in turns: both are
projections in the norm that weighs every marginal by 1/deviation^2, so the turns approach a common point.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.errors import InputError
from marginweave.schemas.measurements import Clique, Mask, Measurement, allowed_cells
from marginweave.tasks.mixture.tree import project_simplex

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

# What averaging may leave below zero, or apart, as a share of the record count: far below one record.
TOLERANCE = 1e-8


def estimate_total(measurements: Sequence[Measurement]) -> float:
    """The record count by inverse-variance weighting of the totals: a total of c cells has the variance c deviation^2.

    Incomplete marginals are biased low and count only where there are no others; never below 0. DP: post-processing.
    Raises InputError without measurements.
    """
    if not measurements:
        raise InputError("measurements (0) must be at least 1")
    used = [m for m in measurements if m.complete] or list(measurements)
    weights = np.array([1 / (m.counts.size * m.deviation**2) for m in used])
    totals = np.array([m.total for m in used])
    return max(0.0, float(weights @ totals / weights.sum()))


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
    total = estimate_total(measurements) if total is None else total
    _check_shapes(measurements, masks)
    views = [_view(m, masks, total) for m in measurements]
    shared = [_Shared.of(subset, views) for subset in _shared_sets([m.attributes for m in measurements])]
    _spread_zeros(views, shared)
    for view in views:
        view.values[~view.allowed] = 0.0
    groups = [subset.groups(views) for subset in shared]
    masked = not all(view.allowed.all() for view in views)
    for _ in range(rounds):
        for subset, sizes in zip(shared, groups, strict=True):
            subset.average(views, sizes, total)
        wrong = -min(float(view.values.min(initial=0.0)) for view in views)
        if masked:  # without zeros every step keeps what the ones before it have made equal
            wrong = max(wrong, *(subset.disagreement(views) for subset in shared))
        for view in views:
            view.values[view.allowed] = project_simplex(view.values[view.allowed], total)
        if wrong <= TOLERANCE * total:
            break
    return tuple(replace(m, counts=view.values, complete=True) for m, view in zip(measurements, views, strict=True))


@dataclass(kw_only=True, eq=False)
class _View:
    """One marginal at work: `values` change, `precision` is 1/deviation^2."""

    attributes: Clique
    values: Array
    allowed: Flags
    precision: float


@dataclass(frozen=True, kw_only=True, eq=False)
class _Shared:
    """A set of attributes and the views that have it; for each, the other axes and the shape that spreads back."""

    size: int
    members: tuple[int, ...]
    others: tuple[tuple[int, ...], ...]
    spread: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, subset: Clique, views: Sequence[_View]) -> _Shared:
        """The views that have every attribute of `subset`."""
        members = tuple(i for i, view in enumerate(views) if set(subset) <= set(view.attributes))
        others = tuple(tuple(axis for axis, a in enumerate(views[i].attributes) if a not in subset) for i in members)
        spread = tuple(
            tuple(1 if axis in out else n for axis, n in enumerate(views[i].values.shape))
            for i, out in zip(members, others, strict=True)
        )
        return cls(size=len(subset), members=members, others=others, spread=spread)

    def groups(self, views: Sequence[_View]) -> list[NDArray[np.int64]]:
        """For each member, how many of its possible cells add up to each cell of this set; 0 where nothing is possible."""
        return [np.asarray(views[i].allowed.sum(axis=out)) for i, out in zip(self.members, self.others, strict=True)]

    def average(self, views: Sequence[_View], groups: Sequence[NDArray[np.int64]], total: float) -> None:
        """Make the sums over this set equal: to the weighted mean, or to `total` for the empty set."""
        sums = [np.asarray(views[i].values.sum(axis=out)) for i, out in zip(self.members, self.others, strict=True)]
        sizes = [np.maximum(group, 1) for group in groups]
        weights = [views[i].precision / size for i, size in zip(self.members, sizes, strict=True)]
        mean = sum(w * s for w, s in zip(weights, sums, strict=True)) / sum(weights)
        # zeros have spread: a cell is possible for all members or for none
        target = np.where(groups[0] > 0, mean if self.size else total, 0.0)
        for i, value, size, shape in zip(self.members, sums, sizes, self.spread, strict=True):
            step = np.broadcast_to(((target - value) / size).reshape(shape), views[i].values.shape)
            np.add(views[i].values, step, out=views[i].values, where=views[i].allowed)

    def disagreement(self, views: Sequence[_View]) -> float:
        """The largest difference between two members in a sum over this set, in records."""
        sums = [np.asarray(views[i].values.sum(axis=out)) for i, out in zip(self.members, self.others, strict=True)]
        return float((np.maximum.reduce(sums) - np.minimum.reduce(sums)).max())

    def spread_zeros(self, views: Sequence[_View]) -> bool:
        """Forbid in every member what any of them cannot have; whether something changed."""
        possible = [
            np.asarray(views[i].allowed.any(axis=out)) for i, out in zip(self.members, self.others, strict=True)
        ]
        common = np.logical_and.reduce(possible)
        changed = False
        for i, own, shape in zip(self.members, possible, self.spread, strict=True):
            if (own & ~common).any():
                views[i].allowed &= common.reshape(shape)
                changed = True
        return changed


def _shared_sets(cliques: Sequence[Clique]) -> list[Clique]:
    """All intersections of two and more of the cliques, and the empty set, from small to large."""
    found = {clique for clique, times in Counter(cliques).items() if times > 1} | {()}
    fresh = _intersections(set(cliques)) - found
    while fresh:
        found |= fresh
        fresh = _intersections(found) - found
    return sorted(found, key=lambda subset: (len(subset), subset))


def _intersections(sets: set[Clique]) -> set[Clique]:
    """What two of the sets share, where they share an attribute."""
    holders: dict[int, list[Clique]] = {}
    for members in sets:
        for attribute in members:
            holders.setdefault(attribute, []).append(members)
    pairs = itertools.chain.from_iterable(itertools.combinations(held, 2) for held in holders.values())
    return {tuple(sorted({*one} & {*other})) for one, other in pairs}


def _view(measurement: Measurement, masks: Sequence[Mask], total: float) -> _View:
    allowed = allowed_cells(measurement.attributes, measurement.counts.shape, masks)
    values = measurement.counts.astype(np.float64)
    if not measurement.complete and measurement.total > 0:
        values *= total / measurement.total
    return _View(attributes=measurement.attributes, values=values, allowed=allowed, precision=measurement.deviation**-2)


def _spread_zeros(views: Sequence[_View], shared: Sequence[_Shared]) -> None:
    """Structural zeros reach every marginal that shares the attributes, until nothing changes."""
    if all(view.allowed.all() for view in views):
        return
    while sum(subset.spread_zeros(views) for subset in shared):
        continue
    if not all(view.allowed.any() for view in views):
        raise InputError("masks must allow at least one record")


def _check_shapes(measurements: Sequence[Measurement], masks: Sequence[Mask]) -> None:
    sizes: dict[int, int] = {}
    shaped = [(m.attributes, m.counts.shape) for m in measurements] + [(k.attributes, k.allowed.shape) for k in masks]
    for attributes, shape in shaped:
        for attribute, size in zip(attributes, shape, strict=True):
            if sizes.setdefault(attribute, size) != size or size < 1:
                raise InputError(f"attribute {attribute} must have the same size in every marginal and mask")
