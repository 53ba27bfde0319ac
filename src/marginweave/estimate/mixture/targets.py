"""Noisy counts as the fit of a mixture uses them: over features of blocks, suppressed cells as censored Gaussians."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.domain.masks import Clique
from marginweave.estimate.mixture.blocks import Block
from marginweave.observations.tables import CensoredObservation, Observation


def expected_below(
    mean: Floats,
    sigma: Floats | float,
    cut: Floats | float,
) -> Floats:
    """Return E[Y | Y < cut] for Y ~ N(mean, sigma^2): mean - sigma phi(t) / Phi(t), t = (cut - mean) / sigma.

    Below `cut`, however large `mean` is. Any shape, all the same or scalar. DP: arithmetic on released numbers.
    """
    from scipy.special import log_ndtr  # a quarter of a second, which answers do without

    t = (cut - mean) / sigma
    expected = mean - sigma * np.exp(_log_density(t) - log_ndtr(t))
    return np.asarray(np.minimum(expected, cut))


def surprise(
    residuals: Floats,
    means: Floats,
    sigma: float,
    cut: float,
) -> float:
    """Return how far residuals are from what noise alone makes of `means`, in standard deviations.

    About N(0, 1) where noise is all there is.

    The sum of (r / sigma)^2, less its mean, over its standard deviation, for r = Y - m where Y ~ N(m, sigma^2) is at least
    `cut`, and r = E[Y | Y < cut] - m where it is not. With t = (cut - m) / sigma and h = phi(t) / Phi(t) the mean of a
    term is 1 - Phi(t) + t phi(t) + h^2 Phi(t), that of its square 3 (1 - Phi(t)) + (t^3 + 3 t) phi(t) + h^4 Phi(t).
    Shapes (n,); 0 where n is 0. DP: arithmetic on released numbers.
    """
    from scipy.special import log_ndtr, ndtr

    if not residuals.size:
        return 0.0
    # beyond 30 sigma all is known, or nothing: the limits of the formula
    t = np.clip((cut - means) / sigma, -30.0, 30.0)
    density = np.exp(_log_density(t))  # phi(t)
    below = ndtr(t)  # Phi(t)
    ratio = np.exp(_log_density(t) - log_ndtr(t))  # h
    # 1 - Phi(t) + t phi(t) + h^2 Phi(t)
    mean = 1 - below + t * density + ratio**2 * below
    # 3 (1 - Phi(t)) + (t^3 + 3 t) phi(t) + h^4 Phi(t)
    cubic = t**3 + 3 * t
    mean_square = 3 * (1 - below) + cubic * density + ratio**4 * below
    variance = float((mean_square - mean**2).sum())
    squares = (residuals / sigma) ** 2
    distance = float((squares - mean).sum())
    return distance / math.sqrt(variance) if variance > 0 else 0.0


def _log_density(t: Floats) -> Floats:
    """Return log phi(t), phi the density of the standard normal distribution."""
    constant = 0.5 * math.log(2 * math.pi)
    return np.asarray(-0.5 * t**2 - constant)


F32 = np.float32
Float32s = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Feature:
    """Some attributes of one block; `places` are the cells of their table that each cell of the block falls into.

    The table's cells are the `columns` among those of all features.
    """

    block: int
    places: Integers
    columns: slice

    @property
    def width(self) -> int:
        """Number of cells of the table."""
        return int(self.columns.stop - self.columns.start)


@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureTarget:
    """Counts of the product of a few features: `counts` has one axis each, `weight` is 1/variance, 0 where unknown.

    `sigma` is the noise of a count: no count weighs more than 1/sigma^2. The counts of the cells `hidden` are known to be below
    `cut`; these cells have no weight.
    """

    features: tuple[int, ...]
    counts: Float32s
    weight: Float32s
    hidden: Flags
    cut: float = 0.0
    sigma: float = 1.0

    @property
    def expected(self) -> float:
        """Expected chi^2 of the counts where the model is the truth; for hidden cells, where these have no records."""
        expected_hidden = expected_below(np.zeros(1), self.sigma, self.cut)
        surplus = expected_hidden / self.sigma
        counted = np.count_nonzero(self.weight)
        hidden = np.count_nonzero(self.hidden)
        return float(counted + surplus[0] ** 2 * hidden)


class FeatureLayout:
    """The features that targets consist of, in consecutive columns.

    Single attributes come first, those with few values before the others.
    """

    def __init__(
        self,
        blocks: tuple[Block, ...],
        sizes: Sequence[int],
    ) -> None:
        self.blocks = blocks
        self._sizes = sizes
        self.features: list[Feature] = []
        self._index: dict[tuple[tuple[int, bytes], ...], int] = {}
        for attribute in np.argsort(sizes, kind="stable").tolist():
            self._place((attribute,), {})

    @property
    def width(self) -> int:
        """Number of columns of all features."""
        return self.features[-1].columns.stop if self.features else 0

    def _place(
        self,
        attributes: Clique,
        coarser: Mapping[int, Integers],
    ) -> tuple[tuple[int, ...], list[int]]:
        """Return the features whose product is a table of these attributes, and the attributes in the order of the features.

        Where attributes are counted `coarser`, their feature sums the codes of the finest feature: the coarser code of a record
        follows from its code.
        """
        chosen: dict[int, Clique] = {}
        for number, block in enumerate(self.blocks):
            block_attributes = tuple(a for a in block.attributes if a in attributes)
            if block_attributes:
                coarser_codes = [
                    coarser[a].tobytes() if a in coarser else b"" for a in block_attributes
                ]
                key = tuple(zip(block_attributes, coarser_codes, strict=True))
                if key not in self._index:
                    self._index[key] = len(self.features)
                    self.features.append(self._new_feature(number, block_attributes, coarser))
                chosen[self._index[key]] = block_attributes
        order: list[int] = []
        for feature in sorted(chosen):
            order += chosen[feature]
        return tuple(sorted(chosen)), order

    def _new_feature(
        self,
        number: int,
        attributes: Clique,
        coarser: Mapping[int, Integers],
    ) -> Feature:
        """Return a feature of some attributes of block `number`, with columns after those of all features."""
        sizes: dict[int, int] = {}
        for a in attributes:
            sizes[a] = self._sizes[a]
            if a in coarser:
                sizes[a] = int(coarser[a].max()) + 1
        begin = self.width
        columns = slice(begin, begin + math.prod(sizes.values()))
        places = self.blocks[number].places(attributes, sizes, coarser)
        return Feature(block=number, places=places, columns=columns)

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
        """Return counts and weights over increasing attributes as a target; cells that no block allows have no weight."""
        features, order = self._place(attributes, coarser or {})
        axes = [attributes.index(a) for a in order]
        shape = tuple(self.features[f].width for f in features)

        def placed(cells: NDArray[Any]) -> NDArray[Any]:
            ordered = np.transpose(cells, axes)
            return np.ascontiguousarray(ordered.reshape(shape))

        reached = np.ones(shape, np.bool_)
        none = np.zeros(shape, np.bool_)
        for axis, f in enumerate(features):
            cells = np.bincount(self.features[f].places, minlength=shape[axis])
            is_reached = cells > 0
            broadcast_shape = [1] * len(shape)
            broadcast_shape[axis] = -1
            reached &= is_reached.reshape(broadcast_shape)
        return FeatureTarget(
            features=features,
            counts=placed(counts).astype(F32),
            weight=(placed(weight) * reached).astype(F32),
            hidden=none if hidden is None else placed(hidden),
            cut=cut,
            sigma=sigma,
        )

    def measured(self, m: Observation, total: float) -> FeatureTarget:
        """Return a measurement as a target; an incomplete one is first scaled up to the record count, with its noise."""
        scale = m.scale(total)
        counts = m.counts * scale
        sigma = m.deviation * scale
        weight = np.full(m.counts.shape, sigma**-2)
        if isinstance(m, CensoredObservation):
            return self.target(
                m.attributes,
                counts,
                weight * m.released,
                hidden=m.hidden,
                cut=m.cut,
                sigma=sigma,
            )
        return self.target(
            m.attributes,
            counts,
            weight,
            sigma=sigma,
            coarser=m.coarser,
        )
