"""How far a mixture is from noisy counts, and in which direction it gets closer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.measurements import CensoredMeasurement, Clique, Mask, Measurement
from marginweave.tasks.mixture.blocks import Block
from marginweave.tasks.mixture.censored import expected_below
from marginweave.tasks.mixture.model import fold

Floats = NDArray[np.float32]
F32 = np.float32

_DENSE = 1 << 13
"""Up to how many values of all attributes together pairs are looked at in one matrix of all with all: 256 MB each."""
_RARE = 0.2
"""Least share of the cells of such a matrix that are measured; where fewer are, each pair by itself is faster."""
_UNSURPRISING = 5.0
"""A count this many deviations below the cut is there with such certainty that it tells nothing."""
_WORK = 3 * 10**7
"""Up to how many products a step looks at all targets of several features; beyond, at parts of them in turn."""
_FORBIDDEN = 30.0
"""A record in a cell of a mask across blocks counts like so many deviations of the least noisy count."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Feature:
    """Some attributes of one block: the table of them that each of its cells falls into is `places`, `width` cells wide."""

    block: int
    places: NDArray[np.int64]
    width: int
    start: int
    """Where its columns begin among those of all features."""

    @property
    def columns(self) -> slice:
        """Its columns among those of all features."""
        return slice(self.start, self.start + self.width)


@dataclass(frozen=True, kw_only=True, eq=False)
class Hidden:
    """Cells of which it is known that the count was below `cut`, of the shape of the counts."""

    cells: NDArray[np.bool_]
    cut: float
    deviation: float

    def residuals(self, predicted: Floats) -> tuple[NDArray[np.intp], Floats]:
        """Where a hidden count is surprisingly small, and what the model has too much there.

        For Y ~ N(m, deviation^2): m - E[Y | Y < cut], the slope of -deviation^2 log P(Y < cut), which vanishes below the cut.
        """
        near = np.flatnonzero(self.cells.ravel() & (predicted.ravel() > self.cut - _UNSURPRISING * self.deviation))
        means = predicted.ravel()[near].astype(np.float64)
        return near, (means - expected_below(means, self.deviation, self.cut)).astype(F32)

    @property
    def expected(self) -> float:
        """What the squares of these, over the variance, add up to where there are no records."""
        surplus = expected_below(np.zeros(1), self.deviation, self.cut) / self.deviation
        return float(surplus[0] ** 2) * np.count_nonzero(self.cells)


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """Counts of the product of a few features: `counts` has one axis each, `weight` is 1/variance, 0 where unknown.

    What is known of `hidden` cells is not in the counts; these have no weight.
    """

    features: tuple[int, ...]
    counts: Floats
    weight: Floats
    hidden: Hidden | None = None

    @property
    def expected(self) -> float:
        """chi^2 of the counts where the model is the truth."""
        return np.count_nonzero(self.weight) + (0.0 if self.hidden is None else self.hidden.expected)


@dataclass(kw_only=True, eq=False)
class Layout:
    """The features that targets are made of, side by side."""

    blocks: tuple[Block, ...]
    sizes: tuple[int, ...]
    features: list[Feature]
    index: dict[Clique, int]

    @classmethod
    def of(cls, blocks: tuple[Block, ...], sizes: Sequence[int]) -> Layout:
        """Without any feature."""
        return cls(blocks=blocks, sizes=tuple(sizes), features=[], index={})

    @property
    def width(self) -> int:
        """Columns of all features."""
        return self.features[-1].columns.stop if self.features else 0

    def place(self, attributes: Clique) -> tuple[tuple[int, ...], list[int]]:
        """The features that a table of these attributes is a product of, and its attributes in the order of these."""
        chosen: list[int] = []
        order: list[int] = []
        for number, block in enumerate(self.blocks):
            if mine := tuple(a for a in block.attributes if a in attributes):
                if mine not in self.index:
                    self._add(number, mine)
                chosen.append(self.index[mine])
                order.extend(mine)
        return tuple(chosen), order

    def _add(self, number: int, attributes: Clique) -> None:
        places = self.blocks[number].places(attributes, self.sizes)
        width = math.prod(self.sizes[a] for a in attributes)
        self.index[attributes] = len(self.features)
        self.features.append(Feature(block=number, places=places, width=width, start=self.width))

    def target(
        self, attributes: Clique, counts: NDArray[np.generic], weight: NDArray[np.generic], hidden: Hidden | None = None
    ) -> Target:
        """Counts and weights over increasing attributes as a target; cells that no block allows have no weight."""
        features, order = self.place(attributes)
        axes = [attributes.index(a) for a in order]
        shape = tuple(self.features[f].width for f in features)

        def placed(cells: NDArray[np.generic]) -> NDArray[np.generic]:
            return np.ascontiguousarray(np.transpose(cells, axes).reshape(shape))

        reached = np.ones(shape, np.bool_)
        for axis, f in enumerate(features):
            mine = np.bincount(self.features[f].places, minlength=shape[axis]) > 0
            reached &= mine.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        if hidden is not None:
            hidden = replace(hidden, cells=np.asarray(placed(hidden.cells), np.bool_))
        return Target(
            features=features,
            counts=placed(counts).astype(F32),
            weight=(placed(weight) * reached).astype(F32),
            hidden=hidden,
        )


class Objective:
    """1/2 sum w (n p - y)^2 over the cells of all targets: half of chi^2 of the counts, given the model.

    `expected` is what chi^2 is where the model is the truth. Of cells whose counts are known to be below a cut it is the
    likelihood of that instead.
    """

    def __init__(
        self,
        layout: Layout,
        measurements: Sequence[Measurement],
        masks: Sequence[Mask],
        total: float,
        components: int,
    ) -> None:
        self.layout, self.total = layout, F32(total)
        targets = [_of(m, total, layout) for m in measurements]
        self.expected = sum(target.expected for target in targets)
        precision = max(m.deviation**-2 for m in measurements)
        for mask in masks:
            forbidden = ~mask.allowed * (_FORBIDDEN**2 * precision)
            targets.append(layout.target(mask.attributes, np.zeros(mask.allowed.shape), forbidden))
        plain = [t for t in targets if t.hidden is None]
        pairs = [t for t in plain if len(t.features) == 2]
        dense = layout.width <= _DENSE and sum(2 * t.counts.size for t in pairs) >= _RARE * layout.width**2
        side = [t for t in plain if len(t.features) == 1 or (dense and len(t.features) == 2)]
        self._one = _Single(layout, [t for t in side if len(t.features) == 1])
        self._two = _Pairs(layout, pairs) if dense and pairs else None
        self._parts = _in_parts([t for t in targets if not any(t is other for other in side)], components)
        self._told = [math.inf] * len(self._parts)  # not seen yet
        self._turn = 0

    def gradient(self, columns: Floats, weights: Floats) -> tuple[float, Floats, Floats]:
        """Twice the objective (chi^2), and its derivatives by the shares `columns`, (components, width), and the weights."""
        n = self.total
        chi, slope = self._one.residuals(n * (weights @ columns))
        by_columns = np.repeat(slope[None, :], len(columns), axis=0)
        by_weights = columns @ slope
        if self._two is not None:
            predicted: Floats = np.multiply((columns * weights[:, None]).T @ columns, n)
            more, residuals = self._two.residuals(predicted)
            chi += more
            back = columns @ residuals
            by_columns += back
            # every pair stands in the matrix twice
            by_weights += F32(0.5) * (columns * back).sum(axis=1)
        chi += self._more(columns, weights, by_columns, by_weights)
        by_columns *= n * weights[:, None]
        by_weights *= n
        return chi, by_columns, by_weights

    def _more(self, columns: Floats, weights: Floats, by_columns: Floats, by_weights: Floats) -> float:
        """Add what the next part of the other targets says, for all of them; their chi^2 as it was last seen."""
        if not self._parts:
            return 0.0
        turn, self._turn = self._turn, (self._turn + 1) % len(self._parts)
        scale = F32(len(self._parts))
        self._told[turn] = sum(
            self._add(target, scale, columns, weights, by_columns, by_weights) for target in self._parts[turn]
        )
        return sum(self._told)

    def _add(
        self,
        target: Target,
        scale: np.float32,
        columns: Floats,
        weights: Floats,
        by_columns: Floats,
        by_weights: Floats,
    ) -> float:
        """Add what one target says, feature by feature, but for the factor n w of the components; its chi^2."""
        where = [self.layout.features[f].columns for f in target.features]
        factors = [columns[:, place] for place in where]
        *first, last = factors
        folded = fold(first) if first else np.ones((len(columns), 1), F32)
        predicted: Floats = np.multiply((folded * weights[:, None]).T @ last, self.total)
        residuals = predicted - target.counts.reshape(predicted.shape)
        slope = residuals * target.weight.reshape(predicted.shape)
        chi = float((slope * residuals).sum(dtype=np.float64))
        if target.hidden is not None:
            near, surplus = target.hidden.residuals(predicted)
            more = surplus * F32(target.hidden.deviation**-2)
            slope.ravel()[near] += more
            chi += float(more @ surplus)
        slope *= scale
        by_columns[:, where[-1]] += (by_last := folded @ slope)
        by_weights += (by_last * last).sum(axis=1)
        by_folded: Floats = (last @ slope.T).reshape([len(columns), *(factor.shape[1] for factor in first)])
        for axis, place in enumerate(where[:-1]):
            by_columns[:, place] += _folded_out(by_folded, first, axis)
        return chi


def _of(measurement: Measurement, total: float, layout: Layout) -> Target:
    """A measurement as a target; an incomplete one is first scaled up to the record count, with its noise."""
    short = not measurement.complete and measurement.total > 0
    scale = total / measurement.total if short else 1.0
    deviation = measurement.deviation * scale
    weight, hidden = np.full(measurement.counts.shape, deviation**-2), None
    if isinstance(measurement, CensoredMeasurement):
        weight = weight * measurement.released
        hidden = Hidden(cells=measurement.hidden, cut=measurement.cut, deviation=deviation)
    return layout.target(measurement.attributes, measurement.counts * scale, weight, hidden)


def _in_parts(targets: Sequence[Target], components: int) -> list[list[Target]]:
    """The targets in parts of about the same work, every so many in turn; a single part where that is little."""
    work = sum(target.counts.size for target in targets) * components
    parts = min(len(targets), -(-work // _WORK))
    largest_first = sorted(targets, key=lambda target: -target.counts.size)
    return [largest_first[part::parts] for part in range(parts)]


def _folded_out(values: Floats, factors: Sequence[Floats], axis: int) -> Floats:
    """Sums of `values`, one axis for each factor, times all factors but the one at `axis`."""
    for other in reversed(range(len(factors))):
        if other != axis:
            shape = [len(values), *(-1 if i == other else 1 for i in range(values.ndim - 1))]
            values = (values * factors[other].reshape(shape)).sum(axis=other + 1)
            factors = [f for i, f in enumerate(factors) if i != other]
            axis -= other < axis
    return values


class _Single:
    """All targets of one feature, side by side: several of one feature are merged by their weights."""

    def __init__(self, layout: Layout, targets: Sequence[Target]) -> None:
        self.weight, self.counts, self.rest = _merged((layout.width,), layout, targets)

    def residuals(self, predicted: Floats) -> tuple[float, Floats]:
        """chi^2 and w (predicted - y)."""
        residuals = predicted - self.counts
        slope = residuals * self.weight
        return float(residuals @ slope) + self.rest, slope


class _Pairs:
    """All targets of two features, in a symmetric matrix of all columns with all columns."""

    def __init__(self, layout: Layout, targets: Sequence[Target]) -> None:
        weight, counts, self.rest = _merged((layout.width, layout.width), layout, targets)
        self.weight, self.counts = weight + weight.T, counts + counts.T

    def residuals(self, predicted: Floats) -> tuple[float, Floats]:
        """chi^2 and w (predicted - y), which takes the memory of `predicted`."""
        predicted -= self.counts
        slope = predicted * self.weight
        chi = 0.5 * float(np.vdot(predicted, slope))
        return chi + self.rest, slope


def _merged(shape: tuple[int, ...], layout: Layout, targets: Sequence[Target]) -> tuple[Floats, Floats, float]:
    """Weights and weighted means of what several targets say of a cell, and the chi^2 among them."""
    weight, counts, squares = np.zeros(shape), np.zeros(shape), 0.0
    for target in targets:
        place = tuple(layout.features[f].columns for f in target.features)
        weight[place] += target.weight
        counts[place] += target.weight * target.counts
        squares += float((target.weight * target.counts.astype(np.float64) ** 2).sum())
    known = weight > 0
    mean = np.divide(counts, weight, out=np.zeros(shape), where=known)
    rest = squares - float((weight * mean**2).sum())
    return weight.astype(F32), mean.astype(F32), max(rest, 0.0)
