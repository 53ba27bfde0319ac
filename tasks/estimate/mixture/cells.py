"""All cells of many targets in two compiled passes: most tables are too small for a call of BLAS each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.tasks.estimate.mixture.model import shared_factors
from marginweave.tasks.estimate.mixture.targets import F32, FeatureLayout, FeatureTarget, Float32s, expected_below

Places = NDArray[np.int32]

_UNSURPRISING = 5.0  # a count so many deviations below the cut is there with such certainty that it tells nothing


class TargetCells:
    """All cells of targets of equally many features, target after target, each in C order."""

    def __init__(self, layout: FeatureLayout, targets: Sequence[FeatureTarget]) -> None:
        self.features = len(targets[0].features)
        self._places = np.concatenate([_places(layout, target) for target in targets])
        self._counts = np.concatenate([target.counts.ravel() for target in targets])
        self._weight = np.concatenate([target.weight.ravel() for target in targets])
        starts = np.cumsum([0, *(target.counts.size for target in targets[:-1])])
        hidden = [(start, target.hidden) for start, target in zip(starts, targets, strict=True) if target.hidden]
        places = [start + np.flatnonzero(known.cells) for start, known in hidden]
        numbers = np.array([len(mine) for mine in places], np.int64)
        self._hidden = np.concatenate([np.zeros(0, np.int64), *places])
        self._cut = np.repeat([known.cut for _, known in hidden], numbers)
        self._deviation = np.repeat([known.deviation for _, known in hidden], numbers)

    def add(
        self, scale: np.float32, weights: Float32s, columns: Float32s, by_columns: Float32s, by_weights: Float32s
    ) -> float:
        """Add `scale` times what they say, but for the factor n w of the components; their chi^2.

        `weights` are n w, shape (components,); `columns` and `by_columns` have shape (width, components).
        """
        predicted = _predict(weights, columns, self._places)
        residuals = predicted - self._counts
        slope = residuals * self._weight
        chi = float((slope * residuals).sum(dtype=np.float64))
        if len(self._hidden):
            chi += self._add_hidden(predicted, slope)
        _back(slope * scale, columns, self._places, by_columns, by_weights)
        return chi

    def _add_hidden(self, predicted: Float32s, slope: Float32s) -> float:
        """Add to the slope what the model has too much where a hidden count is surprisingly small; its chi^2.

        For Y ~ N(m, deviation^2): m - E[Y | Y < cut], the slope of -deviation^2 log P(Y < cut), which vanishes below the cut.
        """
        means = predicted[self._hidden].astype(np.float64)
        near = np.flatnonzero(means > self._cut - _UNSURPRISING * self._deviation)
        deviation = self._deviation[near]
        surplus = means[near] - expected_below(means[near], deviation, self._cut[near])
        more = surplus / deviation**2
        slope[self._hidden[near]] += more.astype(F32)
        return float(more @ surplus)


def _places(layout: FeatureLayout, target: FeatureTarget) -> Places:
    starts = np.array([layout.features[f].start for f in target.features], np.int32)
    inside = np.indices(target.counts.shape, np.int32).reshape(len(starts), -1)
    return np.ascontiguousarray((inside + starts[:, None]).T)


@njit(cache=True, nogil=True, fastmath=True)
def _predict(weights: Float32s, factors: Float32s, places: Places) -> Float32s:  # pragma: no cover - compiled
    """sum_k weights[k] prod_j factors[places[i, j], k] for each i; what cells have in common is multiplied once."""
    last = places.shape[1] - 1
    products = np.empty((last + 1, len(weights)), np.float32)
    products[0] = weights
    found = np.empty(len(places), np.float32)
    for i in range(len(places)):
        first = shared_factors(places, i)
        for j in range(first, last):
            factor = factors[places[i, j]]
            for k in range(len(weights)):
                products[j + 1, k] = products[j, k] * factor[k]
        factor = factors[places[i, last]]
        total = np.float32(0.0)
        for k in range(len(weights)):
            total += products[last, k] * factor[k]
        found[i] = total
    return found


@njit(cache=True, nogil=True, fastmath=True)
def _back(
    slope: Float32s, factors: Float32s, places: Places, by_factors: Float32s, by_weights: Float32s
) -> None:  # pragma: no cover - compiled
    """Add the derivatives of sum_i slope[i] prod_j factors[places[i, j], k] by the factors, and the products themselves.

    Cells of a common beginning are added up before they go on to it: sums[j] is what has come to the first j factors. Rows
    have names, as the compiler then sees that they are apart, and takes many of their entries at once.
    """
    last, components = places.shape[1] - 1, factors.shape[1]
    products = np.ones((last + 1, components), np.float32)
    sums = np.zeros((last + 1, components), np.float32)
    for i in range(len(places) + 1):
        first = shared_factors(places, i) if i < len(places) else 0
        if i > 0:
            for j in range(last, first, -1):
                to, factor, before = by_factors[places[i - 1, j - 1]], factors[places[i - 1, j - 1]], products[j - 1]
                here, there = sums[j], sums[j - 1]
                for k in range(components):
                    to[k] += here[k] * before[k]
                    there[k] += here[k] * factor[k]
                    here[k] = 0.0
        if i == len(places):
            break
        for j in range(first, last):
            before, after, factor = products[j], products[j + 1], factors[places[i, j]]
            for k in range(components):
                after[k] = before[k] * factor[k]
        mine, to, factor = slope[i], by_factors[places[i, last]], factors[places[i, last]]
        before, here = products[last], sums[last]
        for k in range(components):
            to[k] += mine * before[k]
        for k in range(components):
            here[k] += mine * factor[k]
    by_weights += sums[0]
