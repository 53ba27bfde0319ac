"""Whatever noise does, no interval has a low end above its high end, or an estimate outside, and contradictions are covered."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from marginweave.answers.bounds import KnownSums, subset_sums
from marginweave.answers.codes import ValueRange
from marginweave.answers.intervals import (
    EstimateInterval,
    Reach,
    between_bounds,
    count_ends,
    count_interval_of,
)
from marginweave.answers.marginals import MarginalAnswers
from marginweave.answers.merged import between
from marginweave.answers.model import ModelAnswers, ModelSpread, Stack
from marginweave.answers.quantities import share_between, sum_of
from marginweave.configuration.question import Question
from marginweave.estimate.intervals import expected_ends
from marginweave.estimate.mixture.model import Mixture
from tests.support.dense_least_squares import Survey

FALSE_ALARM = 1e-6
REACH = Reach(level=0.95)
SIZES = (3, 4, 2, 2)
NUMBERS = {"low": np.array([-5.0, 0, 1, 50]), "high": np.array([0.0, 1, 50, 51])}
ASKED: tuple[dict[str, Any], ...] = (
    {},
    {"share": True, "where": {"c": ["1"]}},
    {"mean": "c"},
    {"sum": "c"},
    {"median": "c"},
    {"quantile": "c:.05"},
)


def _answers(survey: Survey, records: int, seed: int) -> MarginalAnswers:
    """Answers from noisy tables of so many records, beside a model in which nothing depends."""
    rng = np.random.default_rng(seed)
    table = rng.multinomial(records, rng.dirichlet(np.full(int(np.prod(SIZES)), 0.2))).reshape(
        SIZES
    )
    squares = survey.measure(table.astype(np.float64), rng)
    shares = [np.full((1, size), 1 / size) for size in SIZES]
    model = Mixture.of(np.ones(1), shares, SIZES, float(max(records, 1)), [])
    modelled = ModelAnswers(
        measured=squares.measured,
        model=model,
        codes=[np.arange(size) for size in SIZES],
        inside=[],
        chosen=False,
        spread=lambda: ModelSpread(
            stack=Stack.of(model, [model]), misfit={"outside": {}, "inside": {}}
        ),
    )
    labels = [tuple(map(str, range(size))) for size in SIZES]  # no column has a gap
    attributes = [SimpleNamespace(of_set=False, private=False)] * len(labels)
    codes = SimpleNamespace(
        domain=SimpleNamespace(labels=labels), configuration=SimpleNamespace(attributes=attributes)
    )
    return MarginalAnswers(
        squares=squares, codes=cast("Any", codes), measured_together=(), model=lambda: modelled
    )


@given(
    records=st.sampled_from([0, 3, 60, 2000]),
    sigma=st.sampled_from([1.0, 30.0, 400.0]),
    length=st.sampled_from([2, 3]),
    merges=st.booleans(),
    asked=st.sampled_from(ASKED),
    level=st.sampled_from([0.3, 0.95]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=150, deadline=None)
def test_no_answer_has_its_ends_reversed(
    *,
    records: int,
    sigma: float,
    length: int,
    merges: bool,
    asked: dict[str, Any],
    level: float,
    seed: int,
) -> None:
    """Small tables, much noise, and conditions on one to three columns that were measured together or not."""
    sets = [((a,), sigma, False) for a in range(4)]
    sets += [(own, sigma, merges) for own in itertools.combinations(range(4), length)]
    survey = Survey(sizes=SIZES, sets=tuple(sets), merged=((0, 1, 1), (0, 1, 1, 2), (0, 1), (0, 1)))
    rng, answers = np.random.default_rng(seed), _answers(survey, records, seed)
    where = [
        (axis, (rng.random(SIZES[axis]) < 0.6).astype(np.float64))
        for axis in rng.permutation([0, 2, 3]).tolist()
    ]
    where = [(axis, codes) for axis, codes in where if codes.any()][: int(rng.integers(1, 4))]
    numbers = (
        ValueRange(place=1, **NUMBERS)
        if asked.keys() & {"mean", "sum", "median", "quantile"}
        else None
    )
    found = answers.answer_group(
        Question.model_validate({**asked, "level": level}), where[:1], where[1:], numbers
    ).interval
    assert found is not None
    assert found.low <= found.high
    assert found.estimate is None or found.low <= found.estimate <= found.high
    if numbers is not None and asked.keys() & {"mean", "median", "quantile"}:
        assert -5 <= found.low <= found.high <= 51


@given(
    estimate=st.floats(-50, 50),
    variance=st.sampled_from([0.0, 1e-12, 0.1, 40.0]),
    level=st.sampled_from([0.01, 0.95]),
)
def test_a_count_is_inside_its_interval(estimate: float, variance: float, level: float) -> None:
    """Also one without noise that is not whole, as a model has."""
    found = count_interval_of(estimate, variance, Reach(level=level))
    assert found.low <= max(estimate, 0.0) + 0.5
    shown, low, high = count_ends(np.array([estimate]), np.array([variance]), Reach(level=level))
    assert low <= shown <= high


def test_what_is_reversed_is_no_interval() -> None:
    for wrong in (
        {"low": 761, "high": 376},
        {"low": 400, "high": 500},
        {"low": float("nan"), "high": 500},
    ):
        with pytest.raises(AssertionError):
            EstimateInterval(**{"estimate": 376, **wrong})


def test_a_share_of_a_group_that_noise_made_smaller_than_its_part() -> None:
    part, whole = (EstimateInterval(estimate=m, low=m - 10, high=m + 10) for m in (200, 100))
    found, _ = share_between(part, whole)
    assert (found.estimate, found.low, found.high) == (1, 1, 1)


def test_contradicting_bounds_are_both_inside() -> None:
    """Of 100 records 10 meet the first condition, and 60 both: by noise of 5 in each, which cannot be all there is."""
    sums = subset_sums(2, [0, 1, 3])
    counts = np.array([100.0, 10, 60])
    given_counts = KnownSums(
        sums=sums,
        low=counts,
        high=counts,
        covariance=np.diag([0.0, 25, 25]),
        possible=np.ones(4, np.bool_),
    )
    low, high = given_counts.bounds(np.array([0.0, 0, 0, 1]), REACH)
    assert low < 10 < 60 < high


def test_no_bound_of_a_count_is_below_what_noise_reaches_from_0() -> None:
    """A count of -40, of 100 records, with noise of 5: an interval of 0 alone would claim what nobody knows."""
    counts = np.array([100.0, -40])
    given_counts = KnownSums(
        sums=subset_sums(1, [0, 1]),
        low=counts,
        high=counts,
        covariance=np.diag([0.0, 25]),
        possible=np.ones(2, np.bool_),
    )
    _, high = given_counts.bounds(np.array([0.0, 1]), REACH)
    assert high >= REACH.of(5.0)


@pytest.mark.parametrize(
    ("smaller", "larger", "apart"),
    [(10.0, 10.0, 0.0), (30.0, 5.0, 0.0), (30.0, 5.0, 20.0), (5.0, 30.0, 20.0)],
)
def test_contradictions_are_covered_as_often_as_is_said(
    smaller: float, larger: float, apart: float
) -> None:
    """Of x and y with these deviations, so far apart: draws that contradict each other; false alarms 1e-6."""
    rng, number = np.random.default_rng(12), 1_000_000
    noisy = rng.normal(0.0, 1.0, (2, number)) * np.array([[smaller], [larger]]) + np.array(
        [[0.0], [apart]]
    )
    reach = np.array([[REACH.of(smaller)], [REACH.of(larger)]])
    ends = np.stack([noisy - reach, noisy + reach], axis=1)
    contradict = ends[0][0] > ends[1][1]
    low, high = between_bounds(ends[0][:, contradict], ends[1][:, contradict])
    assert contradict.sum() > 500
    for truth in (0.0, apart / 2, apart):
        hits = int(((low <= truth) & (truth <= high)).sum())
        assert hits >= binom.ppf(FALSE_ALARM, int(contradict.sum()), 0.95)


def test_merged_values_that_contradict_each_other_have_both_bounds_inside() -> None:
    """At least 60 by one count, at most 10 by another, each give or take 5."""
    counts = np.array([60.0, 10.0, 30.0])
    estimate, low, high = between(counts, np.array([25.0, 25.0]), np.zeros((2, 2)), REACH)
    assert low < 10 < estimate < 60 < high


@pytest.mark.parametrize("records", [None, 5.0])
def test_a_sum_is_what_its_values_and_public_numbers_allow(records: float | None) -> None:
    """Values in [0, 10] of hardly any records, much noise: nothing below 0, nor above 10 for each of 5 records."""
    most = np.inf if records is None else records
    numbers = ValueRange(place=1, low=np.array([0.0, 2, 4, 8]), high=np.array([2.0, 4, 8, 10]))
    survey = Survey(
        sizes=SIZES,
        sets=(*(((a,), 300.0, False) for a in range(4)), ((0, 1), 300.0, False)),
        merged=((0, 1),) * 4,
    )
    below = 0
    for seed in range(40):
        answers = _answers(survey, 5, seed)
        inside = (0, np.array([1.0, 0, 1]))
        weights = [[inside, (1, (numbers.low + numbers.high) / 2)]]
        below += float(answers.solve(weights).values[0]) < 0
        found, note = sum_of(answers.solve, [inside], numbers, REACH, most)
        assert found.estimate is not None
        assert 0 <= found.low <= found.estimate <= found.high <= 10 * most
        assert (note is not None and note.unusable) or found.estimate > 0
    assert below > 5


@pytest.mark.parametrize("tail", [0.05, 1e-4, 1e-9])
@pytest.mark.parametrize("count", [0, 1, 3, 40, 2_000])
def test_what_a_sum_of_chances_is_expected_to_be_lies_inside(count: int, tail: float) -> None:
    """At the ends such a count, or one beyond, is as rare as is said, however many chances make it up: few or very many."""
    least, most = expected_ends(count, count, tail)
    assert least <= count <= most
    for chances in (max(most, 1), 2 * max(most, 1), 10**7):
        assert count == 0 or binom.sf(count - 1, chances, least / chances) <= tail
        assert binom.cdf(count, chances, min(most / chances, 1.0)) <= tail
    assert most - count <= 3 + 2 * max(np.sqrt(2 * count * -np.log(tail)), -np.log(tail))
