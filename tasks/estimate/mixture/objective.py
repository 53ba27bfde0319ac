"""How far a mixture is from noisy counts, and in which direction it gets closer.

Targets of one and of two features are looked at all at once, as matrices; the others cell by cell in two compiled passes: most
tables are too small for a call of BLAS each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.schemas.arrays import Floats
from marginweave.schemas.released.measurements import Mask, Measurement
from marginweave.tasks.estimate.mixture.model import shared_factors
from marginweave.tasks.estimate.mixture.targets import F32, FeatureLayout, FeatureTarget, Float32s, expected_below

Places = NDArray[np.int32]

# Up to how many values of all attributes together pairs are looked at in one matrix of all with all: 256 MB each.
_DENSE = 1 << 13
# Least share of the cells of such a matrix that are measured; where fewer are, each pair by itself is faster.
_RARE = 0.2
# Up to how many products a step looks at all targets of several features; beyond, at parts of them in turn.
_WORK = 3 * 10**7
# A record in a cell of a mask across blocks counts like so many sigmas of the least noisy count.
_FORBIDDEN = 30.0


class Objective:
    """1/2 sum w (n p - y)^2 over the cells of all targets: half of chi^2 of the counts, given the model.

    `expected` is what chi^2 is where the model is the truth, by how many features the targets have. Of cells whose counts are
    known to be below a cut it is the likelihood of that instead.
    """

    def __init__(
        self,
        layout: FeatureLayout,
        measurements: Sequence[Measurement],
        masks: Sequence[Mask],
        total: float,
        components: int,
    ) -> None:
        self.layout, self.total = layout, F32(total)
        targets = [layout.measured(m, total) for m in measurements]
        self.expected = np.zeros(1 + max(2, *(len(target.features) for target in targets)))
        for target in targets:
            self.expected[len(target.features)] += target.expected
        precision = max(m.deviation**-2 for m in measurements)
        for mask in masks:
            forbidden = ~mask.allowed * (_FORBIDDEN**2 * precision)
            targets.append(layout.target(mask.attributes, np.zeros(mask.allowed.shape), forbidden))
        plain = [t for t in targets if t.hidden is None]
        pairs = [t for t in plain if len(t.features) == 2]
        dense = layout.width <= _DENSE and sum(2 * t.counts.size for t in pairs) >= _RARE * layout.width**2
        self._one = _Merged(layout, [t for t in plain if len(t.features) == 1], 1)
        self._two = _Merged(layout, pairs, 2) if dense and pairs else None
        side = {1, 2} if dense else {1}
        parts = _in_parts([t for t in targets if t.hidden is not None or len(t.features) not in side], components)
        self._parts = [list(_cells(layout, part)) for part in parts]
        self._seen = np.tile(np.where(self.expected > 0, math.inf, 0.0), (len(self._parts), 1))  # not seen yet
        self._turn = 0

    def gradient(self, columns: Float32s, weights: Float32s) -> tuple[Floats, Float32s, Float32s]:
        """chi^2 by the number of features of its targets, and the derivatives of L = chi^2 / 2 by shares and weights.

        A cell of features a, b, … is expected n p = n sum_k w_k f_ka f_kb …; let r = v (n p - y), v its weight. Then
        dL/dw_k = n sum r f_ka f_kb …, and dL/df_ka = n w_k sum r f_kb …, the sums over the cells (docs/sources/estimation.md).
        All pairs at once: with the columns F, shape (components, width), and R = V (n F'WF - Y), which has each pair twice,
        dL/dF = n W F R and dL/dw = n/2 diag(F R F').
        """
        n, chi = self.total, np.zeros_like(self.expected)
        chi[1], slope = self._one.residuals(n * (weights @ columns))
        by_columns = np.repeat(slope[None, :], len(columns), axis=0)
        by_weights = columns @ slope
        if self._two is not None:
            predicted: Float32s = np.multiply((columns * weights[:, None]).T @ columns, n)
            chi[2], residuals = self._two.residuals(predicted)
            back = columns @ residuals
            by_columns += back
            # every pair stands in the matrix twice
            by_weights += F32(0.5) * (columns * back).sum(axis=1)
        chi += self._more(columns, weights, by_columns, by_weights)
        by_columns *= n * weights[:, None]
        by_weights *= n
        return chi, by_columns, by_weights

    def _more(self, columns: Float32s, weights: Float32s, by_columns: Float32s, by_weights: Float32s) -> Floats:
        """Add what the next part of the other targets says, for all of them; their chi^2 as it was last seen."""
        if not self._parts:
            return np.zeros_like(self.expected)
        turn, self._turn = self._turn, (self._turn + 1) % len(self._parts)
        scale = F32(len(self._parts))
        found = np.zeros_like(self.expected)
        across = np.ascontiguousarray(columns.T)
        by_across = np.zeros_like(across)
        for cells in self._parts[turn]:
            found[cells.features] += cells.add(scale, self.total * weights, across, by_across, by_weights)
        by_columns += by_across.T
        self._seen[turn] = found
        return np.asarray(self._seen.sum(axis=0))


def _cells(layout: FeatureLayout, targets: Sequence[FeatureTarget]) -> Iterator[TargetCells]:
    """Targets of as many features together."""
    for features in sorted({len(target.features) for target in targets}):
        yield TargetCells(layout, [target for target in targets if len(target.features) == features])


def _in_parts(targets: Sequence[FeatureTarget], components: int) -> list[list[FeatureTarget]]:
    """The targets in parts of about the same work, every so many in turn; a single part where that is little."""
    work = sum(target.counts.size for target in targets) * components
    parts = min(len(targets), -(-work // _WORK))
    largest_first = sorted(targets, key=lambda target: -target.counts.size)
    return [largest_first[part::parts] for part in range(parts)]


class _Merged:
    """All targets of one feature side by side, or of two in a symmetric matrix of all columns with all columns.

    Several that say something of a cell are merged by their weights; `_rest` is the chi^2 among them.
    """

    def __init__(self, layout: FeatureLayout, targets: Sequence[FeatureTarget], features: int) -> None:
        shape = (layout.width,) * features
        weight, counts, squares = np.zeros(shape), np.zeros(shape), 0.0
        for target in targets:
            place = tuple(layout.features[f].columns for f in target.features)
            weight[place] += target.weight
            counts[place] += target.weight * target.counts
            squares += float((target.weight * target.counts.astype(np.float64) ** 2).sum())
        mean = np.divide(counts, weight, out=np.zeros(shape), where=weight > 0)
        self._rest = max(squares - float((weight * mean**2).sum()), 0.0)
        self._weight, self._counts, self._times = weight.astype(F32), mean.astype(F32), 1.0
        if features == 2:  # every pair stands in the matrix twice
            self._weight, self._counts, self._times = self._weight + self._weight.T, self._counts + self._counts.T, 2.0

    def residuals(self, predicted: Float32s) -> tuple[float, Float32s]:
        """chi^2 and w (predicted - y), which takes the memory of `predicted`."""
        predicted -= self._counts
        slope = np.asarray(predicted * self._weight, F32)
        return float(np.vdot(predicted, slope)) / self._times + self._rest, slope


_UNSURPRISING = 5.0  # a count so many sigma below the cut is there with such certainty that it tells nothing


class TargetCells:
    """All cells of targets of equally many features, target after target, each in C order."""

    def __init__(self, layout: FeatureLayout, targets: Sequence[FeatureTarget]) -> None:
        self.features = len(targets[0].features)
        self._places = np.concatenate([_places(layout, target) for target in targets])
        self._counts = np.concatenate([target.counts.ravel() for target in targets])
        self._weight = np.concatenate([target.weight.ravel() for target in targets])
        starts = np.cumsum([0, *(target.counts.size for target in targets[:-1])])
        none = np.zeros(0, np.int64)
        hidden = [start + (none if t.hidden is None else t.hidden) for start, t in zip(starts, targets, strict=True)]
        numbers = [len(mine) for mine in hidden]
        self._hidden = np.concatenate(hidden)
        self._cut = np.repeat([target.cut for target in targets], numbers)
        self._sigma = np.repeat([target.sigma for target in targets], numbers)

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

        For Y ~ N(m, sigma^2): m - E[Y | Y < cut], the slope of -sigma^2 log P(Y < cut), which vanishes below the cut.
        """
        means = predicted[self._hidden].astype(np.float64)
        near = np.flatnonzero(means > self._cut - _UNSURPRISING * self._sigma)
        sigma = self._sigma[near]
        surplus = means[near] - expected_below(means[near], sigma, self._cut[near])
        more = surplus / sigma**2
        slope[self._hidden[near]] += more.astype(F32)
        return float(more @ surplus)


def _places(layout: FeatureLayout, target: FeatureTarget) -> Places:
    starts = np.array([layout.features[f].columns.start for f in target.features], np.int32)
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
