"""Shares of a mixture go down to noisy counts: one block after another, one component after another, each to its best."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numba import njit

from marginweave.schemas.arrays import Floats, Integers
from marginweave.tasks.estimate.mixture.model import is_whole
from marginweave.tasks.estimate.mixture.objective import Objective
from marginweave.tasks.estimate.mixture.targets import F32, FeatureLayout, Float32s

# How much shorter than its best the step of a component is in the first pass, a third of it in the third: what is short of the
# best follows the noise less.
_DAMPING = 3.0
_SLACK = 4.0


class Descent:
    """Shares of every block and component, shape (cells of all blocks, components), that go down to noisy counts."""

    def __init__(self, layout: FeatureLayout, objective: Objective, shares: Float32s, weights: Float32s) -> None:
        self.shares, self._layout, self._objective = shares, layout, objective
        self._weights = objective.total * weights
        ends = np.cumsum([0, *(len(block.cells) for block in layout.blocks)])
        self._blocks = [slice(a, b) for a, b in pairwise(ends)]
        self._factors = np.zeros((layout.width, len(weights)), F32)
        self._by_factors = np.zeros_like(self._factors)
        self._grams = np.empty((len(layout.features) + 1, len(weights), len(weights)), F32)
        self._grams[-1] = 1.0
        self._chi = np.zeros((len(self._blocks), len(objective.expected)))  # as last seen from each block
        self._chi[:, objective.expected > 0] = math.inf
        for block in range(len(self._blocks)):
            self._refresh(block)

    def run(self, iterations: int, noise: float) -> None:
        """Pass over all blocks until the noise is reached, a pass gains less than it, or the iterations are over."""
        expected, before = noise * self._objective.expected, math.inf
        for iteration in range(1, iterations + 1):
            for block in range(len(self._blocks)):
                slope = self.slope(block)
                if _is_near(self._chi.sum(axis=0), expected):
                    return
                self.move(block, slope, _DAMPING / iteration)
            found = float(self._chi.sum())
            if before - found < noise * math.sqrt(2 * self._objective.expected.sum()):
                return
            before = found

    def slope(self, block: int) -> Float32s:
        """See `BlockTargets.slope`."""
        targets = self._objective.blocks[block]
        return targets.slope(self._weights, self._factors, self._by_factors, self._chi[block])

    def move(self, block: int, slope: Float32s, damping: float) -> None:
        """Move the shares of a block, given the slope there (`move_shares`)."""
        t, shares = self._objective.blocks[block], self.shares[self._blocks[block]]
        of_block = (t.places, t.spread, slope, self._weights, self._grams, t.one, t.rest, t.precision)
        move_shares(shares, *of_block, damping)
        self._refresh(block)

    def _refresh(self, block: int) -> None:
        """Factors and Gram matrices of the features of a block."""
        shares = self.shares[self._blocks[block]]
        for number in self._objective.blocks[block].features:
            feature = self._layout.features[number]
            factors = self._factors[feature.columns]
            if is_whole(feature.places, feature.width):
                factors[:] = shares
            else:
                factors[:] = 0.0
                np.add.at(factors, feature.places, shares)
            np.matmul(factors.T, factors, out=self._grams[number])


def _is_near(chi: Floats, expected: Floats) -> bool:
    """Whether chi^2 is down to its expectation in all, and by the number of features within four standard deviations of it."""
    return float(chi.sum()) <= float(expected.sum()) and bool((chi <= expected + _SLACK * np.sqrt(2 * expected)).all())


@njit(cache=True, nogil=True, fastmath=True)
def move_shares(
    shares: Float32s,
    places: Integers,
    spread: Float32s,
    slope: Float32s,
    weights: Float32s,
    grams: Float32s,
    one: Integers,
    rest: Integers,
    precision: Float32s,
    damping: float,
) -> None:  # pragma: no cover - compiled
    """Each component's shares of the block's cells to where a bound of the objective is least on the simplex, given the others.

    The objective is quadratic in the shares of a block. Of feature f its curvature by components k and l is
    H_f[k, l] = n w_k n w_l sum_t v_t prod_g G_g[k, l] over the targets t with f and their other features g, with the Gram
    matrices G_g = F_g'F_g. By the shares of component k alone it is at most h = sum_f spread_f H_f[k, k], and just that where
    the cells of the block are those of the feature: then the projection of the shares less slope / h onto the simplex is best
    (hierarchical alternating least squares: Cichocki and Phan 2009).

    Args:
        shares: shape (cells, components); changed.
        places: row of the slope of each cell, shape (features, cells).
        spread: of each feature how many cells of the block fall into one of its own at most.
        slope: derivatives of the objective by the cells of the features, shape (rows, components); changed.
        weights: n w.
        grams: G of each feature, then ones; shape (features + 1, components, components).
        one, rest, precision: as in `BlockTargets`.
        damping: how much larger than its bound the curvature is taken.
    """
    cells, components = shares.shape
    curvature = np.empty((len(places), components), np.float32)
    products, sums = np.empty(len(rest) * components, np.float32), np.empty(len(one) * components, np.float32)
    moved = np.empty(cells, np.float32)
    for k in range(components):
        left = components - k
        some = products[: len(rest) * left].reshape(len(rest), left)
        for r in range(len(rest)):
            some[r] = grams[rest[r, 0], k, k:]
            for j in range(1, rest.shape[1]):
                some[r] *= grams[rest[r, j], k, k:]
        steep = np.float32(0.0)
        for f in range(len(places)):
            summed = sums[: len(one) * left].reshape(len(one), left)
            np.dot(precision[f], some, summed)
            mine = curvature[f, k:]
            mine[:] = 0.0
            for r in range(len(one)):
                mine += summed[r] * grams[one[r], k, k:]
            mine *= weights[k] * weights[k:]
            steep += spread[f] * curvature[f, k]
        if steep <= 0.0:
            continue
        for c in range(cells):
            down = np.float32(0.0)
            for f in range(len(places)):
                down += slope[places[f, c], k]
            moved[c] = shares[c, k] - down / (steep * np.float32(1.0 + damping))
        project_onto_simplex(moved)
        for c in range(cells):
            change = moved[c] - shares[c, k]
            if change != 0.0:
                shares[c, k] = moved[c]
                for f in range(len(places)):
                    row, mine = slope[places[f, c]], curvature[f]
                    for i in range(k + 1, components):
                        row[i] += change * mine[i]


@njit(cache=True, nogil=True)
def project_onto_simplex(values: Float32s) -> None:  # pragma: no cover - compiled
    """The nearest values that are not negative and add up to 1 (Michelot 1986): those below the cut are left out, until none is."""
    cut, kept = -np.inf, 0
    while True:
        total, left = 0.0, 0
        for value in values:
            if value > cut:
                total, left = total + value, left + 1
        if left == kept:
            break
        cut, kept = (total - 1.0) / left, left
    for i in range(len(values)):
        values[i] = max(values[i] - cut, 0.0)
