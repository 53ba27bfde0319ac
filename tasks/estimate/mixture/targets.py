"""Noisy counts as a fit sees them: over the features of blocks, side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.released.measurements import CensoredMeasurement, Clique, Measurement
from marginweave.tasks.estimate.mixture.blocks import Block
from marginweave.tasks.estimate.mixture.censored import expected_below

Floats = NDArray[np.float32]
F32 = np.float32


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


def target_of(measurement: Measurement, total: float, layout: Layout) -> Target:
    """A measurement as a target; an incomplete one is first scaled up to the record count, with its noise."""
    scale = measurement.scale(total)
    deviation = measurement.deviation * scale
    weight, hidden = np.full(measurement.counts.shape, deviation**-2), None
    if isinstance(measurement, CensoredMeasurement):
        weight = weight * measurement.released
        hidden = Hidden(cells=measurement.hidden, cut=measurement.cut, deviation=deviation)
    return layout.target(measurement.attributes, measurement.counts * scale, weight, hidden)
