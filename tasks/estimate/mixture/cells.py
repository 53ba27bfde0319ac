"""All cells of many targets in two compiled passes: most tables are too small for a call of BLAS each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.tasks.estimate.mixture.targets import F32, FeatureLayout, FeatureTarget, Floats, Hidden, expected_below

Places = NDArray[np.int32]

_UNSURPRISING = 5.0
"""A count this many deviations below the cut is there with such certainty that it tells nothing."""


class TargetCells:
    """All cells of targets of equally many features, target after target, each in C order."""

    def __init__(self, layout: FeatureLayout, targets: Sequence[FeatureTarget]) -> None:
        self.features = len(targets[0].features)
        self._places = np.concatenate([_places(layout, target) for target in targets])
        self._counts = np.concatenate([target.counts.ravel() for target in targets])
        self._weight = np.concatenate([target.weight.ravel() for target in targets])
        starts = np.cumsum([0, *(target.counts.size for target in targets[:-1])])
        pairs = zip(starts, targets, strict=True)
        censored = [(start, target.hidden) for start, target in pairs if target.hidden is not None]
        self._hidden = _HiddenCells(censored) if censored else None

    def add(self, scale: np.float32, weights: Floats, columns: Floats, by_columns: Floats, by_weights: Floats) -> float:
        """Add `scale` times what they say, but for the factor n w of the components; their chi^2.

        `weights` are n w, shape (components,); `columns` and `by_columns` have shape (width, components).
        """
        predicted = _predict(weights, columns, self._places)
        residuals = predicted - self._counts
        slope = residuals * self._weight
        chi = float((slope * residuals).sum(dtype=np.float64))
        if self._hidden is not None:
            chi += self._hidden.add(predicted, slope)
        _back(slope * scale, columns, self._places, by_columns, by_weights)
        return chi


class _HiddenCells:
    """`Hidden` of many targets side by side."""

    def __init__(self, censored: Sequence[tuple[int, Hidden]]) -> None:
        places = [start + np.flatnonzero(hidden.cells.ravel()) for start, hidden in censored]
        numbers = [len(mine) for mine in places]
        self._places = np.concatenate(places)
        self._cut = np.repeat([hidden.cut for _, hidden in censored], numbers)
        self._deviation = np.repeat([hidden.deviation for _, hidden in censored], numbers)

    def add(self, predicted: Floats, slope: Floats) -> float:
        """Add to the slope what the model has too much where a hidden count is surprisingly small; its chi^2.

        For Y ~ N(m, deviation^2): m - E[Y | Y < cut], the slope of -deviation^2 log P(Y < cut), which vanishes below the cut.
        """
        means = predicted[self._places].astype(np.float64)
        near = np.flatnonzero(means > self._cut - _UNSURPRISING * self._deviation)
        deviation = self._deviation[near]
        surplus = means[near] - expected_below(means[near], deviation, self._cut[near])
        more = surplus / deviation**2
        slope[self._places[near]] += more.astype(F32)
        return float(more @ surplus)


def _places(layout: FeatureLayout, target: FeatureTarget) -> Places:
    starts = np.array([layout.features[f].start for f in target.features], np.int32)
    inside = np.indices(target.counts.shape, np.int32).reshape(len(starts), -1)
    return np.ascontiguousarray((inside + starts[:, None]).T)


@njit(cache=True, nogil=True, fastmath=True)
def _predict(weights: Floats, factors: Floats, places: Places) -> Floats:  # pragma: no cover - compiled
    """sum_k weights[k] prod_j factors[places[i, j], k] for each i; what cells have in common is multiplied once."""
    last = places.shape[1] - 1
    products = np.empty((last + 1, len(weights)), np.float32)
    products[0] = weights
    found = np.empty(len(places), np.float32)
    for i in range(len(places)):
        first = _shared(places, i)
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
    slope: Floats, factors: Floats, places: Places, by_factors: Floats, by_weights: Floats
) -> None:  # pragma: no cover - compiled
    """Add the derivatives of sum_i slope[i] prod_j factors[places[i, j], k] by the factors, and the products themselves.

    Cells of a common beginning are added up before they go on to it: sums[j] is what has come to the first j factors. Rows
    have names, as the compiler then sees that they are apart, and takes many of their entries at once.
    """
    last, components = places.shape[1] - 1, factors.shape[1]
    products = np.ones((last + 1, components), np.float32)
    sums = np.zeros((last + 1, components), np.float32)
    for i in range(len(places) + 1):
        first = _shared(places, i) if i < len(places) else 0
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


@njit(cache=True, nogil=True)
def _shared(places: Places, i: int) -> int:  # pragma: no cover - compiled
    """How many factors from the first on cell i has in common with the one before it, the last one not counted."""
    first = 0
    while i > 0 and first < places.shape[1] - 1 and places[i, first] == places[i - 1, first]:
        first += 1
    return first
