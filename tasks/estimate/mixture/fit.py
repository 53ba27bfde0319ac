"""The mixture of products that is nearest to noisy marginals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from marginweave.schemas.errors import InputError
from marginweave.schemas.released.measurements import Mask, Measurement
from marginweave.tasks.engine.local import LocalEngine
from marginweave.tasks.estimate.mixture.blocks import Block, join_attributes
from marginweave.tasks.estimate.mixture.columns import hold_columns
from marginweave.tasks.estimate.mixture.model import Mixture
from marginweave.tasks.estimate.mixture.objective import Objective
from marginweave.tasks.estimate.mixture.parameters import Parameters, normal
from marginweave.tasks.estimate.mixture.settings import MixtureSettings
from marginweave.tasks.estimate.mixture.start import TreeStart
from marginweave.tasks.estimate.mixture.targets import F32, Floats, Layout

Array = NDArray[np.float64]
Start = tuple[Floats, Floats]  # logits of the shares, and of the weights

_RAREST = 1e-7
"""Least share of a value in a component that is gone on from, so that it is within reach of a fit."""


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
    p as in `Mixture` (RAP softmax: Aydore et al. 2021; mixtures of products: McKenna's `mbi`). Several fits, each from the
    records of a tree (`TreeStart`) and until the counts are as near as their noise allows, are averaged; single attributes are
    then held to their own counts (`hold_columns`).

    Linear algebra in one thread, fits on all cores, float32 steps in a fixed order: the same arguments give the same bytes on
    one kind of processor, however many cores there are.

    Args:
        measurements: any noisy marginals, signed or consistent; the same attributes may come more than once.
        sizes: number of codes of each attribute, a missing value included.
        total: the number of records.
        masks: structural zeros; those of one attribute only apply to records (`Mixture.conditioned`), as noise was measured
            there, and what was suppressed is counted there.
        settings: the same settings and marginals make the same model.
        start: a model of the same sizes, masks, fits and components to go on from, in place of new components.

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
    firsts = _firsts(measurements, blocks, sizes, total, settings) if start is None else _again(start, blocks, settings)

    def fit(first: Start) -> tuple[Array, Array]:
        layout = Layout.of(blocks, sizes)
        objective = Objective(layout, measurements, across, total, settings.components)
        parameters = Parameters(layout, *first)
        parameters.descend(objective, settings)
        return parameters.doubled()

    with threadpool_limits(1):
        fitted = list(LocalEngine().map(fit, firsts))
    shares = np.concatenate([shares for shares, _ in fitted])
    ends = np.cumsum([0, *(len(block.cells) for block in blocks)])
    weights = np.concatenate([weights for _, weights in fitted]) / len(fitted)
    model = Mixture.of(weights, [normal(shares[:, a:b]) for a, b in pairwise(ends)], sizes, total, masks)
    return hold_columns(model, measurements)


def _firsts(
    measurements: Sequence[Measurement],
    blocks: Sequence[Block],
    sizes: Sequence[int],
    total: float,
    settings: MixtureSettings,
) -> list[Start]:
    tree = TreeStart(measurements, blocks, sizes, total)
    firsts = []
    for generator in np.random.default_rng(settings.seed).spawn(settings.fits):  # post-processing
        shares = tree.shares(settings.components, settings.held, generator)
        firsts.append((np.log(np.concatenate(shares, axis=1)).astype(F32), np.zeros(settings.components, F32)))
    return firsts


def _again(start: Mixture, blocks: Sequence[Block], settings: MixtureSettings) -> list[Start]:
    shapes = [(block.attributes, block.cells.shape) for block in start.blocks]
    if shapes != [(block.attributes, block.cells.shape) for block in blocks]:
        raise InputError("start must be a mixture of the same attributes and masks")
    if start.components != settings.fits * settings.components:
        raise InputError(f"start ({start.components} components) must have components * fits of the settings")
    shares = np.log(np.maximum(np.concatenate(start.shares, axis=1), _RAREST)).astype(F32)
    weights = np.log(np.maximum(start.weights, _RAREST)).astype(F32)
    parts = zip(np.split(shares, settings.fits), np.split(weights, settings.fits), strict=True)
    return [(mine.copy(), mixing.copy()) for mine, mixing in parts]


def _check(measurements: Sequence[Measurement], sizes: Sequence[int], total: float, masks: Sequence[Mask]) -> None:
    if not 0 < total < math.inf:
        raise InputError(f"total ({total}) must be positive")
    shaped = [(m.attributes, m.counts.shape) for m in measurements]
    for attributes, shape in [*shaped, *((k.attributes, k.allowed.shape) for k in masks)]:
        if max(attributes, default=-1) >= len(sizes) or tuple(sizes[a] for a in attributes) != shape:
            raise InputError(f"marginal or mask of attributes {attributes} must have the shape that sizes say")
    if missing := set(range(len(sizes))) - {a for attributes, _ in shaped for a in attributes}:
        raise InputError(f"attribute {min(missing)} must be in at least one marginal")
