"""Fits the mixture of products that is nearest to noisy marginals, and calibrates it to single attributes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

from marginweave.base.arrays import Flags, Floats
from marginweave.base.errors import InputError
from marginweave.base.parallel import LocalEngine
from marginweave.base.progress import listener
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.domain.masks import StructuralZeros
from marginweave.estimate.mixture.blocks import block_supports
from marginweave.estimate.mixture.descent import Boxes, Descent
from marginweave.estimate.mixture.model import Mixture
from marginweave.estimate.mixture.objective import Objective
from marginweave.estimate.mixture.start import TreeStart
from marginweave.estimate.mixture.targets import F32, FeatureLayout, Float32s
from marginweave.estimate.rounding import apportion, nearest_column
from marginweave.observations.tables import CensoredObservation, Observation


def normal(shares: Floats) -> Floats:
    """Shares that add up to 1 along the last axis."""
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


# Where a cell holds .5, 1.5, 4 and 29 sigmas of records (adult, all triples, one draw), three-way TVD was .0359, .0211, .0154,
# .0099 by the model for noisy counts, and .0371, .0221, .0142 and .0075 by the other.
_MANY_SIGMAS = 2.5
_PRECISE = {"components": 800, "fits": 2}
# Each of these fits may follow the noise a little, as their average does less so: adult at epsilon 10, five draws, .0388 in
# place of .0398. With fits of 300 components, where there is more noise, it was no better, or worse.
_PRECISE_NOISE = 0.85
_MOST_COLUMNS = 64  # Gram matrices of two fits of 800 components take 5 MB a column


def settled(
    settings: MixtureSynthesis, measurements: Sequence[Observation], columns: int, total: float
) -> MixtureSynthesis:
    """The settings; where nobody set components or fits, those that suit the mean count of a cell, in sigmas of its noise."""
    as_they_come = all(getattr(settings, key) == MixtureSynthesis.model_fields[key].default for key in _PRECISE)
    tables = [m for m in measurements if len(m.attributes) > 1] or measurements
    sigmas = sum(total / m.deviation for m in tables) / sum(m.counts.size for m in tables)
    precise = as_they_come and sigmas > _MANY_SIGMAS and columns <= _MOST_COLUMNS
    return settings.model_copy(update=_PRECISE) if precise else settings


_LEAST = 2  # components a box
_LEAST_MASS = 1e-4  # of a box at first, so that none is given up
_ROUNDS = 100  # the masses of the five boxes of ma2019 are then within .003 of the table
Start = tuple[Float32s, Float32s, Boxes]  # shares, shape (cells of all blocks, components), and weights


def fit_mixture(
    measurements: Sequence[Observation],
    sizes: Sequence[int],
    total: float,
    masks: Sequence[StructuralZeros],
    settings: MixtureSynthesis,
    start: Mixture | None = None,
    *,
    noise: float = 1.0,
) -> Mixture:
    """Fit a mixture of products to marginals, each with the weight of its precision.

    Minimizes chi^2 = sum_i sum_c (n p_i(c) - y_i(c))^2 / sigma_i^2 over the shares of equal components, block after block and
    component after component (`Descent`), p as in `Mixture` (mixtures of products: McKenna's `mbi`). Several fits, each from
    the records of a tree (`TreeStart`) and until the counts are as near as their noise allows, are averaged; single attributes
    are then calibrated to their own counts (`calibrate_one_way`).

    Linear algebra in one thread, fits on all cores, float32 steps in a fixed order: the same arguments give the same bytes on
    one kind of processor, however many cores there are.

    Args:
        measurements: any noisy marginals, signed or consistent; the same attributes may come more than once.
        sizes: number of codes of each attribute, a missing value included.
        total: the number of records.
        masks: structural zeros; those of one attribute only apply to records (`Mixture.conditioned`), as noise was measured
            there, and what was suppressed is counted there.
        settings: how many products one fit mixes, how many fits are averaged (they disagree about what the counts do not say,
            and the average does not claim it), most passes over all blocks, and the seed of the starts.
        start: a model of the same sizes, masks, fits and components to start from, in place of new components.
        noise: a fit ends where its mean squared distance to the counts, over their variance, is at most this, in all and
            nearly so for single attributes, pairs and larger sets each: what is nearer follows the noise. It also ends where a
            pass gains less than so many standard deviations of that distance, or little of what is left (`_SLOW`); 0 ends where
            a pass gains nothing. Of fits that `settled` makes precise it is `_PRECISE_NOISE` of this.

    Returns:
        The model. DP: post-processing.

    Raises:
        InputError: no measurements, a shape other than `sizes` say, a total that is not positive, masks that allow no record,
            or a start of other attributes.
    """
    if not 0 < total < math.inf:
        raise InputError(f"total ({total}) must be positive")
    check_marginals(measurements, sizes, masks)
    unfitted = Mixture.of(np.ones(0), (), sizes, total, masks)
    blocks = unfitted.blocks
    if not len(unfitted.boxes) or not all(len(block.cells) for block in blocks):
        raise InputError("masks must allow at least one record")
    chosen = settled(settings, measurements, len(sizes), total)
    noise *= 1.0 if chosen is settings else _PRECISE_NOISE
    settings = chosen.model_copy(update={"components": max(chosen.components, _LEAST * len(unfitted.boxes))})
    layout = FeatureLayout(blocks, sizes)
    objective = Objective(layout, measurements, unfitted.masks, total)
    warm = start and _warm_start(start, unfitted, settings)
    initial = warm or _cold_start(measurements, unfitted, settings)

    say = listener()

    def fit(number: int) -> tuple[Floats, Floats]:
        descent = Descent(layout, objective, *initial[number])
        descent.run(settings.iterations, noise, lambda text: say(f"model {number + 1} of {len(initial)}, {text}"))
        return descent.shares.T.astype(np.float64), normal(descent.weights.astype(np.float64))

    with threadpool_limits(1):
        fitted = list(LocalEngine().map(fit, range(len(initial))))
    ends = np.cumsum([len(block.cells) for block in blocks[:-1]])
    parts = np.split(np.concatenate([shares for shares, _ in fitted]), ends, axis=1)
    weights = np.concatenate([weights for _, weights in fitted]) / len(fitted)
    fitted_model = replace(unfitted, weights=weights, shares=tuple(map(normal, parts)), fits=len(fitted))
    return calibrate_one_way(fitted_model, measurements)


def _cold_start(
    measurements: Sequence[Observation],
    model: Mixture,
    settings: MixtureSynthesis,
) -> list[Start]:
    """New components; of each box as many as its records ask for, and some more where these are few."""
    tree = TreeStart(measurements, model.blocks, model.sizes, model.total)
    generators = np.random.default_rng(settings.seed).spawn(settings.fits)  # post-processing
    equal = np.full(settings.components, 1 / settings.components, F32)
    by_block = block_supports(model.blocks, model.boxes, model.sizes)
    supports = np.concatenate(by_block, axis=1)
    if len(supports) == 1:
        alone = Boxes(supports, np.zeros(settings.components, np.int64))
        shares = [tree.shares(settings.components, generator) for generator in generators]
        return [(np.ascontiguousarray(mine.T, F32), equal, alone) for mine in shares]
    inside = [tree.within(mine) for mine in zip(*by_block, strict=True)]
    mass = _box_masses(model.boxes, tree.one_way)
    return [_start_in_boxes(inside, mass, supports, settings.components, generator) for generator in generators]


def _box_masses(boxes: Flags, one_way: Sequence[Floats]) -> Floats:
    """The share of the records that each box has by single columns, shape (boxes,).

    Where the codes of an attribute are allowed says to which boxes its records may belong, and nothing is supposed of how they
    are distributed inside: p(code) = sum_b m_b q_b(code), q_b 0 outside of box b. The likelihood of all attributes that boxes
    tell apart goes up by expectation maximization (A. Dempster, N. Laird, D. Rubin 1977), from equal shares on.
    """
    ends = np.cumsum([len(counts) for counts in one_way])
    told = [
        (counts / counts.sum(), inside.astype(np.float64))
        for counts, inside in zip(one_way, np.split(boxes, ends[:-1], axis=1), strict=True)
        if not (inside == inside[0]).all()
    ]
    mass = np.full(len(boxes), 1 / len(boxes))
    joint = [inside * counts for counts, inside in told]
    for _ in range(_ROUNDS if told else 0):
        joint = [mass[:, None] * normal(found) for found in joint]
        joint = [
            np.divide(found * counts, found.sum(axis=0), out=np.zeros_like(found), where=found.sum(axis=0) > 0)
            for found, (counts, _) in zip(joint, told, strict=True)
        ]
        mass = normal(np.mean([found.sum(axis=1) for found in joint], axis=0))
    return normal(np.maximum(mass, _LEAST_MASS))


def _start_in_boxes(
    inside: Sequence[TreeStart], mass: Floats, supports: Flags, components: int, generator: np.random.Generator
) -> Start:
    """Components in every box, by the .75 power of its records, so that small ones are not coarse. DP: post-processing."""
    numbers = 1 + apportion(mass**0.75, components - len(mass), generator)
    shares = [mine.shares(number, generator) for mine, number in zip(inside, numbers, strict=True)]
    of = np.repeat(np.arange(len(mass)), numbers)
    return np.ascontiguousarray(np.concatenate(shares).T, F32), (mass / numbers)[of].astype(F32), Boxes(supports, of)


def _warm_start(start: Mixture, model: Mixture, settings: MixtureSynthesis) -> list[Start]:
    shapes = [(block.attributes, block.cells.shape) for block in start.blocks]
    if shapes != [(block.attributes, block.cells.shape) for block in model.blocks]:
        raise InputError("start must be a mixture of the same attributes and masks")
    if start.components != settings.fits * settings.components:
        raise InputError(f"start ({start.components} components) must have components * fits of the settings")
    shares, weights = np.concatenate(start.shares, axis=1).astype(F32), start.weights.astype(F32)
    supports = np.concatenate(block_supports(model.blocks, model.boxes, model.sizes), axis=1)
    of = ((~supports).astype(F32) @ shares.T).argmin(axis=0)
    parts = zip(*(np.split(whole, settings.fits) for whole in (shares, weights, of)), strict=True)
    return [(np.ascontiguousarray(mine.T), mixing / mixing.sum(), Boxes(supports, box)) for mine, mixing, box in parts]


def check_marginals(
    measurements: Sequence[Observation], sizes: Sequence[int], masks: Sequence[StructuralZeros]
) -> None:
    """Raise InputError unless marginals and masks have the shapes that `sizes` say, and every attribute is in a marginal."""
    shaped = [(m.attributes, m.shape) for m in measurements]
    for attributes, shape in [*shaped, *((k.attributes, k.sizes) for k in masks)]:
        if max(attributes, default=-1) >= len(sizes) or tuple(sizes[a] for a in attributes) != shape:
            raise InputError(f"marginal or mask of attributes {attributes} must have the shape that sizes say")
    if missing := set(range(len(sizes))) - {a for attributes, _ in shaped for a in attributes}:
        raise InputError(f"attribute {min(missing)} must be in at least one marginal")


_CALIBRATIONS = (
    3  # each leaves a tenth of the distance, or less: shares are made to add up to 1 in every component again
)


def calibrate_one_way(model: Mixture, measurements: Sequence[Observation]) -> Mixture:
    """The model with every attribute calibrated to its own counts, as far as it is farther from these than noise explains.

    Own method; evidence: docs/sources/estimation.md. A fit that ends before its counts are as near as their noise allows leaves
    the most exact ones, those of single attributes, farthest behind. The target is the mean m + t (y - m) of the model's counts
    m and of y, the nearest to those measured; t is what `_trust` says. Shares of a code are multiplied by target over m in all
    components (iterative proportional fitting), so that dependence stays as it is. DP: post-processing.
    """
    weights, shares = model.weights, [part.copy() for part in model.shares]
    trust = _trust(model, measurements)
    if not any(trust.values()):
        return model
    for _ in range(_CALIBRATIONS):
        for measurement in (m for m in measurements if len(m.attributes) == 1):
            attribute, size = measurement.attributes[0], len(measurement.counts)
            b = next(i for i, block in enumerate(model.blocks) if attribute in block.attributes)
            codes = model.blocks[b].cells[:, model.blocks[b].attributes.index(attribute)]
            counts: Floats = model.total * np.bincount(codes, weights @ shares[b], size).astype(np.float64)
            target = counts + trust[attribute] * (nearest_column(measurement, counts, model.total) - counts)
            scaled = shares[b] * np.divide(target, counts, out=np.zeros(size), where=counts > 0)[codes]
            sums = scaled.sum(axis=1, keepdims=True)  # a component of which nothing is left stays as it is
            shares[b] = np.divide(scaled, sums, out=shares[b].copy(), where=sums > 0)
            if len(model.boxes) > 1:  # a box has the records of its codes
                weights = normal(weights * sums[:, 0])
    return replace(model, weights=weights, shares=tuple(shares))


def _trust(model: Mixture, measurements: Sequence[Observation]) -> dict[int, float]:
    """How much a table of an attribute alone says of its counts, beside the model.

    Where chi^2 of all such tables is at most their number of cells, as for the truth, the model is as near as can be seen, and
    what is left is noise: 0. Else 1 - cells / chi^2 (James and Stein 1961: the positive part), but no more than the part of all
    precision that the table has: v / (v + w), v = 1 / sigma^2 and w the sum over all larger tables with the attribute of
    1 / (sigma^2 cells / codes), the precision of their sums.
    """
    alone, all_of_them = defaultdict[int, float](float), defaultdict[int, float](float)
    chi, cells = 0.0, 0
    for m in measurements:
        if len(m.attributes) == 1:
            known = m.released if isinstance(m, CensoredObservation) else np.ones(len(m.counts), np.bool_)
            distance = (m.counts - model.marginal(m.attributes) / m.scale(model.total))[known] / m.deviation
            chi, cells = chi + float(distance @ distance), cells + len(distance)
        for attribute, size in zip(m.attributes, m.counts.shape, strict=True):
            if attribute in m.coarser:  # which tells the codes of one coarser code not apart
                continue
            precision = size / m.counts.size / m.deviation**2
            all_of_them[attribute] += precision
            alone[attribute] += precision if len(m.attributes) == 1 else 0.0
    surprise = max(0.0, 1 - cells / chi) if chi else 0.0
    return {attribute: min(surprise, alone[attribute] / known) for attribute, known in all_of_them.items()}
