"""Several synthetic tables, each a draw of what the table may have been, and how analyses of them are combined.

Records of the fitted model get weights with which they have the measured counts of single columns and of pairs (iterative
proportional fitting: Deming and Stephan 1940). Each table has other ones: what was measured, fresh noise of the known size, and
for a population the deviation of a sample of so many records. Noise around the model's own counts would centre the tables where
the model is, which is too near to independence; that around measured counts is centred where the table is.

A weight cannot be negative, so neither can be what a set of cells is given. Cells that hold little beside their noise are taken
together, until what they hold is `_CLEAR` standard deviations of it: cut at 0 only then, they are hardly biased. Within such a
block, and beyond pairs, records keep to the model. DP: post-processing of released counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from marginweave.schemas.arrays import Floats, Integers, Records
from marginweave.tasks.answers.least_squares import Estimates, LeastSquares, NotMeasuredError
from marginweave.tasks.answers.tables import Part

LARGER = 5
"""Records of a set for each row: so many that their own variance, which is taken off again, is small."""
_CLEAR = 2.0
_ROUNDS = 40
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
    """Draws of a table: records of a model in its codes, shape (records, columns), and margins that they are given."""

    records: Records
    sizes: tuple[int, ...]
    margins: tuple[Margin, ...]
    rows: int

    @classmethod
    def of(cls, squares: LeastSquares, records: Records, columns: Sequence[Part]) -> DrawnTables:
        """Those of columns of a model, each the part of an axis that it tells apart.

        Raises:
            NotMeasuredError: two columns are in no measured table together, or divided otherwise.
        """
        sizes = tuple(part.size for part in columns)
        margins = [
            _pair(squares, records, columns, places) for places in itertools.combinations(range(len(columns)), 2)
        ]
        for place, part in enumerate(columns):
            found = squares.solve({part.axis: np.eye(part.size)[:, part.blocks]})
            values, vectors = np.linalg.eigh(found.covariance)
            margins.append(
                Margin(
                    places=(place,),
                    blocks=np.arange(part.size),
                    of_records=records[:, place].astype(np.int64),
                    estimates=found.values,
                    noise=vectors * np.sqrt(np.maximum(values, 0)),
                )
            )
        return cls(records=records, sizes=sizes, margins=tuple(margins), rows=max(round(squares.total[0]), 1))

    @property
    def weights(self) -> Floats:
        """Those of records that have the measured counts, as far as these are positive and agree; their sum is 1."""
        return self._fitted(self._told(None), np.full(len(self.records), 1.0))

    def draw(self, sets: int, generator: np.random.Generator, *, population: bool) -> Iterator[Records]:
        """So many tables: draws of the table, or of the population that it is a simple random sample of."""
        weights = self.weights  # post-processing: the generator draws around what was released
        for _ in range(sets):
            told = self._told(generator)
            if population:
                sample = generator.multinomial(self.rows, weights) - self.rows * weights
                moved = (np.bincount(own.of_records, sample, len(told[i])) for i, own in enumerate(self.margins))
                told = [counts + more for counts, more in zip(told, moved, strict=True)]
            own = self._fitted(told, np.maximum(weights, _LEAST))
            yield self.records[generator.choice(len(own), LARGER * self.rows, p=own)]

    def _told(self, generator: np.random.Generator | None) -> list[Floats]:
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

    def _fitted(self, told: Sequence[Floats], weights: Floats) -> Floats:
        targets = [np.maximum(counts, _LEAST) / np.maximum(counts, _LEAST).sum() for counts in told]
        for _ in range(_ROUNDS):
            for margin, target in zip(self.margins, targets, strict=True):
                now = np.bincount(margin.of_records, weights, len(target))
                weights = weights * (target / np.maximum(now, _LEAST))[margin.of_records]
                weights /= weights.sum()
        return weights


def _noise(margin: Margin, generator: np.random.Generator) -> Floats:
    if len(margin.places) == 1:
        return margin.noise @ generator.standard_normal(len(margin.noise))
    return _centered(generator.standard_normal(margin.estimates.shape) * margin.noise)


def _centered(table: Floats) -> Floats:
    """The part of a table that has no sums along rows and columns."""
    table = table - table.mean(axis=0)
    return table - table.mean(axis=1, keepdims=True)


def _pair(squares: LeastSquares, records: Records, columns: Sequence[Part], places: tuple[int, int]) -> Margin:
    """Residuals of two columns, and blocks of cells that hold enough by the model."""
    mine = {columns[place].axis: columns[place] for place in places}
    theirs = squares.divided(mine)
    centered = [np.eye(part.size)[_codes(mine[part.axis], part)] - 1 / part.size for part in theirs]
    signature = [squares.measured.parts.index(part) for part in theirs]
    residuals, variances, _ = squares.products(tuple(signature), (0, 1), centered)
    if theirs[0].axis != columns[places[0]].axis:
        residuals, variances = residuals.T, variances.T
    left = (1 - 1 / residuals.shape[0]) * (1 - 1 / residuals.shape[1])  # of the variance of a cell, after centering
    deviation = np.sqrt(variances[0, 0] / left) if left else np.zeros(())
    cells = np.ravel_multi_index(tuple(records[:, place] for place in places), residuals.shape)
    expected = np.bincount(cells, minlength=residuals.size).reshape(residuals.shape) * squares.total[0] / len(records)
    blocks = clear_blocks(expected, float(deviation)).ravel()
    return Margin(places=places, blocks=blocks, of_records=blocks[cells], estimates=residuals, noise=deviation)


def _codes(mine: Part, theirs: Part) -> Integers:
    """For each block of a part the block that a measured table has of the same codes."""
    found = mine.values(theirs.blocks[None].astype(np.float64))[0].astype(np.int64)
    if mine.size != theirs.size or not np.array_equal(found[mine.blocks], theirs.blocks):
        raise NotMeasuredError(merged=True)
    return found


def clear_blocks(expected: Floats, deviation: float) -> Integers:
    """Rectangles of a table, split in two as long as each half is expected to hold `_CLEAR` deviations of its noise.

    Args:
        expected: counts of the cells, shape (rows, columns).
        deviation: of the noise of a cell; that of m cells is sqrt(m) times as large.

    Returns:
        the number of the rectangle of each cell, shape (rows, columns).
    """
    blocks, waiting = np.zeros(expected.shape, np.int64), [(slice(0, len(expected)), slice(0, expected.shape[1]))]
    number = 0
    while waiting:
        rows, columns = waiting.pop()
        best, halves = -1.0, None
        for axis, span in enumerate((rows, columns)):
            sums = expected[rows, columns].sum(axis=1 - axis)
            cells = (columns, rows)[axis]
            width, before = cells.stop - cells.start, np.cumsum(sums)[:-1]
            after, lengths = sums.sum() - before, np.arange(1, len(sums))
            clear = _CLEAR * deviation * np.sqrt(width * np.stack([lengths, len(sums) - lengths]))
            fits = (np.stack([before, after]) >= clear).all(axis=0)
            balance = np.where(fits, np.minimum(before, after), -1.0)
            if balance.size and balance.max() > best:
                best, middle = balance.max(), span.start + int(balance.argmax()) + 1
                parts = slice(span.start, middle), slice(middle, span.stop)
                halves = [(part, columns) if axis == 0 else (rows, part) for part in parts]
        if halves is None:
            blocks[rows, columns] = number
            number += 1
        else:
            waiting += halves
    return blocks


def combined(estimates: Floats, covariances: Floats, level: float) -> tuple[Estimates, Floats]:
    """What analyses of draws of a table say together, and half the width of intervals.

    With B the covariance of the estimates between M sets and V the mean of those inside, the covariance is (1 + 1/M) B - V
    (Raghunathan, Reiter and Rubin 2003), which may be indefinite where M is small. A variance that is not positive is replaced
    by V (Räisä, Jälkö, Kaski and Honkela 2023). Intervals are those of t with (M - 1) (1 - V / ((1 + 1/M) B))^2 degrees of
    freedom.

    Args:
        estimates: shape (sets, coefficients).
        covariances: shape (sets, coefficients, coefficients).
        level: of the intervals.
    """
    sets = len(estimates)
    between, inside = np.atleast_2d(np.cov(estimates.T)) * (1 + 1 / sets), covariances.mean(axis=0)
    found = between - inside
    own, total = np.diagonal(inside), np.diagonal(between)
    positive = total > own
    np.fill_diagonal(found, np.where(positive, total - own, own))
    freedom = np.where(positive, (sets - 1) * (1 - own / np.where(positive, total, 1.0)) ** 2, np.inf)
    half = student.ppf((1 + level) / 2, freedom) * np.sqrt(np.diagonal(found))
    return Estimates(values=estimates.mean(axis=0), covariance=found), half
