"""Which measurements a graphical model of limited size takes: those that say most of how attributes hang together."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.released.measurements import Mask, Measurement
from marginweave.tasks.estimate.graphical.junction import check_room, model_fits
from marginweave.tasks.estimate.mixture.columns import nearest_column

Array = NDArray[np.float64]


def choose_measurements(
    measurements: Sequence[Measurement], sizes: Sequence[int], total: float, masks: Sequence[Mask], most: int
) -> list[Measurement]:
    """All that a model of at most `most` bytes holds: each by itself, those that say most first, as long as it still fits.

    A measurement y of c cells says sum (y - n prod_a p_a)^2 / deviation^2 - c: how far it is from independent attributes,
    beyond what its noise makes of that. Those of single attributes are in every model and take no room.

    Args:
        measurements: noisy marginals, no cell unknown.
        sizes: number of codes of each attribute, a missing value included.
        total: the number of records n.
        masks: structural zeros, which are part of every model.
        most: 8 bytes a cell of the junction tree.

    Returns:
        Some of `measurements`, in their order. DP: post-processing.

    Raises:
        InputError: the structural zeros alone make too large a model.
    """
    kept = [mask.attributes for mask in masks]
    if model_fits(sizes, [*kept, *(m.attributes for m in measurements)], most):
        return list(measurements)
    check_room(sizes, kept, most)
    even = [np.full(size, total / size) for size in sizes]
    singles = {m.attributes[0]: m for m in measurements if len(m.attributes) == 1}
    shares = [nearest_column(singles[a], e, total) / total if a in singles else e / total for a, e in enumerate(even)]
    says = [_says(m, shares, total) for m in measurements]
    chosen: set[int] = set()
    for place in sorted(range(len(says)), key=lambda p: (-says[p], p)):
        attributes = measurements[place].attributes
        if any({*attributes} <= {*known} for known in kept) or model_fits(sizes, [*kept, attributes], most):
            kept.append(attributes)
            chosen.add(place)
    return [measurements[place] for place in sorted(chosen)]


def _says(measurement: Measurement, shares: Sequence[Array], total: float) -> float:
    alone = total * functools.reduce(np.multiply.outer, [shares[a] for a in measurement.attributes])
    scale = measurement.scale(total)
    away = (measurement.counts * scale - alone) / (measurement.deviation * scale)
    return float((away**2).sum()) - away.size
