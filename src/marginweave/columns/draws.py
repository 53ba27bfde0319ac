"""Where inside its bin a synthetic value lies: an integer of the bin's grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from marginweave.base.arrays import Codes, Floats
from marginweave.columns.base import Uniform
from marginweave.configuration.columns.binned import Run


@dataclass(frozen=True, kw_only=True, eq=False)
class BelowCurve:
    """A distribution over the whole range of a column: `below` has the weight below each of `edges`, linear between them.

    The edges are in steps of the grid and increase; a value rounds down to a step.
    """

    edges: Floats
    below: Floats


Shape: TypeAlias = BelowCurve | Literal["midpoint"] | None
"""How values lie inside bins; None is uniform."""


def draw_inside(first: Floats, last: Floats, codes: Codes, shape: Shape, uniform: Uniform) -> Floats:
    """One whole number of [first, last] of each code's bin, shape (n,), float64.

    Without a shape each has equal probability; `midpoint` is the middle one. A distribution with the distribution function F
    gives F^-1(U), U uniform on [F(first), F(last + 1)), rounded down to the grid; where it has no weight in the bin the draw
    is uniform. DP: post-processing.

    Args:
        first: First number of each bin, shape (bins,).
        last: Last number of each bin, shape (bins,).
        codes: Bins, shape (n,).
        shape: The rule.
        uniform: Source of the draws.
    """
    if shape == "midpoint":
        return np.floor((first + last) / 2)[codes]
    shares = uniform(len(codes))
    even: Floats = first[codes] + np.floor(shares * (last - first + 1)[codes])
    if not isinstance(shape, BelowCurve):
        return even
    edges, total = shape.edges, shape.below
    low, high = np.interp(first, edges, total), np.interp(last + 1, edges, total)
    drawn = np.floor(np.interp(low[codes] + shares * (high - low)[codes], total, edges))
    return np.where((high > low)[codes], np.clip(drawn, first[codes], last[codes]), even)


def draw_among(runs: Sequence[Run], middle: Floats, codes: Codes, shape: Shape, uniform: Uniform) -> Floats:
    """As `draw_inside`, for bins of which only the points of `runs` can be drawn; every bin has one run at least.

    A run is chosen in proportion to its points, or to its weight under the distribution, and a point inside the run
    as `draw_inside` says: the rule of the bin under the condition that no other point is drawn. `midpoint` takes the point
    nearest to `middle`, the lower of two. DP: post-processing.

    Args:
        runs: Bin, first and last point of each run.
        middle: Middle of each bin, shape (bins,).
        codes: Bins, shape (n,).
        shape: The rule.
        uniform: Source of the draws.
    """
    owner, first, last = np.array(sorted(runs), np.int64).T
    start = np.searchsorted(owner, np.arange(len(middle)))
    first, last = first.astype(np.float64), last.astype(np.float64)
    if shape == "midpoint":
        nearest = np.clip(middle[owner], first, last)
        order = np.lexsort((np.abs(nearest - middle[owner]), owner))
        point: Floats = nearest[order[start]][codes]
        return point
    weight = last - first + 1
    if isinstance(shape, BelowCurve):
        ends = [np.interp(points, shape.edges, shape.below) for points in (first, last + 1)]
        mass = ends[1] - ends[0]
        weight = np.where((np.add.reduceat(mass, start) > 0)[owner], mass, weight)
    stop = np.append(start[1:], len(owner))
    below = np.concatenate([[0.0], np.cumsum(weight)])
    aim = below[start][codes] + uniform(len(codes)) * (below[stop] - below[start])[codes]
    run = np.clip(np.searchsorted(below, aim, side="right") - 1, start[codes], stop[codes] - 1)
    return draw_inside(first, last, run, shape, uniform)
