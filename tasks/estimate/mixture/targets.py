"""Noisy counts as the fit of a mixture uses them: over features of blocks, suppressed cells as censored Gaussians."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from marginweave.schemas.arrays import Flags, Floats, Integers
from marginweave.schemas.released.measurements import CensoredMeasurement, Clique, Measurement
from marginweave.tasks.estimate.mixture.model import Block


def expected_below(mean: Floats, deviation: Floats | float, cut: Floats | float) -> Floats:
    """E[Y | Y < cut] for Y ~ N(mean, deviation^2): mean - deviation phi(t) / Phi(t), t = (cut - mean) / deviation.

    Below `cut`, however large `mean` is. Any shape, all the same or scalar. DP: arithmetic on released numbers.
    """
    t = (cut - mean) / deviation
    expected = mean - deviation * np.exp(_log_density(t) - log_ndtr(t))
    return np.asarray(np.minimum(expected, cut))


def surprise(residuals: Floats, means: Floats, deviation: float, cut: float) -> float:
    """How far residuals are from what noise alone makes of `means`, in standard deviations; about N(0, 1) if nothing else.

    The sum of (r / deviation)^2, less its mean, over its deviation, for r = Y - m where Y ~ N(m, deviation^2) is at least
    `cut`, and r = E[Y | Y < cut] - m where it is not. With t = (cut - m) / deviation and h = phi(t) / Phi(t) the mean of a
    term is 1 - Phi(t) + t phi(t) + h^2 Phi(t), that of its square 3 (1 - Phi(t)) + (t^3 + 3 t) phi(t) + h^4 Phi(t).
    Shapes (n,); 0 where n is 0. DP: arithmetic on released numbers.
    """
    if not residuals.size:
        return 0.0
    # beyond 30 deviations all is known, or nothing: the limits of the formula
    t = np.clip((cut - means) / deviation, -30.0, 30.0)
    density, below = np.exp(_log_density(t)), ndtr(t)
    ratio = np.exp(_log_density(t) - log_ndtr(t))
    first = 1 - below + t * density + ratio**2 * below
    second = 3 * (1 - below) + (t**3 + 3 * t) * density + ratio**4 * below
    spread = float((second - first**2).sum())
    distance = float(((residuals / deviation) ** 2 - first).sum())
    return distance / math.sqrt(spread) if spread > 0 else 0.0


def _log_density(t: Floats) -> Floats:
    return np.asarray(-0.5 * t**2 - 0.5 * math.log(2 * math.pi))


F32 = np.float32
Float32s = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Feature:
    """Some attributes of one block: the table of them that each of its cells falls into is `places`, `width` cells wide.

    Its columns begin at `start` among those of all features.
    """

    block: int
    places: Integers
    width: int
    start: int

    @property
    def columns(self) -> slice:
        """Its columns among those of all features."""
        return slice(self.start, self.start + self.width)


@dataclass(frozen=True, kw_only=True, eq=False)
class Hidden:
    """Cells of which it is known that the count was below `cut`, of the shape of the counts."""

    cells: Flags
    cut: float
    deviation: float

    @property
    def expected(self) -> float:
        """What the squares of these, over the variance, add up to where there are no records."""
        surplus = expected_below(np.zeros(1), self.deviation, self.cut) / self.deviation
        return float(surplus[0] ** 2) * np.count_nonzero(self.cells)


@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureTarget:
    """Counts of the product of a few features: `counts` has one axis each, `weight` is 1/variance, 0 where unknown.

    What is known of `hidden` cells is not in the counts; these have no weight.
    """

    features: tuple[int, ...]
    counts: Float32s
    weight: Float32s
    hidden: Hidden | None = None

    @property
    def expected(self) -> float:
        """chi^2 of the counts where the model is the truth."""
        return np.count_nonzero(self.weight) + (0.0 if self.hidden is None else self.hidden.expected)


class FeatureLayout:
    """The features that targets are made of, side by side."""

    def __init__(self, blocks: tuple[Block, ...], sizes: Sequence[int]) -> None:
        self.blocks, self._sizes = blocks, sizes
        self.features: list[Feature] = []
        self._index: dict[Clique, int] = {}

    @property
    def width(self) -> int:
        """Columns of all features."""
        return self.features[-1].columns.stop if self.features else 0

    def _place(self, attributes: Clique) -> tuple[tuple[int, ...], list[int]]:
        """The features that a table of these attributes is a product of, and its attributes in the order of these."""
        chosen: list[int] = []
        order: list[int] = []
        for number, block in enumerate(self.blocks):
            if mine := tuple(a for a in block.attributes if a in attributes):
                if mine not in self._index:
                    places, width = block.places(mine, self._sizes), math.prod(self._sizes[a] for a in mine)
                    self._index[mine] = len(self.features)
                    self.features.append(Feature(block=number, places=places, width=width, start=self.width))
                chosen.append(self._index[mine])
                order.extend(mine)
        return tuple(chosen), order

    def target(
        self, attributes: Clique, counts: NDArray[np.generic], weight: NDArray[np.generic], hidden: Hidden | None = None
    ) -> FeatureTarget:
        """Counts and weights over increasing attributes as a target; cells that no block allows have no weight."""
        features, order = self._place(attributes)
        axes = [attributes.index(a) for a in order]
        shape = tuple(self.features[f].width for f in features)

        def placed(cells: NDArray[Any]) -> NDArray[Any]:
            return np.ascontiguousarray(np.transpose(cells, axes).reshape(shape))

        reached = np.ones(shape, np.bool_)
        for axis, f in enumerate(features):
            mine = np.bincount(self.features[f].places, minlength=shape[axis]) > 0
            reached &= mine.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        if hidden is not None:
            hidden = replace(hidden, cells=np.asarray(placed(hidden.cells), np.bool_))
        return FeatureTarget(
            features=features,
            counts=placed(counts).astype(F32),
            weight=(placed(weight) * reached).astype(F32),
            hidden=hidden,
        )


def target_of(measurement: Measurement, total: float, layout: FeatureLayout) -> FeatureTarget:
    """A measurement as a target; an incomplete one is first scaled up to the record count, with its noise."""
    scale = measurement.scale(total)
    deviation = measurement.deviation * scale
    weight, hidden = np.full(measurement.counts.shape, deviation**-2), None
    if isinstance(measurement, CensoredMeasurement):
        weight = weight * measurement.released
        hidden = Hidden(cells=measurement.hidden, cut=measurement.cut, deviation=deviation)
    return layout.target(measurement.attributes, measurement.counts * scale, weight, hidden)
