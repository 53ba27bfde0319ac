"""Every cell of every measured set of columns at once: what `LeastSquares` answers to each by itself, with whole arrays.

DP: post-processing of released counts.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginweave.answers.intervals import Reach
from marginweave.answers.least_squares import LeastSquares
from marginweave.answers.merged import between, weights_around
from marginweave.answers.tables import FEWEST, Part, PartTables
from marginweave.base.arrays import Flags, Floats, Integers

LONGEST = 3
"""Columns of a table that a page can carry."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CellTable:
    """Estimates of a table over attributes, by their places, in order; the missing value of each is last.

    `known` says which cells were measured by themselves; of others `merged` has estimate, low and high (`count_between`), once
    for each reach, and the other numbers mean nothing. `wholes[:, i]` are estimate and variance of the sum of the table over
    the values of attribute i, of which the cell is a share, and `shared[i]` is the covariance of the cell with it.
    """

    attributes: tuple[int, ...]
    estimates: Floats
    variances: Floats
    shared: Floats
    wholes: Floats
    known: Flags
    merged: Floats | None = None

    def without(self, impossible: Flags) -> CellTable:
        """The same with 0, exactly, in cells where a rule allows no record."""
        return replace(
            self,
            estimates=np.where(impossible, 0.0, self.estimates),
            variances=np.where(impossible, 0.0, self.variances),
            shared=np.where(impossible, 0.0, self.shared),
            known=self.known | impossible,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Around:
    """The least, the largest and the likely weights around each value of an attribute (`weights_around`).

    Weights i of value v are `scales[i, v]` times row `numbers[i, v]` of the few `rows`, none of which is a multiple of another.
    `ends` has estimates and deviations of the counts between the value and the largest, and between the least and the value.
    """

    rows: Floats
    numbers: Integers
    scales: Floats
    ends: Floats


def cell_tables(measured: PartTables, sizes: Sequence[int], most: int, reaches: Sequence[Reach]) -> Iterator[CellTable]:
    """The tables of no attributes and of each one; smaller ones first, to `most` cells in all, of those measured together."""
    squares = LeastSquares(measured)
    readings = defaultdict[tuple[int, ...], set[tuple[int, ...]]](set)
    for attribute, whole in measured.full_parts.items():
        readings[attribute,].add((whole,))
    readings[()].add(())
    for table in measured.tables:
        for length in range(2, LONGEST + 1):
            for inside in itertools.combinations(table.parts, length):
                readings[tuple(sorted(measured.parts[part].axis for part in inside))].add(inside)
    weights = {j: np.eye(sizes[j], size) for j, size in measured.sizes.items()}
    around = cache(lambda attribute, number: _around(squares, measured.parts[number], weights[attribute]))
    cells = {chosen: int(np.prod([sizes[j] for j in chosen])) for chosen in readings}
    for chosen, own in sorted(readings.items(), key=lambda one: (len(one[0]), cells[one[0]], one[0])):
        most -= cells[chosen]
        if most < 0 and len(chosen) > 1:
            return
        found = _best(chosen, [_table(squares, signature, weights, chosen) for signature in sorted(own)])
        if found.known.all():
            yield found
            continue
        signature = tuple(measured.parts.index(part) for part in squares.finest_parts(chosen))
        places = {measured.parts[number].axis: number for number in signature}
        own_around = [around(j, places[j]) for j in chosen]
        yield replace(found, merged=_merged(squares, chosen, signature, own_around, reaches))


def _around(squares: LeastSquares, part: Part, asked: Floats) -> _Around:
    least, most, _ = every = weights_around(part, asked, squares.counts(part.axis))
    ends = np.zeros((2, 2, len(asked)))
    for i, beside in enumerate((most - asked, asked - least)):
        solved = squares.solve({part.axis: beside})
        ends[:, i] = solved.values, np.sqrt(np.maximum(np.diagonal(solved.covariance), 0)) * beside.any(axis=1)
    scales = np.maximum(every.max(axis=2), FEWEST)
    rows, numbers = np.unique((every / scales[..., None]).reshape(-1, every.shape[2]), axis=0, return_inverse=True)
    return _Around(rows=rows, numbers=numbers.reshape(scales.shape), scales=scales, ends=ends)


def _merged(
    squares: LeastSquares,
    order: Sequence[int],
    signature: tuple[int, ...],
    around: Sequence[_Around],
    reaches: Sequence[Reach],
) -> Floats:
    """`count_between` of all cells: for each reach estimates, low and high."""

    def along(place: int, values: Floats | Integers) -> NDArray[Any]:
        return values.reshape(*values.shape[:-1], *(-1 if i == place else 1 for i in range(len(order))))

    rows = {axis: own.rows for axis, own in zip(order, around, strict=True)}
    estimates, variances, *_ = _table(squares, signature, rows, order)
    places = tuple(along(i, own.numbers) for i, own in enumerate(around))
    scale = reduce(np.multiply, (along(i, own.scales) for i, own in enumerate(around)))
    ends = reduce(np.add, (along(i, own.ends) for i, own in enumerate(around)))
    counts, spread = estimates[places] * scale, variances[places][:2] * scale[:2] ** 2
    return np.stack([between(counts, spread, ends, reach) for reach in reaches])


def _best(chosen: tuple[int, ...], read: Sequence[tuple[Floats, Floats, Floats, Flags]]) -> CellTable:
    """Of what a table is read in, for each cell that with the least variance."""
    estimates, variances, beside, known = read[0]
    for others in read[1:]:
        better = others[3] & (~known | (others[1] < variances))
        estimates, variances = np.where(better, others[0], estimates), np.where(better, others[1], variances)
        beside, known = np.where(better, others[2], beside), known | others[3]
    return CellTable(
        attributes=chosen, estimates=estimates, variances=variances, shared=beside[0], wholes=beside[1:], known=known
    )


def _table(
    squares: LeastSquares, signature: tuple[int, ...], by_axis: Mapping[int, Floats], order: Sequence[int]
) -> tuple[Floats, Floats, Floats, Flags]:
    """Estimates, variances, `shared` and `wholes`, and what is measured, of all products of weights, read in these parts."""
    parts = [squares.measured.parts[number] for number in signature]
    length, weights = len(parts), [by_axis[part.axis] for part in parts]
    values = [part.values(own) for part, own in zip(parts, weights, strict=True)]
    means = [own.mean(axis=1) for own in values]
    centered = [own - mean[:, None] for own, mean in zip(values, means, strict=True)]

    def along(place: int, vector: Floats) -> Floats:
        return vector.reshape([-1 if i == place else 1 for i in range(length)])

    def scale(inside: Sequence[int]) -> Floats:
        found = np.ones([1] * length)
        for place in range(length):
            if place not in inside:
                found = found * along(place, means[place])
        return found

    shape = [len(own) for own in weights]
    estimates, variances, beside = np.zeros(shape), np.zeros(shape), np.zeros((3, length, *shape))
    slopes = scale(())
    sums = [scale((place,)) for place in range(length)]  # the slopes of the sums over a place
    for inside in (some for k in range(1, length + 1) for some in itertools.combinations(range(length), k)):
        own, (residuals, variance, slope) = scale(inside), squares.products(signature, inside, centered)
        estimates = estimates + own * residuals
        variances = variances + own**2 * variance
        slopes = slopes + own * slope
        for place in set(range(length)) - set(inside):
            summed = scale((*inside, place))
            more = own * summed * variance, summed * residuals, summed**2 * variance
            beside[:, place] += np.stack(np.broadcast_arrays(*more))
            sums[place] = sums[place] + summed * slope
    total, spread = squares.total
    estimates, variances = estimates + slopes * total, variances + slopes**2 * spread
    for place in range(length):
        of_all = np.broadcast_arrays(slopes * spread, total, sums[place] * spread)
        beside[:, place] += np.stack(of_all) * sums[place]
    turned = [[part.axis for part in parts].index(axis) for axis in order]
    beside = beside[:, turned].transpose(0, 1, *(2 + place for place in turned))
    known = _known(parts, values, weights)
    return estimates.transpose(turned), variances.transpose(turned), beside, known.transpose(turned)


def _known(parts: Sequence[Part], values: Sequence[Floats], weights: Sequence[Floats]) -> Flags:
    """Which products of weights are measured: of weights that are the same in each block, whose `values` are of blocks."""
    apart = (
        (own[:, part.blocks] == asked).all(axis=1) for part, own, asked in zip(parts, values, weights, strict=True)
    )
    return reduce(np.logical_and.outer, apart, np.ones((), np.bool_))
