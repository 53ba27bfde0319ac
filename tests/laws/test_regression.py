"""Intervals of regressions cover as often as they say, although the model whose records are weighted is far off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.stats import binom

from marginweave.answers.least_squares import NotMeasuredError
from marginweave.base.errors import InputError
from marginweave.inference.normal_regression import Calibrated, Kind, Term
from tests.support.dense_least_squares import Survey

FALSE_ALARM, RELEASES, LEVEL, Z = 1e-6, 400, 0.8, 1.2816
ROWS, RECORDS, SIGMA = 1500, 1000, 10.0
PAIRS = ((0, 1), (0, 2), (1, 2))
SURVEY = Survey(
    sizes=(4, 3, 2),
    sets=(*(((a,), SIGMA, False) for a in range(3)), *((pair, SIGMA, False) for pair in PAIRS)),
    merged=((0, 1, 2, 3), (0, 1, 2), (0, 1)),
)
# Columns of the design by attribute: a number, indicators of two values, and the target.
SCORES = (np.array([[-1.0, 0.0, 1.0, 3.0]]), np.eye(3)[1:], np.array([[0.0, 1.0]]))
TERMS = [Term(place=a, axis=a, weights=own, of_model=own) for a, own in enumerate(SCORES)]


def _population() -> np.ndarray[Any, Any]:
    """Shares of all cells: the first two attributes depend on each other, the third one on both."""
    x, g = np.meshgrid(SCORES[0][0], np.arange(3), indexing="ij")
    first = np.exp(-0.4 * (x - g) ** 2)
    p = 1 / (1 + np.exp(1.0 - 0.7 * x + 0.5 * (g == 1) - 0.9 * (g == 2)))
    shares = np.stack((first * (1 - p), first * p), axis=2)
    return shares / shares.sum()


def _records(shares: np.ndarray[Any, Any], number: int) -> np.ndarray[Any, Any]:
    """As many records, each cell with its share of them."""
    places = np.searchsorted(np.cumsum(shares.ravel()), (np.arange(number) + 0.5) / number)
    return np.stack(np.unravel_index(places, shares.shape), axis=1).astype(np.int32)


def _fitted(shares: np.ndarray[Any, Any], kind: Kind) -> np.ndarray[Any, Any]:
    """The coefficients of a table of cells."""
    codes = np.stack(np.unravel_index(np.arange(shares.size), shares.shape))
    x = np.column_stack([np.ones(shares.size), *(own[:, codes[a]].T for a, own in enumerate(SCORES[:2]))])
    family = sm.families.Binomial() if kind == "logistic" else sm.families.Gaussian()
    model = sm.GLM(codes[2], x, family=family, freq_weights=shares.ravel() * ROWS)
    return np.asarray(model.fit().params)


def _wrong_model() -> np.ndarray[Any, Any]:
    """Records of a model that has a half of what attributes depend on each other."""
    truth = _population()
    alone = np.einsum("i,j,k->ijk", truth.sum(axis=(1, 2)), truth.sum(axis=(0, 2)), truth.sum(axis=(0, 1)))
    return _records((truth + alone) / 2, RECORDS)


@pytest.mark.parametrize(("kind", "population"), [("linear", True), ("logistic", True), ("linear", False)])
def test_intervals_cover_as_often_as_they_say(kind: Kind, population: bool) -> None:
    """80 % of 400 intervals, a coefficient of each release by turns; false alarms 1e-6 on either side.

    The model alone, which has half of the dependence, is outside of nearly all of them.
    """
    rng, truth, records = np.random.default_rng(4), _population(), _wrong_model()
    target, hits, of_model = _fitted(truth, kind), 0, 0
    for number in range(RELEASES):
        table = rng.multinomial(ROWS, truth.ravel()).reshape(truth.shape)
        calibrated = Calibrated.of(SURVEY.measure(table.astype(np.float64), rng), records, TERMS)
        found = calibrated.fit(kind, population=population)
        aim, place = target if population else _fitted(table / ROWS, kind), number % len(target)
        half = Z * np.sqrt(np.diagonal(found.covariance))
        hits += bool(np.abs(found.values - aim)[place] <= half[place])
        of_model += bool(np.abs(calibrated._of_model(kind) - aim)[1] <= half[1])
    assert binom.ppf(FALSE_ALARM, RELEASES, LEVEL) <= hits <= binom.isf(FALSE_ALARM, RELEASES, LEVEL)
    assert of_model < RELEASES / 4


def test_weighted_records_have_the_measured_sums() -> None:
    """Of single columns and of any two, so the noise of the sums is that of `solve_jointly`."""
    squares = SURVEY.measure(_population() * ROWS, np.random.default_rng(1))
    records = _wrong_model()
    found = Calibrated.of(squares, records, TERMS)
    x = SCORES[0][0]
    for a, b, weights in ((0, 1, np.outer(x, SCORES[1][0])), (0, 2, np.outer(x, [0.0, 1.0])), (0, 0, np.diag(x**2))):
        asked = {0: x[None], b: SCORES[b][:1]} if a != b else {0: x[None] ** 2}
        solved = squares.solve(asked)
        assert np.isclose(found.weights @ weights[records[:, a], records[:, b]], solved.values[0])


def test_what_has_no_single_solution_or_no_measured_pair_is_refused() -> None:
    rng, records = np.random.default_rng(1), _wrong_model()
    squares = SURVEY.measure(_population() * ROWS, rng)
    twice = Term(place=1, axis=1, weights=np.ones((1, 3)), of_model=np.ones((1, 3)))
    with pytest.raises(InputError, match="no single solution"):
        Calibrated.of(squares, records, [TERMS[0], twice, TERMS[2]]).fit("linear", population=True)
    fewer = Survey(sizes=SURVEY.sizes, sets=SURVEY.sets[:-1], merged=SURVEY.merged)
    with pytest.raises(NotMeasuredError):
        Calibrated.of(fewer.measure(_population() * ROWS, rng), records, TERMS)
