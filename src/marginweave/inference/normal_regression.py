"""Linear and logistic regression from measured pairs of columns, with intervals for their noise and for sampling.

The coefficients b solve sum x (y - p(x'b)) = 0 over the records, p the identity or the logistic function. The sums T of
products of two of 1, x and y follow from measured tables without bias, with their covariance C. Let c'x be the best linear fit
of p among records of the fitted model, and r = p - c'x. Then

    g(b) = T_xy - T_xx c - sum w x r,

where the records of the model have weights w = w_0 (1 + z'l), z the products of two of 1 and x, with which their sums of z are
T_xx: l = G^-1 (T_xx - Z'w_0), G = Z'W_0 Z (calibration: Deville and Sarndal 1992). For a linear regression r is 0, and nothing
of the records is left; for a logistic one, what p makes of three columns and more.

The noise of g(b) is linear in that of T, and has the covariance B C B'; sampling adds the sum of s s', s = x (y - p). Where a
person has up to m rows, that sum times m is no less than the sampling variance of persons:
|s_1 + ... + s_m|^2 <= m (|s_1|^2 + ... + |s_m|^2).

Cells that are not as declared count nothing in a sum of their column, also where noise explains them. U of a column is how many
records have one, as a root mean square. If they are spread like other records, sums without the column are U / n larger,
relative to those with it, than among complete records, which a regression is of. The shift of g(b) by that is added as a
variance, squared, for each column.

A matrix of noisy products cannot be inverted safely: where columns nearly depend on each other, noise alone may make it
singular. So two steps go from the model's estimate b_0 with its curvature H, which is of records and positive. They are linear
in g: with A the weighted curvature, P = 2 H^-1 - H^-1 A H^-1, the error is P g(b) and L (b_0 - b) with L = (I - H^-1 A)^2. The
second, how far the model is off, twice diminished, is not known: the steps went only I - L of the way from b_0, with the noise
of P g(b). So it is estimated by M = L (I - L)^-1 times that way, and the square of this and the noise of it are added to the
variance. Where columns carry nearly the same, a model has them less alike than they are, and L is large.

Steps lead away from the solution where the noise E of T_xx is as large as T_xx. With K the sum of x x' in the model, `noise` is
the root of the largest eigenvalue of K^-1/2 E[E K^-1 E] K^-1/2: the noise of the least certain contrast of columns, relative
to the spread of the contrast. All columns are standardized by the model first, so that units change nothing.
DP: post-processing of released counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from marginweave.answers.least_squares import Estimates, LeastSquares, Weights
from marginweave.base.arrays import Floats, Integers, Records
from marginweave.base.errors import InputError

Kind = Literal["linear", "logistic"]
STEPS = 2
_ROUNDS = 50
_SINGULAR = 1e12
_MOST_REMAINING = 0.9
"""The greatest eigenvalue of L: the part of the model's error along a contrast of columns that the steps may leave."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Term:
    """Columns of a design that one attribute gives: `weights` of its codes, and `model_weights` of those of the model.

    Shapes (columns, codes). Codes that the model has merged have the same weight. The number `ignored` of records, as a root
    mean square, have another code of the axis, the last in tables, which the model lacks.
    """

    place: int
    weights: Floats
    model_weights: Floats
    ignored: float = 0.0

    def standardized(self, records: Records) -> tuple[Term, Floats, Floats]:
        """Return the term with mean 0 and standard deviation 1 in records of the model, and the old mean and deviation."""
        values = self.model_weights[:, records[:, self.place]]
        mean = values.mean(axis=1)
        deviation = values.std(axis=1)
        scale = np.where(deviation > 0, deviation, 1.0)
        weights = (self.weights - mean[:, None]) / scale[:, None]
        model_weights = (self.model_weights - mean[:, None]) / scale[:, None]
        standardized = replace(self, weights=weights, model_weights=model_weights)
        return standardized, mean, scale


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """Coefficients with their covariance, and the noise of the least certain contrast of columns relative to its spread.

    `column` is the place of the column that has most of this contrast; that of the intercept is 0.
    """

    coefficients: Estimates
    noise: float
    column: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibrated:
    """Records of a model, x with its intercept and y, and measured sums of products of two of them.

    `start` is the weight of each record, `weights` are those with which they have the measured sums. `moved[k]` is the change
    of all weights for each unit of noise of sum k of `sums`, divided by `start`. `places` has for each two of 1, x and y the
    place of their sum. Columns of x but the first are standardized, as `means` and `scales` say. `ignored` has, for each term
    whose tables leave out records, how much these may add to the sums without the term.
    """

    x: Floats
    y: Floats
    start: float
    weights: Floats
    moved: Floats
    sums: Estimates
    places: Integers
    ignored: Sequence[Floats]
    means: Floats
    scales: Floats

    @classmethod
    def of(cls, squares: LeastSquares, records: Records, terms: Sequence[Term]) -> Calibrated:
        """Calibrate records of a model, in its codes, shape (records, attributes); the last term is y, a single column.

        Raises:
            NotMeasuredError: two terms are in no measured table together.
        """
        standardized: list[Term] = []
        means = [np.zeros(0)]
        scales = [np.zeros(0)]
        for term in terms[:-1]:
            standard_term, mean, scale = term.standardized(records)
            standardized.append(standard_term)
            means.append(mean)
            scales.append(scale)
        standardized.append(terms[-1])

        values = [term.model_weights[:, records[:, term.place]] for term in standardized]
        columns = np.concatenate(values)
        intercept = np.ones((1, len(records)))
        x = np.concatenate([intercept, columns[:-1]]).T
        queries, places = _queries(standardized, squares.measured.sizes)
        sums = squares.solve_jointly(queries)
        start = float(sums.values[0]) / len(records)

        # l = G^-1 (T_xx - Z'w_0) with G = Z'W_0 Z, and w = w_0 (1 + z'l)
        first, second = np.triu_indices(x.shape[1])
        z = (x[:, first] * x[:, second]).T
        x_places = places[first, second]
        moved = np.zeros((len(sums.values), len(records)))
        products = start * z @ z.T
        moved[x_places] = np.linalg.pinv(products, rcond=1e-10, hermitian=True) @ z
        gaps = sums.values[x_places] - start * z.sum(axis=1)
        return cls(
            x=x,
            y=columns[-1],
            start=start,
            weights=start * (1 + gaps @ moved[x_places]),
            moved=moved,
            sums=sums,
            places=places,
            ignored=_ignored(standardized, places, sums.values),
            means=np.concatenate(means),
            scales=np.concatenate(scales),
        )

    def fit(self, kind: Kind, *, sampling: float) -> Fit:
        """Return the coefficients, and how far the noise goes.

        `sampling` is the factor of the sampling variance of rows. It is 0 for the rows themselves, 1 for a population that they
        are a sample of, more where they are no independent draws.

        Raises:
            InputError: columns depend on each other, or y follows from them, or noise took all records away.
        """
        if self.start <= 0:
            raise InputError(
                "the noisy number of records is not positive, so that there is no regression of them"
            )
        model_b = self._model_solution(kind)
        b, transfer, remaining = self._take_steps(model_b, kind)

        # the covariance of P g(b), by noise, ignored records and sampling
        reaction = self._reaction(b, kind)
        spread = reaction @ self.sums.covariance @ reaction.T
        for ignored_sums in self.ignored:
            shift = reaction @ ignored_sums
            spread += np.outer(shift, shift)
        p, _ = self._mean(b, kind)
        scores = self.x * (self.y - p)[:, None]
        spread += sampling * self.start * scores.T @ scores
        covariance = transfer @ spread @ transfer.T

        # the part of the model's error that the steps leave, M = L (I - L)^-1 of the way that they went
        if float(np.linalg.eigvals(remaining).real.max()) > _MOST_REMAINING:
            raise InputError(
                "the noise does not carry some difference between the columns, as where two of them carry nearly the same; "
                "leave one out, or use more epsilon"
            )
        identity = np.eye(self.x.shape[1])
        extrapolation = remaining @ np.linalg.inv(identity - remaining)
        model_error = extrapolation @ (model_b - b)
        noise_of_error = extrapolation @ covariance @ extrapolation.T
        covariance += noise_of_error + np.outer(model_error, model_error)
        noise, column = self._noise()
        coefficients = self._in_units(Estimates(values=b, covariance=covariance))
        return Fit(coefficients=coefficients, noise=noise, column=column)

    def _take_steps(self, model_b: Floats, kind: Kind) -> tuple[Floats, Floats, Floats]:
        """Go `STEPS` steps from the model's solution; return b, P and L."""
        _, slopes = self._mean(model_b, kind)
        model_curvature = self.start * (self.x.T * slopes) @ self.x
        inverse: Floats = np.asarray(np.linalg.inv(model_curvature), np.float64)
        transfer: Floats = np.zeros_like(inverse)
        remaining: Floats = np.eye(self.x.shape[1])
        b = model_b
        for _ in range(STEPS):
            curvature = self._curvature(b, kind)
            transfer = inverse + transfer - inverse @ curvature @ transfer
            remaining = remaining - inverse @ curvature @ remaining
            b = b + inverse @ self._score(b, kind)
        return b, transfer, remaining

    def _mean(self, b: Floats, kind: Kind) -> tuple[Floats, Floats]:
        """Return the p of each record, and its slope."""
        fitted = self.x @ b
        if kind == "linear":
            return fitted, np.ones(len(fitted))
        p = 1 / (1 + np.exp(-fitted))
        return p, p * (1 - p)

    def _linear_fit(self, values: Floats) -> tuple[Floats, Floats]:
        """Return the best linear fit c by x to values of records, and the residuals r."""
        squares = self.x.T @ self.x
        products = self.x.T @ values
        fit: Floats = np.linalg.solve(squares, products).astype(np.float64)
        residuals = values - self.x @ fit
        return fit, residuals

    def _score(self, b: Floats, kind: Kind) -> Floats:
        """Return g(b)."""
        p, _ = self._mean(b, kind)
        fit, residuals = self._linear_fit(p)
        # T_xy - T_xx c - sum w x r
        products = self.sums.values[self.places]
        x_y = products[:-1, -1]
        x_x = products[:-1, :-1]
        return x_y - x_x @ fit - self.x.T @ (self.weights * residuals)

    def _reaction(self, b: Floats, kind: Kind) -> Floats:
        """Return the change of g(b) for each unit of noise of a sum, shape (columns, sums)."""
        p, _ = self._mean(b, kind)
        fit, residuals = self._linear_fit(p)
        x_r = self.x * residuals[:, None]
        changes = -self.start * (self.moved @ x_r).T
        for column, column_places in enumerate(self.places[:-1]):
            np.add.at(changes[column], column_places, [*-fit, 1.0])
        return changes

    def _curvature(self, b: Floats, kind: Kind) -> Floats:
        """Return A, of which the mean slope is that of measured products."""
        _, slopes = self._mean(b, kind)
        mean_slope = slopes.mean()
        products = self.sums.values[self.places]
        x_x = products[:-1, :-1]
        deviations = self.weights * (slopes - mean_slope)
        of_records = (self.x.T * deviations) @ self.x
        return mean_slope * x_x + of_records

    def _noise(self) -> tuple[float, int]:
        """Return the noise of the least certain contrast of columns relative to its spread, and the column with most of it."""
        products = self.start * self.x.T @ self.x  # K
        values, vectors = np.linalg.eigh(products)
        root = vectors / np.sqrt(values) @ vectors.T  # K^-1/2
        columns = self.x.shape[1]
        product_places = self.places[:-1, :-1].ravel()
        covariance = self.sums.covariance[np.ix_(product_places, product_places)]
        noise = covariance.reshape(columns, columns, columns, columns)
        expected = np.einsum("acbd,cd->ab", noise, root @ root)  # E[E K^-1 E]
        squared = root @ expected @ root
        values, vectors = np.linalg.eigh(squared)
        largest = float(np.sqrt(max(values[-1], 0.0)))
        if columns == 1:
            return largest, 0
        contrast = np.abs(root @ vectors[:, -1])
        without_intercept = contrast[1:]
        return largest, int(without_intercept.argmax()) + 1

    def _in_units(self, standardized: Estimates) -> Estimates:
        """Return coefficients of the columns before they were standardized."""
        factors = np.concatenate(([1.0], 1 / self.scales))
        back = np.diag(factors)
        back[0, 1:] = -self.means / self.scales
        values = back @ standardized.values
        covariance = back @ standardized.covariance @ back.T
        return Estimates(values=values, covariance=covariance)

    def _model_solution(self, kind: Kind) -> Floats:
        """Return the coefficients of the records of the model, by Newton's method. Raises InputError without a solution."""
        b = np.zeros(self.x.shape[1])
        for _ in range(_ROUNDS):
            p, slopes = self._mean(b, kind)
            curvature = (self.x.T * slopes) @ self.x
            if np.linalg.cond(curvature) > _SINGULAR:
                break
            score = self.x.T @ (self.y - p)
            step = np.linalg.solve(curvature, score)
            b = b + step
            size = 1 + np.abs(b).max()
            if np.abs(step).max() < 1e-8 * size:
                return b
        raise InputError(
            "the regression has no single solution: columns follow from each other, or the target from them, or a value is one "
            "that hardly anybody has; leave one out"
        )


def _ignored(terms: Sequence[Term], places: Integers, sums: Floats) -> list[Floats]:
    """Return, for each term with ignored records, how much they add to the sums without its columns, shape (sums,).

    They are taken to be spread like other records.
    """
    additions: list[Floats] = []
    end = 1
    for term in terms:
        start = end
        end = start + len(term.weights)
        if term.ignored and sums[0] > 0:
            sums_of_term = places[start:end]
            is_without = np.isin(np.arange(len(sums)), sums_of_term, invert=True)
            additions.append(term.ignored / sums[0] * sums * is_without)
    return additions


def _queries(terms: Sequence[Term], sizes: Mapping[int, int]) -> tuple[list[Weights], Integers]:
    """Return the sums of products of two of 1 and the columns of terms, and for each two the place of their sum.

    The weights of a term are 0 for codes that its axis, with its number of `sizes`, has beyond them.
    """
    padded: list[Term] = []
    for term in terms:
        lacking = sizes[term.place] - term.weights.shape[1]
        weights = np.pad(term.weights, ((0, 0), (0, lacking)))
        padded.append(replace(term, weights=weights))
    # of the columns of each term, and the end
    columns_of_terms = [len(term.weights) for term in padded]
    starts = np.cumsum([1, *columns_of_terms]).tolist()
    placed_terms = list(zip(padded, starts, strict=False))
    queries: list[Weights] = [{}]
    places = np.zeros((starts[-1], starts[-1]), np.int64)
    number = 1

    for term, start in placed_terms:
        columns = len(term.weights)
        first, second = np.triu_indices(columns)
        products = term.weights[first] * term.weights[second]
        queries.append({term.place: np.concatenate((term.weights, products))})
        places[0, start : start + columns] = number + np.arange(columns)
        places[start + first, start + second] = number + columns + np.arange(len(first))
        number += columns + len(first)

    for (term, start), (later_term, later_start) in itertools.combinations(placed_terms, 2):
        shape = (len(term.weights), len(later_term.weights))
        first, second = np.indices(shape).reshape(2, -1)
        query = {term.place: term.weights[first], later_term.place: later_term.weights[second]}
        queries.append(dict(sorted(query.items())))
        places[start + first, later_start + second] = number + np.arange(len(first))
        number += len(first)
    return queries, np.maximum(places, places.T)
