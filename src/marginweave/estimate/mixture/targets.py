"""Noisy counts as the fit of a mixture uses them: over features of blocks, suppressed cells as censored Gaussians."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.domain.masks import Clique
from marginweave.estimate.mixture.blocks import Block
from marginweave.observations.tables import CensoredObservation, Observation


def expected_below(mean: Floats, sigma: Floats | float, cut: Floats | float) -> Floats:
    """E[Y | Y < cut] for Y ~ N(mean, sigma^2): mean - sigma phi(t) / Phi(t), t = (cut - mean) / sigma.

    Below `cut`, however large `mean` is. Any shape, all the same or scalar. DP: arithmetic on released numbers.
    """
    t = (cut - mean) / sigma
    expected = mean - sigma * np.exp(_log_density(t) - log_ndtr(t))
    return np.asarray(np.minimum(expected, cut))


def surprise(residuals: Floats, means: Floats, sigma: float, cut: float) -> float:
    """How far residuals are from what noise alone makes of `means`, in standard deviations; about N(0, 1) if nothing else.

    The sum of (r / sigma)^2, less its mean, over its standard deviation, for r = Y - m where Y ~ N(m, sigma^2) is at least
    `cut`, and r = E[Y | Y < cut] - m where it is not. With t = (cut - m) / sigma and h = phi(t) / Phi(t) the mean of a
    term is 1 - Phi(t) + t phi(t) + h^2 Phi(t), that of its square 3 (1 - Phi(t)) + (t^3 + 3 t) phi(t) + h^4 Phi(t).
    Shapes (n,); 0 where n is 0. DP: arithmetic on released numbers.
    """
    if not residuals.size:
        return 0.0
    # beyond 30 sigma all is known, or nothing: the limits of the formula
    t = np.clip((cut - means) / sigma, -30.0, 30.0)
    density, below = np.exp(_log_density(t)), ndtr(t)
    ratio = np.exp(_log_density(t) - log_ndtr(t))
    first = 1 - below + t * density + ratio**2 * below
    second = 3 * (1 - below) + (t**3 + 3 * t) * density + ratio**4 * below
    spread = float((second - first**2).sum())
    distance = float(((residuals / sigma) ** 2 - first).sum())
    return distance / math.sqrt(spread) if spread > 0 else 0.0


def _log_density(t: Floats) -> Floats:
    return np.asarray(-0.5 * t**2 - 0.5 * math.log(2 * math.pi))


F32 = np.float32
Float32s = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Feature:
    """Some attributes of one block: the cell of their table that each cell of the block falls into is `places`.

    The table's cells are the `columns` among those of all features.
    """

    block: int
    places: Integers
    columns: slice

    @property
    def width(self) -> int:
        """Cells of the table."""
        width: int = self.columns.stop - self.columns.start
        return width


@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureTarget:
    """Counts of the product of a few features: `counts` has one axis each, `weight` is 1/variance, 0 where unknown.

    `sigma` is the noise of a count: none weighs more. Of the cells `hidden` it is known that the count was below `cut`; they
    have no weight.
    """

    features: tuple[int, ...]
    counts: Float32s
    weight: Float32s
    hidden: Flags
    cut: float = 0.0
    sigma: float = 1.0

    @property
    def expected(self) -> float:
        """chi^2 of the counts where the model is the truth; of hidden ones, where there are no records."""
        surplus = expected_below(np.zeros(1), self.sigma, self.cut) / self.sigma
        return float(np.count_nonzero(self.weight) + surplus[0] ** 2 * np.count_nonzero(self.hidden))


class FeatureLayout:
    """The features that targets are made of, side by side: single attributes first, those with few values before the others."""

    def __init__(self, blocks: tuple[Block, ...], sizes: Sequence[int]) -> None:
        self.blocks, self._sizes = blocks, sizes
        self.features: list[Feature] = []
        self._index: dict[tuple[tuple[int, bytes], ...], int] = {}
        for attribute in np.argsort(sizes, kind="stable").tolist():
            self._place((attribute,), {})

    @property
    def width(self) -> int:
        """Columns of all features."""
        return self.features[-1].columns.stop if self.features else 0

    def _place(self, attributes: Clique, coarser: Mapping[int, Integers]) -> tuple[tuple[int, ...], list[int]]:
        """The features that a table of these attributes is a product of, and its attributes in the order of these.

        A feature with attributes that are counted `coarser` has the sums of the finest one: what a record is counted as at a
        coarser level follows from its own code.
        """
        chosen: dict[int, Clique] = {}
        for number, block in enumerate(self.blocks):
            if mine := tuple(a for a in block.attributes if a in attributes):
                key = tuple((a, coarser[a].tobytes() if a in coarser else b"") for a in mine)
                if key not in self._index:
                    sizes = {a: int(coarser[a].max()) + 1 if a in coarser else self._sizes[a] for a in mine}
                    columns = slice(self.width, self.width + math.prod(sizes.values()))
                    self._index[key] = len(self.features)
                    places = block.places(mine, sizes, coarser)
                    self.features.append(Feature(block=number, places=places, columns=columns))
                chosen[self._index[key]] = mine
        return tuple(sorted(chosen)), [a for feature in sorted(chosen) for a in chosen[feature]]

    def target(
        self,
        attributes: Clique,
        counts: NDArray[np.generic],
        weight: NDArray[np.generic],
        *,
        hidden: Flags | None = None,
        cut: float = 0.0,
        sigma: float = 1.0,
        coarser: Mapping[int, Integers] | None = None,
    ) -> FeatureTarget:
        """Counts and weights over increasing attributes as a target; cells that no block allows have no weight."""
        features, order = self._place(attributes, coarser or {})
        axes = [attributes.index(a) for a in order]
        shape = tuple(self.features[f].width for f in features)

        def placed(cells: NDArray[Any]) -> NDArray[Any]:
            return np.ascontiguousarray(np.transpose(cells, axes).reshape(shape))

        reached = np.ones(shape, np.bool_)
        for axis, f in enumerate(features):
            mine = np.bincount(self.features[f].places, minlength=shape[axis]) > 0
            reached &= mine.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        return FeatureTarget(
            features=features,
            counts=placed(counts).astype(F32),
            weight=(placed(weight) * reached).astype(F32),
            hidden=np.zeros(shape, np.bool_) if hidden is None else placed(hidden),
            cut=cut,
            sigma=sigma,
        )

    def measured(self, m: Observation, total: float) -> FeatureTarget:
        """A measurement as a target; an incomplete one is first scaled up to the record count, with its noise."""
        scale = m.scale(total)
        counts, sigma = m.counts * scale, m.deviation * scale
        weight = np.full(m.counts.shape, sigma**-2)
        if isinstance(m, CensoredObservation):
            return self.target(m.attributes, counts, weight * m.released, hidden=m.hidden, cut=m.cut, sigma=sigma)
        return self.target(m.attributes, counts, weight, sigma=sigma, coarser=m.coarser)
