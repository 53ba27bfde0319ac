"""How far coefficients of a regression may move by where numbers lie inside their bins.

A regression takes each number as the middle of its bin. The numbers themselves may lie anywhere inside, up to half of the width
of the bin from there. With X, y, p, r = y - p, the slopes V of p, the curvature A = X' W V X of records with weights W, and
a_j = x_j' A^-1 for a record x_j, small changes dx of the columns and dy of the target of the record change the coefficients by

    db = w (A^-1 dx r + a_j dy - a_j v dx'b).

With places in the bins of the target alone, a linear regression is exact in them: each coefficient moves by at most
sum w |a_j| h, h half of the width of the bin. Places in the bins of columns also change A. So values go to the ends of their
bins that move a coefficient farthest, the regression is solved again, and that is repeated; once more from places that
narrow or widen the columns (the last term alone). The result is the largest shift that was found, which some places of the
values have, and no bound. DP: post-processing of released counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import expit
from threadpoolctl import threadpool_limits

from marginweave.base.arrays import Floats, Integers
from marginweave.inference.normal_regression import Kind

_ROUNDS = 4
_NEWTON_STEPS = 30
_SINGULAR = 1e12


@dataclass(frozen=True, kw_only=True, eq=False)
class BinnedRecords:
    """Records with positive weights, shape (records,), and half of the width of the bin of each of their numbers.

    `x` has an intercept and the columns of a regression, shape (records, columns), as `x_half` has; `y` is the target.
    """

    x: Floats
    y: Floats
    weights: Floats
    x_half: Floats
    y_half: Floats

    def largest_shifts(self, kind: Kind) -> Floats:
        """Return for each coefficient the largest shift that was found, by places of values inside their bins.

        It is infinite where values may lie so that the columns, or the columns and the target, follow from each other.
        """
        columns = self.x.shape[1]
        if not (self.x_half.any() or self.y_half.any()):
            return np.zeros(columns)
        middle = self._solution(kind, np.zeros(columns))
        if middle is None:
            return np.full(columns, np.inf)
        if kind == "linear" and not self.x_half.any():
            weighted = self.x.T * self.weights
            transfer = np.linalg.solve(weighted @ self.x, weighted)
            return np.asarray(np.abs(transfer) @ self.y_half, np.float64)
        shifts = np.zeros(columns)
        with threadpool_limits(1):  # many small products: threads would wait for each other
            for column in range(columns):
                for direction in (-1.0, 1.0):
                    shift = self._shift(kind, middle, column, direction)
                    shifts[column] = max(shifts[column], shift)
        return shifts

    def _shift(
        self,
        kind: Kind,
        middle: Floats,
        column: int,
        direction: float,
    ) -> float:
        """Return the largest shift of a coefficient in a direction, from that of the middles of bins."""
        largest = 0.0
        for residual_part in (1.0, 0.0):
            changes = self._changes(kind, middle, column, residual_part)
            for _ in range(_ROUNDS):
                placed = self._placed(direction, *changes)
                b = placed._solution(kind, middle)  # noqa: SLF001 - of the same class
                if b is None:
                    return np.inf
                largest = max(largest, float(direction * (b[column] - middle[column])))
                changes = placed._changes(kind, b, column)  # noqa: SLF001 - of the same class
        return largest

    def _placed(
        self,
        direction: float,
        x_change: Floats,
        y_change: Floats,
    ) -> BinnedRecords:
        """Return the records with each number at the end of its bin that changes a coefficient in a direction."""
        x = self.x.copy()
        x[:, self._binned] += self.x_half[:, self._binned] * np.sign(direction * x_change)
        y = self.y + self.y_half * np.sign(direction * y_change)
        return replace(self, x=x, y=y)

    @cached_property
    def _binned(self) -> Integers:
        """Places of the columns that have bins."""
        return np.flatnonzero(self.x_half.any(axis=0))

    def _changes(
        self,
        kind: Kind,
        b: Floats,
        column: int,
        residual_part: float = 1.0,
    ) -> tuple[Floats, Floats]:
        """Return how a coefficient changes with each number of the columns that have bins, and of the target.

        Both are over the weight of the record. `residual_part` is the factor of the term with the residuals.
        """
        p, slopes = _mean(self.x @ b, kind)
        inverse: Floats = np.linalg.inv(self._curvature(slopes))[column].astype(np.float64)
        of_target: Floats = self.x @ inverse
        of_residuals = np.outer(self.y - p, inverse[self._binned])
        of_columns = residual_part * of_residuals - np.outer(of_target * slopes, b[self._binned])
        return of_columns, of_target

    def _curvature(self, slopes: Floats) -> Floats:
        """Return A."""
        curvature: Floats = (self.x.T * (self.weights * slopes)) @ self.x
        return curvature

    def _solution(self, kind: Kind, start: Floats) -> Floats | None:
        """Return the coefficients by Newton's method; None where there is no single solution."""
        b = start
        for _ in range(_NEWTON_STEPS):
            p, slopes = _mean(self.x @ b, kind)
            curvature = self._curvature(slopes)
            scales = np.sqrt(np.diagonal(curvature))
            if not scales.all() or np.linalg.cond(curvature / np.outer(scales, scales)) > _SINGULAR:
                return None
            score = self.x.T @ (self.weights * (self.y - p))
            step = np.linalg.solve(curvature, score)
            b = b + step
            if kind == "linear" or np.abs(step * scales).max() <= 1e-8 * (
                1 + np.abs(b * scales).max()
            ):
                return b
        return None


def _mean(fitted: Floats, kind: Kind) -> tuple[Floats, Floats]:
    """Return the p of each record, and its slope."""
    if kind == "linear":
        return fitted, np.ones(len(fitted))
    p: Floats = expit(fitted)
    return p, p * (1 - p)
