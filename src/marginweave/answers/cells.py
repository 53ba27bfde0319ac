"""Estimates of every cell of every measured set of columns at once, the same as `LeastSquares` gives for each by itself.

DP: post-processing of released counts.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginweave.answers.intervals import Reach
from marginweave.answers.least_squares import LeastSquares, Signature
from marginweave.answers.merged import between, weights_around
from marginweave.answers.tables import FEWEST, Part, PartTables
from marginweave.base.arrays import Flags, Floats, Integers

LONGEST = 3
"""Columns of a table that a page can carry."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CellTable:
    """Estimates of a table over attributes, by their places, in order; the missing value of each is last.

    `is_measured` says which cells were measured by themselves. Of the others `merged` has estimate, low and high
    (`count_between`), once for each reach, and the other numbers mean nothing.
    """

    attributes: tuple[int, ...]
    estimates: Floats
    variances: Floats
    is_measured: Flags
    merged: Floats | None = None

    def without(self, impossible: Flags) -> CellTable:
        """Return this table with 0, exactly, in cells where a rule allows no record."""
        return replace(
            self,
            estimates=np.where(impossible, 0.0, self.estimates),
            variances=np.where(impossible, 0.0, self.variances),
            is_measured=self.is_measured | impossible,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _NeighborWeights:
    """The least, the largest and the likely weights around each value of an attribute (`weights_around`).

    Weights i of value v are `scales[i, v]` times row `numbers[i, v]` of the few `rows`, none of which is a multiple of another.
    `ends` has estimates and deviations of the counts between the value and the largest, and between the least and the value.
    """

    rows: Floats
    numbers: Integers
    scales: Floats
    ends: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class _Reading:
    """Estimates and variances of the cells of a table, as they are read in the parts of one measured table."""

    estimates: Floats
    variances: Floats
    is_measured: Flags


def cell_tables(
    measured: PartTables,
    sizes: Sequence[int],
    most_cells: int,
    reaches: Sequence[Reach],
) -> Iterator[CellTable]:
    """Yield the tables of no attributes, of each attribute, and of those measured together.

    Smaller ones come first. Tables of several attributes end where all tables would have more than `most_cells` cells.
    """
    squares = LeastSquares(measured)
    weights = dict[int, Floats]()
    for axis, size in measured.sizes.items():
        weights[axis] = np.eye(sizes[axis], size)

    @cache
    def neighbor_weights(axis: int, number: int) -> _NeighborWeights:
        return _neighbor_weights(squares, measured.parts[number], weights[axis])

    signatures_of = _signatures_of_tables(measured)
    cells = dict[tuple[int, ...], int]()
    for axes in signatures_of:
        cells[axes] = math.prod(sizes[axis] for axis in axes)
    cells_left = most_cells
    for axes in sorted(signatures_of, key=lambda axes: (len(axes), cells[axes], axes)):
        cells_left -= cells[axes]
        if cells_left < 0 and len(axes) > 1:
            return
        signatures = sorted(signatures_of[axes])
        readings = [_read(squares, signature, weights, axes) for signature in signatures]
        table = _best(axes, readings)
        if table.is_measured.all():
            yield table
            continue
        parts = squares.finest_parts(axes)
        signature = tuple(measured.parts.index(part) for part in parts)
        number_of = {measured.parts[number].axis: number for number in signature}
        neighbors = [neighbor_weights(axis, number_of[axis]) for axis in axes]
        merged = _merged(squares, axes, signature, neighbors, reaches)
        yield replace(table, merged=merged)


def _signatures_of_tables(measured: PartTables) -> dict[tuple[int, ...], set[Signature]]:
    """Return for each set of axes the signatures in which its table can be read, at most `LONGEST` axes."""
    signatures_of = defaultdict[tuple[int, ...], set[Signature]](set)
    for axis, number in measured.full_parts.items():
        signatures_of[axis,].add((number,))
    signatures_of[()].add(())
    for table in measured.tables:
        for length in range(2, LONGEST + 1):
            for signature in itertools.combinations(table.parts, length):
                axes = sorted(measured.parts[number].axis for number in signature)
                signatures_of[tuple(axes)].add(signature)
    return signatures_of


def _neighbor_weights(squares: LeastSquares, part: Part, weights: Floats) -> _NeighborWeights:
    """Return the weights around each row of `weights`, shape (values, codes)."""
    # shape (3, values, codes)
    three_weights = weights_around(part, weights, squares.counts(part.axis))
    least, most, _ = three_weights
    ends = np.zeros((2, 2, len(weights)))
    for side, differences in enumerate((most - weights, weights - least)):
        solved = squares.solve({part.axis: differences})
        variances = np.maximum(np.diagonal(solved.covariance), 0)
        ends[0, side] = solved.values
        ends[1, side] = np.sqrt(variances) * differences.any(axis=1)
    scales = np.maximum(three_weights.max(axis=2), FEWEST)
    scaled = three_weights / scales[..., None]
    scaled_rows = scaled.reshape(-1, three_weights.shape[2])
    rows, numbers = np.unique(scaled_rows, axis=0, return_inverse=True)
    return _NeighborWeights(
        rows=rows,
        numbers=numbers.reshape(scales.shape),
        scales=scales,
        ends=ends,
    )


def _merged(
    squares: LeastSquares,
    axes: Sequence[int],
    signature: Signature,
    neighbors: Sequence[_NeighborWeights],
    reaches: Sequence[Reach],
) -> Floats:
    """Return `count_between` of all cells: for each reach estimates, low and high."""
    length = len(axes)
    rows = {axis: neighbor.rows for axis, neighbor in zip(axes, neighbors, strict=True)}
    reading = _read(squares, signature, rows, axes)
    numbers = [_along(0, neighbors[0].numbers, length)]
    scale = _along(0, neighbors[0].scales, length)
    ends = _along(0, neighbors[0].ends, length)
    for place, neighbor in enumerate(neighbors[1:], 1):
        numbers.append(_along(place, neighbor.numbers, length))
        scale = scale * _along(place, neighbor.scales, length)
        ends = ends + _along(place, neighbor.ends, length)
    cells = tuple(numbers)
    counts = reading.estimates[cells] * scale
    variances = reading.variances[cells][:2] * scale[:2] ** 2
    merged = [between(counts, variances, ends, reach) for reach in reaches]
    return np.stack(merged)


def _best(axes: tuple[int, ...], readings: Sequence[_Reading]) -> CellTable:
    """Return for each cell the reading with the least variance among those that measure it."""
    estimates = readings[0].estimates
    variances = readings[0].variances
    is_measured = readings[0].is_measured
    for reading in readings[1:]:
        is_better = reading.is_measured & (~is_measured | (reading.variances < variances))
        estimates = np.where(is_better, reading.estimates, estimates)
        variances = np.where(is_better, reading.variances, variances)
        is_measured = is_measured | reading.is_measured
    return CellTable(
        attributes=axes,
        estimates=estimates,
        variances=variances,
        is_measured=is_measured,
    )


def _read(
    squares: LeastSquares,
    signature: Signature,
    weights_of: Mapping[int, Floats],
    axes: Sequence[int],
) -> _Reading:
    """Return estimates of all products of weights, read in the parts of a signature, with the axes in this order."""
    # Let m_a be the mean of the weights w_a over the blocks of axis a, and c_a = w_a - m_a. Over the sets S of axes,
    #     prod_a w_a = sum_S M_S prod_{a in S} c_a,   M_S = prod_{a not in S} m_a.
    # `products` gives residual r_S, variance v_S and slope s_S of the product of c_a; the empty set has slope 1 alone. With
    # the total N and its variance V, and as the terms are uncorrelated,
    #     estimate = sum_S M_S r_S + N sum_S M_S s_S,   variance = sum_S M_S^2 v_S + V (sum_S M_S s_S)^2.
    parts = [squares.measured.parts[number] for number in signature]
    length = len(parts)
    weights = [weights_of[part.axis] for part in parts]
    values = [part.values(vectors) for part, vectors in zip(parts, weights, strict=True)]
    means = [vectors.mean(axis=1) for vectors in values]
    centered = [vectors - mean[:, None] for vectors, mean in zip(values, means, strict=True)]
    shape = [len(vectors) for vectors in weights]
    estimates = np.zeros(shape)
    variances = np.zeros(shape)
    slopes = _means_outside(means, ())
    for inside in _nonempty_subsets(length):
        residuals, variance, slope = squares.products(signature, inside, centered)
        scale = _means_outside(means, inside)
        estimates = estimates + scale * residuals
        variances = variances + scale**2 * variance
        slopes = slopes + scale * slope
    total, total_variance = squares.total
    axes_of_parts = [part.axis for part in parts]
    order = [axes_of_parts.index(axis) for axis in axes]
    return _Reading(
        estimates=(estimates + slopes * total).transpose(order),
        variances=(variances + slopes**2 * total_variance).transpose(order),
        is_measured=_are_measured(parts, values, weights).transpose(order),
    )


def _nonempty_subsets(length: int) -> Iterator[tuple[int, ...]]:
    """Yield all subsets of the first `length` places but the empty one, smaller ones first."""
    for size in range(1, length + 1):
        yield from itertools.combinations(range(length), size)


def _along(place: int, values: NDArray[Any], length: int) -> NDArray[Any]:
    """Return values whose last axis is at `place` of the `length` last axes, all others of which have the size 1."""
    shape = [1] * length
    shape[place] = -1
    return values.reshape(*values.shape[:-1], *shape)


def _means_outside(means: Sequence[Floats], inside: Sequence[int]) -> Floats:
    """Return the products of the means of the places that are not `inside`, of size 1 at places inside."""
    length = len(means)
    product = np.ones([1] * length)
    for place in range(length):
        if place not in inside:
            product = product * _along(place, means[place], length)
    return product


def _are_measured(
    parts: Sequence[Part],
    values: Sequence[Floats],
    weights: Sequence[Floats],
) -> Flags:
    """Return which products of weights are measured: those of weights that are the same in each block.

    `values` are the weights of the blocks.
    """
    are_measured = np.ones((), np.bool_)
    for part, block_values, vectors in zip(parts, values, weights, strict=True):
        is_same = block_values[:, part.blocks] == vectors
        are_measured = np.logical_and.outer(are_measured, is_same.all(axis=1))
    return are_measured
