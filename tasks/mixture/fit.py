"""The mixture of products that is nearest to noisy marginals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from marginweave.schemas.errors import InputError
from marginweave.schemas.measurements import Mask, Measurement
from marginweave.tasks.mixture.blocks import Block, join_attributes
from marginweave.tasks.mixture.model import Mixture
from marginweave.tasks.mixture.objective import F32, Floats, Layout, Objective
from marginweave.tasks.mixture.settings import MixtureSettings

_MOMENTS = (0.9, 0.999)
_LEAST = 1e-8
_RAREST = -8.0
"""Logit of a value that nothing was counted of, against the sum of all: rare, and within reach of a few steps."""


def fit_mixture(
    measurements: Sequence[Measurement],
    sizes: Sequence[int],
    total: float,
    masks: Sequence[Mask],
    settings: MixtureSettings,
    start: Mixture | None = None,
) -> Mixture:
    """Fit a mixture of products to marginals, each with the weight of its precision.

    Minimizes chi^2 = sum_i sum_c (n p_i(c) - y_i(c))^2 / deviation_i^2 over softmax parameters by Adam (Kingma and Ba 2015),
    p as in `Mixture`. The first components are independent columns with a little noise (RAP's relaxed projection, Aydore et
    al. 2021; mixtures of products: McKenna's `mbi`). What the mixture cannot say with few changes from independence is
    noise more often than not, so that fewer steps smooth more.

    In float32, steps in a fixed order: the same arguments give the same bytes on one kind of processor, however many threads
    the linear algebra has (it has one).

    Args:
        measurements: any noisy marginals, signed or consistent; the same attributes may come more than once.
        sizes: number of codes of each attribute, a missing value included.
        total: the number of records.
        masks: structural zeros; those of one attribute only apply to records (`Mixture.conditioned`), as noise was measured
            there, and what was suppressed is counted there.
        settings: the same settings and marginals make the same model.
        start: a model of the same sizes and masks to go on from, in place of new components.

    Returns:
        The model. DP: post-processing.

    Raises:
        InputError: no measurements, a shape other than `sizes` say, a total that is not positive, masks that allow no record,
            or a start of other attributes.
    """
    _check(measurements, sizes, total, masks)
    together = [mask for mask in masks if len(mask.attributes) > 1]
    blocks, across = join_attributes(sizes, together)
    if not all(len(block.cells) for block in blocks):
        raise InputError("masks must allow at least one record")
    layout = Layout.of(blocks, sizes)
    objective = Objective(layout, measurements, across, total, settings.components)
    logits, mixing = _first(blocks, measurements, settings) if start is None else _again(start, blocks, sizes)
    parameters = _Parameters(layout, logits, mixing)
    with threadpool_limits(1):
        parameters.descend(objective, settings)
    shares, weights = parameters.shares()
    ends = np.cumsum([0, *(len(block.cells) for block in blocks)])
    return Mixture(
        weights=_normal(weights.astype(np.float64)),
        shares=tuple(_normal(shares[:, a:b].astype(np.float64)) for a, b in zip(ends, ends[1:], strict=False)),
        blocks=blocks,
        sizes=tuple(sizes),
        total=float(total),
        masks=across,
        inside=tuple(mask for mask in together if not any(mask is other for other in across)),
        codes=tuple(mask for mask in masks if len(mask.attributes) == 1),
    )


class _Parameters:
    """Logits of the shares of every block and component, shape (components, cells of all blocks), and of the weights."""

    def __init__(self, layout: Layout, logits: Floats, mixing: Floats) -> None:
        self.logits, self.mixing, self._layout = logits, mixing, layout
        widths = [len(block.cells) for block in layout.blocks]
        self._starts = np.cumsum([0, *widths[:-1]])
        self._owner = np.repeat(np.arange(len(widths)), widths)
        ends = np.cumsum([0, *widths])
        self._blocks = [slice(a, b) for a, b in zip(ends, ends[1:], strict=False)]

    def shares(self) -> tuple[Floats, Floats]:
        """Softmax of the logits, block by block, and of the weights' logits."""
        shares = np.exp(self.logits - np.maximum.reduceat(self.logits, self._starts, axis=1)[:, self._owner])
        shares /= np.add.reduceat(shares, self._starts, axis=1)[:, self._owner]
        weights = np.exp(self.mixing - self.mixing.max())
        return shares, weights / weights.sum()

    def gradient(self, objective: Objective) -> tuple[float, Floats, Floats]:
        """chi^2, and the derivatives of half of it by the logits."""
        shares, weights = self.shares()
        chi, by_columns, by_weights = objective.gradient(self._columns(shares), weights)
        by_shares = self._back(by_columns)
        by_logits = shares * by_shares
        by_logits -= shares * np.add.reduceat(by_logits, self._starts, axis=1)[:, self._owner]
        return chi, by_logits, weights * (by_weights - weights @ by_weights)

    def descend(self, objective: Objective, settings: MixtureSettings) -> None:
        """Adam with a rate that falls as a cosine, until the noise is reached or the iterations are over."""
        first, second = _MOMENTS
        values = (self.logits, self.mixing)
        means = [np.zeros_like(value) for value in values]
        squares = [np.zeros_like(value) for value in values]
        for step in range(1, settings.iterations + 1):
            chi, *slopes = self.gradient(objective)
            if chi <= settings.noise * objective.cells:
                break
            rate = settings.rate * 0.5 * (1 + math.cos(math.pi * step / settings.iterations)) / (1 - first**step)
            correction = F32(1 / math.sqrt(1 - second**step))
            for value, slope, mean, square in zip(values, slopes, means, squares, strict=True):
                mean += F32(1 - first) * (slope - mean)
                square += F32(1 - second) * (slope * slope - square)
                value -= F32(rate) * mean / (np.sqrt(square) * correction + F32(_LEAST))

    def _columns(self, shares: Floats) -> Floats:
        columns = np.zeros((len(shares), self._layout.width), F32)
        for feature in self._layout.features:
            mine = shares[:, self._blocks[feature.block]]
            if _is_whole(feature.places, feature.width):
                columns[:, feature.columns] = mine
            else:
                np.add.at(columns.T, feature.start + feature.places, mine.T)
        return columns

    def _back(self, by_columns: Floats) -> Floats:
        by_shares = np.zeros(self.logits.shape, F32)
        for feature in self._layout.features:
            by_shares[:, self._blocks[feature.block]] += by_columns[:, feature.start + feature.places]
        return by_shares


def _is_whole(places: NDArray[np.int64], width: int) -> bool:
    return len(places) == width and bool((places == np.arange(width)).all())


def _first(
    blocks: Sequence[Block], measurements: Sequence[Measurement], settings: MixtureSettings
) -> tuple[Floats, Floats]:
    generator = np.random.default_rng(settings.seed)  # post-processing
    base = []
    for block in blocks:
        logit = np.zeros(len(block.cells))
        for place, attribute in enumerate(block.attributes):
            logit += _one_way(measurements, attribute)[block.cells[:, place]]
        base.append(np.maximum(logit - np.logaddexp.reduce(logit), _RAREST))
    line = np.concatenate(base)
    noise = settings.spread * generator.normal(size=(settings.components, len(line)))
    return (line + noise).astype(F32), np.zeros(settings.components, F32)


def _one_way(measurements: Sequence[Measurement], attribute: int) -> NDArray[np.float64]:
    """Logarithms of the counts of one attribute, from the marginal that knows them best."""
    holders = [m for m in measurements if attribute in m.attributes]
    best = min(holders, key=lambda m: m.deviation**2 * m.counts.size / m.counts.shape[m.attributes.index(attribute)])
    axis = best.attributes.index(attribute)
    others = tuple(i for i in range(best.counts.ndim) if i != axis)
    counts: NDArray[np.float64] = np.log(np.maximum(best.counts.sum(axis=others, dtype=np.float64), 0.0) + 0.5)
    return counts


def _again(start: Mixture, blocks: Sequence[Block], sizes: Sequence[int]) -> tuple[Floats, Floats]:
    same = start.sizes == tuple(sizes) and [b.attributes for b in start.blocks] == [b.attributes for b in blocks]
    if not same or any(len(s.T) != len(b.cells) for s, b in zip(start.shares, blocks, strict=True)):
        raise InputError("start must be a mixture of the same attributes and masks")
    shares = np.concatenate(start.shares, axis=1)
    return np.log(np.maximum(shares, 1e-30)).astype(F32), np.log(np.maximum(start.weights, 1e-30)).astype(F32)


def _normal(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    normal: NDArray[np.float64] = shares / shares.sum(axis=-1, keepdims=True)
    return normal


def _check(measurements: Sequence[Measurement], sizes: Sequence[int], total: float, masks: Sequence[Mask]) -> None:
    if not 0 < total < math.inf:
        raise InputError(f"total ({total}) must be positive")
    shaped = [(m.attributes, m.counts.shape) for m in measurements]
    for attributes, shape in [*shaped, *((k.attributes, k.allowed.shape) for k in masks)]:
        if max(attributes, default=-1) >= len(sizes) or tuple(sizes[a] for a in attributes) != shape:
            raise InputError(f"marginal or mask of attributes {attributes} must have the shape that sizes say")
    if missing := set(range(len(sizes))) - {a for attributes, _ in shaped for a in attributes}:
        raise InputError(f"attribute {min(missing)} must be in at least one marginal")
