"""Intervals of regressions cover as often as they say, although the model whose records are weighted is far off."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.stats import binom

from marginweave.answers.least_squares import Estimates, NotMeasuredError
from marginweave.base.errors import InputError
from marginweave.inference.normal_regression import Calibrated, Kind, Term
from marginweave.inference.regressions import _indicators
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
TERMS = [Term(place=a, weights=own, model_weights=own) for a, own in enumerate(SCORES)]


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
    x = np.column_stack(
        [np.ones(shares.size), *(own[:, codes[a]].T for a, own in enumerate(SCORES[:2]))]
    )
    family = sm.families.Binomial() if kind == "logistic" else sm.families.Gaussian()
    model = sm.GLM(codes[2], x, family=family, freq_weights=shares.ravel() * ROWS)
    return np.asarray(model.fit().params)


def _wrong_model() -> np.ndarray[Any, Any]:
    """Records of a model that has a half of what attributes depend on each other."""
    truth = _population()
    alone = np.einsum(
        "i,j,k->ijk", truth.sum(axis=(1, 2)), truth.sum(axis=(0, 2)), truth.sum(axis=(0, 1))
    )
    return _records((truth + alone) / 2, RECORDS)


@pytest.mark.parametrize(
    ("kind", "sampling"), [("linear", 1.0), ("logistic", 1.0), ("linear", 0.0)]
)
def test_intervals_cover_as_often_as_they_say(kind: Kind, sampling: float) -> None:
    """80 % of 400 intervals, a coefficient of each release in turn; false alarms 1e-6 on either side.

    The model alone, which has half of the dependence, is outside of nearly all of them.
    """
    rng, truth, records = np.random.default_rng(4), _population(), _wrong_model()
    target, hits, of_model = _fitted(truth, kind), 0, 0
    for number in range(RELEASES):
        table = rng.multinomial(ROWS, truth.ravel()).reshape(truth.shape)
        calibrated = Calibrated.of(SURVEY.measure(table.astype(np.float64), rng), records, TERMS)
        found = calibrated.fit(kind, sampling=sampling).coefficients
        aim, place = target if sampling else _fitted(table / ROWS, kind), number % len(target)
        half = Z * np.sqrt(np.diagonal(found.covariance))
        hits += bool(np.abs(found.values - aim)[place] <= half[place])
        start = calibrated._in_units(
            Estimates(values=calibrated._model_solution(kind), covariance=found.covariance)
        )
        of_model += bool(np.abs(start.values - aim)[1] <= half[1])
    assert (
        binom.ppf(FALSE_ALARM, RELEASES, LEVEL) <= hits <= binom.isf(FALSE_ALARM, RELEASES, LEVEL)
    )
    assert of_model < RELEASES / 4


@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize("place", range(3))
def test_intervals_have_what_cells_that_are_not_as_declared_may_hide(
    kind: Kind, place: int
) -> None:
    """Of 1 % of the records, spread as others are, a column is not as declared, and noise is next to nothing.

    The regression of complete records is one root mean square away, to first order, and without that far outside.
    """
    share, rows = 0.01, 10**7
    cells = [SURVEY.sizes[a] + (a == place) for a in range(3)]
    whole = replace(SURVEY, sizes=tuple(cells), merged=tuple(tuple(range(size)) for size in cells))
    table = np.zeros(cells)
    table[tuple(slice(size) for size in SURVEY.sizes)] = (1 - share) * _population()
    table[tuple(-1 if a == place else slice(None) for a in range(3))] = share * _population().sum(
        axis=place
    )
    squares = whole.measure(table * rows, np.random.default_rng(2))
    terms = [replace(term, ignored=share * rows * (term.place == place)) for term in TERMS]
    plain, wider = (
        Calibrated.of(squares, _records(_population(), 20_000), own)
        .fit(kind, sampling=0.0)
        .coefficients
        for own in (TERMS, terms)
    )
    away = np.abs(wider.values - _fitted(_population(), kind))
    sds, alone = (np.sqrt(np.diagonal(one.covariance)) for one in (wider, plain))
    assert (away <= 1.1 * sds + 5 * alone).all()
    assert (away > 20 * alone).any()


def test_intervals_cover_where_all_rows_of_a_person_are_alike() -> None:
    """Four rows a person, the case that varies most: 80 % with the sum of squares times four, far less with that of rows."""
    rng, truth, records, rows = np.random.default_rng(4), _population(), _wrong_model(), 4
    hits, naive = 0, 0
    for number in range(RELEASES):
        table = rows * rng.multinomial(ROWS // rows, truth.ravel()).reshape(truth.shape)
        calibrated = Calibrated.of(SURVEY.measure(table.astype(np.float64), rng), records, TERMS)
        place = number % 4
        for sampling in (1.0, rows):
            found = calibrated.fit("linear", sampling=sampling).coefficients
            away = np.abs(found.values - _fitted(truth, "linear"))[place]
            hit = bool(away <= Z * np.sqrt(found.covariance[place, place]))
            hits, naive = (hits, naive + hit) if sampling == 1 else (hits + hit, naive)
    assert hits >= binom.ppf(FALSE_ALARM, RELEASES, LEVEL)
    assert naive < binom.ppf(FALSE_ALARM, RELEASES, LEVEL)


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_units_change_nothing(kind: Kind) -> None:
    """Columns in other units, from another zero, and indicators of other values are the same regression: to rounding."""
    squares, records = (
        SURVEY.measure(_population() * ROWS, np.random.default_rng(1)),
        _wrong_model(),
    )
    plain = Calibrated.of(squares, records, TERMS).fit(kind, sampling=1.0)
    for factor, zero in ((1e-3, 0.0), (1e4, -3e5), (-7.0, 40.0)):
        one = _scaled(TERMS[0], factor, zero)
        other = Term(place=1, weights=np.eye(3)[:2] * factor, model_weights=np.eye(3)[:2] * factor)
        target = _scaled(TERMS[2], factor, zero) if kind == "linear" else TERMS[2]
        moved = Calibrated.of(squares, records, [one, other, target]).fit(kind, sampling=1.0)
        # a + b x + c_1 i_1 + c_2 i_2, with i_0 = 1 - i_1 - i_2, for x, i_0 and i_1 in other units
        back = np.array(
            [
                [1, -zero / factor, 0, 1],
                [0, 1 / factor, 0, 0],
                [0, 0, 0, -1 / factor],
                [0, 0, 1 / factor, -1 / factor],
            ]
        )
        if kind == "linear":
            back *= factor
        shift = np.array([zero if kind == "linear" else 0.0, 0, 0, 0])
        assert np.allclose(
            moved.coefficients.values, back @ plain.coefficients.values + shift, rtol=1e-6
        )
        assert np.allclose(
            moved.coefficients.covariance, back @ plain.coefficients.covariance @ back.T, rtol=1e-6
        )
        assert np.isclose(moved.noise, plain.noise)


def test_columns_that_carry_nearly_the_same_are_covered_though_the_model_has_them_apart() -> None:
    """A target of the first of two columns with a correlation of .7, of a model of .0: two steps leave half of its error.

    80 % of 200 intervals at least, at the coefficient of the first column; false alarms 1e-6.
    """
    rng, number = np.random.default_rng(21), 200
    alike = np.eye(3) * 0.7 / 3 + np.full((3, 3), 0.3 / 9)
    shares = np.stack(
        (alike * np.array([[0.8], [0.5], [0.2]]), alike * np.array([[0.2], [0.5], [0.8]])), axis=2
    )
    scores = (np.array([[0.0, 1, 2]]), np.array([[0.0, 1, 2]]), np.array([[0.0, 1]]))
    sets = (*(((a,), SIGMA, False) for a in range(3)), *((pair, SIGMA, False) for pair in PAIRS))
    survey = Survey(sizes=(3, 3, 2), sets=sets, merged=((0, 1, 2), (0, 1, 2), (0, 1)))
    records = _records(np.full((3, 3, 2), 1 / 18), RECORDS)
    terms, hits = [Term(place=a, weights=own, model_weights=own) for a, own in enumerate(scores)], 0
    for _ in range(number):
        squares = survey.measure(np.rint(shares * ROWS), rng)
        found = Calibrated.of(squares, records, terms).fit("linear", sampling=0.0).coefficients
        hits += bool(abs(found.values[1] - 0.3) <= Z * np.sqrt(found.covariance[1, 1]))
    assert hits >= binom.ppf(FALSE_ALARM, number, LEVEL)


def test_columns_that_noise_cannot_tell_apart_are_refused() -> None:
    """Two columns that are the same but for 2 % of the rows, and a model that has them apart."""
    alike = np.eye(3) * 0.98 / 3 + np.full((3, 3), 0.02 / 9)
    shares = np.stack((alike / 2, alike / 2), axis=2)
    scores = (np.array([[0.0, 1, 2]]), np.array([[0.0, 1, 2]]), np.array([[0.0, 1]]))
    sets = (*(((a,), 0.1, False) for a in range(3)), *((pair, 0.1, False) for pair in PAIRS))
    survey = Survey(sizes=(3, 3, 2), sets=sets, merged=((0, 1, 2), (0, 1, 2), (0, 1)))
    squares = survey.measure(np.rint(shares * ROWS), np.random.default_rng(22))
    terms = [Term(place=a, weights=own, model_weights=own) for a, own in enumerate(scores)]
    with pytest.raises(InputError, match="as where two of them carry nearly the same"):
        Calibrated.of(squares, _records(np.full((3, 3, 2), 1 / 18), RECORDS), terms).fit(
            "linear", sampling=0.0
        )


def _scaled(term: Term, factor: float, zero: float) -> Term:
    weights = term.weights * factor + zero
    return Term(place=term.place, weights=weights, model_weights=weights)


def test_the_noise_is_that_of_the_least_certain_contrast() -> None:
    """Measured 400 times, the products of columns vary as `noise` says: the largest mean square of a contrast within a fifth.

    The variance of a squared normal number is 2, so a fifth of the mean of 400 is 2.8 standard deviations; the seed is fixed.
    """
    rng, records = np.random.default_rng(3), _wrong_model()
    found = [
        Calibrated.of(SURVEY.measure(_population() * ROWS, rng), records, TERMS)
        for _ in range(RELEASES)
    ]
    products = np.stack([one.sums.values[one.places][:-1, :-1] for one in found])
    x = found[0].x
    values, vectors = np.linalg.eigh(ROWS / RECORDS * x.T @ x)
    root = vectors / np.sqrt(values) @ vectors.T
    errors = root @ (products - products.mean(axis=0)) @ root
    largest = float(np.linalg.eigvalsh((errors @ errors).mean(axis=0))[-1])
    assert largest == pytest.approx(found[0].fit("linear", sampling=0.0).noise ** 2, rel=0.2)


def test_weighted_records_have_the_measured_sums() -> None:
    """Of single columns of the design and of any two; what is not the target's decides what p makes of more columns."""
    squares = SURVEY.measure(_population() * ROWS, np.random.default_rng(1))
    records = _wrong_model()
    found = Calibrated.of(squares, records, TERMS)
    x = SCORES[0][0]
    for a, b, weights in ((0, 1, np.outer(x, SCORES[1][0])), (0, 0, np.diag(x**2))):
        asked = {0: x[None], b: SCORES[b][:1]} if a != b else {0: x[None] ** 2}
        solved = squares.solve(asked)
        assert np.isclose(found.weights @ weights[records[:, a], records[:, b]], solved.values[0])


def test_what_has_no_single_solution_or_no_measured_pair_is_refused() -> None:
    rng, records = np.random.default_rng(1), _wrong_model()
    squares = SURVEY.measure(_population() * ROWS, rng)
    twice = Term(place=1, weights=np.ones((1, 3)), model_weights=np.ones((1, 3)))
    with pytest.raises(InputError, match="no single solution"):
        Calibrated.of(squares, records, [TERMS[0], twice, TERMS[2]]).fit("linear", sampling=1.0)
    alone = SimpleNamespace(merged=[np.zeros(2, np.int64)])
    with pytest.raises(
        InputError, match="too few records for its noise: the values of 'sex' were measured as one"
    ):
        _indicators(cast("Any", alone), 0, "sex", ["f", "m"])
    fewer = Survey(sizes=SURVEY.sizes, sets=SURVEY.sets[:-1], merged=SURVEY.merged)
    with pytest.raises(NotMeasuredError):
        Calibrated.of(fewer.measure(_population() * ROWS, rng), records, TERMS)
