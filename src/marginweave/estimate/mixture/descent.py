"""Shares of a mixture go down to noisy counts: one block after another, one component after another, each to its best."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.optimize import nnls

from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.estimate.mixture.model import is_whole
from marginweave.estimate.mixture.objective import Curvature, Objective
from marginweave.estimate.mixture.targets import F32, FeatureLayout, Float32s
from marginweave.estimate.rounding import to_simplex

# How much shorter than its best the step of a component is in the first pass, a third of it in the third: what is short of the
# best follows the noise less (3 in place of 6: three-way TVD 1 to 3 % more at epsilon 1, adult_cat 1 % less; a fifth faster).
_DAMPING = 6.0
_SLACK = 4.0
# A pass that gains less of what chi^2 has above its expectation is the last. With a million rows (adult, all triples, sigma 30)
# that is after some 40 passes; 80 take twice as long, for a three-way TVD of .0065 in place of .0075.
_SLOW = 0.02


# The first pass after which boxes are balanced: before, what components do not fit yet would tell of the boxes.
_SETTLED = 8
_OUTSIDE = np.float32(-1e30)  # projected to 0


class Boxes(NamedTuple):
    """Which cells of all blocks lie in each box, shape (boxes, cells), and the box of each component, shape (components,)."""

    supports: Flags
    of: Integers


class Components(NamedTuple):
    """Of the components n w, and `Boxes` of one block."""

    weights: Float32s
    supports: Flags
    of: Integers


class Descent:
    """Shares of every block and component, shape (cells of all blocks, components), that go down to noisy counts.

    With `boxes`, the shares of a component stay in its own, and how many records a box has goes down to the counts as well.
    """

    def __init__(
        self,
        layout: FeatureLayout,
        objective: Objective,
        shares: Float32s,
        weights: Float32s,
        boxes: Boxes | None = None,
    ) -> None:
        self.shares, self.weights, self._layout, self._objective = shares, weights, layout, objective
        self._boxes = boxes or Boxes(np.ones((1, len(shares)), np.bool_), np.zeros(len(weights), np.int64))
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

    @property
    def _weights(self) -> Float32s:
        return np.asarray(self._objective.total * self.weights)

    def run(self, iterations: int, noise: float, say: Callable[[str], None]) -> None:
        """Pass over all blocks until the noise is reached, a pass gains little, or the iterations are over.

        `say` hears of each pass.
        """
        expected, before = noise * self._objective.expected, math.inf
        spread = math.sqrt(2 * float(self._objective.expected.sum()))
        for iteration in range(1, iterations + 1):
            say(f"pass {iteration} ({iterations} at most)")
            for block in range(len(self._blocks)):
                slope = self.slope(block)
                if _is_near(self._chi.sum(axis=0), expected):
                    return
                self.move(block, slope, _DAMPING / iteration)
            if len(self._boxes.supports) > 1 and iteration >= _SETTLED and iteration & (iteration - 1) == 0:
                self.balance()
            found = float(self._chi.sum())
            if before - found < noise * max(spread, _SLOW * (found - expected.sum())):
                return
            before = found

    def slope(self, block: int) -> Float32s:
        """See `BlockTargets.slope`."""
        targets = self._objective.blocks[block]
        return targets.slope(self._weights, self._factors, self._by_factors, self._chi[block])

    def move(self, block: int, slope: Float32s, damping: float) -> None:
        """Move the shares of a block, given the slope there (`move_shares`)."""
        shares, targets = self.shares[self._blocks[block]], self._objective.blocks[block]
        components = Components(self._weights, self._boxes.supports[:, self._blocks[block]], self._boxes.of)
        move_shares(shares, slope, components, self._grams, targets.curvature, damping)
        self._refresh(block)

    def balance(self) -> None:
        """Scale the weights of the components of each box to where the objective is least, the shares given.

        It is quadratic in the scales s of the boxes: with the derivatives g of the components' log weights and the curvature
        n w_k n w_l sum_t v_t prod_f G_f[k, l], both summed over the components of a box, 1/2 (s - 1)'H(s - 1) + g'(s - 1) is
        least for s >= 0 that keep the number of records. Targets count that have an attribute which boxes tell apart.
        """
        supports, of = self._boxes
        member = (of[:, None] == np.arange(len(supports))).astype(np.float64)
        slope, bent = np.zeros(len(of)), np.zeros((len(of), len(of)))
        for block, cells in enumerate(self._blocks):
            if (supports[:, cells] != supports[0, cells]).any():
                rows = self._objective.blocks[block].rows
                slope += (self._factors[rows] * self.slope(block)).sum(axis=0)
                bent += self._bent(block)
        weights = self._weights.astype(np.float64)
        curvature = member.T @ (bent * weights[:, None] * weights) @ member
        scales = _least(curvature, member.T @ slope, member.T @ weights / weights.sum())
        self.weights = self.weights * scales[of].astype(F32)

    def _bent(self, block: int) -> Floats:
        """sum_t v_t prod_f G_f[k, l] over the targets of a block, shape (components, components)."""
        targets, found = self._objective.blocks[block], np.zeros(self._grams.shape[1:])
        curvature = targets.curvature
        for own, one, begin, end in curvature.groups:
            rests = curvature.rest[curvature.rests[begin:end]]
            inner = sum(
                v * self._grams[rest].prod(axis=0)
                for v, rest in zip(curvature.precision[begin:end], rests, strict=True)
            )
            found += self._grams[targets.features[own]] * self._grams[one] * inner
        return found

    def _refresh(self, block: int) -> None:
        """Factors and Gram matrices of the features of a block."""
        shares = self.shares[self._blocks[block]]
        for number in self._objective.blocks[block].features:
            feature = self._layout.features[number]
            factors = self._factors[feature.columns]
            if is_whole(feature.places, feature.width):
                factors[:] = shares
            else:
                _add_up(shares, feature.places, factors)
            np.matmul(factors.T, factors, out=self._grams[number])


_LEAST_SCALE = 0.1  # a box is not given up at once


def _least(curvature: Floats, slope: Floats, mass: Floats) -> Floats:
    """S >= 0 with mass's = 1 where 1/2 (s - 1)'curvature (s - 1) + slope's is least, or `_LEAST_SCALE`; shape (boxes,)."""
    root = _root(curvature)
    wanted = np.linalg.solve(root, curvature.sum(axis=1) - slope)
    firm = 1e3 * math.sqrt(float(np.trace(curvature)))
    found, _ = nnls(np.vstack([root.T, firm * mass]), np.append(wanted, firm))
    scales = np.maximum(found, _LEAST_SCALE)
    return np.asarray(scales / (mass @ scales))


def _root(curvature: Floats) -> Floats:
    """The Cholesky root of a curvature of single precision, with as little added to its diagonal as makes it definite."""
    for ridge in (1e-9, 1e-7, 1e-5):
        with suppress(np.linalg.LinAlgError):
            firm = ridge * float(np.trace(curvature)) + 1e-30
            return np.asarray(np.linalg.cholesky(curvature + firm * np.eye(len(curvature))), np.float64)
    return np.diag(np.sqrt(np.maximum(np.diag(curvature), 1e-30)))


def _is_near(chi: Floats, expected: Floats) -> bool:
    """Whether chi^2 is down to its expectation in all, and by the number of features within four standard deviations of it."""
    return float(chi.sum()) <= float(expected.sum()) and bool((chi <= expected + _SLACK * np.sqrt(2 * expected)).all())


@njit(cache=True, nogil=True)
def _add_up(shares: Float32s, places: Integers, factors: Float32s) -> None:  # pragma: no cover - compiled
    """Factors of a feature: the sums of the shares of the cells of the block that fall into each of its cells."""
    factors[:] = 0.0
    for c in range(len(places)):
        factor = factors[places[c]]
        for k in range(len(factor)):
            factor[k] += shares[c, k]


@njit(cache=True, nogil=True, fastmath=True)
def move_shares(
    shares: Float32s, slope: Float32s, components: Components, grams: Float32s, of: Curvature, damping: float
) -> None:  # pragma: no cover - compiled
    """Each component's shares of the block's cells to where a bound of the objective is least on the simplex, given the others.

    The objective is quadratic in the shares of a block. Of feature f its curvature by components k and l is
    H_f[k, l] = n w_k n w_l sum_t v_t prod_g G_g[k, l] over the targets t with f and their other features g, with the Gram
    matrices G_g = F_g'F_g. By the shares of component k alone it is at most h = sum_f spread_f H_f[k, k], and just that where
    the cells of the block are those of the feature: then the projection of the shares less slope / h onto the simplex is best
    (hierarchical alternating least squares: Cichocki and Phan 2009; docs/sources/estimation.md).

    Args:
        shares: shape (cells, components); changed.
        slope: derivatives of the objective by the cells of the features, shape (rows, components); changed.
        components: their n w, which cells of the block lie in each box, and the box of each, in which its shares stay.
        grams: G of each feature, then ones; shape (features + 1, components, components).
        of: the features of the block, and the precision of its targets.
        damping: by how many times itself the curvature is taken for more than it is.
    """
    cells, number = shares.shape
    curvature = np.empty((len(of.places), number), np.float32)
    memory = np.empty((len(of.rest) + 1) * number, np.float32)
    moved = np.empty(cells, np.float32)
    for k in range(number):
        _bend(k, components.weights, grams, of, memory, curvature)
        steep = np.float32(0.0)
        for f in range(len(of.places)):
            steep += of.spread[f] * curvature[f, k]
        if steep <= 0.0:
            continue
        _add_down(slope[:, k].copy(), of.places, moved)
        for c in range(cells):
            moved[c] = shares[c, k] - moved[c] / (steep * np.float32(1.0 + damping))
            if not components.supports[components.of[k], c]:
                moved[c] = _OUTSIDE
        to_simplex(moved, 1.0)
        _follow(k, moved, shares, slope, of, curvature)


@njit(cache=True, nogil=True, fastmath=True)
def _bend(
    k: int, weights: Float32s, grams: Float32s, of: Curvature, memory: Float32s, curvature: Float32s
) -> None:  # pragma: no cover - compiled
    """Put H_f[k, l] of every feature f and every l from k on into `curvature`."""
    left, rests = len(weights) - k, len(of.rest)
    products = memory[: rests * left].reshape(rests, left)
    sums = memory[rests * left : (rests + 1) * left]
    for r in range(rests):
        row = products[r]
        row[:] = 1.0
        for j in range(of.rest.shape[1]):
            gram = grams[of.rest[r, j], k]
            for i in range(left):
                row[i] *= gram[k + i]
    curvature[:, k:] = 0.0
    for g in range(len(of.groups)):
        f, one, begin, end = of.groups[g]
        sums[:] = 0.0
        for t in range(begin, end):
            row, precision = products[of.rests[t]], of.precision[t]
            for i in range(left):
                sums[i] += precision * row[i]
        mine, gram = curvature[f], grams[one, k]
        for i in range(left):
            mine[k + i] += sums[i] * gram[k + i]
    for f in range(len(curvature)):
        for i in range(k, len(weights)):
            curvature[f, i] *= weights[k] * weights[i]


@njit(cache=True, nogil=True, fastmath=True)
def _add_down(slope: Float32s, places: Integers, down: Float32s) -> None:  # pragma: no cover - compiled
    """Slopes of the cells of a block, from those of one component by the cells of its features."""
    down[:] = 0.0
    for f in range(len(places)):
        for c in range(len(down)):
            down[c] += slope[places[f, c]]


@njit(cache=True, nogil=True, fastmath=True)
def _follow(
    k: int, moved: Float32s, shares: Float32s, slope: Float32s, of: Curvature, curvature: Float32s
) -> None:  # pragma: no cover - compiled
    """Take over the moved shares of component k, and what this does to the slopes of those that come after it.

    What changes in the cells of the block is added up by the cells of its features first, as these are fewer.
    """
    changes = np.zeros(len(slope), np.float32)
    for c in range(len(moved)):
        change = moved[c] - shares[c, k]
        if change != 0.0:
            shares[c, k] = moved[c]
            for f in range(len(of.places)):
                changes[of.places[f, c]] += change
    for f in range(len(of.places)):
        mine = curvature[f]
        for i in range(of.begins[f], of.begins[f + 1]):
            if changes[i] != 0.0:
                row = slope[i]
                for j in range(k + 1, len(row)):
                    row[j] += changes[i] * mine[j]
