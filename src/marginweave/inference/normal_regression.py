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
records have one, as a root mean square. If they are spread as others are, sums without the column are U / n larger beside those
with it than among complete records, which a regression is of. What that moves g(b) by is added as a variance, squared, for each
column.

A matrix of noisy products is not to be inverted: where columns nearly depend on each other, noise alone may make it singular.
So two steps go from the model's estimate b_0 with its curvature H, which is of records and positive. They are linear in g: with
A the weighted curvature, P = 2 H^-1 - H^-1 A H^-1, the error is P g(b) and L (b_0 - b) with L = (I - H^-1 A)^2. The second, how
far the model is off, twice diminished, is not known: what was found is only I - L of the way from b_0, with the noise of
P g(b). So it is estimated by M = L (I - L)^-1 times that way, and the square of this and the noise of it are added to the
variance. Where columns carry nearly the same, a model has them less alike than they are, and L is large.

Steps lead away from the solution where the noise E of T_xx is as large as T_xx. With K the sum of x x' in the model, `noise` is
the root of the largest eigenvalue of K^-1/2 E[E K^-1 E] K^-1/2: the noise of the least certain contrast of columns, beside
what the contrast varies by. All columns are standardized by the model first, so that units change nothing.
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Term:
    """Columns of a design that one attribute gives: `weights` of its codes, and of those of the model.

    Shapes (columns, codes). Codes that the model has together weigh the same. So many records as `ignored`, as a root mean
    square, have another code of the axis, the last in tables, which the model has not.
    """

    place: int
    weights: Floats
    of_model: Floats
    ignored: float = 0.0

    def standardized(self, records: Records) -> tuple[Term, Floats, Floats]:
        """The same with mean 0 and deviation 1 in records of the model, and what was taken off and divided by."""
        values = self.of_model[:, records[:, self.place]]
        mean, scale = values.mean(axis=1), values.std(axis=1)
        scale = np.where(scale > 0, scale, 1.0)
        moved = [(own - mean[:, None]) / scale[:, None] for own in (self.weights, self.of_model)]
        return replace(self, weights=moved[0], of_model=moved[1]), mean, scale


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """Coefficients with their covariance; how large the noise is beside the least certain contrast of columns.

    `column` is the place of the column that has most of this contrast; that of the intercept is 0.
    """

    found: Estimates
    noise: float
    column: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibrated:
    """Records of a model, x with its intercept and y, and measured sums of products of two of them.

    `start` is the weight of each record, `weights` are those with which they have the measured sums. `moved[k]` is the change
    of all weights for each unit of noise of sum k of `sums`, less `start`. `places` has for each two of 1, x and y the place
    of their sum. Columns of x but the first are standardized, as `means` and `scales` say. `ignored` has, for each term whose
    tables leave out records, what these may add to the sums of others.
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
        """Records of a model in its codes, shape (records, attributes); the last term is y, a single column.

        Raises:
            NotMeasuredError: two terms are in no measured table together.
        """
        standard = [term.standardized(records) for term in terms[:-1]]
        own = [*(term for term, _, _ in standard), terms[-1]]
        columns = np.concatenate([term.of_model[:, records[:, term.place]] for term in own])
        x = np.concatenate([np.ones((1, len(records))), columns[:-1]]).T
        asked, places = _queries(own, squares.measured.sizes)
        known = squares.solve_jointly(asked)
        start = float(known.values[0]) / len(records)
        rows, others = np.triu_indices(x.shape[1])
        z, of_x = (x[:, rows] * x[:, others]).T, places[rows, others]
        moved = np.zeros((len(known.values), len(records)))
        moved[of_x] = np.linalg.pinv(start * z @ z.T, rcond=1e-10, hermitian=True) @ z
        return cls(
            x=x,
            y=columns[-1],
            start=start,
            weights=start * (1 + (known.values[of_x] - start * z.sum(axis=1)) @ moved[of_x]),
            moved=moved,
            sums=known,
            places=places,
            ignored=_ignored(own, places, known.values),
            means=np.concatenate([np.zeros(0), *(mean for _, mean, _ in standard)]),
            scales=np.concatenate([np.zeros(0), *(scale for _, _, scale in standard)]),
        )

    def fit(self, kind: Kind, *, sampling: float) -> Fit:
        """Coefficients, and whether the noise leaves them; `sampling` is by what the sampling variance of rows counts.

        0 is for the rows themselves, 1 for a population that they are a sample of, more where they are no independent draws.

        Raises:
            InputError: columns depend on each other, or y follows from them, or noise took all records away.
        """
        if self.start <= 0:
            raise InputError("the noisy number of records is not positive, so that there is no regression of them")
        b, columns = self._of_model(kind), self.x.shape[1]
        of_model, _, slopes = b, *self._mean(b, kind)
        inverse = np.linalg.inv(self.start * (self.x.T * slopes) @ self.x)
        transfer, left = np.zeros_like(inverse), np.eye(columns)
        for _ in range(STEPS):
            curvature = self._curvature(b, kind)
            transfer = inverse + transfer - inverse @ curvature @ transfer
            left = left - inverse @ curvature @ left
            b = b + inverse @ self._score(b, kind)
        reaction = self._reaction(b, kind)
        spread = reaction @ self.sums.covariance @ reaction.T
        for more in self.ignored:
            spread += np.outer(reaction @ more, reaction @ more)
        scores = self.x * (self.y - self._mean(b, kind)[0])[:, None]
        spread += sampling * self.start * scores.T @ scores
        covariance = transfer @ spread @ transfer.T
        if float(np.linalg.eigvals(left).real.max()) > _MOST_LEFT:
            raise InputError(
                "the noise does not carry some difference between the columns, as where two of them carry nearly the same; "
                "leave one out, or use more epsilon"
            )
        still = left @ np.linalg.inv(np.eye(columns) - left)
        away = still @ (of_model - b)
        covariance += still @ covariance @ still.T + np.outer(away, away)
        noise, column = self._noise()
        return Fit(found=self._in_units(Estimates(values=b, covariance=covariance)), noise=noise, column=column)

    def _mean(self, b: Floats, kind: Kind) -> tuple[Floats, Floats]:
        """The p of each record, and its slope."""
        fitted = self.x @ b
        if kind == "linear":
            return fitted, np.ones(len(fitted))
        p = 1 / (1 + np.exp(-fitted))
        return p, p * (1 - p)

    def _nearest(self, values: Floats) -> tuple[Floats, Floats]:
        """Of values of records the best linear fit by x, and what it leaves."""
        fit: Floats = np.linalg.solve(self.x.T @ self.x, self.x.T @ values).astype(np.float64)
        return fit, values - self.x @ fit

    def _score(self, b: Floats, kind: Kind) -> Floats:
        """g(b)."""
        fit, rest = self._nearest(self._mean(b, kind)[0])
        products = self.sums.values[self.places]
        return products[:-1, -1] - products[:-1, :-1] @ fit - self.x.T @ (self.weights * rest)

    def _reaction(self, b: Floats, kind: Kind) -> Floats:
        """The change of g(b) for each unit of noise of a sum, shape (columns, sums)."""
        fit, rest = self._nearest(self._mean(b, kind)[0])
        found = -self.start * (self.moved @ (self.x * rest[:, None])).T
        for column, own in enumerate(self.places[:-1]):
            np.add.at(found[column], own, [*-fit, 1.0])
        return found

    def _curvature(self, b: Floats, kind: Kind) -> Floats:
        """A, of which the mean slope is that of measured products."""
        slopes = self._mean(b, kind)[1]
        measured = self.sums.values[self.places][:-1, :-1]
        return slopes.mean() * measured + (self.x.T * (self.weights * (slopes - slopes.mean()))) @ self.x

    def _noise(self) -> tuple[float, int]:
        """The noise of measured products beside the least certain contrast of columns, and the column that has most of it."""
        values, vectors = np.linalg.eigh(self.start * self.x.T @ self.x)
        root = vectors / np.sqrt(values) @ vectors.T
        own, columns = self.places[:-1, :-1].ravel(), self.x.shape[1]
        noise = self.sums.covariance[np.ix_(own, own)].reshape(columns, columns, columns, columns)
        squared = root @ np.einsum("acbd,cd->ab", noise, root @ root) @ root
        values, vectors = np.linalg.eigh(squared)
        most = np.abs(root @ vectors[:, -1])
        return float(np.sqrt(max(values[-1], 0.0))), int(most[1:].argmax()) + 1 if columns > 1 else 0

    def _in_units(self, found: Estimates) -> Estimates:
        """Coefficients of columns as they were before they were standardized."""
        back = np.diag(np.concatenate(([1.0], 1 / self.scales)))
        back[0, 1:] = -self.means / self.scales
        return Estimates(values=back @ found.values, covariance=back @ found.covariance @ back.T)

    def _of_model(self, kind: Kind) -> Floats:
        """Newton's method on the records as the model has them."""
        b = np.zeros(self.x.shape[1])
        for _ in range(_ROUNDS):
            p, slopes = self._mean(b, kind)
            curvature = (self.x.T * slopes) @ self.x
            if np.linalg.cond(curvature) > _SINGULAR:
                break
            step = np.linalg.solve(curvature, self.x.T @ (self.y - p))
            b = b + step
            if np.abs(step).max() < 1e-8 * (1 + np.abs(b).max()):
                return b
        raise InputError(
            "the regression has no single solution: columns follow from each other, or the target from them, or a value is one "
            "that hardly anybody has; leave one out"
        )


_SINGULAR = 1e12
_MOST_LEFT = 0.9
"""Of how far the model is off along some contrast of columns: what steps may leave."""


def _ignored(terms: Sequence[Term], places: Integers, sums: Floats) -> list[Floats]:
    """Of each term with ignored records what as many others add to the sums without its columns, shape (sums,) each."""
    found, end = list[Floats](), 1
    for term in terms:
        begin, end = end, end + len(term.weights)
        if term.ignored and sums[0] > 0:
            without = np.isin(np.arange(len(sums)), places[begin:end], invert=True)
            found.append(term.ignored / sums[0] * sums * without)
    return found


def _queries(terms: Sequence[Term], sizes: Mapping[int, int]) -> tuple[list[Weights], Integers]:
    """Sums of products of two of 1 and the columns of terms, and for each two the place of their sum.

    Codes that an axis of so many has beyond the weights of its term count nothing.
    """
    terms = [replace(t, weights=np.pad(t.weights, ((0, 0), (0, sizes[t.place] - t.weights.shape[1])))) for t in terms]
    ends = np.cumsum([1, *(len(term.weights) for term in terms)])
    found, places, asked = list[Weights]([{}]), np.zeros((ends[-1], ends[-1]), np.int64), 1
    for term, end in zip(terms, ends.tolist(), strict=False):
        columns = len(term.weights)
        rows, others = np.triu_indices(columns)
        found.append({term.place: np.concatenate((term.weights, term.weights[rows] * term.weights[others]))})
        places[0, end : end + columns] = asked + np.arange(columns)
        places[end + rows, end + others] = asked + columns + np.arange(len(rows))
        asked += columns + len(rows)
    for (one, begin), (other, end) in itertools.combinations(zip(terms, ends.tolist(), strict=False), 2):
        rows, others = np.indices((len(one.weights), len(other.weights))).reshape(2, -1)
        found.append(dict(sorted({one.place: one.weights[rows], other.place: other.weights[others]}.items())))
        places[begin + rows, end + others] = asked + np.arange(len(rows))
        asked += len(rows)
    return found, np.maximum(places, places.T)
