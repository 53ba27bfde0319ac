"""Models drawn around a fitted one: they show how far it would have been from itself with other noise.

The parametric bootstrap (Efron 1979): the counts that the model predicts, with fresh noise of the known size, are fitted again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

from marginweave.base.arrays import Floats
from marginweave.base.parallel import LocalEngine
from marginweave.estimate.mixture.blocks import block_supports
from marginweave.estimate.mixture.descent import Boxes, Descent
from marginweave.estimate.mixture.fit import Start, averaged, calibrate_one_way, in_double
from marginweave.estimate.mixture.model import Mixture
from marginweave.estimate.mixture.objective import Objective
from marginweave.estimate.mixture.targets import F32, FeatureLayout
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
    expected = [model.marginal(m.attributes) for m in measurements]
    refit = _Refit(model, measurements)
    for _ in range(number):
        simulated = []
        for m, table in zip(measurements, expected, strict=True):
            simulated.append(_noisy(m, table, model.total, generator))
        yield refit.fitted(simulated)


class _Refit:
    """Fits of counts that are close to those of a model, from the model as a start.

    Curvatures follow the shares, which hardly move: those of the model serve all fits. To compute them took most of each.
    """

    def __init__(self, model: Mixture, measurements: Sequence[Observation]) -> None:
        """Take the model as it was fitted, and measurements that later ones differ from in their counts alone."""
        self._model = model
        self._layout = FeatureLayout(model.blocks, model.sizes)
        self._starts = starts_at(model)
        objective = self._objective(measurements)
        descents = [Descent(self._layout, objective, *start) for start in self._starts]
        with threadpool_limits(1):
            for descent in descents:
                descent.renew_curvatures()
        self._curvatures = [descent.curvatures for descent in descents]

    def fitted(self, measurements: Sequence[Observation]) -> Mixture:
        """Return the model after some passes towards other counts of the measurements. DP: post-processing."""
        objective = self._objective(measurements)

        def fit(number: int) -> tuple[Floats, Floats]:
            shares, weights, boxes = self._starts[number]
            curvatures = self._curvatures[number]
            descent = Descent(
                self._layout, objective, shares.copy(), weights, boxes, curvatures=curvatures
            )
            descent.follow(PASSES)
            return in_double(descent)

        with threadpool_limits(1):
            fitted = list(LocalEngine().map(fit, range(len(self._starts))))
        return calibrate_one_way(averaged(fitted, self._model), measurements)

    def _objective(self, measurements: Sequence[Observation]) -> Objective:
        return Objective(self._layout, measurements, self._model.masks, self._model.total)


def starts_at(model: Mixture) -> list[Start]:
    """Return the components of each fit that the model is the average of."""
    all_shares = np.concatenate(model.shares, axis=1).astype(F32)
    supports_of_blocks = block_supports(model.blocks, model.boxes, model.sizes)
    supports = np.concatenate(supports_of_blocks, axis=1)
    shares_outside = (~supports).astype(F32) @ all_shares.T
    box_of = shares_outside.argmin(axis=0)
    starts: list[Start] = []
    for components in np.split(np.arange(model.components), model.fits):
        shares = np.ascontiguousarray(all_shares[components].T)
        weights = model.weights[components].astype(F32)
        starts.append((shares, weights / weights.sum(), Boxes(supports, box_of[components])))
    return starts


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
