"""Counts outside measured sets: bounds that hold whatever columns have in common, as narrow as exact counts allow."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import binom

from marginweave.answers.answer import MAY_BE_NONE, Note
from marginweave.answers.bounds import KnownSums, subset_sums
from marginweave.answers.codes import ValueRange
from marginweave.answers.intervals import EstimateInterval, Reach
from marginweave.answers.least_squares import LeastSquares
from marginweave.answers.marginals import MarginalAnswers
from marginweave.answers.model import ModelAnswers, ModelSpread, Stack
from marginweave.answers.outside import count_unmeasured
from marginweave.answers.rules import NO_RULES, AnswerRules
from marginweave.configuration.question import Question
from marginweave.domain.masks import Mask
from marginweave.estimate.mixture.model import Mixture
from tests.support.dense_least_squares import Survey

FALSE_ALARM = 1e-6
REACH = Reach(level=0.95)
TRIPLES = Survey(
    sizes=(2, 2, 2, 2),
    sets=(
        *(((a,), 10.0, False) for a in range(4)),
        *((c, 10.0, False) for c in itertools.combinations(range(4), 3)),
    ),
    merged=((0, 1),) * 4,
)
ALL_C = {"c": ["1"]}
ALL = {axis: np.array([[0.0, 1.0]]) for axis in range(4)}
CELLS = np.indices((2, 2, 2, 2)).sum(axis=0)


def _model(squares: LeastSquares, **changes: Any) -> ModelAnswers:
    """A model in which nothing depends."""
    given = {
        "measured": squares.measured,
        "model": Mixture.of(np.ones(1), [np.full((1, 2), 0.5)] * 4, (2,) * 4, 1600.0, []),
        "codes": [np.arange(2)] * 4,
        "inside": [],
        "chosen": False,
        "spread": lambda: pytest.fail("nothing asks how far the model may be off"),
    }
    return ModelAnswers(**{**given, **changes})


def _asked(
    squares: LeastSquares, rules: AnswerRules = NO_RULES, **changes: Any
) -> EstimateInterval:
    """The records that have 1 in all four columns, beside that model."""
    return count_unmeasured(squares, _model(squares, **changes), rules, ALL, REACH)


def _answers(squares: LeastSquares, spread: ModelSpread) -> MarginalAnswers:
    """Answers beside a model in which nothing depends."""
    modelled = _model(squares, spread=lambda: spread)
    labels = (("no", "yes"),) * len(squares.measured.sizes)
    attributes = [SimpleNamespace(of_set=False, private=False)] * len(labels)
    codes = SimpleNamespace(
        domain=SimpleNamespace(labels=labels), configuration=SimpleNamespace(attributes=attributes)
    )
    return MarginalAnswers(
        squares=squares, codes=cast("Any", codes), measured_together=(), model=lambda: modelled
    )


@pytest.mark.parametrize(("conditions", "known"), [(2, 1), (3, 2), (4, 2), (4, 3)])
def test_bounds_of_exact_counts_are_the_best_ones(conditions: int, known: int) -> None:
    """What the tables with these counts have least and most of, by the program over tables; two cells may be forbidden."""
    rng, cells = np.random.default_rng(conditions + known), 2**conditions
    for forbidden in (0, 2):
        table = rng.integers(0, 50, cells).astype(np.float64)
        possible = np.ones(cells, np.bool_)
        possible[rng.choice(cells, forbidden, replace=False)] = False
        table[~possible] = 0.0
        sums = subset_sums(conditions, [s for s in range(cells) if s.bit_count() <= known])
        counts = sums @ table
        given = KnownSums(
            sums=sums,
            low=counts,
            high=counts,
            covariance=np.zeros((len(sums),) * 2),
            possible=possible,
        )
        asked = np.arange(cells) == cells - 1
        limits = [(0, None if there else 0) for there in possible]
        best = [
            sign
            * float(
                linprog(sign * asked.astype(float), A_eq=sums, b_eq=counts, bounds=limits)["fun"]
            )
            for sign in (1, -1)
        ]
        assert np.allclose(given.bounds(asked.astype(np.float64), REACH), best, atol=1e-6)


@st.composite
def _noisy_sums(draw: st.DrawFn) -> tuple[KnownSums, np.ndarray]:
    """Noisy counts of conditions of a sparse table, and a question of the cell of all of them or of random weights."""
    conditions = draw(st.integers(2, 5))
    cells, known = 2**conditions, draw(st.integers(1, conditions - 1))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    subsets = [s for s in range(cells) if s.bit_count() <= known and (s < 2 or rng.random() < 0.9)]
    table = rng.gamma(0.3, 1000, cells)
    possible = rng.random(cells) < draw(st.sampled_from([0.8, 1.0]))
    possible[-1] = True
    sums, sigma = subset_sums(conditions, subsets), draw(st.sampled_from([0.0, 10.0, 200.0]))
    sigmas = np.where(np.array(subsets) > 0, sigma, 0.0)
    counts = sums @ (table * possible) + rng.normal(0.0, 1.0, len(subsets)) * sigmas
    width = draw(st.sampled_from([0.0, 30.0])) * (np.array(subsets) > 0)
    given = KnownSums(
        sums=sums,
        low=counts - width,
        high=counts + width,
        covariance=np.diag(sigmas**2),
        possible=possible,
    )
    is_last = np.arange(cells) == cells - 1
    return given, is_last.astype(float) if draw(st.booleans()) else rng.normal(0, 1, cells)


def _by_linprog(self: KnownSums, queries: np.ndarray, margins: np.ndarray) -> np.ndarray:
    """The same multipliers by the program of scipy."""
    cells = self.sums.T[self.possible]
    found: list[np.ndarray] = []
    for query, margin in zip(queries, margins, strict=True):
        solution = linprog(
            self._prices(margin),
            A_ub=-np.hstack((cells, -cells)),
            b_ub=-query[self.possible],
            bounds=(0.0, 8.0),
        )
        found.append(np.asarray(solution["x"]))
    return np.stack(found)


def test_counts_without_noise_that_fix_a_question_have_one_answer() -> None:
    """Both ends are then the same number, computed twice: rounding takes them past each other."""
    counts = np.array([939.18399177, 688.37354129, 857.2438897])
    given = KnownSums(
        sums=subset_sums(2, [0, 1, 2]),
        low=counts,
        high=counts,
        covariance=np.zeros((3, 3)),
        possible=np.array([True, False, True, True]),
    )
    query = np.array([-1.22884555, 0.96810462, -1.1627569, -0.34876489])
    cells = np.array([counts[0] - counts[2], 0.0, counts[2] - counts[1], counts[1]])
    low, high = given.bounds(query, REACH)
    assert low <= high
    assert np.allclose([low, high], query @ cells)


@given(_noisy_sums())
@settings(max_examples=60, deadline=None)
def test_bounds_are_those_of_a_program_of_scipy(asked: tuple[KnownSums, np.ndarray]) -> None:
    """The intervals are the same to rounding, in a sixth of the time: a question may have a thousand groups."""
    sums, query = asked
    margins = np.stack([sums._margins(REACH, share) for share in (1 / 3, 1.0)])
    both = np.stack((query, query))
    ours, theirs = sums._multipliers(both, margins), _by_linprog(sums, both, margins)
    prices = np.stack([sums._prices(row) for row in margins])
    scale = np.abs(prices).max()
    assert np.allclose(
        (ours * prices).sum(axis=1), (theirs * prices).sum(axis=1), atol=1e-8 * scale
    )
    positive, negative = np.split(ours, 2, axis=1)
    reached = ((positive - negative) @ sums.sums)[:, sums.possible]
    assert (reached >= query[sums.possible] - 1e-8).all()
    assert ours.min() >= 0
    assert ours.max() <= 8
    found = sums.bounds(query, REACH)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KnownSums, "_multipliers", _by_linprog)
        assert np.allclose(found, sums.bounds(query, REACH), rtol=1e-7, atol=1e-7 * scale)


def test_a_count_unmeasured_is_one_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question may have a thousand groups: a solution of least squares is most of what one takes."""
    calls: list[int] = []
    solve = LeastSquares.solve_jointly

    def counted(self: LeastSquares, groups: Any) -> Any:
        calls.append(1)
        return solve(self, groups)

    monkeypatch.setattr(LeastSquares, "solve_jointly", counted)
    _asked(TRIPLES.measure(np.full((2, 2, 2, 2), 100.0), np.random.default_rng(1)))
    assert len(calls) <= 1 + len(ALL)


def test_no_models_are_drawn_where_no_table_tells_of_so_many_columns() -> None:
    """Pairs alone were measured, all of them: what four columns have in common nothing tells, which needs no drawn model."""
    pairs = Survey(
        sizes=(2, 2, 2, 2),
        sets=(
            *(((a,), 10.0, False) for a in range(4)),
            *((c, 10.0, False) for c in itertools.combinations(range(4), 2)),
        ),
        merged=((0, 1),) * 4,
    )
    squares = pairs.measure(np.full((2, 2, 2, 2), 100.0), np.random.default_rng(1))
    inside = [frozenset(c) for c in itertools.combinations(range(4), 2)]
    found = _asked(squares, inside=inside, chosen=True)
    assert found.low < 100 < found.high
    model = _model(squares, inside=inside, chosen=True)
    assert model.knows([0, 1])
    assert not model.knows([0, 1, 2])


def test_a_model_of_records_tells_nothing_of_columns_that_were_counted_otherwise() -> None:
    """Of columns that records alone are made to keep to rules: measured counts around it are all that is known."""
    sets = (*(((a,), 10.0, False) for a in range(4)), ((0, 1, 2), 10.0, False))
    survey = Survey(sizes=(2, 2, 2, 2), sets=sets, merged=((0, 1),) * 4)
    squares = survey.measure(np.full((2, 2, 2, 2), 100.0), np.random.default_rng(1))
    given: dict[str, Any] = {"inside": [frozenset({0, 1, 2})], "chosen": True, "recorded": [(3,)]}
    with pytest.raises(pytest.fail.Exception):
        _asked(squares, **{**given, "recorded": []})
    found = _asked(squares, **given)
    assert found.low == 0
    assert 200 < found.high < 260
    model = _model(squares, **given)
    assert model.knows([0, 1])
    assert not model.knows([0, 3])


def test_no_bound_is_beyond_the_reach_of_one_measured_count() -> None:
    """Of four columns, each with few of 8,000 records: noise of triples makes some counts negative, which are no bargain.

    Where counts contradict each other, twice their reach is taken.
    """
    rng, sums = np.random.default_rng(10), subset_sums(4, range(15))
    shared = Reach(level=1 - 0.05 / 16)
    deviations = np.array(
        [0.0 if not s else (30.0, 160.0, 160.0)[s.bit_count() - 1] for s in range(15)]
    )
    exact = np.array([8000.0 if not s else (80.0, 20.0, 5.0)[s.bit_count() - 1] for s in range(15)])
    asked, within = (np.arange(16) == 15).astype(np.float64), 0
    for _ in range(50):
        counts = exact + rng.normal(0.0, deviations)
        given = KnownSums(
            sums=sums,
            low=counts,
            high=counts,
            covariance=np.diag(deviations**2),
            possible=np.ones(16, np.bool_),
        )
        _, high = given.bounds(asked, REACH)
        reach = shared.of(1.0) * deviations
        assert high <= (counts + 2 * reach).min() + 1e-6
        within += high <= (counts + reach).min() + 1e-6
    assert within >= 35


@pytest.mark.parametrize("odd", [0.0, 200.0])
def test_a_truth_at_the_end_of_its_bounds_is_covered(odd: float) -> None:
    """A parity of four columns, which no triple shows: 400 or none where the model has 100; false alarms 1e-6."""
    rng, hits, number = np.random.default_rng(4), 0, 60
    table = np.where(CELLS % 2 == 0, 200.0 - odd, odd)
    for _ in range(number):
        found = _asked(TRIPLES.measure(table, rng))
        hits += found.low <= table[1, 1, 1, 1] <= found.high
        assert found.low <= 100 <= found.high
        assert found.estimate == 100
    assert hits >= binom.ppf(FALSE_ALARM, number, 0.95)


def test_noise_makes_bounds_wider_and_no_more_than_that() -> None:
    """Where two cells are all but empty, one even and one odd, exact triples leave nothing open: what is left is noise."""
    table = np.full((2, 2, 2, 2), 300.0)
    table[0, 0, 0, 0] = table[0, 0, 0, 1] = 0.0
    rng, hits, widths = np.random.default_rng(5), 0, []
    for _ in range(60):
        found = _asked(TRIPLES.measure(table, rng))
        hits += found.low <= 300 <= found.high
        widths.append(found.high - found.low)
    assert hits >= binom.ppf(FALSE_ALARM, 60, 0.95)
    assert np.mean(widths) < 200  # 600 without the triples


def test_where_sets_were_chosen_the_model_stands_in_for_those_that_were_not() -> None:
    """Of one pair alone, a quarter of all may be anywhere; other pairs of a model of known misfit leave less."""
    pair = Survey(
        sizes=(2, 2, 2, 2), sets=(*TRIPLES.sets[:4], ((0, 1), 10.0, False)), merged=TRIPLES.merged
    )
    squares = pair.measure(np.full((2, 2, 2, 2), 100.0), np.random.default_rng(6))
    free = _asked(squares)
    model = Mixture.of(np.ones(1), [np.full((1, 2), 0.5)] * 4, (2,) * 4, 1600.0, [])
    narrow = [
        _asked(
            squares,
            chosen=True,
            spread=lambda tau=tau: ModelSpread(
                stack=Stack.of(model, [model]), misfit={"outside": {"2": tau}, "inside": {}}
            ),
        )
        for tau in (0.0001, 0.01)
    ]
    ends = [one.high - one.low for one in (*narrow, free)]
    assert ends[0] < ends[1] < ends[2]
    assert ends[2] > 350


def test_what_nothing_tells_of_is_not_claimed() -> None:
    """Of four columns a count has bounds that hold, a share and a median too; a mean is the model's guess, and says so."""
    model = Mixture.of(np.ones(1), [np.full((1, 2), 0.5)] * 4, (2,) * 4, 1600.0, [])
    squares = TRIPLES.measure(np.where(CELLS % 2 == 0, 200.0, 0.0), np.random.default_rng(8))
    spread = ModelSpread(
        stack=Stack.of(model, [model]), misfit={"outside": {"3": 0.01}, "inside": {}}
    )
    answers = _answers(squares, spread)
    where, numbers = [(axis, np.array([0.0, 1.0])) for axis in range(1, 4)], np.array([3.0, 7.0])
    all_four = [(0, np.array([0.0, 1.0])), *where]
    count, share = (
        answers.answer_group(Question.model_validate(asked), all_four, [], None)
        for asked in ({}, {"share": True, "where": ALL_C})
    )
    values = ValueRange(place=0, low=numbers, high=numbers)
    median, mean = (
        answers.answer_group(question, where, [], values)
        for question in (Question(median="c"), Question(mean="c"))
    )
    assert [one.how for one in (count, share, median, mean)] == [
        "bounds",
        "bounds",
        "bounds",
        "model",
    ]
    assert [one.claimed for one in (count, share, median, mean)] == [True, True, True, False]
    assert ["nothing says how often" in note.words for note in mean.notes] == [True]
    assert count.interval is not None
    assert count.interval.low <= 200 <= count.interval.high
    assert median.interval is not None
    assert (median.interval.low, median.interval.high) == (3, 7)
    assert median.notes == (Note("it may be anything", unusable=True),)


def test_a_model_of_sets_that_the_rows_chose_claims_nothing_of_a_population() -> None:
    """It claims what its known misfit says of the rows, and of a population where sets were given."""
    model = Mixture.of(np.ones(1), [np.full((1, 2), 0.5)] * 4, (2,) * 4, 1600.0, [])
    given = TRIPLES.measure(np.where(CELLS % 2 == 0, 200.0, 0.0), np.random.default_rng(8))
    misfit = {"outside": {"2": 0.01, "3": 0.01}, "inside": {"4": 0.01}}
    spread = ModelSpread(stack=Stack.of(model, [model]), misfit=misfit)
    tables = [replace(table, chosen=len(table.parts) > 1) for table in given.measured.tables]
    chosen = LeastSquares(replace(given.measured, tables=tuple(tables)))
    all_four = [(axis, np.array([0.0, 1.0])) for axis in range(4)]
    claimed: list[tuple[bool, bool]] = []
    for squares in (given, chosen):
        modelled = _model(squares, inside=[frozenset(range(4))], spread=lambda: spread)
        answers = replace(_answers(squares, spread), model=lambda modelled=modelled: modelled)
        of_rows, of_population = (
            answers.answer_group(
                Question.model_validate({"share": True, "where": ALL_C, "of": of}),
                all_four,
                [],
                None,
            ).claimed
            for of in ("table", "population")
        )
        claimed.append((of_rows, of_population))
    assert claimed == [(True, True), (True, False)]


def test_bounds_no_shorter_than_single_columns_leave_say_nothing_and_shorter_ones_are_to_be_used() -> (
    None
):
    """Of 1,600 rows with all triples measured, 0 to 200 where single columns leave 0 to 800; of these alone, 0 to 800."""
    model = Mixture.of(np.ones(1), [np.full((1, 2), 0.5)] * 4, (2,) * 4, 1600.0, [])
    spread = ModelSpread(stack=Stack.of(model, [model]), misfit={"outside": {}, "inside": {}})
    alone = Survey(sizes=(2, 2, 2, 2), sets=TRIPLES.sets[:4], merged=TRIPLES.merged)
    table, rng = np.where(CELLS % 2 == 0, 200.0, 0.0), np.random.default_rng(9)
    all_four = [(axis, np.array([0.0, 1.0])) for axis in range(4)]
    triples, singles = (
        _answers(survey.measure(table, rng), spread).answer_group(Question(), all_four, [], None)
        for survey in (TRIPLES, alone)
    )
    assert triples.interval is not None
    assert (triples.interval.low, triples.claimed) == (0, True)
    assert triples.notes[0].words.startswith("not measured: low and high follow")
    assert triples.notes[1:] == (MAY_BE_NONE,)
    assert not any(note.unusable for note in triples.notes)
    assert singles.notes == (
        Note("it may be anything that its single columns allow", unusable=True),
    )


def _few_in_the_first_column() -> MarginalAnswers:
    """Answers from the single columns of 16,000 rows, of which 20 have 1 in the first."""
    model = Mixture.of(np.ones(1), [np.full((1, 2), 0.5)] * 4, (2,) * 4, 16_000.0, [])
    spread = ModelSpread(stack=Stack.of(model, [model]), misfit={"outside": {}, "inside": {}})
    alone = Survey(sizes=(2, 2, 2, 2), sets=TRIPLES.sets[:4], merged=TRIPLES.merged)
    table = np.full((2, 2, 2, 2), 1997.5)
    table[1] = 2.5
    return _answers(alone.measure(table, np.random.default_rng(11)), spread)


def test_few_records_are_at_most_so_many_and_to_be_used() -> None:
    """No more than 20 have 1 in all four columns, and nothing else is known."""
    ones = [(a, np.array([0.0, 1.0])) for a in range(4)]
    said = _few_in_the_first_column().answer_group(Question(), ones, [], None)
    assert said.interval is not None
    assert said.interval.low == 0 < said.interval.high < 100
    assert said.notes[-1] == Note("there may be none, or as many as its single columns allow")


def test_what_was_asked_before_changes_no_answer() -> None:
    """Counts of single columns are kept for later groups: of other values they are other counts."""
    asked = _few_in_the_first_column()
    found = []
    for codes in itertools.product(np.eye(2), repeat=4):
        group = [*enumerate(codes)]
        found.append(asked.answer_group(Question(), group, [], None).notes)
        alone = _few_in_the_first_column().answer_group(Question(), group, [], None)
        assert found[-1] == alone.notes
    assert len(set(found)) == 2


def test_what_a_rule_forbids_holds_nobody() -> None:
    """Rules of two columns: exact zeros tighten the bounds of others, and leave out impossible codes."""
    mask = Mask(attributes=(0, 1), allowed=np.array([[True, True], [True, False]]))
    rules = AnswerRules(rules=(mask,), sizes=(2,) * 4)
    yes, both = np.array([False, True]), np.array([True, True])
    assert not rules.allow({0: yes, 1: yes, 2: both})
    assert rules.allow({0: yes, 2: yes})
    assert rules.possible({0: yes, 1: both, 2: both})[1].tolist() == [True, False]
    assert rules.possible_codes(2, both, {0: yes}).tolist() == [True, True]
    table = np.full((2, 2, 2, 2), 100.0)
    table[1, 1] = 0.0
    pairs = Survey(sizes=(2, 2, 2, 2), sets=TRIPLES.sets[:4], merged=TRIPLES.merged)
    squares = pairs.measure(table, np.random.default_rng(7))
    assert _asked(squares, rules).high == 0 < _asked(squares).high
