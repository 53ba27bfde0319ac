"""How far a mixture is from noisy counts, and in which direction it gets closer.

Targets that have all features but the last in common are looked at together, by products of matrices: most tables are too small
for a call of BLAS each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.schemas.arrays import Floats, Integers
from marginweave.schemas.released.measurements import Mask, Measurement
from marginweave.tasks.estimate.mixture.targets import F32, FeatureLayout, FeatureTarget, Float32s, expected_below

Group = list[FeatureTarget]  # that have their lead, all features but the last, in common, and whose last lie side by side
Places = NDArray[np.int32]

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
        self.total = F32(total)
        targets = [layout.measured(m, total) for m in measurements]
        self.expected = np.zeros(1 + max(len(target.features) for target in targets))
        for target in targets:
            self.expected[len(target.features)] += target.expected
        precision = max(m.deviation**-2 for m in measurements)
        for mask in masks:
            forbidden = ~mask.allowed * (_FORBIDDEN**2 * precision)
            targets.append(layout.target(mask.attributes, np.zeros(mask.allowed.shape), forbidden))
        groups = _groups(layout, targets)
        self._always = _cells(layout, [group for group in groups if len(group[0].features) == 1])
        parts = _in_parts([group for group in groups if len(group[0].features) > 1], components)
        self._parts = [_cells(layout, part) for part in parts]
        self._seen = np.tile(np.where(self.expected > 0, math.inf, 0.0), (len(parts), 1))  # not seen yet
        self._turn = 0

    def gradient(self, factors: Float32s, weights: Float32s) -> tuple[Floats, Float32s, Float32s]:
        """chi^2 by the number of features of its targets, and the derivatives of L = chi^2 / 2 by shares and weights.

        A cell of features a, b, … is expected n p = n sum_k w_k f_ka f_kb …; let r = v (n p - y), v its weight. Then
        dL/dw_k = n sum r f_ka f_kb …, and dL/df_ka = n w_k sum r f_kb …, the sums over the cells (docs/sources/estimation.md).
        Of several features a part of the targets stands for all, each in its turn, and chi^2 is as it was last seen.

        Args:
            factors: f, a row for each cell of a feature, shape (width, components).
            weights: w, shape (components,).
        """
        by_factors, by_weights = np.zeros_like(factors), np.zeros_like(weights)
        turn, self._turn = self._turn, (self._turn + 1) % len(self._parts)
        scale, found = F32(len(self._parts)), np.zeros_like(self.expected)
        for cells in self._parts[turn]:
            found[cells.features] = cells.add(scale, self.total * weights, factors, by_factors, by_weights)
        self._seen[turn] = found
        chi = np.asarray(self._seen.sum(axis=0))
        for cells in self._always:
            chi[cells.features] = cells.add(F32(1), self.total * weights, factors, by_factors, by_weights)
        by_factors *= self.total * weights
        by_weights *= self.total
        return chi, by_factors, by_weights


def _groups(layout: FeatureLayout, targets: Sequence[FeatureTarget]) -> list[Group]:
    """The targets, each in one group; several that say something of the same cells are in groups of their own."""
    groups: list[Group] = []
    end = -1
    for target in sorted(targets, key=lambda target: (len(target.features), target.features)):
        last = layout.features[target.features[-1]].columns
        if not groups or groups[-1][0].features[:-1] != target.features[:-1] or last.start != end:
            groups.append([])
        groups[-1].append(target)
        end = last.stop
    return groups


def _in_parts(groups: Sequence[Group], components: int) -> list[list[Group]]:
    """The groups in parts of about the same work, every so many in turn; a single part where that is little."""
    sizes = [sum(target.counts.size for target in group) for group in groups]
    parts = max(1, min(len(groups), -(-sum(sizes) * components // _WORK)))
    largest_first = [groups[i] for i in np.argsort(sizes, kind="stable")[::-1]]
    return [largest_first[part::parts] for part in range(parts)]


def _cells(layout: FeatureLayout, groups: Sequence[Group]) -> list[TargetCells]:
    """Targets of as many features together."""
    numbers = sorted({len(group[0].features) for group in groups})
    return [TargetCells(layout, [group for group in groups if len(group[0].features) == number]) for number in numbers]


_UNSURPRISING = 5.0  # a count so many sigma below the cut is there with such certainty that it tells nothing


class TargetCells:
    """All cells of groups of equally many features: a matrix each, with a row for a cell of the lead, flat and one after another."""

    def __init__(self, layout: FeatureLayout, groups: Sequence[Group]) -> None:
        def flat(cells: Callable[[FeatureTarget], NDArray[Any]]) -> NDArray[Any]:
            matrices = [[cells(t).reshape(-1, t.counts.shape[-1]) for t in group] for group in groups]
            return np.concatenate([np.concatenate(matrix, axis=1).ravel() for matrix in matrices])

        self.features = len(groups[0][0].features)
        self._counts, self._weight = flat(lambda t: t.counts), flat(lambda t: t.weight)
        self._hidden = np.flatnonzero(flat(lambda t: t.hidden))
        self._cut = flat(lambda t: np.full(t.counts.shape, t.cut))[self._hidden]
        self._sigma = flat(lambda t: np.full(t.counts.shape, t.sigma))[self._hidden]
        self._leads = np.concatenate([_lead(layout, group[0]) for group in groups])
        ends = [[layout.features[t.features[-1]].columns for t in (group[0], group[-1])] for group in groups]
        rows = [math.prod(group[0].counts.shape[:-1]) for group in groups]
        self._groups = np.array([(n, a.start, b.stop) for n, (a, b) in zip(rows, ends, strict=True)], np.int64)

    def add(
        self, scale: np.float32, weights: Float32s, factors: Float32s, by_factors: Float32s, by_weights: Float32s
    ) -> float:
        """Add `scale` times what they say, but for the factor n w of the components; their chi^2.

        `weights` are n w, shape (components,); `factors` and `by_factors` have shape (width, components).
        """
        predicted = _predict(weights, factors, self._leads, self._groups, len(self._counts))
        residuals = predicted - self._counts
        slope = residuals * self._weight
        chi = float((slope * residuals).sum(dtype=np.float64))
        if len(self._hidden):
            chi += self._add_hidden(predicted, slope)
        _back(slope * scale, factors, self._leads, self._groups, by_factors, by_weights)
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


def _lead(layout: FeatureLayout, target: FeatureTarget) -> Places:
    """Rows of the factors of each cell of all features but the last, shape (cells, features - 1)."""
    shape = target.counts.shape[:-1]
    starts = np.array([layout.features[f].columns.start for f in target.features[:-1]], np.int32)
    inside = np.indices(shape, np.int32).reshape(len(shape), math.prod(shape))
    return np.ascontiguousarray((inside + starts[:, None]).T)


_ROWS = 128  # of a matrix at once: what is made of them stays in the processor's cache


@njit(cache=True, nogil=True, fastmath=True)
def _multiply(factors: Float32s, leads: Places, first: int, products: Float32s) -> None:  # pragma: no cover - compiled
    """Multiply products[i] by factors[leads[first + i, j]] of each j."""
    for i in range(len(products)):
        product = products[i]
        for j in range(leads.shape[1]):
            factor = factors[leads[first + i, j]]
            for k in range(len(product)):
                product[k] *= factor[k]


@njit(cache=True, nogil=True, fastmath=True)
def _predict(
    weights: Float32s, factors: Float32s, leads: Places, groups: Integers, cells: int
) -> Float32s:  # pragma: no cover - compiled
    """sum_k weights[k] factors[last, k] prod_j factors[leads[i, j], k] for each row i and each last row of every group."""
    products = np.empty((_ROWS, len(weights)), np.float32)
    found = np.empty(cells, np.float32)
    row = cell = 0
    for rows, start, stop in groups:
        last, end = factors[start:stop], row + rows
        while row < end:
            some = products[: min(_ROWS, end - row)]
            some[:] = weights
            _multiply(factors, leads, row, some)
            size = len(some) * len(last)
            np.dot(some, last.T, found[cell : cell + size].reshape(len(some), len(last)))
            row, cell = row + len(some), cell + size
    return found


@njit(cache=True, nogil=True, fastmath=True)
def _back(
    slope: Float32s, factors: Float32s, leads: Places, groups: Integers, by_factors: Float32s, by_weights: Float32s
) -> None:  # pragma: no cover - compiled
    """Add the derivatives by the factors of sum_i slope[i] times what `_predict` finds without weights, and by the weights.

    Of a matrix S of slopes, with the products A of the leads and the last factors F: S'A by F, and S F by A; of that each
    factor of the lead gets its product with the others, and the weights the one with A.
    """
    components = factors.shape[1]
    products, sums = np.empty((_ROWS, components), np.float32), np.empty((_ROWS, components), np.float32)
    row = cell = 0
    for rows, start, stop in groups:
        last, end = factors[start:stop], row + rows
        by_last = np.empty(last.shape, np.float32)
        while row < end:
            some, by_lead = products[: min(_ROWS, end - row)], sums[: min(_ROWS, end - row)]
            some[:] = 1.0
            _multiply(factors, leads, row, some)
            size = len(some) * len(last)
            slopes = slope[cell : cell + size].reshape(len(some), len(last))
            np.dot(slopes.T, some, by_last)
            np.dot(slopes, last, by_lead)
            _share_out(factors, leads, row, by_lead, by_factors)
            for i in range(len(last)):
                to, mine = by_factors[start + i], by_last[i]
                for k in range(components):
                    to[k] += mine[k]
            for i in range(len(some)):
                mine, product = by_lead[i], some[i]
                for k in range(components):
                    by_weights[k] += mine[k] * product[k]
            row, cell = row + len(some), cell + size


@njit(cache=True, nogil=True, fastmath=True)
def _share_out(
    factors: Float32s, leads: Places, first: int, by_lead: Float32s, by_factors: Float32s
) -> None:  # pragma: no cover - compiled
    """Add to each factor of the leads from row `first` on what comes to their product, times the other factors."""
    mine = np.empty(by_lead.shape[1], np.float32)
    for i in range(len(by_lead)):
        for j in range(leads.shape[1]):
            mine[:] = by_lead[i]
            for other in range(leads.shape[1]):
                if other != j:
                    factor = factors[leads[first + i, other]]
                    for k in range(len(mine)):
                        mine[k] *= factor[k]
            to = by_factors[leads[first + i, j]]
            for k in range(len(mine)):
                to[k] += mine[k]
