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
from marginweave.estimate.mixture.factors import FactorStart, common_factors
from marginweave.estimate.mixture.model import Mixture
from marginweave.estimate.mixture.objective import Objective
from marginweave.estimate.mixture.start import TreeStart
from marginweave.estimate.mixture.targets import F32, FeatureLayout, Float32s
from marginweave.estimate.rounding import apportion, nearest_column
from marginweave.observations.tables import CensoredObservation, Observation


def normal(shares: Floats) -> Floats:
    """Scale shares so that they add up to 1 along the last axis."""
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


# Where a cell holds .5, 1.5, 4 and 29 sigmas of records (adult, all triples, one draw), three-way TVD was .0359, .0211, .0154,
# .0099 by the model for noisy counts, and .0371, .0221, .0142 and .0075 by the precise one.
_MANY_SIGMAS = 2.5
_PRECISE = {"components": 800, "fits": 2}
# Each of these fits may follow the noise a little, as their average follows it less: adult at epsilon 10, five draws, .0388 in
# place of .0398. With fits of 300 components, where there is more noise, it was no better, or worse.
_PRECISE_NOISE = 0.85
_MOST_COLUMNS = 64  # Gram matrices of two fits of 800 components take 5 MB a column


def settled(
    settings: MixtureSynthesis,
    measurements: Sequence[Observation],
    columns: int,
    total: float,
) -> MixtureSynthesis:
    """Return the settings; where components and fits are the defaults, those that suit the counts.

    These depend on the mean count of a cell, in sigmas of its noise.
    """
    fields = MixtureSynthesis.model_fields
    defaults = {key: fields[key].default for key in _PRECISE}
    are_defaults = settings.model_dump(include={*_PRECISE}) == defaults
    tables = [m for m in measurements if len(m.attributes) > 1] or measurements
    cells = sum(m.counts.size for m in tables)
    sigmas = sum(total / m.deviation for m in tables) / cells
    is_precise = are_defaults and sigmas > _MANY_SIGMAS and columns <= _MOST_COLUMNS
    return settings.model_copy(update=_PRECISE) if is_precise else settings


# A table of so many columns has few of all cells, so that the distance of all hardly knows it: a fit would end while it is far
# from this table. Parity of 3, 4 and 7 of seven numbers, epsilon 1, simulated once each with a fifth of the budget of larger
# marginals for a table of all: .88, .86 and .83 of the records keep it with the noise as it is, .94, .94 and .91 with half.
_MANY_COLUMNS = 5
_CLOSER = 0.5


def _weighed(measurement: Observation) -> Observation:
    """Return a measurement with the noise that the fit assumes: half of it for tables of many columns."""
    if len(measurement.attributes) < _MANY_COLUMNS:
        return measurement
    return replace(measurement, deviation=_CLOSER * measurement.deviation)


_LEAST_COMPONENTS = 2  # of a box
_LEAST_MASS = 1e-4  # least initial mass of a box, so that each is fitted
_ROUNDS = 100  # the masses of the five boxes of ma2019 are then within .003 of the table
# shares, shape (cells of all blocks, components), and weights
Start = tuple[Float32s, Float32s, Boxes]


def fit_mixture(
    measurements: Sequence[Observation],
    sizes: Sequence[int],
    total: float,
    masks: Sequence[StructuralZeros],
    settings: MixtureSynthesis,
    *,
    noise: float = 1.0,
) -> Mixture:
    """Fit a mixture of products to marginals, each with the weight of its precision (`_weighed`).

    Minimizes chi^2 = sum_i sum_c (n p_i(c) - y_i(c))^2 / sigma_i^2 over the shares of equal components, block after block
    and component after component (`Descent`), p as in `Mixture` (mixtures of products: McKenna's `mbi`). Several fits are
    averaged. Each starts from the records of a tree (`TreeStart`), or from factors that many attributes have in common
    (`common_factors`), and ends when the counts are as near as their noise allows. Single attributes are then calibrated to
    their own counts (`calibrate_one_way`).

    Linear algebra in one thread, fits on all cores, float32 steps in a fixed order: the same arguments give the same bytes on
    one kind of processor, however many cores there are.

    Args:
        measurements: any noisy marginals, signed or consistent; the same attributes may come more than once.
        sizes: number of codes of each attribute, a missing value included.
        total: the number of records.
        masks: structural zeros; those of one attribute only apply to records (`Mixture.conditioned`), as noise was measured
            there, and what was suppressed is counted there.
        settings: how many products one fit mixes, how many fits are averaged (they disagree where the counts say nothing, and
            their average claims less there), most passes over all blocks, and the seed of the starts.
        noise: a fit ends where its mean squared distance to the counts, over their variance, is at most this, in all and
            nearly so for single attributes, pairs and larger sets each: a closer fit follows the noise. It also ends where a
            pass gains less than this number of standard deviations of that distance, or little of the remaining distance
            (`_SLOW`); 0 ends where a pass gains nothing. For fits that `settled` makes precise it is `_PRECISE_NOISE` of this.

    Returns:
        The model. DP: post-processing.

    Raises:
        InputError: no measurements, a shape other than `sizes` say, a total that is not positive, or masks that allow no
            record.
    """
    if not 0 < total < math.inf:
        raise InputError(f"total ({total}) must be positive")
    check_marginals(measurements, sizes, masks)
    unfitted = Mixture.of(
        np.ones(0),
        (),
        sizes,
        total,
        masks,
    )
    blocks = unfitted.blocks
    if not len(unfitted.boxes) or not all(len(block.cells) for block in blocks):
        raise InputError("masks must allow at least one record")
    chosen = settled(settings, measurements, len(sizes), total)
    noise *= 1.0 if chosen is settings else _PRECISE_NOISE
    components = max(chosen.components, _LEAST_COMPONENTS * len(unfitted.boxes))
    settings = chosen.model_copy(update={"components": components})
    layout = FeatureLayout(blocks, sizes)
    objective = Objective(layout, [*map(_weighed, measurements)], unfitted.masks, total)
    starts = _starts(measurements, unfitted, settings)
    fitted = _fit_all(layout, objective, starts, settings.iterations, noise)
    return calibrate_one_way(averaged(fitted, unfitted), measurements)


def _fit_all(
    layout: FeatureLayout,
    objective: Objective,
    starts: Sequence[Start],
    iterations: int,
    noise: float,
) -> list[tuple[Floats, Floats]]:
    """Fit from every start, on all cores. Return shares (components, cells of all blocks) and weights of each fit."""
    report = listener()

    def fit(number: int) -> tuple[Floats, Floats]:
        def report_pass(text: str) -> None:
            report(f"model {number + 1} of {len(starts)}, {text}")

        descent = Descent(layout, objective, *starts[number])
        descent.run(iterations, noise, report_pass)
        return in_double(descent)

    with threadpool_limits(1):
        return list(LocalEngine().map(fit, range(len(starts))))


def in_double(descent: Descent) -> tuple[Floats, Floats]:
    """Return the shares (components, cells of all blocks) and the weights of a descent, in double precision."""
    shares = descent.shares.T.astype(np.float64)
    weights = descent.weights.astype(np.float64)
    return shares, normal(weights)


def averaged(fitted: Sequence[tuple[Floats, Floats]], unfitted: Mixture) -> Mixture:
    """Return the model that is the average of several fits; `unfitted` has its blocks."""
    lengths = [len(block.cells) for block in unfitted.blocks]
    ends = np.cumsum(lengths)
    all_shares = np.concatenate([shares for shares, _ in fitted])
    all_weights = np.concatenate([weights for _, weights in fitted])
    shares_of_blocks = np.split(all_shares, ends[:-1], axis=1)
    return replace(
        unfitted,
        weights=all_weights / len(fitted),
        shares=tuple(map(normal, shares_of_blocks)),
        fits=len(fitted),
    )


def _starts(
    measurements: Sequence[Observation],
    model: Mixture,
    settings: MixtureSynthesis,
) -> list[Start]:
    """Return new components; each box has as many as its records need, and a few more where these are few."""
    factors = common_factors(measurements, model.sizes, model.total)
    start: TreeStart | FactorStart
    if factors is None:
        start = TreeStart(measurements, model.blocks, model.sizes, model.total)
    else:
        start = FactorStart(factors, model.blocks, model.total)
    generators = np.random.default_rng(settings.seed).spawn(settings.fits)  # post-processing
    supports_of_blocks = block_supports(model.blocks, model.boxes, model.sizes)
    supports = np.concatenate(supports_of_blocks, axis=1)
    if len(supports) == 1:
        return [
            _start_in_one_box(start, supports, settings.components, generator)
            for generator in generators
        ]
    supports_of_boxes = zip(*supports_of_blocks, strict=True)
    inside = [start.within(box_supports) for box_supports in supports_of_boxes]
    mass = _box_masses(model.boxes, start.one_way)
    return [
        _start_in_boxes(inside, mass, supports, settings.components, generator)
        for generator in generators
    ]


def _start_in_one_box(
    start: TreeStart | FactorStart,
    supports: Flags,
    components: int,
    generator: np.random.Generator,
) -> Start:
    """Return components of equal weight in the box of all cells. DP: post-processing."""
    shares = start.shares(components, generator)
    weights = np.full(components, 1 / components, F32)
    box_of = np.zeros(components, np.int64)
    return np.ascontiguousarray(shares.T, F32), weights, Boxes(supports, box_of)


def _box_masses(boxes: Flags, one_way: Sequence[Floats]) -> Floats:
    """Return the share of the records that each box has by single columns, shape (boxes,).

    The boxes that allow a code say to which boxes its records may belong. Nothing is assumed about how records are distributed
    inside a box: p(code) = sum_b m_b q_b(code), q_b 0 outside of box b. The likelihood of all attributes that boxes
    tell apart goes up by expectation maximization (A. Dempster, N. Laird, D. Rubin 1977), from equal shares on.
    """
    ends = np.cumsum([len(counts) for counts in one_way])
    codes_in_boxes = np.split(boxes, ends[:-1], axis=1)
    shares_of_codes = []  # for each attribute that boxes tell apart, shape (codes,)
    joint = []  # for each of these attributes the records by box and code, shape (boxes, codes)
    for counts, inside in zip(one_way, codes_in_boxes, strict=True):
        if not (inside == inside[0]).all():
            shares = counts / counts.sum()
            shares_of_codes.append(shares)
            joint.append(inside.astype(np.float64) * shares)
    mass = np.full(len(boxes), 1 / len(boxes))
    for _ in range(_ROUNDS if joint else 0):
        for i, shares in enumerate(shares_of_codes):
            by_box = mass[:, None] * normal(joint[i])
            sums = by_box.sum(axis=0)
            joint[i] = np.divide(
                by_box * shares,
                sums,
                out=np.zeros_like(by_box),
                where=sums > 0,
            )
        masses = [by_box.sum(axis=1) for by_box in joint]
        mass = normal(np.mean(masses, axis=0))
    return normal(np.maximum(mass, _LEAST_MASS))


def _start_in_boxes(
    inside: Sequence[TreeStart | FactorStart],
    mass: Floats,
    supports: Flags,
    components: int,
    generator: np.random.Generator,
) -> Start:
    """Return components in every box, by the .75 power of its records, so that small boxes are not coarse.

    DP: post-processing.
    """
    numbers = 1 + apportion(mass**0.75, components - len(mass), generator)
    shares = []
    for start, number in zip(inside, numbers, strict=True):
        shares.append(start.shares(number, generator))
    box_of = np.repeat(np.arange(len(mass)), numbers)
    all_shares = np.concatenate(shares).T
    weights = (mass / numbers)[box_of]
    boxes = Boxes(supports, box_of)
    return np.ascontiguousarray(all_shares, F32), weights.astype(F32), boxes


def check_marginals(
    measurements: Sequence[Observation],
    sizes: Sequence[int],
    masks: Sequence[StructuralZeros],
) -> None:
    """Raise InputError unless marginals and masks have the shapes that `sizes` say, and every attribute is in a marginal."""
    shaped = [(m.attributes, m.shape) for m in measurements]
    shaped += [(mask.attributes, mask.sizes) for mask in masks]
    for attributes, shape in shaped:
        is_known = max(attributes, default=-1) < len(sizes)
        if not is_known or tuple(sizes[a] for a in attributes) != shape:
            raise InputError(
                f"marginal or mask of attributes {attributes} must have the shape that sizes say"
            )
    missing = set(range(len(sizes)))
    for m in measurements:
        missing.difference_update(m.attributes)
    if missing:
        raise InputError(f"attribute {min(missing)} must be in at least one marginal")


# Each calibration leaves a tenth of the distance, or less: shares are made to add up to 1 in every component again.
_CALIBRATIONS = 3


def calibrate_one_way(model: Mixture, measurements: Sequence[Observation]) -> Mixture:
    """Return the model with every attribute calibrated to its own counts, as far as noise does not explain the distance.

    Own method; evidence: docs/sources/estimation.md. A fit that ends before its counts are as near as their noise allows leaves
    the most exact ones, those of single attributes, farthest behind. The target is the mean m + t (y - m) of the model's counts
    m and of y, the nearest to those measured; t is what `_trust` says. Shares of a code are multiplied by target over m in all
    components (iterative proportional fitting), so that dependence stays as it is. DP: post-processing.
    """
    trust = _trust(model, measurements)
    if not any(trust.values()):
        return model
    single = [m for m in measurements if len(m.attributes) == 1]
    # copies are in C order: the memory layout decides in which order numpy adds up shares, and so the last digits
    calibrated = replace(model, shares=tuple(shares.copy() for shares in model.shares))
    for _ in range(_CALIBRATIONS):
        for measurement in single:
            calibrated = _calibrated(calibrated, measurement, trust[measurement.attributes[0]])
    return calibrated


def _calibrated(
    model: Mixture,
    measurement: Observation,
    trust: float,
) -> Mixture:
    """Return the model with the attribute of one measurement calibrated to its target."""
    attribute = measurement.attributes[0]
    size = len(measurement.counts)
    b, block = model.block_of(attribute)
    codes = block.cells[:, block.attributes.index(attribute)]
    cell_shares = model.weights @ model.shares[b]
    code_shares = np.bincount(codes, cell_shares, size).astype(np.float64)
    counts: Floats = model.total * code_shares
    # m + t (y - m)
    nearest = nearest_column(measurement, counts, model.total)
    target = counts + trust * (nearest - counts)
    factors = np.divide(
        target,
        counts,
        out=np.zeros(size),
        where=counts > 0,
    )
    scaled = model.shares[b] * factors[codes]
    sums = scaled.sum(axis=1, keepdims=True)  # a component of which nothing remains is not changed
    shares = list(model.shares)
    shares[b] = np.divide(
        scaled,
        sums,
        out=shares[b].copy(),
        where=sums > 0,
    )
    weights = model.weights
    if len(model.boxes) > 1:  # a box has the records of its codes
        weights = normal(weights * sums[:, 0])
    return replace(model, weights=weights, shares=tuple(shares))


def _trust(model: Mixture, measurements: Sequence[Observation]) -> dict[int, float]:
    """Return how much a table of a single attribute says of its counts, relative to the model.

    Where chi^2 of all such tables is at most their number of cells, as for the truth, the model is as near as can be seen, and
    what is left is noise: 0. Else 1 - cells / chi^2 (James and Stein 1961: the positive part), but no more than the part of all
    precision that the table has: v / (v + w), v = 1 / sigma^2 and w the sum over all larger tables with the attribute of
    1 / (sigma^2 cells / codes), the precision of their sums.
    """
    single_precision = defaultdict[int, float](float)  # v
    all_precision = defaultdict[int, float](float)  # v + w
    chi = 0.0
    cells = 0
    for m in measurements:
        if len(m.attributes) == 1:
            counted = np.ones(len(m.counts), np.bool_)
            if isinstance(m, CensoredObservation):
                counted = m.released
            expected = model.marginal(m.attributes) / m.scale(model.total)
            residuals = m.counts - expected
            distance = residuals[counted] / m.deviation
            chi += float(distance @ distance)
            cells += len(distance)
        for attribute, size in zip(m.attributes, m.counts.shape, strict=True):
            if attribute in m.coarser:  # its counts do not tell the codes of one coarser code apart
                continue
            precision = size / m.counts.size / m.deviation**2
            all_precision[attribute] += precision
            single_precision[attribute] += precision if len(m.attributes) == 1 else 0.0
    surprise = max(0.0, 1 - cells / chi) if chi else 0.0
    trust = {}
    for attribute, precision in all_precision.items():
        trust[attribute] = min(surprise, single_precision[attribute] / precision)
    return trust
