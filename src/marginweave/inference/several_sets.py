"""Several synthetic tables, each a draw of what the table may have been, and how analyses of them are combined.

Records of the fitted model get weights with which they have the measured counts of single columns and of pairs (iterative
proportional fitting: Deming and Stephan 1940). Each table has other ones: what was measured, fresh noise of the known size, and
for a population the deviation of a sample of so many records. Noise around the model's own counts would center the tables where
the model is, which is too near to independence; that around measured counts is centered where the table is.

A weight cannot be negative, so neither can be what cells are given: counts that noise took below 0 are cut there, which pulls
columns towards independence. So the cells of a pair that hold less than the noise of one by the model are given their sum
alone; among themselves, and beyond pairs, records keep to the model. DP: post-processing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from marginweave.answers.least_squares import Estimates, LeastSquares, NotMeasuredError
from marginweave.answers.tables import Part
from marginweave.base.arrays import Floats, Integers, Records

LARGER = 5
"""Records of a set for each row: so many that their own variance, which is taken off again, is small."""
_ROUNDS = 30
_LEAST = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class Margin:
    """A single column, or a pair of them in blocks: the block of each cell, of each record, and what was measured.

    `estimates` are counts of the cells of a column, residuals of those of a pair; `noise` is a matrix that makes noise of them
    from normal numbers, or the deviation of that of a pair's cell.
    """

    places: tuple[int, ...]
    blocks: Integers
    of_records: Integers
    estimates: Floats
    noise: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnTables:
    """Draws of a table: distinct records of a model in its codes, shape (records, columns), and margins that they are given.

    `model` are their shares.
    """

    records: Records
    model: Floats
    margins: tuple[Margin, ...]
    rows: int

    @classmethod
    def of(cls, squares: LeastSquares, records: Records, columns: Sequence[Part]) -> DrawnTables:
        """Those of columns of a model, each the part of an axis that it tells apart.

        Raises:
            NotMeasuredError: two columns are in no measured table together, or divided otherwise.
        """
        records, times = np.unique(records, axis=0, return_counts=True)
        model = times / times.sum()
        singles = (_single(squares, records, part, place) for place, part in enumerate(columns))
        pairs = (_pair(squares, records, model, columns, p) for p in itertools.combinations(range(len(columns)), 2))
        margins = (*pairs, *singles)
        return cls(records=records, model=model, margins=margins, rows=max(round(squares.total[0]), 1))

    @property
    def weights(self) -> Floats:
        """Those of records that have the measured counts, as far as these are positive and agree; their sum is 1."""
        return self._fitted(self._targets(None), self.model)

    def draw(
        self, sets: int, generator: np.random.Generator, *, sampling: float
    ) -> Iterator[Records]:  # post-processing
        """So many tables: draws of the table, or of the population that it is a sample of.

        `sampling` is by what the sampling variance of so many rows counts: 0 for the table, 1 for rows that are independent
        draws, and the most rows of a subject where these are kept together, which is no less than what they vary by.
        """
        weights = self.weights
        for _ in range(sets):
            targets = self._targets(generator)
            if sampling:
                sample = np.sqrt(sampling) * (generator.multinomial(self.rows, weights) - self.rows * weights)
                moved = (np.bincount(own.of_records, sample, len(targets[i])) for i, own in enumerate(self.margins))
                targets = [counts + more for counts, more in zip(targets, moved, strict=True)]
            own = self._fitted(targets, np.maximum(weights, _LEAST))
            yield self.records[generator.choice(len(own), LARGER * self.rows, p=own)]

    def _targets(self, generator: np.random.Generator | None) -> list[Floats]:  # post-processing
        """The counts of the blocks of each margin as they were measured, with fresh noise if there is a generator."""
        singles, found = dict[int, Floats](), list[Floats]()
        for margin in reversed(self.margins):  # single columns are last
            counts = margin.estimates
            if generator is not None:
                counts = counts + _noise(margin, generator)
            if len(margin.places) == 1:
                singles[margin.places[0]] = counts
            else:
                one, other = (singles[place] for place in margin.places)
                total = (one.sum() + other.sum()) / 2
                counts = counts + one[:, None] / len(other) + (other - total / len(other)) / len(one)
            found.append(np.asarray(np.bincount(margin.blocks, counts.ravel()), np.float64))
        return found[::-1]

    def _fitted(self, targets: Sequence[Floats], weights: Floats) -> Floats:
        """Weights with which the records of each block have the share of its target, as far as targets agree."""
        positive = [np.maximum(counts, _LEAST) for counts in targets]
        for _ in range(_ROUNDS):
            for margin, target in zip(self.margins, positive, strict=True):
                now = np.bincount(margin.of_records, weights, len(target))
                weights = weights * (target / target.sum() / np.maximum(now, _LEAST))[margin.of_records]
                weights /= weights.sum()
        return weights


def _noise(margin: Margin, generator: np.random.Generator) -> Floats:  # post-processing
    """Fresh noise of the known size, for the estimates of a margin."""
    if len(margin.places) == 1:
        return margin.noise @ generator.standard_normal(len(margin.noise))
    return _centered(generator.standard_normal(margin.estimates.shape) * margin.noise)


def _centered(table: Floats) -> Floats:
    """The part of a table that has no sums along rows and columns."""
    table = table - table.mean(axis=0)
    found: Floats = table - table.mean(axis=1, keepdims=True)
    return found


def _single(squares: LeastSquares, records: Records, part: Part, place: int) -> Margin:
    """The counts of a column."""
    found = squares.solve({part.axis: np.eye(part.size)[:, part.blocks]})
    values, vectors = np.linalg.eigh(found.covariance)
    return Margin(
        places=(place,),
        blocks=np.arange(part.size),
        of_records=records[:, place].astype(np.int64),
        estimates=found.values,
        noise=vectors * np.sqrt(np.maximum(values, 0)),
    )


def _pair(
    squares: LeastSquares, records: Records, model: Floats, columns: Sequence[Part], places: tuple[int, int]
) -> Margin:
    """Residuals of two columns; a block for each cell that holds more than its noise by the model, and one for all others."""
    mine = {columns[place].axis: columns[place] for place in places}
    theirs = squares.finest_parts(mine)
    centered = [np.eye(part.size)[_codes(mine[part.axis], part)] - 1 / part.size for part in theirs]
    signature = [squares.measured.parts.index(part) for part in theirs]
    residuals, variances, _ = squares.products(tuple(signature), (0, 1), centered)
    if theirs[0].axis != columns[places[0]].axis:
        residuals, variances = residuals.T, variances.T
    left = (1 - 1 / residuals.shape[0]) * (1 - 1 / residuals.shape[1])  # of the variance of a cell, after centering
    deviation = np.sqrt(variances[0, 0] / left) if left else np.zeros(())
    cells = np.ravel_multi_index(tuple(records[:, place] for place in places), residuals.shape)
    expected = np.bincount(cells, model, residuals.size) * squares.total[0]
    clear = expected > deviation
    blocks = np.unique(np.where(clear, np.cumsum(clear), 0), return_inverse=True)[1]
    return Margin(places=places, blocks=blocks, of_records=blocks[cells], estimates=residuals, noise=deviation)


def _codes(mine: Part, theirs: Part) -> Integers:
    """For each block of a part the block that a measured table has of the same codes."""
    found: Integers = mine.values(theirs.blocks[None].astype(np.float64))[0].astype(np.int64)
    if mine.size != theirs.size or not np.array_equal(found[mine.blocks], theirs.blocks):
        raise NotMeasuredError(merged=True)
    return found


def combined(estimates: Floats, covariances: Floats, level: float) -> tuple[Estimates, Floats]:
    """What analyses of draws of a table say together, and half the width of intervals.

    With B the covariance of the estimates between M sets and V the mean of those inside, the covariance is T = (1 + 1/M) B - V
    (Raghunathan, Reiter and Rubin 2003), which may be indefinite where M is small. A variance that is less than V is replaced
    by V, as the difference is then mostly chance: intervals cover more than they say. They are those of Student's t with
    (M - 1) (1 - V / (T + V))^2 degrees of freedom, at least 1.

    Args:
        estimates: shape (sets, coefficients).
        covariances: shape (sets, coefficients, coefficients).
        level: of the intervals.
    """
    sets = len(estimates)
    between, inside = np.atleast_2d(np.cov(estimates.T)) * (1 + 1 / sets), covariances.mean(axis=0)
    found = between - inside
    own, total = np.diagonal(inside), np.diagonal(between)
    variances = np.maximum(total - own, own)
    np.fill_diagonal(found, variances)
    freedom = (sets - 1) * (variances / np.maximum(variances + own, np.finfo(float).tiny)) ** 2
    half = student.ppf((1 + level) / 2, np.maximum(freedom, 1.0)) * np.sqrt(variances)
    return Estimates(values=estimates.mean(axis=0), covariance=found), half
