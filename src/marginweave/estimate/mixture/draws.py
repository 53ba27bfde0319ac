"""Models drawn around a fitted one: they show how far it would have been from itself with other noise.

The parametric bootstrap (Efron 1979): the counts that the model predicts, with fresh noise of the known size, are fitted again.
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

# A fit that starts from the model would end at once, as the counts are as close as their noise. It makes this many passes
# instead.
PASSES = 3


def draw_models(
    model: Mixture,
    measurements: Sequence[Observation],
    number: int,
    generator: np.random.Generator,  # post-processing
) -> Iterator[Mixture]:
    """Yield models fitted to counts of the model with fresh noise, from the model as a start. DP: post-processing.

    Args:
        model: as it was fitted, not conditioned.
        measurements: those it was fitted to (`EstimationInput.measured`).
        number: how many models.
        generator: public choices.
    """
    settings = MixtureSynthesis(
        components=model.components // model.fits,
        fits=model.fits,
        iterations=PASSES,
    )
    masks = [*model.masks, *model.inside, *model.codes]
    expected = [model.marginal(m.attributes) for m in measurements]
    for _ in range(number):
        simulated = []
        for m, table in zip(measurements, expected, strict=True):
            simulated.append(_noisy(m, table, model.total, generator))
        yield fit_mixture(simulated, model.sizes, model.total, masks, settings, model, noise=0.0)


def expected_counts(
    m: Observation,
    table: Floats,
    total: float,
) -> Floats:
    """Return the expected counts of a measurement if a table over its attributes, of `total` records, is the truth."""
    for axis, coarser in enumerate(m.levels):
        if coarser is not None:
            shape = list(table.shape)
            shape[axis] = int(coarser.max()) + 1
            summed = np.zeros(shape)
            np.add.at(
                np.moveaxis(summed, axis, 0),
                coarser,
                np.moveaxis(table, axis, 0),
            )
            table = summed
    return np.asarray(table / m.scale(total), np.float64)


def _noisy(
    m: Observation,
    table: Floats,
    total: float,
    generator: np.random.Generator,
) -> Observation:
    """Return a simulated measurement of a table: with fresh noise, and hidden where it is then below the cut."""
    counts = expected_counts(m, table, total)  # of a released model: post-processing
    # What is not normal has the tails of Laplace noise here: what was drawn is as long, for its standard deviation, or shorter.
    if count_noise(m.noise).is_normal:
        noise = generator.normal(0.0, m.deviation, counts.shape)
    else:
        noise = generator.laplace(0.0, m.deviation / np.sqrt(2), counts.shape)
    counts = np.asarray(counts + noise, np.float64)
    if isinstance(m, CensoredObservation):
        counted = m.released | m.hidden
        return replace(
            m,
            counts=counts,
            released=counted & (counts >= m.cut),
            hidden=counted & (counts < m.cut),
        )
    return replace(m, counts=counts)
