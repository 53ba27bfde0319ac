"""How far a mixture is from noisy counts, and in which direction the shares of a block get closer.

Targets that have all features but the last in common are looked at together, by products of matrices: most tables are too small
for a call of BLAS each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.base.arrays import Floats, Integers
from marginweave.configuration.values import MAX_CELLS
from marginweave.domain.masks import Mask, StructuralZeros
from marginweave.estimate.mixture.targets import F32, FeatureLayout, FeatureTarget, Float32s, expected_below
from marginweave.observations.tables import Observation

# Targets that have their lead, all features but the last, in common, and whose last features lie side by side.
Group = list[FeatureTarget]
Places = NDArray[np.int32]

# A record in a cell of a mask across blocks counts like so many sigmas of the least noisy count.
_FORBIDDEN = 30.0


class Objective:
    """1/2 sum v (n p - y)^2 over the cells of all targets: half of chi^2 of the counts, given the model.

    `expected` is what chi^2 is where the model is the truth, by how many features the targets have. Of cells whose counts are
    known to be below a cut it is the likelihood of that instead. `blocks` are the targets of each block.
    """

    def __init__(
        self, layout: FeatureLayout, measurements: Sequence[Observation], masks: Sequence[StructuralZeros], total: float
    ) -> None:
        self.total = F32(total)
        targets = [layout.measured(m, total) for m in measurements]
        measured = list(targets)
        sigma = min(m.deviation for m in measurements) / _FORBIDDEN
        tables = [
            mask for mask in masks if isinstance(mask, Mask) and math.prod(mask.sizes) <= MAX_CELLS
        ]  # beyond, records alone are kept out
        forbidden = [(mask.attributes, ~mask.table() * sigma**-2) for mask in tables]
        targets.extend(layout.target(attributes, np.zeros(w.shape), w, sigma=sigma) for attributes, w in forbidden)
        self.expected = np.zeros(1 + max(len(target.features) for target in targets))
        for target in measured:
            self.expected[len(target.features)] += target.expected
        self.blocks = [BlockTargets(layout, block, targets) for block in range(len(layout.blocks))]


class Curvature(NamedTuple):
    """What the curvature of the objective in a block's shares is made of.

    Of the features of the block, `places` has the row of each cell among the cells of all of them, shape (features, cells),
    `begins` the first row of each, and behind them the number of rows, and `spread` says how many cells share one at most.

    Of the features of other blocks in a target, all but the first are a row of `rest`, where the number of all features stands
    for none. Targets with the same feature of the block (its place in it) and the same first one are a group: these two, and
    from where to where its targets are, are a row of `groups`. Of each target `rests` has the row of `rest`, `precision` its v,
    or the largest of its cells; few of all combinations are targets where a column is counted at several levels.
    """

    places: Integers
    begins: Integers
    spread: Float32s
    rest: Integers
    groups: Integers
    rests: Integers
    precision: Float32s


class BlockTargets:
    """The targets of a block: its `features` in them, the `rows` of these among the factors, and the cells of the targets."""

    def __init__(self, layout: FeatureLayout, block: int, targets: Sequence[FeatureTarget]) -> None:
        owned = [(f, target) for target in targets for f in target.features if layout.features[f].block == block]
        self.features = sorted({f for f, _ in owned})
        mine = [layout.features[f] for f in self.features]
        self.rows = np.concatenate([np.arange(feature.columns.start, feature.columns.stop) for feature in mine])
        self.curvature = _curvature(layout, self.features, owned)
        self._cells = [
            TargetCells(layout, block, [target for _, target in owned if len(target.features) == features])
            for features in sorted({len(target.features) for _, target in owned})
        ]

    def slope(self, weights: Float32s, factors: Float32s, by_factors: Float32s, chi: Floats) -> Float32s:
        """Of L = chi^2 / 2 the derivatives by the factors of the block, shape (rows, components); of chi^2 its part to `chi`.

        A cell of features a, b, … is expected n p = n sum_k w_k f_ka f_kb …; let r = v (n p - y), v its weight. Then
        dL/df_ka = n w_k sum r f_kb …, the sum over the cells (docs/sources/estimation.md).

        Args:
            weights: n w, shape (components,).
            factors: f, a row for each cell of a feature, shape (width, components).
            by_factors: memory of the same shape, 0 before and after.
            chi: by the number of features, which is also how many blocks put a part of it down.
        """
        chi[:] = 0.0
        for cells in self._cells:
            chi[cells.features] = cells.add(weights, factors, by_factors) / cells.features
        slope: Float32s = by_factors[self.rows] * weights
        by_factors[self.rows] = 0.0
        return slope


def _curvature(layout: FeatureLayout, features: Sequence[int], owned: Sequence[tuple[int, FeatureTarget]]) -> Curvature:
    """Of a block by its features, and its targets, each with the feature that is the block's."""
    mine = [layout.features[f] for f in features]
    begins = np.cumsum([0, *(feature.width for feature in mine)])
    others = [[f for f in target.features if f != own] for own, target in owned]
    longest = max(2, *map(len, others))
    filled = np.array([[*some, *[len(layout.features)] * (longest - len(some))] for some in others], np.int64)
    rest, rests = np.unique(filled[:, 1:], axis=0, return_inverse=True)
    pairs = np.stack([[features.index(own) for own, _ in owned], filled[:, 0]], axis=1)
    order = np.lexsort((rests, pairs[:, 1], pairs[:, 0]))
    found, first = np.unique(pairs[order], axis=0, return_index=True)
    return Curvature(
        places=np.stack([begin + feature.places for begin, feature in zip(begins, mine, strict=False)]),
        begins=np.asarray(begins),
        spread=np.array([np.bincount(feature.places).max() for feature in mine], F32),
        rest=rest,
        groups=np.column_stack([found, first, [*first[1:], len(owned)]]),
        rests=rests[order],
        precision=np.array([owned[i][1].sigma ** -2 for i in order], F32),
    )


def _groups(layout: FeatureLayout, targets: Sequence[FeatureTarget]) -> list[Group]:
    """The targets, each in one group; several that say something of the same cells are in groups of their own."""
    groups: list[Group] = []
    end = -1
    for target in sorted(targets, key=lambda target: target.features):
        last = layout.features[target.features[-1]].columns
        if not groups or groups[-1][0].features[:-1] != target.features[:-1] or last.start != end:
            groups.append([])
        groups[-1].append(target)
        end = last.stop
    return groups


_UNSURPRISING = 5.0  # a count so many sigma below the cut is there with such certainty that it tells nothing


class TargetCells:
    """All cells of a block's targets of equally many features, flat.

    A group is a matrix with a row for each cell of the lead and a column for each of the last features.
    """

    def __init__(self, layout: FeatureLayout, block: int, targets: Sequence[FeatureTarget]) -> None:
        def flat(cells: Callable[[FeatureTarget], NDArray[Any]]) -> NDArray[Any]:
            matrices = [[cells(t).reshape(-1, t.counts.shape[-1]) for t in group] for group in groups]
            return np.concatenate([np.concatenate(matrix, axis=1).ravel() for matrix in matrices])

        groups = _groups(layout, targets)
        self.features = len(targets[0].features)
        self._counts, self._weight = flat(lambda t: t.counts), flat(lambda t: t.weight)
        self._hidden = np.flatnonzero(flat(lambda t: t.hidden))
        self._cut = flat(lambda t: np.full(t.counts.shape, t.cut))[self._hidden]
        self._sigma = flat(lambda t: np.full(t.counts.shape, t.sigma))[self._hidden]
        self._leads = np.concatenate([_lead(layout, group[0]) for group in groups])
        self._groups = np.array([_bounds(layout, block, group) for group in groups], np.int64)

    def add(self, weights: Float32s, factors: Float32s, by_factors: Float32s) -> float:
        """Add what they say, but for the factor n w of the components; their chi^2.

        `weights` are n w, shape (components,); `factors` and `by_factors` have shape (width, components).
        """
        predicted = _predict(weights, factors, self._leads, self._groups, len(self._counts))
        residuals = predicted - self._counts
        slope = residuals * self._weight
        chi = float((slope * residuals).sum(dtype=np.float64))
        if len(self._hidden):
            chi += self._add_hidden(predicted, slope)
        _back(slope, factors, self._leads, self._groups, by_factors)
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


def _bounds(layout: FeatureLayout, block: int, group: Group) -> tuple[int, int, int, int]:
    """Rows of the matrix, the columns of the last features, and which feature is the block's."""
    first, last = (layout.features[target.features[-1]].columns for target in (group[0], group[-1]))
    own = next(i for i, f in enumerate(group[0].features) if layout.features[f].block == block)
    return math.prod(group[0].counts.shape[:-1]), first.start, last.stop, own


_ROWS = 128  # of a matrix at once: what is made of them stays in the processor's cache


@njit(cache=True, nogil=True, fastmath=True)
def _multiply(
    factors: Float32s, leads: Places, left_out: int, products: Float32s
) -> None:  # pragma: no cover - compiled
    """Multiply products[i] by factors[leads[i, j]] of each j but the one that is left out."""
    for i in range(len(products)):
        product = products[i]
        for j in range(leads.shape[1]):
            if j != left_out:
                factor = factors[leads[i, j]]
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
    for rows, start, stop, _ in groups:
        last, end = factors[start:stop], row + rows
        while row < end:
            some = products[: min(_ROWS, end - row)]
            some[:] = weights
            _multiply(factors, leads[row : row + len(some)], -1, some)
            size = len(some) * len(last)
            np.dot(some, last.T, found[cell : cell + size].reshape(len(some), len(last)))
            row, cell = row + len(some), cell + size
    return found


@njit(cache=True, nogil=True, fastmath=True)
def _back(
    slope: Float32s, factors: Float32s, leads: Places, groups: Integers, by_factors: Float32s
) -> None:  # pragma: no cover - compiled
    """Add the derivatives of sum_i slope[i] times what `_predict` finds without weights, by the factors of one feature.

    Of a matrix S of slopes, with the products A of the leads and the last factors F: S'A by F, and S F by A; of that a factor
    of the lead gets its product with the others.
    """
    products = np.empty((_ROWS, factors.shape[1]), np.float32)
    row = cell = 0
    for rows, start, stop, own in groups:
        last, end = factors[start:stop], row + rows
        by_last = np.empty(last.shape, np.float32)
        while row < end:
            some = products[: min(_ROWS, end - row)]
            lead = leads[row : row + len(some)]
            size = len(some) * len(last)
            slopes = slope[cell : cell + size].reshape(len(some), len(last))
            if own == leads.shape[1]:
                some[:] = 1.0
                _multiply(factors, lead, -1, some)
                np.dot(slopes.T, some, by_last)
                for i in range(len(last)):
                    by_factors[start + i] += by_last[i]
            else:
                np.dot(slopes, last, some)
                _multiply(factors, lead, own, some)
                for i in range(len(some)):
                    by_factors[lead[i, own]] += some[i]
            row, cell = row + len(some), cell + size
