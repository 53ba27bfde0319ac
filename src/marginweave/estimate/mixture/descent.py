"""Descent of a mixture to noisy counts: the shares of each block, component by component, move to their best values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.base.compiled import fast_kernel, kernel
from marginweave.estimate.mixture.model import is_identity
from marginweave.estimate.mixture.objective import GROUPED, Curvature, Objective
from marginweave.estimate.mixture.targets import F32, FeatureLayout, Float32s
from marginweave.estimate.rounding import to_simplex

# How much shorter than the best step the step of a component is in the first pass, a third of it in the third: a shorter step
# follows the noise less (3 in place of 6: three-way TVD 1 to 3 % more at epsilon 1, adult_cat 1 % less; a fifth faster).
_DAMPING = 6.0
# Curvatures are computed again once chi^2 has fallen by this part of itself: they follow the shares, which then move little.
# With a tenth, ma2019_cat at epsilon 1 was 2 % farther from the truth. Steps of 1.7 times the best one went too far with
# curvatures that were kept (for a tenth): chi^2 of randhie at epsilon 10 rose, and it was up to 16 % farther.
_STALE = 0.05
# A twelfth of the blocks, at least one, has its curvatures computed at once, before they move, in the first pass; in the second
# twice as many, and so on. With all at once, the first passes over 35 columns went too far: drug_deaths_cat at epsilon 1 was
# 10 % farther from the truth; with three of four blocks, a table of four columns was .1 from its counts (TVD of pairs).
_AT_ONCE = 12
_SLACK = 4.0
# A pass is the last if it gains less than this share of chi^2 above its expectation: with a million rows (adult, all triples,
# epsilon 4) after some 30 passes.
_SLOW = 0.03


# The first pass after which boxes are balanced: before it, the misfit of components would distort the sizes of the boxes.
# Shares have momentum in later passes: before, it would follow the noise where counts are as near as their noise allows soon.
_SETTLED = 8
# Part of its last change by which a block moves on. A fit of adult's triples with a million rows was as near after 32 passes as
# without after 41. With .7, chi^2 rose after 13 passes.
_MOMENTUM = 0.5
_OUTSIDE = np.float32(-1e30)  # projected to 0

_TILE = 16  # rows of curvatures at once: their Gram matrices fit into the processor's cache
_TURN = 32  # components that move one by one before the slopes of all others are updated at once
_PAIRS = 1024  # pairs of components at once: products of a block fit into the nearest cache


class Boxes(NamedTuple):
    """The cells of all blocks in each box, shape (boxes, cells), and the box of each component, shape (components,)."""

    supports: Flags
    box_of: Integers


class Components(NamedTuple):
    """The weights n w of the components, and `Boxes` of one block."""

    weights: Float32s
    supports: Flags
    box_of: Integers


class _Place(NamedTuple):
    """Where a pass began: chi^2 as its blocks found it, the shares and the weights."""

    chi: float
    shares: Float32s
    weights: Float32s


class Descent:
    """A fit in progress: shares of every block and component, shape (cells of all blocks, components).

    With `boxes`, the shares of a component remain in its box, and the number of records in each box is fitted as well.
    `curvatures` are those of another descent, for `follow`. The first `fixed` blocks stay as they are.
    """

    def __init__(
        self,
        layout: FeatureLayout,
        objective: Objective,
        shares: Float32s,
        weights: Float32s,
        boxes: Boxes | None = None,
        *,
        curvatures: Sequence[Float32s] | None = None,
        fixed: int = 0,
    ) -> None:
        self._fixed = fixed
        self.shares = shares
        self.weights = weights
        self._layout = layout
        self._objective = objective
        self._boxes = boxes or _box_of_all(shares, weights)
        lengths = [len(block.cells) for block in layout.blocks]
        ends = np.cumsum([0, *lengths])
        self._blocks = [slice(begin, end) for begin, end in pairwise(ends)]
        self._factors = np.zeros((layout.width, len(weights)), F32)
        self._by_factors = np.zeros_like(self._factors)
        # of each block, sum_t v_t prod_g G_g of each feature for components k <= l; renewed in some passes
        self.curvatures = curvatures or [
            _room_for_curvature(b.curvature, len(weights)) for b in objective.blocks
        ]
        # as last computed by each block
        self._chi = np.zeros((len(self._blocks), len(objective.expected)))
        self._chi[:, objective.expected > 0] = math.inf
        for block in range(len(self._blocks)):
            self._refresh(block)

    @property
    def _weights(self) -> Float32s:
        """Weights n w of the components."""
        return np.asarray(self._objective.total * self.weights)

    def run(
        self,
        iterations: int,
        noise: float,
        report: Callable[[str], None],
    ) -> None:
        """Pass over all blocks until the noise is reached, a pass gains little, or the iterations are over.

        `report` is called at each pass.
        """
        expected = noise * self._objective.expected
        spread = math.sqrt(2 * float(self._objective.expected.sum()))
        before = math.inf
        renewed = math.inf
        is_due = True
        one_by_one = False
        reached = self.shares.copy()
        nearest = _Place(math.inf, self.shares.copy(), self.weights)
        for iteration in range(1, iterations + 1):
            report(f"pass {iteration} ({iterations} at most)")
            renewed = before if is_due else renewed
            at_once = 1 if one_by_one else max(len(self._blocks) * iteration // _AT_ONCE, 1)
            begun = _Place(math.inf, self.shares.copy(), self.weights)
            for block in range(len(self._blocks)):
                if is_due and block % at_once == 0:
                    self.renew_curvatures(slice(block, block + at_once))
                slope = self.slope(block)
                if _is_near(self._chi.sum(axis=0), expected):
                    return
                self._step(block, slope, iteration, reached)
            is_power_of_two = iteration & (iteration - 1) == 0
            if len(self._boxes.supports) > 1 and iteration >= _SETTLED and is_power_of_two:
                self.balance()
            chi = float(self._chi.sum())
            little = max(spread, _SLOW * (chi - expected.sum()))
            if chi > nearest.chi + little:
                self._return_to(nearest, reached)
                if one_by_one:
                    return
                # curvatures of blocks that had not moved yet led too far
                one_by_one = is_due = True
                before = math.inf
                continue
            if chi < nearest.chi:
                nearest = begun._replace(chi=chi)
            gains_little = before - chi < noise * little
            if gains_little and is_due:
                return
            # a pass with old curvatures may go too far: new ones say whether another one gains more
            is_due = gains_little or renewed - chi > _STALE * chi
            before = chi

    def _step(self, block: int, slope: Float32s, iteration: int, reached: Float32s) -> None:
        """Move a block in a pass, unless it is fixed; `reached` as in `_move_on`."""
        if block >= self._fixed:
            self.move(block, slope, _DAMPING / iteration)
            self._move_on(block, reached, _MOMENTUM if iteration > _SETTLED else 0.0)

    def _return_to(self, place: _Place, reached: Float32s) -> None:
        """Take back the shares and weights of a pass, with nothing to move on by (`reached`, changed)."""
        self.shares[:] = place.shares
        self.weights = place.weights
        reached[:] = place.shares
        for block in range(len(self._blocks)):
            self._refresh(block)

    def follow(self, passes: int) -> None:
        """Pass over all blocks so many times with the curvatures as they are, whatever the distance to the counts.

        For counts close to those of the shares at the start, where curvatures hardly change.
        """
        for iteration in range(1, passes + 1):
            for block in range(len(self._blocks)):
                self.move(block, self.slope(block), _DAMPING / iteration)

    def slope(self, block: int) -> Float32s:
        """Return the derivatives by the factors of a block (`BlockTargets.slope`)."""
        targets = self._objective.blocks[block]
        return targets.slope(
            self._weights,
            self._factors,
            self._by_factors,
            self._chi[block],
        )

    def move(
        self,
        block: int,
        slope: Float32s,
        damping: float,
    ) -> None:
        """Move the shares of a block, given the slope there (`move_shares`)."""
        cells = self._blocks[block]
        curvature = self._objective.blocks[block].curvature
        components = Components(
            self._weights,
            self._boxes.supports[:, cells],
            self._boxes.box_of,
        )
        move_shares(
            self.shares[cells],
            slope,
            components,
            self.curvatures[block],
            curvature,
            damping,
        )
        self._refresh(block)

    def _move_on(
        self,
        block: int,
        reached: Float32s,
        momentum: float,
    ) -> None:
        """Move the shares of a block on by a part of their change since the pass before (Ang and Gillis 2019).

        `reached` has where moves led in the pass before, shape (cells of all blocks, components); changed. Shares that would be
        negative become 0, and those of each component add up to 1.
        """
        cells = self._blocks[block]
        moved = self.shares[cells]
        if momentum:
            further = np.maximum(moved + F32(momentum) * (moved - reached[cells]), 0)
            reached[cells] = moved
            self.shares[cells] = further / further.sum(axis=0)
            self._refresh(block)
        else:
            reached[cells] = moved

    def renew_curvatures(self, blocks: slice = slice(None)) -> None:
        """Compute the curvatures of all or some blocks from the shares as they are, some rows at a time."""
        number = len(self.weights)
        grams = np.ones((len(self._layout.features) + 1, _TILE * number), F32)
        for first in range(0, number, _TILE):
            rows = slice(first, min(first + _TILE, number))
            shape = rows.stop - first, number - first
            size = shape[0] * shape[1]
            for feature, flat in zip(self._layout.features, grams[:-1], strict=True):
                factors = self._factors[feature.columns]
                np.matmul(factors[:, rows].T, factors[:, first:], out=flat[:size].reshape(shape))
            for targets, curvatures in zip(
                self._objective.blocks[blocks], self.curvatures[blocks], strict=True
            ):
                tile = np.zeros((len(curvatures), size), F32)
                _curve(grams, targets.curvature, tile)
                curvatures[:, rows, first:] = tile.reshape(-1, *shape)

    def balance(self) -> None:
        """Scale the weights of the components of each box to where the objective is least, the shares given.

        It is quadratic in the scales s of the boxes: with the derivatives g of the components' log weights and the
        curvature n w_k n w_l sum_t v_t prod_f G_f[k, l], both summed over the components of a box, 1/2 (s - 1)'H(s - 1) +
        g'(s - 1) is least for s >= 0 that keep the number of records. Only targets count that have an attribute whose codes
        differ between boxes.
        """
        supports, box_of = self._boxes
        is_member = box_of[:, None] == np.arange(len(supports))
        member = is_member.astype(np.float64)
        slope = np.zeros(len(box_of))
        products = np.zeros((len(box_of), len(box_of)))
        for block, cells in enumerate(self._blocks):
            if (supports[:, cells] != supports[0, cells]).any():
                rows = self._objective.blocks[block].rows
                by_weights = self._factors[rows] * self.slope(block)
                slope += by_weights.sum(axis=0)
                products += self._gram_products(block)
        weights = self._weights.astype(np.float64)
        # H = M' (n w_k n w_l sum_t v_t prod_f G_f[k, l]) M, M the membership of components in boxes
        weighted = products * weights[:, None] * weights
        curvature = member.T @ weighted @ member
        mass = member.T @ weights / weights.sum()
        scales = _least(curvature, member.T @ slope, mass)
        self.weights = self.weights * scales[box_of].astype(F32)

    def _gram_products(self, block: int) -> Floats:
        """Return sum_t v_t prod_f G_f[k, l] over the targets of a block, shape (components, components)."""
        products = np.zeros((len(self.weights), len(self.weights)))
        features = self._objective.blocks[block].features
        for number, curvature in zip(features, self.curvatures[block], strict=True):
            factors = self._factors[self._layout.features[number].columns]
            products += np.triu((factors.T @ factors) * curvature)
        return products + np.triu(products, 1).T

    def _refresh(self, block: int) -> None:
        """Compute the factors of the features of a block again, from its shares."""
        shares = self.shares[self._blocks[block]]
        for number in self._objective.blocks[block].features:
            feature = self._layout.features[number]
            factors = self._factors[feature.columns]
            if is_identity(feature.places, feature.width):
                factors[:] = shares
            else:
                _add_up(shares, feature.places, factors)


def _room_for_curvature(curvature: Curvature, components: int) -> Float32s:
    """Return memory for the curvature of each feature of a block, shape (features, components, components)."""
    return np.zeros((len(curvature.places), components, components), F32)


def _box_of_all(shares: Float32s, weights: Float32s) -> Boxes:
    """Return one box of all cells, with all components."""
    supports = np.ones((1, len(shares)), np.bool_)
    return Boxes(supports, np.zeros(len(weights), np.int64))


_LEAST_SCALE = 0.1  # a box shrinks slowly, so that it can grow again


def _least(
    curvature: Floats,
    slope: Floats,
    mass: Floats,
) -> Floats:
    """Return s >= 0 with mass's = 1 where 1/2 (s - 1)'curvature (s - 1) + slope's is least; shape (boxes,).

    No s is less than `_LEAST_SCALE`. With curvature = R R' it is |R's - R^-1 (curvature 1 - slope)|^2 / 2 but for a constant;
    mass's = 1 is a row of a large weight in these least squares.
    """
    from scipy.optimize import nnls  # slow to import, and few fits have several boxes

    root = _root(curvature)
    target = np.linalg.solve(root, curvature.sum(axis=1) - slope)
    large_weight = 1e3 * math.sqrt(float(np.trace(curvature)))
    rows = np.vstack([root.T, large_weight * mass])
    solution, _ = nnls(rows, np.append(target, large_weight))
    scales = np.maximum(solution, _LEAST_SCALE)
    return np.asarray(scales / (mass @ scales))


def _root(curvature: Floats) -> Floats:
    """Return the Cholesky root of a curvature of single precision; what makes it definite is added to its diagonal."""
    for relative_ridge in (1e-9, 1e-7, 1e-5):
        with suppress(np.linalg.LinAlgError):
            ridge = relative_ridge * float(np.trace(curvature)) + 1e-30
            definite = curvature + ridge * np.eye(len(curvature))
            return np.asarray(np.linalg.cholesky(definite), np.float64)
    diagonal = np.maximum(np.diag(curvature), 1e-30)
    return np.diag(np.sqrt(diagonal))


def _is_near(chi: Floats, expected: Floats) -> bool:
    """Return whether chi^2 is at most its expectation in all, and nearly so for each number of features.

    There it may be four standard deviations above.
    """
    if float(chi.sum()) > float(expected.sum()):
        return False
    bounds = expected + _SLACK * np.sqrt(2 * expected)
    return bool((chi <= bounds).all())


@kernel
def _add_up(
    shares: Float32s,
    places: Integers,
    factors: Float32s,
) -> None:  # pragma: no cover - compiled
    """Write the factors of a feature: sums of the shares of the block's cells that fall into each of its cells."""
    factors[:] = 0.0
    for c in range(len(places)):
        factor = factors[places[c]]
        for k in range(len(factor)):
            factor[k] += shares[c, k]


@fast_kernel
def move_shares(
    shares: Float32s,
    slope: Float32s,
    components: Components,
    curvatures: Float32s,
    block: Curvature,
    damping: float,
) -> None:  # pragma: no cover - compiled
    """Move each component's shares of a block to where a bound of the objective is least on the simplex, given the others.

    The objective is quadratic in the shares of a block. Of feature f its curvature by components k and l is
    H_f[k, l] = n w_k n w_l sum_t v_t prod_g G_g[k, l] over the targets t with f and their other features g, with the Gram
    matrices G_g = F_g'F_g. By the shares of component k alone it is at most h = sum_f spread_f H_f[k, k], and just that where
    the cells of the block are those of the feature: then the projection of the shares less slope / h onto the simplex is best
    (hierarchical alternating least squares: Cichocki and Phan 2009; docs/sources/estimation.md).

    Args:
        shares: shape (cells, components); changed.
        slope: derivatives of the objective by the cells of the features, shape (rows, components); changed.
        components: their n w, the cells of the block in each box, and the box of each component, in which its shares remain.
        curvatures: sum_t v_t prod_g G_g of each feature of the block, of k <= l; shape (features, components, components).
        block: the features of the block, and the precision of its targets.
        damping: multiple of the curvature that is added to it.
    """
    cells, number = shares.shape
    curvature = np.empty((len(block.places), _TURN, number), np.float32)
    moved = np.empty(cells, np.float32)
    changes = np.zeros((len(slope), _TURN), np.float32)
    for first in range(0, number, _TURN):
        last = min(first + _TURN, number)
        changes[:] = 0.0
        _weigh_curvature(first, last, components.weights, curvatures, curvature)
        for k in range(first, last):
            steep = np.float32(0.0)
            for f in range(len(block.places)):
                steep += block.spread[f] * curvature[f, k - first, k]
            if steep <= 0.0:
                continue
            _add_slopes(
                slope[:, k].copy(),
                block.places,
                moved,
            )
            for c in range(cells):
                moved[c] = shares[c, k] - moved[c] / (steep * np.float32(1.0 + damping))
                if not components.supports[components.box_of[k], c]:
                    moved[c] = _OUTSIDE
            to_simplex(moved, 1.0)
            change = changes[:, k - first]
            _apply_move(k, moved, shares, block, change)
            in_turn = curvature[:, k - first, k + 1 : last]
            _update_turn(change, in_turn, block, slope[:, k + 1 : last])
        if last < number:
            _add_turn(last, changes, curvature, block, slope)


@fast_kernel
def _weigh_curvature(
    first: int,
    last: int,
    weights: Float32s,
    curvatures: Float32s,
    curvature: Float32s,
) -> None:  # pragma: no cover - compiled
    """Write H_f[k, l] of the components k of a turn and every l >= k, shape (features, components of a turn, components)."""
    for f in range(len(curvature)):
        for k in range(first, last):
            row = curvature[f, k - first]
            products = curvatures[f, k]
            for i in range(k, len(row)):
                row[i] = weights[k] * weights[i] * products[i]


@fast_kernel
def _update_turn(
    changes: Float32s,
    curvature: Float32s,
    block: Curvature,
    slope: Float32s,
) -> None:  # pragma: no cover - compiled
    """Update the slopes of the components of a turn that are still to move, from the changes of the one that has moved."""
    for f in range(len(curvature)):
        for i in range(block.begins[f], block.begins[f + 1]):
            if changes[i] != 0.0:
                for j in range(slope.shape[1]):
                    slope[i, j] += changes[i] * curvature[f, j]


@fast_kernel
def _add_turn(
    last: int,
    changes: Float32s,
    curvature: Float32s,
    block: Curvature,
    slope: Float32s,
) -> None:  # pragma: no cover - compiled
    """Update the slopes of the components after a turn, from the `changes` that its components made together.

    A product of matrices takes a fraction of the time of as many updates of all slopes.
    """
    after = slope.shape[1] - last
    for f in range(len(block.places)):
        begin = block.begins[f]
        end = block.begins[f + 1]
        added = np.dot(changes[begin:end], np.ascontiguousarray(curvature[f, :, last:]))
        for i in range(end - begin):
            row = slope[begin + i]
            sums = added[i]
            for j in range(after):
                row[last + j] += sums[j]


@fast_kernel
def _curve(
    grams: Float32s,
    block: Curvature,
    curvatures: Float32s,
) -> None:  # pragma: no cover - compiled
    """Add sum_t v_t prod_g G_g of every feature of a block to `curvatures`, shape (features, pairs of components)."""
    tails, longest = block.tails.shape
    products = np.zeros((tails, _PAIRS), np.float32)
    # a tail of one feature is its Gram matrix: most counts are of three columns at most
    rows = block.tail_rows if longest > 1 else block.tails[block.tail_rows, 0]
    pairs = curvatures.shape[1]
    for start in range(0, pairs, _PAIRS):
        stop = min(start + _PAIRS, pairs)
        for r in range(tails if longest > 1 else 0):
            row = products[r]
            for i in range(stop - start):
                row[i] = 1.0
            for j in range(longest):
                gram = grams[block.tails[r, j]]
                for i in range(stop - start):
                    row[i] *= gram[start + i]
        for g in range(len(block.groups)):
            f, other_feature, begin, end = block.groups[g]
            gram = grams[other_feature, start:stop]
            curvature = curvatures[f, start:stop]
            precision = block.precision[begin:end]
            if longest > 1:
                _add_products(products, 0, rows[begin:end], precision, gram, curvature)
            else:
                _add_products(grams, start, rows[begin:end], precision, gram, curvature)


@fast_kernel
def _add_products(
    products: Float32s,
    start: int,
    rows: Integers,
    precision: Float32s,
    gram: Float32s,
    curvature: Float32s,
) -> None:  # pragma: no cover - compiled
    """Add `gram` times the sum of rows of products from `start` on, each times its precision, to `curvature`.

    The rows are a multiple of `GROUPED`: so many at a time, a curvature is seldom read and written.
    """
    # a loop over a row is compiled to vector instructions, one with two indices is not
    end = start + len(curvature)
    for t in range(0, len(rows), GROUPED):
        a, b = products[rows[t]][start:end], products[rows[t + 1]][start:end]
        c, d = products[rows[t + 2]][start:end], products[rows[t + 3]][start:end]
        v, w, x, y = precision[t], precision[t + 1], precision[t + 2], precision[t + 3]
        for i in range(len(curvature)):
            curvature[i] += gram[i] * (v * a[i] + w * b[i] + x * c[i] + y * d[i])


@fast_kernel
def _add_slopes(
    slope: Float32s,
    places: Integers,
    by_cells: Float32s,
) -> None:  # pragma: no cover - compiled
    """Write the slopes by the cells of a block, from one component's slopes by the cells of its features."""
    by_cells[:] = 0.0
    for f in range(len(places)):
        for c in range(len(by_cells)):
            by_cells[c] += slope[places[f, c]]


@fast_kernel
def _apply_move(
    k: int,
    moved: Float32s,
    shares: Float32s,
    block: Curvature,
    changes: Float32s,
) -> None:  # pragma: no cover - compiled
    """Write the moved shares of component k, and add up their changes by the cells of the features, as these are fewer."""
    for c in range(len(moved)):
        change = moved[c] - shares[c, k]
        if change != 0.0:
            shares[c, k] = moved[c]
            for f in range(len(block.places)):
                changes[block.places[f, c]] += change
