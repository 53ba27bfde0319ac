"""Objective of a fit: the distance of a mixture from noisy counts, and its derivatives by the shares of a block.

Targets that have all features but the last in common are computed together, by products of matrices: most tables are too small
for a call of BLAS each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Floats, Integers
from marginweave.base.compiled import fast_kernel
from marginweave.configuration.values import MAX_CELLS
from marginweave.domain.masks import Mask, StructuralZeros
from marginweave.estimate.mixture.targets import (
    F32,
    FeatureLayout,
    FeatureTarget,
    Float32s,
    expected_below,
)
from marginweave.observations.tables import Observation

# Targets that have their lead, all features but the last, in common, and whose last features have consecutive columns.
Group = list[FeatureTarget]
Places = NDArray[np.int32]

GROUPED = 4  # targets that the curvature of a block adds up at once

# A record in a cell of a mask across blocks counts like this many sigmas of the least noisy count.
_FORBIDDEN = 30.0


class Objective:
    """The sum 1/2 sum v (n p - y)^2 over the cells of all targets: half of chi^2 of the counts, given the model.

    `expected` is the value of chi^2 where the model is the truth, by the number of features of the targets. For cells whose
    counts are known to be below a cut, chi^2 is replaced by their likelihood. `blocks` are the targets of each block.
    """

    def __init__(
        self,
        layout: FeatureLayout,
        measurements: Sequence[Observation],
        masks: Sequence[StructuralZeros],
        total: float,
    ) -> None:
        self.total = F32(total)
        measured = [layout.measured(m, total) for m in measurements]
        targets = list(measured)
        sigma = min(m.deviation for m in measurements) / _FORBIDDEN
        for mask in masks:
            # larger masks apply to records only
            if isinstance(mask, Mask) and math.prod(mask.sizes) <= MAX_CELLS:
                weight = ~mask.table() * sigma**-2
                counts = np.zeros(weight.shape)
                targets.append(layout.target(mask.attributes, counts, weight, sigma=sigma))
        most_features = max(len(target.features) for target in targets)
        self.expected = np.zeros(1 + most_features)
        for target in measured:
            self.expected[len(target.features)] += target.expected
        blocks = range(len(layout.blocks))
        self.blocks = [BlockTargets(layout, block, targets) for block in blocks]


class Curvature(NamedTuple):
    """The parts of the curvature of the objective in a block's shares.

    Of the features of the block, `places` has the row of each cell among the cells of all of them, shape (features, cells).
    `begins` has the first row of each, and at its end the number of rows. `spread` is the largest number of cells that share a
    row.

    Of the features of other blocks in a target, all but the first are its tail: a row of `tails`, padded with the number of
    all features. Targets with the same feature of the block (its place in it) and the same first other feature are a group.
    These two features, and the range of the targets, are a row of `groups`. Of each target `tail_rows` has the row of
    `tails`, and `precision` its v, or the largest of its cells. A group is filled up to a multiple of `GROUPED` with its first
    target at a precision of 0. Few of all combinations are targets where a column is counted in several coarser ways.
    """

    places: Integers
    begins: Integers
    spread: Float32s
    tails: Integers
    groups: Integers
    tail_rows: Integers
    precision: Float32s


class BlockTargets:
    """The targets of a block: its `features` in them, the `rows` of these among the factors, and the cells of the targets."""

    def __init__(
        self,
        layout: FeatureLayout,
        block: int,
        targets: Sequence[FeatureTarget],
    ) -> None:
        # each target of the block, with the feature that is the block's
        owned: list[tuple[int, FeatureTarget]] = []
        for target in targets:
            block_features = [f for f in target.features if layout.features[f].block == block]
            owned += [(f, target) for f in block_features]
        self.features = sorted({f for f, _ in owned})
        columns = [layout.features[f].columns for f in self.features]
        rows = [np.arange(c.start, c.stop) for c in columns]
        self.rows = np.concatenate(rows)
        self.curvature = _curvature(layout, self.features, owned)
        targets_by_length: dict[int, list[FeatureTarget]] = {}
        for _, target in owned:
            targets_by_length.setdefault(len(target.features), []).append(target)
        self._cells = []
        for length in sorted(targets_by_length):
            self._cells.append(TargetCells(layout, block, targets_by_length[length]))

    def slope(
        self,
        weights: Float32s,
        factors: Float32s,
        by_factors: Float32s,
        chi: Floats,
    ) -> Float32s:
        """Return the derivatives of L = chi^2 / 2 by the factors of the block, shape (rows, components).

        The block's part of chi^2 is written to `chi`.

        A cell of features a, b, … is expected n p = n sum_k w_k f_ka f_kb …; let r = v (n p - y), v its weight. Then
        dL/df_ka = n w_k sum r f_kb …, the sum over the cells (docs/sources/estimation.md).

        Args:
            weights: n w, shape (components,).
            factors: f, a row for each cell of a feature, shape (width, components).
            by_factors: memory of the same shape, 0 before and after.
            chi: by the number of features, which is also the number of blocks that each write a part of it.
        """
        chi[:] = 0.0
        for cells in self._cells:
            chi[cells.features] = cells.add(weights, factors, by_factors) / cells.features
        slope: Float32s = by_factors[self.rows] * weights
        by_factors[self.rows] = 0.0
        return slope


def _curvature(
    layout: FeatureLayout,
    features: Sequence[int],
    owned: Sequence[tuple[int, FeatureTarget]],
) -> Curvature:
    """Return the curvature of a block by its features and its targets, each with the feature that is the block's."""
    block_features = [layout.features[f] for f in features]
    begins = np.cumsum([0, *(feature.width for feature in block_features)])
    other_features = []
    for block_feature, target in owned:
        other_features.append([f for f in target.features if f != block_feature])
    padded = _padded(other_features, len(layout.features))
    tails, tail_rows = np.unique(padded[:, 1:], axis=0, return_inverse=True)
    block_places = [features.index(f) for f, _ in owned]
    pairs = np.stack([block_places, padded[:, 0]], axis=1)
    order = np.lexsort((tail_rows, pairs[:, 1], pairs[:, 0]))
    distinct_pairs, first = np.unique(pairs[order], axis=0, return_index=True)
    members: list[int] = []  # of all groups, each filled up
    precision: list[float] = []
    ends = [0]
    for group in np.split(order, first[1:]):
        missing = -len(group) % GROUPED
        members += [*group, *[group[0]] * missing]
        precision += [owned[i][1].sigma ** -2 for i in group] + [0.0] * missing
        ends.append(len(members))
    places = []
    spread = []
    for begin, feature in zip(begins, block_features, strict=False):
        places.append(begin + feature.places)
        spread.append(np.bincount(feature.places).max())
    return Curvature(
        places=np.stack(places),
        begins=np.asarray(begins),
        spread=np.array(spread, F32),
        tails=tails,
        groups=np.column_stack([distinct_pairs, ends[:-1], ends[1:]]),
        tail_rows=tail_rows[members],
        precision=np.array(precision, F32),
    )


def _padded(lists: Sequence[Sequence[int]], filler: int) -> Integers:
    """Return lists as rows of one array of at least two columns, filled up with `filler`."""
    longest = max(2, *map(len, lists))
    rows = []
    for numbers in lists:
        padding = [filler] * (longest - len(numbers))
        rows.append([*numbers, *padding])
    return np.array(rows, np.int64)


def _groups(layout: FeatureLayout, targets: Sequence[FeatureTarget]) -> list[Group]:
    """Return the targets in groups; several that say something of the same cells are in separate groups."""
    groups: list[Group] = []
    end = -1
    for target in sorted(targets, key=lambda target: target.features):
        lead = target.features[:-1]
        last = target.features[-1]
        columns = layout.features[last].columns
        if not groups or _lead_of(groups[-1]) != lead or columns.start != end:
            groups.append([])
        groups[-1].append(target)
        end = columns.stop
    return groups


def _lead_of(group: Group) -> tuple[int, ...]:
    """Return the features that the targets of a group have in common."""
    return group[0].features[:-1]


# expected counts this many sigma below the cut are left out: it is certain that they are hidden
_UNSURPRISING = 5.0


class TargetCells:
    """All cells of a block's targets of equally many features, flat.

    A group is a matrix with a row for each cell of the lead and a column for each of the last features.
    """

    def __init__(
        self,
        layout: FeatureLayout,
        block: int,
        targets: Sequence[FeatureTarget],
    ) -> None:
        groups = _groups(layout, targets)

        def flat(cells: Callable[[FeatureTarget], NDArray[Any]]) -> NDArray[Any]:
            matrices = []
            for group in groups:
                parts = []
                for target in group:
                    columns = target.counts.shape[-1]
                    parts.append(cells(target).reshape(-1, columns))
                matrices.append(np.concatenate(parts, axis=1).ravel())
            return np.concatenate(matrices)

        def of_hidden(value: Callable[[FeatureTarget], float]) -> Floats:
            all_cells: Floats = flat(lambda t: np.full(t.counts.shape, value(t)))
            return all_cells[self._hidden]

        self.features = len(targets[0].features)
        self._counts = flat(lambda t: t.counts)
        self._weight = flat(lambda t: t.weight)
        self._hidden = np.flatnonzero(flat(lambda t: t.hidden))
        self._cut = of_hidden(lambda t: t.cut)
        self._sigma = of_hidden(lambda t: t.sigma)
        leads = [_lead_rows(layout, group) for group in groups]
        self._leads = np.concatenate(leads)
        bounds = [_bounds(layout, block, group) for group in groups]
        self._groups = np.array(bounds, np.int64)

    def add(
        self,
        weights: Float32s,
        factors: Float32s,
        by_factors: Float32s,
    ) -> float:
        """Add the derivatives of the cells to `by_factors`, without the factor n w of the components; return their chi^2.

        `weights` are n w, shape (components,); `factors` and `by_factors` have shape (width, components).
        """
        predicted = _predict(
            weights,
            factors,
            self._leads,
            self._groups,
            len(self._counts),
        )
        residuals = predicted - self._counts
        slope = residuals * self._weight
        chi = float((slope * residuals).sum(dtype=np.float64))
        if len(self._hidden):
            chi += self._add_hidden(predicted, slope)
        _back(slope, factors, self._leads, self._groups, by_factors)
        return chi

    def _add_hidden(self, predicted: Float32s, slope: Float32s) -> float:
        """Add to the slope the surplus of the model where a hidden count is surprisingly small; return its chi^2.

        For Y ~ N(m, sigma^2): m - E[Y | Y < cut], the slope of -sigma^2 log P(Y < cut), which vanishes below the cut.
        """
        means = predicted[self._hidden].astype(np.float64)
        near = np.flatnonzero(means > self._cut - _UNSURPRISING * self._sigma)
        means = means[near]
        sigma = self._sigma[near]
        surplus = means - expected_below(means, sigma, self._cut[near])
        derivatives = surplus / sigma**2
        slope[self._hidden[near]] += derivatives.astype(F32)
        return float(derivatives @ surplus)


def _lead_rows(layout: FeatureLayout, group: Group) -> Places:
    """Return rows of the factors of each cell of all features but the last, shape (cells, features - 1)."""
    shape = group[0].counts.shape[:-1]
    lead_columns = [layout.features[f].columns for f in _lead_of(group)]
    starts = np.array([columns.start for columns in lead_columns], np.int32)
    indices = np.indices(shape, np.int32)
    inside = indices.reshape(len(shape), math.prod(shape))
    rows = inside + starts[:, None]
    return np.ascontiguousarray(rows.T)


def _bounds(
    layout: FeatureLayout,
    block: int,
    group: Group,
) -> tuple[int, int, int, int]:
    """Return the rows of the matrix, the first and last column of the last features, and which feature is the block's."""
    features = group[0].features
    rows = math.prod(group[0].counts.shape[:-1])
    start = layout.features[features[-1]].columns.start
    last_features = group[-1].features
    stop = layout.features[last_features[-1]].columns.stop
    blocks = [layout.features[f].block for f in features]
    return rows, start, stop, blocks.index(block)


_ROWS = 128  # of a matrix at once: results of these rows fit into the processor's cache


@fast_kernel
def _multiply(
    factors: Float32s,
    leads: Places,
    left_out: int,
    products: Float32s,
) -> None:  # pragma: no cover - compiled
    """Multiply products[i] by factors[leads[i, j]] of each j except `left_out`; of all where that is their number."""
    for i in range(len(products)):
        product = products[i]
        for j in range(leads.shape[1]):
            if j != left_out:
                factor = factors[leads[i, j]]
                for k in range(len(product)):
                    product[k] *= factor[k]


@fast_kernel
def _predict(
    weights: Float32s,
    factors: Float32s,
    leads: Places,
    groups: Integers,
    cells: int,
) -> Float32s:  # pragma: no cover - compiled
    """Return sum_k weights[k] factors[last, k] prod_j factors[leads[i, j], k] for each row i and last row of every group."""
    products = np.empty((_ROWS, len(weights)), np.float32)
    predicted = np.empty(cells, np.float32)
    row = 0
    cell = 0
    for rows, start, stop, _ in groups:
        last = factors[start:stop]
        end = row + rows
        while row < end:
            part = products[: min(_ROWS, end - row)]
            for product in part:  # a loop is compiled in no time, an assignment of an array is not
                for k in range(len(weights)):
                    product[k] = weights[k]
            _multiply(factors, leads[row : row + len(part)], leads.shape[1], part)
            size = len(part) * len(last)
            np.dot(
                part,
                last.T,
                predicted[cell : cell + size].reshape(len(part), len(last)),
            )
            row += len(part)
            cell += size
    return predicted


@fast_kernel
def _back(
    slope: Float32s,
    factors: Float32s,
    leads: Places,
    groups: Integers,
    by_factors: Float32s,
) -> None:  # pragma: no cover - compiled
    """Add the derivatives of sum_i slope[i] times what `_predict` finds without weights, by the factors of one feature.

    Of a matrix S of slopes, with the products A of the leads and the last factors F, the derivatives are S'A by F, and S F
    by A. A factor of the lead gets S F times the other factors of the lead.
    """
    products = np.empty((_ROWS, factors.shape[1]), np.float32)
    row = 0
    cell = 0
    for rows, start, stop, block_feature in groups:
        last = factors[start:stop]
        end = row + rows
        by_last = np.empty(last.shape, np.float32)
        while row < end:
            part = products[: min(_ROWS, end - row)]
            lead = leads[row : row + len(part)]
            size = len(part) * len(last)
            slopes = slope[cell : cell + size].reshape(len(part), len(last))
            if block_feature == leads.shape[1]:
                part[:] = 1.0
                _multiply(factors, lead, leads.shape[1], part)
                np.dot(slopes.T, part, by_last)
                for i in range(len(last)):
                    by_factor = by_factors[start + i]
                    added = by_last[i]
                    for k in range(len(added)):
                        by_factor[k] += added[k]
            else:
                np.dot(slopes, last, part)
                _multiply(factors, lead, block_feature, part)
                for i in range(len(part)):
                    by_factor = by_factors[lead[i, block_feature]]
                    added = part[i]
                    for k in range(len(added)):
                        by_factor[k] += added[k]
            row += len(part)
            cell += size
