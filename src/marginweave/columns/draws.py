"""Samples inside a bin: the place of a synthetic value, an integer of the bin's grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from marginweave.base.arrays import Codes, Floats
from marginweave.columns.base import Uniform
from marginweave.configuration.columns.binned import PointRange


@dataclass(frozen=True, kw_only=True, eq=False)
class BelowCurve:
    """A distribution over the whole range of a column: `below` has the weight below each of `edges`, linear between them.

    The edges are in steps of the grid and increase; a value rounds down to a step.
    """

    edges: Floats
    below: Floats


Shape: TypeAlias = BelowCurve | Literal["midpoint"] | None
"""Distribution of values inside bins; None is uniform."""


def draw_inside(
    first: Floats,
    last: Floats,
    codes: Codes,
    shape: Shape,
    uniform: Uniform,
) -> Floats:
    """Return a whole number of [first, last] of each code's bin, shape (n,), float64.

    Without a shape each has equal probability; `midpoint` is the middle one. A distribution with the distribution function F
    gives F^-1(U), U uniform on [F(first), F(last + 1)), rounded down to the grid; where it has no weight in the bin the sample
    is uniform. DP: post-processing.

    Args:
        first: First number of each bin, shape (bins,).
        last: Last number of each bin, shape (bins,).
        codes: Bins, shape (n,).
        shape: The rule.
        uniform: Source of the samples.
    """
    if shape == "midpoint":
        middle = np.floor((first + last) / 2)
        return middle[codes]
    shares = uniform(len(codes))
    length = last - first + 1
    steps = np.floor(shares * length[codes])
    even: Floats = first[codes] + steps
    if not isinstance(shape, BelowCurve):
        return even
    # U on [F(first), F(last + 1)), by linear interpolation of F
    low = np.interp(first, shape.edges, shape.below)
    high = np.interp(last + 1, shape.edges, shape.below)
    mass = high - low
    aim = low[codes] + shares * mass[codes]
    # F^-1(U)
    points = np.interp(aim, shape.below, shape.edges)
    samples = np.floor(points)
    inside = np.clip(samples, first[codes], last[codes])
    has_mass = high > low
    return np.where(has_mass[codes], inside, even)


def draw_among(
    runs: Sequence[PointRange],
    middle: Floats,
    codes: Codes,
    shape: Shape,
    uniform: Uniform,
) -> Floats:
    """Return samples of bins in which only the points of `runs` can be drawn; every bin has at least one run.

    A run is chosen in proportion to its points, or to its weight under the distribution, and a point inside the run
    as `draw_inside` says: the rule of the bin under the condition that no other point is drawn. `midpoint` takes the point
    closest to `middle`, the lower of two. DP: post-processing.

    Args:
        runs: Bin, first and last point of each run.
        middle: Middle of each bin, shape (bins,).
        codes: Bins, shape (n,).
        shape: The rule.
        uniform: Source of the samples.
    """
    owner, first, last = np.array(sorted(runs), np.int64).T
    # the runs of bin b are start[b] … stop[b] - 1
    start = np.searchsorted(owner, np.arange(len(middle)))
    stop = np.append(start[1:], len(owner))
    first = first.astype(np.float64)
    last = last.astype(np.float64)
    if shape == "midpoint":
        middle_of_bin = middle[owner]
        nearest = np.clip(middle_of_bin, first, last)
        distance = np.abs(nearest - middle_of_bin)
        order = np.lexsort((distance, owner))
        closest_run = order[start]
        point: Floats = nearest[closest_run]
        return point[codes]
    weight = last - first + 1
    if isinstance(shape, BelowCurve):
        below_first = np.interp(first, shape.edges, shape.below)
        below_end = np.interp(last + 1, shape.edges, shape.below)
        mass = below_end - below_first
        mass_of_bin = np.add.reduceat(mass, start)
        has_mass = mass_of_bin > 0
        weight = np.where(has_mass[owner], mass, weight)
    # a run in proportion to its weight: where a uniform point of the bin's total weight falls
    below = np.concatenate([[0.0], np.cumsum(weight)])
    weight_of_bin = below[stop] - below[start]
    aim = below[start][codes] + uniform(len(codes)) * weight_of_bin[codes]
    place = np.searchsorted(below, aim, side="right") - 1
    run = np.clip(place, start[codes], stop[codes] - 1)
    return draw_inside(first, last, run, shape, uniform)
