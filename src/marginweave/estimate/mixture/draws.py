"""Models drawn around a fitted one: how far it would have been from itself with other noise.

The parametric bootstrap (Efron 1979): the counts that the model says, with fresh noise of the known size, are fitted again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from marginweave.base.arrays import Floats
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.estimate.mixture.fit import fit_mixture
from marginweave.estimate.mixture.model import Mixture
from marginweave.mechanisms.catalogue import count_noise
from marginweave.observations.tables import CensoredObservation, Observation

# From the model on, its counts are as near as their noise, so a fit would end at once. It makes so many passes instead.
PASSES = 3


def draw_models(
    model: Mixture,
    measurements: Sequence[Observation],
    number: int,
    generator: np.random.Generator,  # post-processing
) -> Iterator[Mixture]:
    """Models fitted to counts of the model with fresh noise, from the model as a start. DP: post-processing.

    Args:
        model: as it was fitted, not conditioned.
        measurements: what it was fitted to (`EstimationInput.measured`).
        number: how many models.
        generator: public choices.
    """
    settings = MixtureSynthesis(components=model.components // model.fits, fits=model.fits, iterations=PASSES)
    masks = [*model.masks, *model.inside, *model.codes]
    expected = [model.marginal(m.attributes) for m in measurements]
    for _ in range(number):
        drawn = [_noisy(m, table, model.total, generator) for m, table in zip(measurements, expected, strict=True)]
        yield fit_mixture(drawn, model.sizes, model.total, masks, settings, model, noise=0.0)


def expected_counts(m: Observation, table: Floats, total: float) -> Floats:
    """What a measurement is expected to be where a table over its attributes, of `total` records, is the truth."""
    for axis, level in enumerate(m.levels):
        if level is not None:
            summed = np.zeros((*table.shape[:axis], int(level.max()) + 1, *table.shape[axis + 1 :]))
            np.add.at(np.moveaxis(summed, axis, 0), level, np.moveaxis(table, axis, 0))
            table = summed
    return np.asarray(table / m.scale(total), np.float64)


def _noisy(m: Observation, table: Floats, total: float, generator: np.random.Generator) -> Observation:
    """A measurement of a table as it might have been: with fresh noise, and hidden where it is below the cut then."""
    counts = expected_counts(m, table, total)  # of a released model: post-processing
    noise = count_noise(m.noise).simulate(generator, m.deviation, counts.shape)
    counts = np.asarray(counts + noise, np.float64)
    if isinstance(m, CensoredObservation):
        there = m.released | m.hidden
        return replace(m, counts=counts, released=there & (counts >= m.cut), hidden=there & (counts < m.cut))
    return replace(m, counts=counts)
