"""Several synthetic tables: they vary as noise and sampling make the truth uncertain, and are centred where it was measured."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, chi2, norm
from scipy.stats import t as student

from marginweave.answers.least_squares import NotMeasuredError
from marginweave.answers.tables import Part
from marginweave.inference.margins import Column
from marginweave.inference.several_sets import DrawnTables, combined
from tests.support.dense_least_squares import Survey

FALSE_ALARM = 1e-6
SIZES, ROWS, RECORDS, SIGMA, SETS = (4, 3, 2), 20_000, 4_000, 60.0, 200
ALONE = tuple(((a,), SIGMA, False) for a in range(3))
PAIRS = tuple((pair, SIGMA, False) for pair in ((0, 1), (0, 2), (1, 2)))
SURVEY = Survey(sizes=SIZES, sets=(*ALONE, *PAIRS), merged=((0, 1, 2, 3), (0, 1, 2), (0, 1)))
COLUMNS = [
    Column(part=Part(axis=a, blocks=np.arange(size)), scores=np.eye(size)[1:], is_number=False)
    for a, size in enumerate(SIZES)
]


def _table() -> np.ndarray:
    """Shares of all cells, none of them small; the columns depend on each other."""
    a, b, c = np.meshgrid(*map(np.arange, SIZES), indexing="ij")
    shares = np.exp(-0.25 * (a - b) ** 2 + 0.3 * c * (a - 1.5))
    return shares / shares.sum()


def _independent_records() -> np.ndarray:
    """Records of a model that knows nothing of what columns have in common."""
    columns = [_table().sum(axis=tuple({0, 1, 2} - {a})) for a in range(3)]
    rng = np.random.default_rng(3)
    return np.stack([rng.choice(len(p), RECORDS, p=p) for p in columns], axis=1).astype(np.int32)


CONTRASTS = (
    ((0, 2), np.outer([-1, -1, 1, 1], [-1, 1])),
    ((0, 1), np.outer([1, 0, 0, -1], [1, 0, -1])),
)


@pytest.mark.parametrize("sampling", [0.0, 1.0, 4.0])
def test_sets_vary_around_what_was_measured_as_noise_and_sampling_do(sampling: float) -> None:
    """Mean and variance of two contrasts over 200 sets; each bound has a false alarm of 1e-6. Four rows a person count as such.

    The model is independent, so a set that was centred at the model would be dozens of deviations away.
    """
    rng, shares = np.random.default_rng(7), _table()
    squares = SURVEY.measure(np.rint(shares * ROWS), rng)
    drawn = DrawnTables.of(squares, _independent_records(), COLUMNS, sampling=sampling)
    sets = [*drawn.draw(SETS, np.random.default_rng(2))]
    for (a, b), contrast in CONTRASTS:
        found = [contrast[one[:, a], one[:, b]].mean() * ROWS for one in sets]
        weights = {
            a: np.eye(SIZES[a]).repeat(SIZES[b], axis=0),
            b: np.tile(np.eye(SIZES[b]), (SIZES[a], 1)),
        }
        known = squares.solve(weights)
        flat = contrast.ravel()
        center, p = (
            flat @ known.values * ROWS / squares.total[0],
            shares.sum(axis=3 - a - b).ravel(),
        )
        of_rows = ROWS * (p @ flat**2 - (p @ flat) ** 2)
        variance = flat @ known.covariance @ flat + sampling * of_rows
        assert abs(np.mean(found) - center) < norm.isf(FALSE_ALARM / 2) * math.sqrt(variance / SETS)
        ratio = float(np.var(found, ddof=1)) / variance * (SETS - 1)
        assert chi2.ppf(FALSE_ALARM, SETS - 1) < ratio < chi2.isf(FALSE_ALARM, SETS - 1)


def test_weights_give_records_the_measured_counts_of_pairs() -> None:
    squares = SURVEY.measure(np.rint(_table() * ROWS), np.random.default_rng(1))
    records = _independent_records()[:, :2]
    drawn = DrawnTables.of(squares, records, COLUMNS[:2], sampling=0.0)
    found = np.bincount(drawn.records[:, 0] * 3 + drawn.records[:, 1], drawn.weights, 12)
    alone = [squares.solve({a: np.eye(SIZES[a])}).values for a in (0, 1)]
    weights_of = {0: np.eye(4).repeat(3, axis=0), 1: np.tile(np.eye(3), (4, 1))}
    pairs = squares.solve(weights_of).values
    assert np.allclose(found, pairs / pairs.sum(), atol=1e-6)
    assert np.allclose(found.reshape(4, 3).sum(axis=1), alone[0] / alone[0].sum(), atol=1e-6)


def test_codes_of_a_measured_table_in_another_order() -> None:
    """A part may number its blocks otherwise than the model does: the same counts come to the same codes."""
    squares = SURVEY.measure(np.rint(_table() * ROWS), np.random.default_rng(1))
    records, turned = _independent_records()[:, :2], np.array([2, 0, 3, 1])
    straight = DrawnTables.of(squares, records, COLUMNS[:2], sampling=0.0)
    other = np.stack([turned[records[:, 0]], records[:, 1]], axis=1).astype(np.int32)
    other_part = replace(COLUMNS[0], part=Part(axis=0, blocks=turned))
    found = DrawnTables.of(squares, other, [other_part, COLUMNS[1]], sampling=0.0)
    back = np.argsort(turned)[found.records[:, 0]] * 3 + found.records[:, 1]
    pairs = straight.records[:, 0] * 3 + straight.records[:, 1]
    assert np.allclose(
        np.bincount(pairs, straight.weights), np.bincount(back, found.weights), atol=1e-4
    )


def test_columns_that_were_not_measured_together_are_refused() -> None:
    fewer = Survey(sizes=SIZES, sets=(*ALONE, *PAIRS[:-1]), merged=SURVEY.merged)
    squares = fewer.measure(np.rint(_table() * ROWS), np.random.default_rng(1))
    with pytest.raises(NotMeasuredError):
        DrawnTables.of(squares, _independent_records(), COLUMNS, sampling=0.0)
    merged_part = Part(axis=0, blocks=np.array([0, 0, 1, 2]))
    merged = [replace(COLUMNS[0], part=merged_part), COLUMNS[1]]
    records = _independent_records()[:, :2] // np.array([2, 1], np.int32)
    with pytest.raises(NotMeasuredError):
        DrawnTables.of(squares, records, merged, sampling=0.0)


def test_cells_below_their_noise_are_given_their_sum_alone() -> None:
    """Of a pair with some tiny cells, the records of these keep the model's shares of what they were measured to hold."""
    table = np.array([[5000.0, 3000, 10], [12, 4000, 3], [2000, 6, 900], [5, 2500, 2]])
    survey = Survey(sizes=(4, 3), sets=(*ALONE[:2], PAIRS[0]), merged=SURVEY.merged[:2])
    squares = survey.measure(table, np.random.default_rng(1))
    records = np.stack(
        np.unravel_index(np.arange(12).repeat(np.rint(table.ravel() / 2).astype(int)), (4, 3)),
        axis=1,
    )
    drawn = DrawnTables.of(squares, records.astype(np.int32), COLUMNS[:2], sampling=0.0)
    (pair,) = (one for one in drawn.margins if len(one.places) == 2)
    small = table.ravel() < SIGMA
    assert (pair.blocks[small] == 0).all()
    assert len(np.unique(pair.blocks[~small])) == (~small).sum()
    assert (pair.blocks[~small] > 0).all()


@pytest.mark.parametrize("rows_of_value", [100, 3_000])
@pytest.mark.parametrize("place_of_text", [0, 1])
def test_a_value_that_noise_hides_beside_a_number_is_known(
    rows_of_value: int, place_of_text: int
) -> None:
    """Of 20,000 rows 100 have the value, or 3,000, with noise of 60 a cell; wherever the text is."""
    of_text = np.array([ROWS - 6_000 - rows_of_value, 6_000, rows_of_value])
    table = np.rint(np.outer(np.full(4, 1 / 4), of_text))
    squares = Survey(
        sizes=(4, 3),
        sets=(((0,), SIGMA, False), ((1,), SIGMA, False), ((0, 1), SIGMA, False)),
        merged=((0, 1, 2, 3), (0, 1, 2)),
    ).measure(table, np.random.default_rng(5))
    number = replace(COLUMNS[0], scores=np.array([[-1.34, -0.45, 0.45, 1.34]]), is_number=True)
    cells = np.repeat(np.arange(12), table.ravel().astype(int))
    records = np.stack(np.unravel_index(cells, (4, 3)), axis=1).astype(np.int32)
    columns = [number, COLUMNS[1]]
    if place_of_text == 0:
        columns, records = columns[::-1], records[:, ::-1]
    drawn = DrawnTables.of(squares, records, columns, sampling=0.0)
    (pair,) = (one for one in drawn.margins if len(one.places) == 2)
    assert pair.hidden == (((place_of_text, 2),) if rows_of_value == 100 else ())


NUMBERS = np.linspace(-1.6, 1.6, 16)
"""Values of two columns of numbers; most of their 256 cells are nearly empty."""
NUMBER_COLUMNS = [
    Column(part=Part(axis=a, blocks=np.arange(16)), scores=NUMBERS[None], is_number=True)
    for a in range(2)
]
NUMBER_SURVEY = Survey(
    sizes=(16, 16),
    sets=(((0,), 6.0, False), ((1,), 6.0, False), ((0, 1), 10.0, False)),
    merged=(tuple(range(16)), tuple(range(16))),
)


def _numbers(width: float, rows: int = 4_000) -> np.ndarray:
    """Rows of two numbers that are closer to each other the smaller the width is."""
    shares = np.exp(-(((NUMBERS[:, None] - NUMBERS) / width) ** 2) / 2)
    return np.rint(shares / shares.sum() * rows)


def _slope(counts: np.ndarray) -> float:
    """Slope of the second number by the first."""
    centered = NUMBERS - counts.sum(axis=1) @ NUMBERS / counts.sum()
    of_second = NUMBERS - counts.sum(axis=0) @ NUMBERS / counts.sum()
    return float(centered @ counts @ of_second / (counts.sum(axis=1) @ centered**2))


def _drawn_numbers(width: float, seed: int) -> DrawnTables:
    """Draws of a noisy table of numbers, from a model that has half of the dependence."""
    table = _numbers(width)
    independent = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    model = np.rint((table + independent) / 2).astype(np.int64).ravel()
    records = np.stack(np.unravel_index(np.arange(256).repeat(model), (16, 16)), axis=1)
    squares = NUMBER_SURVEY.measure(table, np.random.default_rng(seed))
    return DrawnTables.of(squares, records.astype(np.int32), NUMBER_COLUMNS, sampling=0.0)


def test_slopes_of_numbers_are_not_pulled_towards_independence() -> None:
    """The mean error of the slope, .71, in 400 releases: .005 and what chance makes of it; false alarm 1e-6.

    To cut noisy cells at 0 makes the slope .04 less on average.
    """
    errors = []
    for seed in range(400):
        drawn = _drawn_numbers(0.8, seed)
        cells = drawn.records[:, 0] * 16 + drawn.records[:, 1]
        counts = np.bincount(cells, drawn.weights, 256).reshape(16, 16)
        errors.append(_slope(counts) - _slope(_numbers(0.8)))
    scale = float(np.std(errors)) / math.sqrt(len(errors))
    assert abs(np.mean(errors)) < 0.005 + norm.isf(FALSE_ALARM / 2) * scale
    assert scale < 0.003


def test_noise_beyond_what_records_can_have_is_seen() -> None:
    """Of numbers that follow from each other noise asks for more than that, unless it is far below; of others it does not."""
    carried = []
    for width in (0.8, 0.05):
        drawn = [_drawn_numbers(width, seed) for seed in range(5)]
        carried.append([one.carries(np.random.default_rng(seed)) for seed, one in enumerate(drawn)])
    assert all(carried[0])
    assert sum(carried[1]) <= 2


@pytest.mark.parametrize("rows", [300, 2_000])
def test_records_are_as_often_in_a_set_as_their_weights_say(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each but for rounding, so that sets of the same weights vary little: of 400 sets, beside a sample of the rows.

    Rounding of one record has a variance of at most a quarter. Independent draws would have .3 and .45 of a sample's variance.
    """
    rng, distinct = np.random.default_rng(4), 3_000
    records = np.stack(np.unravel_index(np.arange(distinct), (60, 50)), axis=1).astype(np.int32)
    weights = rng.dirichlet(np.ones(distinct))
    drawn = DrawnTables(records=records, model=weights, margins=(), rows=rows, sampling=0.0)
    monkeypatch.setattr(DrawnTables, "_drawn", lambda *_: (weights, np.zeros(0)))
    times = np.zeros(distinct)
    values = rng.normal(size=distinct)
    means = []
    for one in drawn.draw(400, rng):
        assert len(one) == drawn.size >= rows
        cells = one[:, 0] * 50 + one[:, 1]
        counts = np.bincount(cells, minlength=distinct)
        assert (np.abs(counts - weights * drawn.size) < 1).all()
        times += counts
        means.append(values[cells].mean())
    deviation = math.sqrt(400) / 2
    assert (np.abs(times - 400 * weights * drawn.size) < 6.5 * deviation).all()
    of_sample = (weights @ values**2 - (weights @ values) ** 2) / rows
    ratio = float(np.var(means, ddof=1)) / of_sample
    most = chi2.isf(FALSE_ALARM, 399) / 399
    assert ratio < 0.075 * (values**2).mean() / (of_sample * rows) * most


def test_a_set_is_in_random_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a part of it is a sample: the first half of a set has half of each of two values, but for chance."""
    records = np.array([[0, 0], [1, 0]], np.int32)
    weights = np.array([0.5, 0.5])
    drawn = DrawnTables(records=records, model=weights, margins=(), rows=20_000, sampling=0.0)
    monkeypatch.setattr(DrawnTables, "_drawn", lambda *_: (weights, np.zeros(0)))
    (one,) = drawn.draw(1, np.random.default_rng(3))
    assert one[:, 0].sum() == 10_000
    half = int(one[:10_000, 0].sum())
    assert abs(half - 5_000) < norm.isf(FALSE_ALARM / 2) * math.sqrt(10_000 / 4)


@pytest.mark.parametrize(("spread", "sets"), [(5.0, 20), (0.3, 5)])
def test_combined_intervals_cover_as_often_as_they_say(spread: float, sets: int) -> None:
    """A release is off by noise and sampling, and sets vary around it by as much: 80 % of 4,000, by Student's t."""
    rng, trials, level = np.random.default_rng(5), 4_000, 0.8
    hits = 0
    for _ in range(trials):
        center = rng.normal(0, math.sqrt(spread))
        estimates = rng.normal(center, math.sqrt(spread), (sets, 1))
        found, half = combined(estimates, np.full((sets, 1, 1), spread / 10), level)
        hits += bool(abs(found.values[0]) <= half[0])
    assert binom.ppf(FALSE_ALARM, trials, level) <= hits <= binom.isf(FALSE_ALARM, trials, level)


def test_a_variance_is_at_least_a_fifth_of_that_inside_the_sets() -> None:
    estimates = np.array([[1.0, 0.0], [1.1, 4.0], [0.9, -4.0]])
    inside = np.array([[[1.0, 0.3], [0.3, 2.0]]] * 3)
    found, half = combined(estimates, inside, 0.95)
    assert np.allclose(found.values, [1.0, 0.0])
    total = np.array([1 / 5, 16 * 4 / 3])
    assert np.allclose(np.diagonal(found.covariance), total)
    assert np.allclose(half, student.ppf(0.975, 2) * np.sqrt(total))
    assert np.array_equal(found.covariance, found.covariance.T)
