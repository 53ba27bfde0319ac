"""Answers from the model: linear in it, wide where a set of columns was not measured, and silent on merged values."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from marginweave.answers import model as model_module
from marginweave.answers.least_squares import NotMeasuredError
from marginweave.answers.model import (
    WIDER,
    ModelAnswers,
    ModelSpread,
    Stack,
    _contrasts,
    _tau,
    misfit,
)
from marginweave.answers.tables import PartTables
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.domain.labels import UndeclaredCells
from marginweave.estimate.mixture.model import Mixture
from marginweave.inference.model_answers import ignored_records
from marginweave.observations.tables import Observation

FALSE_ALARM = 1e-6
SIZES, RECORDS = (3, 4, 2), 1000.0
NOTHING = PartTables(sizes={}, parts=(), full_parts={}, tables=())


def _mixture(seed: int) -> Mixture:
    rng = np.random.default_rng(seed)
    return Mixture.of(
        rng.dirichlet(np.ones(5)), [rng.dirichlet(np.ones(s), 5) for s in SIZES], SIZES, RECORDS, []
    )


MISFIT = {"outside": {"2": 0.01}, "inside": dict[str, float]()}
DRAWN = [_mixture(2), _mixture(3), _mixture(4)]


def _answers(misfit: dict[str, dict[str, float]] = MISFIT, **changes: object) -> ModelAnswers:
    spread = ModelSpread(stack=Stack.of(_mixture(1), DRAWN), misfit=misfit)
    given = {
        "measured": NOTHING,
        "model": _mixture(1),
        "codes": [np.arange(s) for s in SIZES],
        "inside": [frozenset({0, 1})],
        "chosen": False,
        "spread": lambda: spread,
    }
    return ModelAnswers(**{**given, **changes})


def test_an_answer_is_what_the_model_expects_and_its_spread_that_of_drawn_models() -> None:
    weights = {0: np.array([[1.0, 0, 1], [0, 1, 0]]), 1: np.array([[0, 1.0, 1, 0], [1, 1, 0, 0]])}
    answers = _answers()

    def expected(model: Mixture) -> np.ndarray:
        return np.einsum("ab,qa,qb->q", model.marginal((0, 1)), weights[0], weights[1])

    solved = answers.solve(weights)
    assert np.allclose(solved.values, expected(answers.model))
    around = np.stack([expected(m) for m in DRAWN]) - expected(answers.model)
    assert np.allclose(solved.covariance, WIDER**2 * around.T @ around / 3)  # inside: no misfit


def test_of_a_model_that_follows_another_source_nothing_is_known() -> None:
    """Its cells are those of a census, and no measured table, nor left-out one, says how far these are from the table's."""
    answers = _answers(chosen=True)
    assert answers.knows((0, 1))
    assert answers.fits((1, 2))
    other = replace(answers, follows="grade")
    for axes in ((0,), (0, 1), (1, 2)):
        assert not any(ask(axes) for ask in (other.knows, other.fits, other.tells_of_part))


def test_the_number_of_queries_changes_neither_answers_nor_the_memory_of_products(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Asked for together, no more of them are computed at once than there is room for."""
    stack = Stack.of(_mixture(1), DRAWN)
    weights = {0: np.eye(3)[[0, 1, 2, 0, 1]], 1: np.eye(4)[[3, 2, 1, 0, 3]]}
    together = stack.expected(weights)
    monkeypatch.setattr(model_module, "_PRODUCTS", 2 * stack.weights.size)
    asked: list[int] = []
    few = Stack._expected_of_few

    def counted(self: Stack, some: dict[int, np.ndarray]) -> np.ndarray:
        asked.append(len(some[0]))
        return few(self, some)

    monkeypatch.setattr(Stack, "_expected_of_few", counted)
    assert np.allclose(stack.expected(weights), together, rtol=1e-6)
    assert asked == [2, 2, 1]


def test_drawn_models_are_in_memory_one_by_one() -> None:
    earlier: list[weakref.ref[Mixture]] = []

    def drawn() -> Iterator[Mixture]:
        for seed in (2, 3, 4):
            assert not any(model() for model in earlier[:-1])  # the caller holds the last one
            model = _mixture(seed)
            earlier.append(weakref.ref(model))
            yield model
            del model

    one_by_one, together = Stack.of(_mixture(1), drawn(), 3), Stack.of(_mixture(1), DRAWN)
    for ours, theirs in zip(one_by_one.shares, together.shares, strict=True):
        assert np.array_equal(ours, theirs)


def test_misfit_widens_what_no_set_holds_by_what_its_columns_have_in_common() -> None:
    weights = {0: np.array([[1.0, 0, 1]]), 2: np.array([[0.0, 1]])}
    alone, more = (
        _answers(misfit={"outside": {}, "inside": {}}).solve(weights),
        _answers().solve(weights),
    )
    model = _answers().model
    p, q = (float(model.marginal((a,)) @ weights[a][0]) / RECORDS for a in (0, 2))
    assert np.isclose(
        more.covariance - alone.covariance, RECORDS**2 * 0.01 * p * (1 - p) * q * (1 - q)
    )
    assert np.array_equal(more.values, alone.values)
    measured = {0: weights[0], 1: np.array([[1.0, 1, 0, 0]])}
    inside = _answers(misfit={"outside": {"2": 9.0}, "inside": {"2": 0.01}}).solve(measured)
    q = float(model.marginal((1,)) @ measured[1][0]) / RECORDS
    less = _answers().solve(measured).covariance
    assert np.isclose(inside.covariance - less, RECORDS**2 * 0.01 * p * (1 - p) * q * (1 - q))


@pytest.mark.parametrize("of_code", [0.0, 1.0])
def test_records_that_have_no_code_widen_an_answer_by_what_they_may_have_moved(
    of_code: float,
) -> None:
    """Records lose their value of the first column, all beside one value of the second: the root mean square over its values.

    Where they are spread over the table, they move the answer by less.
    """
    most = 20
    answers = _answers(
        codes=[np.arange(SIZES[0] + 1), *(np.arange(size) for size in SIZES[1:])], ignored={0: most}
    )
    weights = {0: np.array([[1.0, 0, 1, of_code]]), 1: np.array([[0, 1.0, 1, 0]])}
    none = _answers(codes=answers.codes).solve(weights)
    widened = answers.solve(weights)
    moved = float(np.sqrt((widened.covariance - none.covariance)[0, 0]))
    table = answers.model.marginal((0, 1))
    left, places = table[:, 1:3], table.sum(axis=0) / RECORDS

    def error(number: float) -> float:
        """That of the answer where what is left has so many records without a value."""
        without = left * (1 - number / left.sum())
        return float(widened.values[0]) - float(
            without[0].sum() + without[2].sum() + of_code * number
        )

    errors = np.array([error(0.0), error(most), error(most), error(0.0)])
    assert moved == pytest.approx(float(np.sqrt(places @ errors**2)), rel=1e-3)
    assert abs(error(most * places[1:3].sum())) < moved
    everybody = {0: np.ones((1, SIZES[0] + 1)), 1: weights[1]}
    assert np.allclose(
        answers.solve(everybody).covariance,
        _answers(codes=answers.codes).solve(everybody).covariance,
    )


def test_records_that_have_no_code_leave_a_mean_where_it_is() -> None:
    """A sum of numbers loses what its count does, times the mean, whatever the numbers count from; one of them is 0."""
    answers = _answers(
        codes=[np.arange(SIZES[0] + 1), *(np.arange(size) for size in SIZES[1:])], ignored={0: 20}
    )
    conditions = np.array([[1.0, 0, 1, 0]] * 2)
    for start in (0.0, 100.0):
        numbers = start + np.arange(4.0)
        weights = {0: conditions, 1: np.stack([numbers, np.ones(4)])}
        none = _answers(codes=answers.codes).solve(weights)
        added = answers.solve(weights).covariance - none.covariance
        assert added[1, 1] > 1
        mean = none.values[0] / none.values[1]
        assert np.allclose(added, added[1, 1] * np.outer([mean, 1], [mean, 1]), rtol=1e-3)


def test_the_records_without_a_code_are_those_that_estimates_ignore() -> None:
    """By place: of a column whose code is not kept; of no set, and of no column whose code is."""
    attributes = [SimpleNamespace(name=name) for name in ("sex", "region", "signs=a")]
    cells = UndeclaredCells(
        name="region", count=9, deviation=20.0, low=0, high=40, found=False, kept=False
    )
    others = (
        replace(cells, name="sex", found=True, kept=True),
        replace(cells, name="signs"),
    )
    domain: Any = SimpleNamespace(undeclared=(cells, *others))
    configuration: Any = SimpleNamespace(attributes=attributes)
    found = ignored_records(domain, configuration)
    assert found == {1: pytest.approx(np.hypot(9, 31 / norm.isf(0.025)))}


@pytest.mark.parametrize("level", [0.95, 0.99, 0.999])
def test_the_square_of_an_error_as_a_variance_covers_any_error_up_to_it(level: float) -> None:
    """By the normal distribution: noise of 1, and an error of any size that is no larger than what was added."""
    added = np.geomspace(1e-3, 1e3, 400)
    half = norm.isf((1 - level) / 2) * np.hypot(1.0, added)
    for share in (0.0, 0.5, 1.0):
        covered = norm.cdf(half - share * added) - norm.cdf(-half - share * added)
        assert covered.min() >= level - 1e-9


def test_values_that_were_measured_together_are_not_told_apart() -> None:
    merged = [np.array([0, 1, 2]), np.array([0, 1, 2, 3, 3]), np.array([0, 1])]
    answers = _answers(codes=merged)
    assert answers.solve({1: np.array([[1.0, 0, 0, 1, 1]])}).values.shape == (1,)
    with pytest.raises(NotMeasuredError):
        answers.solve({1: np.array([[1.0, 0, 0, 1, 0]])})


def test_misfit_is_found_where_left_out_tables_differ_from_what_the_rest_says() -> None:
    """Columns that depend, of which every table is needed; and independent ones, where noise alone remains.

    Tables that are named are left out alone: the others tell of (1, 2).
    """
    settings, rng = MixtureSynthesis(components=10, fits=1), np.random.default_rng(5)
    found = list[dict[str, dict[str, float]]]()
    for strength in (0.0, 0.9):
        first = rng.integers(0, 3, 4000)
        others = [
            np.where(rng.random(4000) < strength, first % s, rng.integers(0, s, 4000))
            for s in (4, 2)
        ]
        records, measured = [first, *others], []
        for c in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2)):
            table = np.zeros([SIZES[a] for a in c], np.int64)
            np.add.at(table, tuple(records[a] for a in c), 1)
            noisy = table + np.rint(rng.normal(0, 5, table.shape)).astype(np.int64)
            measured.append(Observation(attributes=c, counts=noisy, deviation=5.0))
        model = Mixture.of(np.ones(1), [np.full((1, s), 1 / s) for s in SIZES], SIZES, 4000.0, [])
        stack = Stack.of(model, [model])
        found.append(misfit(measured, model, stack, settings, np.random.default_rng(1)))
    last = misfit(measured, model, stack, settings, np.random.default_rng(1), [(1, 2)])
    assert 0 < last["outside"]["2"] < found[1]["outside"]["2"] / 2
    for kind in ("outside", "inside"):  # nothing depends in the model
        assert found[0][kind]["2"] < 0.005 < 0.02 < found[1][kind]["2"]


def test_contrasts_are_less_their_noise_and_that_of_the_fit() -> None:
    """400 noisy tables of the model itself, false alarms 1e-6: in the middle nothing is left; measured tables have more of it.

    Half of what they have more is the spread of the drawn models, whatever the noise of the table.
    """
    model, rng, middle, half = _mixture(1), np.random.default_rng(3), [], []
    elsewhere = Observation(attributes=(1,), counts=np.zeros(4, np.int64), deviation=1.0)
    for _ in range(400):
        noisy = np.rint(model.marginal((0, 2)) + rng.normal(0, 20, (3, 2))).astype(np.int64)
        m = Observation(attributes=(0, 2), counts=noisy, deviation=20.0)
        ((_, outside),), ((_, inside),) = (
            _contrasts(m, model, kept, Stack.of(model, DRAWN), np.random.default_rng(1))
            for kept in ([elsewhere], ())
        )
        middle.append((outside[0] + inside[0]).sum() / 2)
        half.append((inside[0] - outside[0]).sum() / 2)
    assert abs(np.mean(middle)) < norm.isf(FALSE_ALARM / 2) * np.std(middle) / 20
    assert np.std(middle) > 0
    assert np.ptp(half) < 1e-6 * np.mean(half)


def _tables(tau: float, variances: list[float], rng: np.random.Generator) -> list[np.ndarray]:
    """Twenty contrasts of each table, of many scales: noise and misfit are normal, and the noise is taken off the squares."""
    scale = 10 ** rng.uniform(1, 5, (len(variances), 20))
    scale[0, 0] = 0  # a contrast of nothing
    drawn = rng.normal(0, np.sqrt((np.array(variances)[:, None] + tau) * scale)) ** 2
    noise = np.array(variances)[:, None] * scale
    return [np.stack([d - v, v, s]) for d, v, s in zip(drawn, noise, scale, strict=True)]


@pytest.mark.parametrize("tau", [0.02, 0.0005])
def test_misfit_is_as_large_as_it_was_and_small_tables_say_so(tau: float) -> None:
    """A hundred tables of much noise hide it; thirty of little show it: 600 contrasts, false alarm 1e-6."""
    found = _tau(_tables(tau, [0.05] * 100 + [tau / 100] * 30, np.random.default_rng(7)))
    assert abs(found / tau - 1) < norm.isf(FALSE_ALARM / 2) * np.sqrt(2 / 600)


def test_where_noise_hides_misfit_its_error_is_left() -> None:
    """Never 0: on average about .8 of the standard error, sqrt(2 / 600) v here, and with no contrast there is none to find."""
    rng = np.random.default_rng(8)
    found = np.array([_tau(_tables(0.0, [0.01] * 30, rng)) for _ in range(400)]) / (
        0.01 * np.sqrt(2 / 600)
    )
    assert (found > 0).all()
    assert 0.6 < found.mean() < 1.2
    assert _tau([np.zeros((3, 20))]) == 0
