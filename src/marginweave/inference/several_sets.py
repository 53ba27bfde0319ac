"""Several synthetic tables, each a draw of a table that agrees with the release, and the combination of analyses of them.

Records of the fitted model get weights with which they have the measured counts of single columns and of pairs (iterative
proportional fitting: Deming and Stephan 1940). Each table has different counts: the measured ones, with fresh noise of the
known size and for a population with the deviation of a sample of the same size. Noise around the model's own counts would
center the tables at the model, which is too close to independence; noise around measured counts centers them at the table.

A weight cannot be negative, so neither can the target of a cell: counts that noise took below 0 are cut there, which pulls
columns towards independence. So the cells of a pair that hold less than the noise of a cell, by the model, have a target for
their sum alone; among themselves, and beyond pairs, records keep to the model. DP: post-processing.
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
"""Records of a set for each row. More of them make their own variance smaller, which is subtracted again."""
_ROUNDS = 30
_LEAST = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class Margin:
    """A single column, or a pair of columns in blocks: the block of each cell and of each record, and measured counts.

    `estimates` are counts of the cells of a column, or residuals of the cells of a pair. `noise` is a matrix that turns normal
    numbers into noise of a column, or the standard deviation of the noise of a pair's cell.
    """

    places: tuple[int, ...]
    blocks: Integers
    of_records: Integers
    estimates: Floats
    noise: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnTables:
    """Draws of a table: distinct records of a model in its codes, shape (records, columns), and margins to fit them to.

    `model` has the shares of the records.
    """

    records: Records
    model: Floats
    margins: tuple[Margin, ...]
    rows: int

    @classmethod
    def of(cls, squares: LeastSquares, records: Records, columns: Sequence[Part]) -> DrawnTables:
        """Return the draws of columns of a model; each column is the part of an axis that the model tells apart.

        Raises:
            NotMeasuredError: two columns are in no measured table together, or divided otherwise.
        """
        distinct, times = np.unique(records, axis=0, return_counts=True)
        model = times / times.sum()
        pairs = itertools.combinations(range(len(columns)), 2)
        pair_margins = [_pair(squares, distinct, model, columns, places) for places in pairs]
        single_margins = [
            _single(squares, distinct, part, place) for place, part in enumerate(columns)
        ]
        margins = (*pair_margins, *single_margins)  # `_targets` needs single columns last
        rows = max(round(squares.total[0]), 1)
        return cls(records=distinct, model=model, margins=margins, rows=rows)

    @property
    def weights(self) -> Floats:
        """Weights of records with the measured counts, as far as these are positive and agree; their sum is 1."""
        return self._fitted(self._targets(None), self.model)

    def draw(
        self,
        sets: int,
        generator: np.random.Generator,
        *,
        sampling: float,
    ) -> Iterator[Records]:  # post-processing
        """Yield `sets` tables: draws of the table, or of the population that it is a sample of.

        `sampling` is the factor of the sampling variance of the rows: 0 for the table, 1 for rows that are independent draws,
        and the most rows of a subject where these are kept together, which is at least their variance.
        """
        weights = self.weights
        for _ in range(sets):
            targets = self._targets(generator)
            if sampling:
                sample = generator.multinomial(self.rows, weights)
                deviations = np.sqrt(sampling) * (sample - self.rows * weights)
                for i, margin in enumerate(self.margins):
                    block_deviations = np.bincount(margin.of_records, deviations, len(targets[i]))
                    targets[i] = targets[i] + block_deviations
            drawn_weights = self._fitted(targets, np.maximum(weights, _LEAST))
            yield self.records[
                generator.choice(len(drawn_weights), LARGER * self.rows, p=drawn_weights)
            ]

    def _targets(self, generator: np.random.Generator | None) -> list[Floats]:  # post-processing
        """Return the counts of the blocks of each margin as measured, with fresh noise if there is a generator."""
        counts_of_column: dict[int, Floats] = {}
        targets: list[Floats] = []
        for margin in reversed(self.margins):  # single columns are last
            counts = margin.estimates
            if generator is not None:
                counts = counts + _noise(margin, generator)
            if len(margin.places) == 1:
                counts_of_column[margin.places[0]] = counts
            else:
                first_place, second_place = margin.places
                first = counts_of_column[first_place]
                second = counts_of_column[second_place]
                total = (first.sum() + second.sum()) / 2
                # residual_ij + first_i / J + (second_j - total / J) / I
                row_part = first[:, None] / len(second)
                column_part = (second - total / len(second)) / len(first)
                counts = counts + row_part + column_part
            block_counts = np.bincount(margin.blocks, counts.ravel())
            targets.append(np.asarray(block_counts, np.float64))
        return targets[::-1]

    def _fitted(self, targets: Sequence[Floats], weights: Floats) -> Floats:
        """Return weights with which the records of each block have the share of its target, as far as targets agree."""
        positive = [np.maximum(counts, _LEAST) for counts in targets]
        for _ in range(_ROUNDS):
            for margin, target in zip(self.margins, positive, strict=True):
                block_weights = np.bincount(margin.of_records, weights, len(target))
                factors = target / target.sum() / np.maximum(block_weights, _LEAST)
                weights = weights * factors[margin.of_records]
                weights /= weights.sum()
        return weights


def _noise(margin: Margin, generator: np.random.Generator) -> Floats:  # post-processing
    """Return fresh noise of the known size, for the estimates of a margin."""
    if len(margin.places) == 1:
        return margin.noise @ generator.standard_normal(len(margin.noise))
    return _centered(generator.standard_normal(margin.estimates.shape) * margin.noise)


def _centered(table: Floats) -> Floats:
    """Return the part of a table that has no sums along rows and columns."""
    without_rows = table - table.mean(axis=0)
    centered: Floats = without_rows - without_rows.mean(axis=1, keepdims=True)
    return centered


def _single(squares: LeastSquares, records: Records, part: Part, place: int) -> Margin:
    """Return the margin of a column."""
    indicators = np.eye(part.size)[:, part.blocks]
    counts = squares.solve({part.axis: indicators})
    values, vectors = np.linalg.eigh(counts.covariance)
    return Margin(
        places=(place,),
        blocks=np.arange(part.size),
        of_records=records[:, place].astype(np.int64),
        estimates=counts.values,
        noise=vectors * np.sqrt(np.maximum(values, 0)),
    )


def _pair(
    squares: LeastSquares,
    records: Records,
    model: Floats,
    columns: Sequence[Part],
    places: tuple[int, int],
) -> Margin:
    """Return the margin of two columns, with a block for each cell of more records than its noise, and one for all others."""
    model_parts = {columns[place].axis: columns[place] for place in places}
    measured_parts = squares.finest_parts(model_parts)
    centered: list[Floats] = []
    for part in measured_parts:
        codes = _codes(model_parts[part.axis], part)
        centered.append(np.eye(part.size)[codes] - 1 / part.size)
    signature = [squares.measured.parts.index(part) for part in measured_parts]
    residuals, variances, _ = squares.products(tuple(signature), (0, 1), centered)
    if measured_parts[0].axis != columns[places[0]].axis:
        residuals = residuals.T
        variances = variances.T

    rows, width = residuals.shape
    # the share of the variance of a cell that centering leaves
    remaining = (1 - 1 / rows) * (1 - 1 / width)
    deviation = np.sqrt(variances[0, 0] / remaining) if remaining else np.zeros(())
    cells = np.ravel_multi_index(tuple(records[:, place] for place in places), residuals.shape)
    expected = np.bincount(cells, model, residuals.size) * squares.total[0]
    is_clear = expected > deviation
    numbers = np.where(is_clear, np.cumsum(is_clear), 0)
    blocks = np.unique(numbers, return_inverse=True)[1]
    return Margin(
        places=places, blocks=blocks, of_records=blocks[cells], estimates=residuals, noise=deviation
    )


def _codes(model_part: Part, measured_part: Part) -> Integers:
    """Return, for each block of the model's part, the block that a measured table has of the same codes."""
    measured_blocks = measured_part.blocks[None].astype(np.float64)
    blocks: Integers = model_part.values(measured_blocks)[0].astype(np.int64)
    if model_part.size != measured_part.size or not np.array_equal(
        blocks[model_part.blocks], measured_part.blocks
    ):
        raise NotMeasuredError(merged=True)
    return blocks


def combined(estimates: Floats, covariances: Floats, level: float) -> tuple[Estimates, Floats]:
    """Return the combined estimates of analyses of draws of a table, and half the widths of intervals.

    With B the covariance of the estimates between M sets and V the mean of those inside, the covariance is T = (1 + 1/M) B - V
    (Raghunathan, Reiter and Rubin 2003), which may be indefinite where M is small. A variance that is less than V is replaced
    by V, because the difference is then mostly chance: intervals cover more than their level. They are those of Student's t
    with (M - 1) (1 - V / (T + V))^2 degrees of freedom, at least 1.

    Args:
        estimates: shape (sets, coefficients).
        covariances: shape (sets, coefficients, coefficients).
        level: of the intervals.
    """
    sets = len(estimates)
    between = np.atleast_2d(np.cov(estimates.T)) * (1 + 1 / sets)  # (1 + 1/M) B
    inside = covariances.mean(axis=0)  # V
    covariance = between - inside
    inside_variances = np.diagonal(inside)
    total = np.diagonal(between)
    variances = np.maximum(total - inside_variances, inside_variances)
    np.fill_diagonal(covariance, variances)
    # 1 - V / (T + V) = T / (T + V)
    sums = np.maximum(variances + inside_variances, np.finfo(float).tiny)
    freedom = (sets - 1) * (variances / sums) ** 2
    quantiles = student.ppf((1 + level) / 2, np.maximum(freedom, 1.0))
    half_widths = quantiles * np.sqrt(variances)
    return Estimates(values=estimates.mean(axis=0), covariance=covariance), half_widths
