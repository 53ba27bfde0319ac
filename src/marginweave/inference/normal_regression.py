"""Linear and logistic regression from measured pairs of columns, with intervals for their noise and for sampling.

The coefficients b solve sum x (y - p(x'b)) = 0 over the records, p the identity or the logistic function. Sums of single
columns and of products of two, t, are known from measured tables without bias, with their covariance C. Records of the fitted
model are weighted by w = w_0 (1 + z'l), z their single values and products, so that their weighted sums are t: then l =
G^-1 (t - Z'w_0) with G = Z'W_0 Z (calibration: Deville and Sarndal 1992). For a linear regression, no more of the records is
left; for a logistic one, what p makes of three columns and more.

With s = x (y - p), the noise of the weighted sum g(b) of s is linear in that of t, and has the covariance B C B', where B is
S'W_0 Z G^-1; sampling adds S'W_0 S. A matrix of noisy products is not to be inverted: where columns nearly depend on each
other, noise alone may make it singular. So two steps go from the model's estimate b_0 with its curvature H, which is of records
and positive. They are linear in g: with A the weighted curvature, P = 2 H^-1 - H^-1 A H^-1, the error is P g(b) and
(I - H^-1 A)^2 (b_0 - b). The second, how far the model is off, twice diminished, is left out of the interval
(docs/inference.md says how often that covers).
DP: post-processing of released counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from marginweave.answers.least_squares import Estimates, LeastSquares, Weights
from marginweave.base.arrays import Floats, Records
from marginweave.base.errors import InputError

Kind = Literal["linear", "logistic"]
STEPS = 2
_ROUNDS = 50


@dataclass(frozen=True, kw_only=True, eq=False)
class Term:
    """Columns of a design that one attribute gives: `weights` of the codes of its axis, and of those of the model.

    Shapes (columns, codes). Codes that the model has together weigh the same.
    """

    place: int
    axis: int
    weights: Floats
    of_model: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibrated:
    """Records of a model, x with its intercept and y, that agree with measured sums when they have `weights`.

    `start` is the weight of each without. `moved[k]` is the change of all weights for each unit of noise of sum k, less
    `start`, and `noise` the covariance of the sums.
    """

    x: Floats
    y: Floats
    start: float
    weights: Floats
    moved: Floats
    noise: Floats

    @classmethod
    def of(cls, squares: LeastSquares, records: Records, terms: Sequence[Term]) -> Calibrated:
        """Records of a model in its codes, shape (records, attributes); the last term is y, a single column.

        Raises:
            NotMeasuredError: two terms are in no measured table together.
        """
        columns = [term.of_model[:, records[:, term.place]] for term in terms]
        ones = np.ones((1, len(records)))
        z = np.concatenate([ones, *map(_products, [*zip(columns, strict=True), *itertools.combinations(columns, 2)])])
        known = squares.solve_jointly([{}, *_queries(terms)])
        start = float(known.values[0]) / len(records)
        inverse = np.linalg.pinv(start * z @ z.T, rcond=1e-10, hermitian=True)
        moved = inverse @ z
        weights = start * (1 + (known.values - start * z.sum(axis=1)) @ moved)
        x = np.concatenate([ones, *columns[:-1]]).T
        return cls(x=x, y=columns[-1][0], start=start, weights=weights, moved=moved, noise=known.covariance)

    def fit(self, kind: Kind, *, population: bool) -> Estimates:
        """Coefficients and their covariance.

        Raises:
            InputError: columns depend on each other, or y follows from them.
        """
        b = self._of_model(kind)
        _, slopes = self._scores(b, kind)
        inverse = np.linalg.inv(self.start * (self.x.T * slopes) @ self.x)
        transfer = np.zeros_like(inverse)
        for _ in range(STEPS):
            scores, slopes = self._scores(b, kind)
            transfer = inverse + transfer - inverse @ (self.x.T * (self.weights * slopes)) @ self.x @ transfer
            b = b + inverse @ (self.weights @ scores)
        scores, _ = self._scores(b, kind)
        reaction = self.start * self.moved @ scores
        spread = reaction.T @ self.noise @ reaction
        if population:
            spread += self.start * scores.T @ scores
        return Estimates(values=b, covariance=transfer @ spread @ transfer.T)

    def _scores(self, b: Floats, kind: Kind) -> tuple[Floats, Floats]:
        """X (y - p) of each record, and the slope of p."""
        fitted = self.x @ b
        if kind == "linear":
            return self.x * (self.y - fitted)[:, None], np.ones(len(fitted))
        p = 1 / (1 + np.exp(-fitted))
        return self.x * (self.y - p)[:, None], p * (1 - p)

    def _of_model(self, kind: Kind) -> Floats:
        """Newton's method on the records as the model has them."""
        b = np.zeros(self.x.shape[1])
        for _ in range(_ROUNDS):
            scores, slopes = self._scores(b, kind)
            curvature = (self.x.T * slopes) @ self.x
            if np.linalg.cond(curvature) > _SINGULAR:
                break
            step = np.linalg.solve(curvature, scores.sum(axis=0))
            b = b + step
            if np.abs(step).max() < 1e-8 * (1 + np.abs(b).max()):
                return b
        raise InputError(
            "the regression has no single solution: columns follow from each other, or the target from them, or a value is one "
            "that hardly anybody has; leave one out"
        )


_SINGULAR = 1e12


def _products(own: tuple[Floats, ...]) -> Floats:
    """Of one attribute its columns and their products, of two the products of columns of both."""
    if len(own) == 2:
        return (own[0][:, None] * own[1]).reshape(-1, own[0].shape[1])
    rows, others = np.triu_indices(len(own[0]))
    return np.concatenate((own[0], own[0][rows] * own[0][others]))


def _queries(terms: Sequence[Term]) -> Iterator[Weights]:
    """The same of the weights of codes."""
    for term in terms:
        yield {term.axis: _products((term.weights,))}
    for one, other in itertools.combinations(terms, 2):
        rows, others = np.indices((len(one.weights), len(other.weights))).reshape(2, -1)
        yield dict(sorted({one.axis: one.weights[rows], other.axis: other.weights[others]}.items()))
