"""Margins that synthetic tables are fitted to: measured counts of cells, and sums that follow from them without bias.

Counts of cells are cut at 0, as no record has a negative weight. The mass that is cut is spread over all cells, which pulls
columns towards independence: of two columns of twenty bins half of the dependence may be lost. So numbers of a pair also have
sums of their products, and of products with indicators of values. Noise leaves these unbiased, and nothing of them is cut.
DP: post-processing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from marginweave.answers.least_squares import LeastSquares, NotMeasuredError
from marginweave.answers.tables import Part
from marginweave.base.arrays import Floats, Integers, Records

LEAST = 1e-12
_CARRIED = 0.5
"""Noise of a sum of products with an indicator, in standard deviations of the number; with more, the sum is left out."""
_ROUNDS = 50
_LONGEST_STEP = 1.0
"""The most that one step changes the logarithm of a weight."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """A column of drawn tables: the part of an axis that the model tells apart, and scores of its codes, (scores, codes).

    Scores of a number are its distance from the mean in standard deviations, 0 where it is missing, and whether it is missing.
    Those of texts are indicators.
    """

    part: Part
    scores: Floats
    is_number: bool

    @property
    def has_gaps(self) -> bool:
        """True for a number that some records lack."""
        return self.is_number and len(self.scores) > 1


@dataclass(frozen=True, kw_only=True, eq=False)
class MarginTarget:
    """What a margin is to have: counts of its blocks, and sums of its products for each record."""

    counts: Floats
    sums: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Margin:
    """A single column, or a pair of columns in blocks: the block of each cell and of each record, and measured counts.

    `estimates` are counts of the cells of a column, or residuals of the cells of a pair. `noise` is a matrix that turns normal
    numbers into noise of a column, or the standard deviation of the noise of a pair's cell. `products` of scores have a value
    for each cell, shape (products, cells); there are none where both columns are texts. `hidden` has place and code of each
    value of a text that is so rare that noise hides what it has in common with the number beside it: it has no product.
    """

    places: tuple[int, ...]
    blocks: Integers
    of_records: Integers
    estimates: Floats
    noise: Floats
    products: Floats
    of_cells: Integers
    hidden: tuple[tuple[int, int], ...] = ()

    def target(self, counts: Floats) -> MarginTarget:
        """Return what the margin is to have by these counts of cells."""
        cells = counts.ravel()
        total = max(cells.sum(), LEAST)
        block_counts = np.bincount(self.blocks, cells)
        sums: Floats = self.products @ cells / total
        positive = np.maximum(block_counts, LEAST)
        if len(self.places) == 1 and len(sums):
            positive = _with_sums(positive / positive.sum(), self.products, sums) * total
        return MarginTarget(counts=positive, sums=sums)

    def fresh_noise(self, generator: np.random.Generator) -> Floats:  # post-processing
        """Return fresh noise of the known size, for the estimates."""
        if len(self.places) == 1:
            noise: Floats = self.noise @ generator.standard_normal(len(self.noise))
            return noise
        return _centered(generator.standard_normal(self.estimates.shape) * self.noise)

    def with_counts(self, weights: Floats, target: MarginTarget) -> Floats:
        """Return weights of records with which each block has the share of its target."""
        block_weights = np.bincount(self.of_records, weights, len(target.counts))
        factors = target.counts / target.counts.sum() / np.maximum(block_weights, LEAST)
        fitted: Floats = weights * factors[self.of_records]
        return fitted / fitted.sum()

    def with_sums(self, weights: Floats, target: MarginTarget) -> Floats:
        """Return weights of records that are one step closer to the sums of the target."""
        cell_weights = np.bincount(self.of_cells, weights, self.products.shape[1])
        tilt = _tilt(cell_weights.astype(np.float64), self.products, target.sums)
        tilted: Floats = weights * np.exp(tilt)[self.of_cells]
        return tilted / tilted.sum()

    def gaps(self, weights: Floats, target: MarginTarget) -> Floats:
        """Return how far mean products are from their targets, shape (products,)."""
        cell_weights = np.bincount(self.of_cells, weights, self.products.shape[1])
        gaps: Floats = self.products @ cell_weights - target.sums
        return gaps

    def noise_of_sums(self, total: float) -> Floats:
        """Return the standard deviation of the noise of each mean product of a pair, of `total` records."""
        products = self.products.reshape(-1, *self.estimates.shape)
        centered = products - products.mean(axis=1, keepdims=True)
        centered = centered - centered.mean(axis=2, keepdims=True)
        lengths: Floats = np.sqrt((centered**2).sum(axis=(1, 2)))
        return lengths * self.noise / total


def single_margin(squares: LeastSquares, records: Records, column: Column, place: int) -> Margin:
    """Return the margin of a column; a number has sums of itself and of its square."""
    part = column.part
    counts = squares.solve({part.axis: np.eye(part.size)[:, part.blocks]})
    values, vectors = np.linalg.eigh(counts.covariance)
    products = np.zeros((0, part.size))
    if column.is_number:
        products = np.concatenate((column.scores, column.scores[:1] ** 2))
    codes = records[:, place].astype(np.int64)
    return Margin(
        places=(place,),
        blocks=np.arange(part.size),
        of_records=codes,
        estimates=counts.values,
        noise=vectors * np.sqrt(np.maximum(values, 0)),
        products=products,
        of_cells=codes,
    )


def pair_margin(
    squares: LeastSquares,
    records: Records,
    model: Floats,
    columns: Sequence[Column],
    places: tuple[int, int],
) -> Margin:
    """Return the margin of two columns, with a block for each cell of more records than its noise, and one for all others.

    Raises:
        NotMeasuredError: the columns are in no measured table together, or divided otherwise.
    """
    pair = [columns[place] for place in places]
    residuals, deviation = _residuals(squares, [column.part for column in pair])
    cells = np.ravel_multi_index(tuple(records[:, place] for place in places), residuals.shape)
    counted = np.bincount(cells, model, residuals.size).astype(np.float64)
    expected: Floats = counted * float(squares.total[0])
    is_clear = expected > deviation
    numbers = np.where(is_clear, np.cumsum(is_clear), 0)
    blocks = np.unique(numbers, return_inverse=True)[1]
    table = expected.reshape(residuals.shape)
    return Margin(
        places=places,
        blocks=blocks,
        of_records=blocks[cells],
        estimates=residuals,
        noise=deviation,
        products=_products(pair, table, float(deviation)),
        of_cells=cells,
        hidden=tuple(_hidden(pair, places, table, float(deviation))),
    )


def _residuals(squares: LeastSquares, parts: Sequence[Part]) -> tuple[Floats, Floats]:
    """Return what two columns have beyond single ones, by codes of the model, and the standard deviation of a cell's noise."""
    model_parts = {part.axis: part for part in parts}
    measured_parts = squares.finest_parts(model_parts)
    centered: list[Floats] = []
    for part in measured_parts:
        codes = _codes(model_parts[part.axis], part)
        centered.append(np.eye(part.size)[codes] - 1 / part.size)
    signature = [squares.measured.parts.index(part) for part in measured_parts]
    residuals, variances, _ = squares.products(tuple(signature), (0, 1), centered)
    if measured_parts[0].axis != parts[0].axis:
        residuals = residuals.T
        variances = variances.T
    rows, width = residuals.shape
    # the share of the variance of a cell that centering leaves
    remaining = (1 - 1 / rows) * (1 - 1 / width)
    deviation = np.sqrt(variances[0, 0] / remaining) if remaining else np.zeros(())
    return residuals, deviation


def _products(pair: Sequence[Column], expected: Floats, deviation: float) -> Floats:
    """Return the products of scores of a pair that its noise carries, shape (products, cells).

    Two numbers always have theirs. One with an indicator is left out where the number would not be known well among these
    records: there nothing but cells and the model says what they have in common.
    """
    if not any(column.is_number for column in pair):
        return np.zeros((0, expected.size))
    first, second = pair
    pairs = list(itertools.product(first.scores, second.scores))
    # the variance of a number among records that lack the other one
    if first.is_number and second.has_gaps:
        pairs.append((first.scores[0] ** 2, second.scores[1]))
    if second.is_number and first.has_gaps:
        pairs.append((first.scores[1], second.scores[0] ** 2))
    are_kept = [_is_carried(one, other, expected, deviation) for one, other in pairs]
    if first.is_number and second.is_number:
        are_kept[0] = True
    kept = [scores for scores, is_kept in zip(pairs, are_kept, strict=True) if is_kept]
    products = [np.outer(one, other).ravel() for one, other in kept]
    return np.array(products).reshape(-1, expected.size)


def _hidden(
    pair: Sequence[Column], places: Sequence[int], expected: Floats, deviation: float
) -> Iterator[tuple[int, int]]:
    """Yield place and code of each value of a text whose product with the number beside it is left out."""
    if pair[0].is_number == pair[1].is_number:
        return
    if pair[0].is_number:
        number, text = pair
        place = places[1]
        of_text = expected
    else:
        text, number = pair
        place = places[0]
        of_text = expected.T
    for indicator in text.scores:
        if not _is_carried(number.scores[0], indicator, of_text, deviation):
            yield place, int(indicator.argmax())


def _is_carried(one: Floats, other: Floats, expected: Floats, deviation: float) -> bool:
    """Return whether the noise of a sum of products is less than a half of what records make of it."""
    noise = deviation * _spread(one) * _spread(other)
    total = max(expected.sum(), LEAST)
    records = one**2 @ expected.sum(axis=1) * (other**2 @ expected.sum(axis=0)) / total
    return bool(noise <= _CARRIED * records)


def _spread(scores: Floats) -> float:
    """Return the length of scores, centered."""
    return float(np.linalg.norm(scores - scores.mean()))


def _with_sums(weights: Floats, products: Floats, sums: Floats) -> Floats:
    """Return weights with these sums of products, as far as any have them."""
    for _ in range(_ROUNDS):
        tilt = _tilt(weights, products, sums)
        weights = weights * np.exp(tilt)
        weights = weights / weights.sum()
        if np.abs(tilt).max() < 1e-9:
            break
    return weights


def _tilt(weights: Floats, products: Floats, sums: Floats) -> Floats:
    """Return the change of the logarithm of each weight by one step of Newton's method towards sums of products."""
    means = products @ weights
    spread = (products * weights) @ products.T - np.outer(means, means)
    step = np.linalg.lstsq(spread, sums - means, rcond=1e-10)[0]
    tilt = step @ (products - means[:, None])
    largest = np.abs(tilt[weights > LEAST]).max(initial=0.0)
    return np.clip(tilt * min(1.0, _LONGEST_STEP / max(largest, LEAST)), -30, _LONGEST_STEP)


def _centered(table: Floats) -> Floats:
    """Return the part of a table that has no sums along rows and columns."""
    without_rows = table - table.mean(axis=0)
    centered: Floats = without_rows - without_rows.mean(axis=1, keepdims=True)
    return centered


def _codes(model_part: Part, measured_part: Part) -> Integers:
    """Return, for each block of the model's part, the block that a measured table has of the same codes."""
    measured_blocks = measured_part.blocks[None].astype(np.float64)
    blocks: Integers = model_part.values(measured_blocks)[0].astype(np.int64)
    if model_part.size != measured_part.size or not np.array_equal(
        blocks[model_part.blocks], measured_part.blocks
    ):
        raise NotMeasuredError(merged=True)
    return blocks
