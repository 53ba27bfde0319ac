"""Single attributes: nearest nonnegative counts to the noisy ones, and a mixture calibrated to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from marginweave.schemas.arrays import Floats
from marginweave.schemas.released.measurements import CensoredMeasurement, Measurement
from marginweave.tasks.estimate.mixture.model import Mixture
from marginweave.tasks.estimate.rounding import project_simplex

_ROUNDS = 3  # each leaves a tenth of the distance, or less: shares are made to add up to 1 in every component again


def nearest_column(measurement: Measurement, likely: Floats, total: float) -> Floats:
    """Counts of one attribute that are not negative and add up to `total`, as near as can be to those that are known.

    Of a suppressed code as many as are `likely`, but fewer than its threshold; codes that were never counted share what is
    left, in proportion. Shapes (codes,). DP: post-processing.
    """
    counts: Floats = np.asarray(measurement.counts * measurement.scale(total), np.float64)
    if isinstance(measurement, CensoredMeasurement):  # always complete
        counts[measurement.hidden] = np.clip(likely[measurement.hidden], 0.0, max(measurement.cut, 0.0))
        never = ~(measurement.released | measurement.hidden)
        if never.any():
            rest, shares = max(total - counts[~never].sum(), 0.0), likely[never]
            counts[never] = rest * shares / shares.sum() if shares.sum() > 0 else rest / len(shares)
    return project_simplex(counts, total)


def calibrate_one_way(model: Mixture, measurements: Sequence[Measurement]) -> Mixture:
    """The model with every attribute calibrated to its own counts, as far as these are more exact than the larger tables.

    Own method; evidence: docs/accuracy.md. A fit ends where all its counts are as near as their noise allows, and the most
    exact ones, those of single attributes, are left farther behind than they need be. The target is the mean of the model's
    counts m and of y, the nearest to those measured: (v y + w m) / (v + w), v = 1 / deviation^2 and w the sum over all larger
    tables with the attribute of 1 / (deviation^2 cells / codes), the precision of their sums. Shares of a code are multiplied
    by target over m in all components (iterative proportional fitting), so that dependence stays as it is. DP: post-processing.
    """
    shares = [part.copy() for part in model.shares]
    trust = _trust(measurements)
    for _ in range(_ROUNDS):
        for measurement in (m for m in measurements if len(m.attributes) == 1):
            attribute, size = measurement.attributes[0], len(measurement.counts)
            b = next(i for i, block in enumerate(model.blocks) if attribute in block.attributes)
            codes = model.blocks[b].cells[:, model.blocks[b].attributes.index(attribute)]
            counts: Floats = model.total * np.bincount(codes, model.weights @ shares[b], size).astype(np.float64)
            target = counts + trust[attribute] * (nearest_column(measurement, counts, model.total) - counts)
            scaled = shares[b] * np.divide(target, counts, out=np.zeros(size), where=counts > 0)[codes]
            sums = scaled.sum(axis=1, keepdims=True)  # a component of which nothing is left stays as it is
            shares[b] = np.divide(scaled, sums, out=shares[b].copy(), where=sums > 0)
    return replace(model, shares=tuple(shares))


def _trust(measurements: Sequence[Measurement]) -> dict[int, float]:
    """Of all that is known of the counts of an attribute, the part that a table of it alone tells."""
    alone, all_of_them = defaultdict[int, float](float), defaultdict[int, float](float)
    for m in measurements:
        for attribute, size in zip(m.attributes, m.counts.shape, strict=True):
            precision = size / m.counts.size / m.deviation**2
            all_of_them[attribute] += precision
            alone[attribute] += precision if len(m.attributes) == 1 else 0.0
    return {attribute: alone[attribute] / known for attribute, known in all_of_them.items()}
