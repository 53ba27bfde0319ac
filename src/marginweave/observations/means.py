"""Means of observations: of several of one table, of the totals of many, and their distance from a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from marginweave.base.arrays import Floats
from marginweave.base.errors import InputError
from marginweave.domain.masks import Clique
from marginweave.observations.tables import Observation

_ROUNDING = 1 / 12
"""Variance of rounding, which a noisy count has in addition to that of its Gaussian."""


def estimate_total(measurements: Sequence[Observation]) -> float:
    """Return the record count by inverse-variance weighting of the totals: a total of c cells has the variance c sigma^2.

    Incomplete marginals are biased low and count only where there are no others; never below 0. DP: post-processing.
    Raises InputError without measurements.
    """
    if not measurements:
        raise InputError("measurements (0) must be at least 1")
    used = [m for m in measurements if m.complete] or list(measurements)
    variances = np.array([m.counts.size * m.deviation**2 for m in used])
    totals = np.array([m.total for m in used])
    weights = 1 / variances
    mean = weights @ totals / weights.sum()
    return max(0.0, float(mean))


def expected_noise(sigma: float, cells: int) -> float:
    """Return the mean L1 norm of Gaussian noise on `cells` cells: sqrt(2/pi) sigma cells. DP: arithmetic on public numbers."""
    norm_of_cell = math.sqrt(2 / math.pi) * sigma
    return norm_of_cell * cells


def merge_observations(measurements: Sequence[Observation]) -> tuple[Observation, ...]:
    """Return one measurement for each set of attributes: the mean of its measurements by their inverse variances, rounded.

    The mean of rounded Gaussian counts of variances v_i = sigma_i^2 + 1/12 has the variance V = 1 / sum 1/v_i. Rounded, it
    counts as a rounded Gaussian of sigma sqrt(V), whose own rounding is the 1/12 that every noisy count has. In order of
    first appearance. DP: post-processing.
    """
    groups: dict[Clique, list[Observation]] = {}
    for measurement in measurements:
        group = groups.setdefault(measurement.attributes, [])
        group.append(measurement)
    return tuple(_mean(group) for group in groups.values())


def _mean(group: Sequence[Observation]) -> Observation:
    """Return the mean of measurements of the same attributes, as `merge_observations` says; a single one as it is."""
    if len(group) == 1:
        return group[0]
    variances = np.array([m.deviation**2 + _ROUNDING for m in group])
    tables = np.stack([m.counts for m in group])
    weights = 1 / variances
    summed = np.tensordot(weights, tables, axes=1)
    mean = np.rint(summed / weights.sum())
    # V^(1/2), for V = 1 / sum 1/v_i
    deviation = float(weights.sum() ** -0.5)
    return replace(group[0], counts=mean.astype(np.int64), deviation=deviation)


def beyond_noise(m: Observation, expected: Floats) -> float:
    """Return how far a set was from what a model `expected`, beyond the noise of measuring it, in records (L1).

    For a distance D and the expected norm N of the noise it is what `candidate_scores` compares, D - N, and at least 0. The
    square of a measured distance is larger than that of the true one by that of the noise. DP: post-processing.
    """
    measured = float(np.abs(m.counts - expected).sum())
    noise = expected_noise(m.deviation, m.counts.size)
    # D^2 = measured^2 - N^2
    squared_distance = max(measured**2 - noise**2, 0.0)
    distance = math.sqrt(squared_distance)
    return max(distance - noise, 0.0)


def chosen_misfit(chosen: Sequence[tuple[Observation, Floats]]) -> float:
    """Return how far chosen sets were from the model that chose them, beyond their noise: a TVD, the mean of the sets.

    `chosen` has for each set its measurement and the model's marginal. DP: post-processing.
    """
    distances = []
    for observation, expected in chosen:
        records = float(expected.sum())
        distance = beyond_noise(observation, expected)
        # a TVD is half of the L1 distance, divided by the number of records
        distances.append(distance / (2 * records))
    return float(np.mean(distances))
