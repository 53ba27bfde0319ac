"""The draws of marginals with Laplace noise: their epsilons, what is converted beside them, and when `auto` chooses them."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.accounting.accountants import gdp_epsilon
from marginweave.base.budget import BasicAmount
from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.forecast.noise import forecast, noise_forecast
from marginweave.ledger.plans import check_plan
from marginweave.measurements.plan import Plan
from marginweave.measurements.split import plan_budget
from marginweave.measurements.whole_marginals import WholeMarginals
from marginweave.mechanisms.laplace import laplace_scale, laplace_sigma
from marginweave.runs.limits import check_size
from tests.support.configurations import PRIVATE, configuration

BOUGHT = {"type": "number", "bounds": "private", "within": [0, 200], "bins": 5}
PAIRS = {"all": 2}


def laplace(noise: str = "laplace", **changes: Any) -> Configuration:
    return configuration(aggregate__method="marginals", aggregate__noise=noise, **changes)


def kinds(plan: Plan) -> dict[str, str]:
    return {draw.name: draw.mechanism.name for draw in plan.draws}


@settings(max_examples=25)
@given(st.floats(math.log(1e-3), math.log(1e3)).map(math.exp), st.floats(1e-3, 0.999))
def test_pure_epsilons_add_up_to_the_stated_one(epsilon: float, share: float) -> None:
    """To the last digit but rounding down, and never beyond; nothing in mu^2, rho or delta; the ledger believes it."""
    plan = plan_budget(
        laplace(
            privacy__epsilon=epsilon,
            aggregate__cliques=PAIRS,
            aggregate__one_way_share=share,
        )
    )
    cost = plan.cost
    assert kinds(plan) == {"one-way": "discrete-laplace", "marginals": "discrete-laplace"}
    assert (cost.mu2, cost.rho, cost.delta, cost.plain.delta) == (0, 0, 0, 0)
    assert cost.plain.epsilon <= Decimal(repr(epsilon))
    assert float(cost.plain.epsilon) == pytest.approx(epsilon, rel=1e-15)
    assert all(
        draw.cost.plain == BasicAmount(epsilon=Decimal(repr(draw.parameter))) for draw in plan.draws
    )
    assert plan.draws[0].parameter / plan.draws[1].parameter == pytest.approx(
        math.sqrt(share / (1 - share)), rel=1e-6
    )
    check_plan(plan.prices)


MIXED: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    # settings, draws with Laplace noise, the others
    "selected": ({}, ["one-way", "marginals"], ["selection"]),
    "single": ({"aggregate__cliques": {"all": 1}}, ["one-way"], []),
    "private": (
        {"columns__sex": PRIVATE, "aggregate__cliques": PAIRS},
        ["one-way", "marginals"],
        ["values"],
    ),
    "bounds": (
        {"columns__age": BOUGHT, "aggregate__cliques": PAIRS},
        ["one-way", "marginals"],
        ["bounds-3-low", "bounds-3-high"],
    ),
}


@pytest.mark.parametrize(("changes", "plain", "others"), MIXED.values(), ids=MIXED.keys())
def test_what_has_no_laplace_noise_is_converted_beside_it(
    changes: dict[str, Any], plain: list[str], others: list[str]
) -> None:
    """GDP of the others at the delta that is left, plus the epsilons in plain, is the stated epsilon; shares are told."""
    config = laplace(privacy__epsilon=2.0, **changes)
    plan = plan_budget(config)
    assert {name for name, kind in kinds(plan).items() if kind == "discrete-laplace"} == set(plain)
    assert set(kinds(plan)) == {*plain, *others}
    epsilons = sum(draw.cost.plain.epsilon for draw in plan.draws)
    mu2 = sum(float(draw.cost.mu2) for draw in plan.draws if draw.name in others)
    assert float(plan.cost.mu2) == pytest.approx(mu2)
    converted = gdp_epsilon(math.sqrt(mu2), 1e-6 - float(plan.cost.delta)) if others else 0.0
    assert converted + float(epsilons) == pytest.approx(2.0, rel=1e-7)
    assert plan.spent_epsilon <= 2.0
    check_plan(plan.prices)
    rows, spent = forecast(config)
    assert sum(row.share for row in rows) == pytest.approx(1)
    for row, draw in zip(rows, plan.draws, strict=True):
        if draw.name in plain:
            assert row.share * 2.0 == pytest.approx(draw.parameter)
            assert str(row.noise).startswith("Laplace")
    assert spent == plan.spent_epsilon
    assert list(map(str, noise_forecast(config))) == [
        f"Noise: Laplace, charged to the account's allowance with epsilon {float(epsilons):.6g}"
    ]


def test_an_amplified_release_is_charged_as_stated_whatever_its_noise() -> None:
    """The functional epsilon is larger and is divided; the first draw is charged what is stated, the other nothing."""
    imputed = {
        f"columns__{name}__impute": {"distribution": "uniform"}
        for name in ("sex", "region", "age", "grade")
    }
    resize = {"records": 400, "proportion": 0.4, "amplify": True}
    plan = plan_budget(laplace(**{"aggregate__cliques": PAIRS, "resize": resize, **imputed}))
    assert [draw.cost.plain for draw in plan.draws] == [
        BasicAmount(epsilon=Decimal("1.0"), delta=Decimal("1e-06")),
        BasicAmount(),
    ]
    assert sum(draw.parameter for draw in plan.draws) > 1.3
    check_plan(plan.prices)


AUTO: dict[str, tuple[dict[str, Any], str]] = {
    "one pair": ({"aggregate__cliques": [["sex", "age"]]}, "discrete-laplace"),
    "three pairs": ({"aggregate__cliques": PAIRS, "columns__grade": None}, "discrete-laplace"),
    "six pairs": ({"aggregate__cliques": PAIRS}, "rounded-gaussian"),
    "six pairs at a small delta": (
        {"aggregate__cliques": PAIRS, "privacy__delta": 1e-12},
        "discrete-laplace",
    ),
    "one pair, of a few rows a person": (
        {
            "aggregate__cliques": [["sex", "age"]],
            "privacy__unit": {"column": "id", "max_records": 3},
        },
        "discrete-laplace",
    ),
    "six pairs, of a few rows a person": (
        {"aggregate__cliques": PAIRS, "privacy__unit": {"column": "id", "max_records": 3}},
        "rounded-gaussian",
    ),
    "single attributes": ({"aggregate__cliques": {"all": 1}}, "discrete-laplace"),
    "selected": ({}, "rounded-gaussian"),
    "private": (
        {"aggregate__cliques": [["sex", "age"]], "columns__sex": PRIVATE},
        "rounded-gaussian",
    ),
    "bounds": (
        {"aggregate__cliques": [["sex", "age"]], "columns__age": BOUGHT},
        "rounded-gaussian",
    ),
    "large columns that no marginal has": (
        {
            "aggregate__cliques": [["sex", "region"]],
            **{
                f"columns__{n}": {"type": "number", "bounds": [0, 1e5], "bins": 1200}
                for n in ("age", "grade")
            },
        },
        "discrete-laplace",
    ),
    "a limit that leaves few": (
        {"aggregate__cliques": {"all": 2, "max_cells": 12}},
        "discrete-laplace",
    ),
    "too many cells": (
        {
            "aggregate__cliques": [["age", "grade"]],
            **{
                f"columns__{n}": {"type": "number", "bounds": [0, 1e5], "bins": 1200}
                for n in ("age", "grade")
            },
        },
        "rounded-gaussian",
    ),
}


@pytest.mark.parametrize(("changes", "chosen"), AUTO.values(), ids=AUTO.keys())
def test_auto_takes_the_smaller_variance_where_it_is_public(
    changes: dict[str, Any], chosen: str
) -> None:
    """A function of the configuration; what it chooses is what the same configuration gets that asks for it."""
    config = laplace("auto", **changes)
    plan = plan_budget(config)
    assert kinds(plan)[plan.draws[-1].name] == chosen
    asked = laplace("laplace" if chosen == "discrete-laplace" else "gaussian", **changes)
    assert plan == plan_budget(asked)
    said = str(noise_forecast(config)[0])
    assert said.startswith("Noise: Laplace") is (chosen == "discrete-laplace")
    assert ("cells" in said) is (
        "1200" in str(changes) and "grade" in str(changes["aggregate__cliques"])
    )
    check_size(config)


def test_plan_knows_the_laplace_noise_of_what_is_public() -> None:
    """The deviation of each marginal, from its part of the epsilon of the draw."""
    config = laplace(aggregate__cliques=PAIRS, aggregate__allocation="equal")
    plan = plan_budget(config)
    noise = {draw.name: draw.sigmas(config) for draw in plan.of(WholeMarginals)}
    part = Fraction(repr(plan.by_name["marginals"].parameter)) / 6
    expected = laplace_sigma(laplace_scale(part, config.stability))
    assert noise["marginals"] == pytest.approx([expected] * 6, rel=1e-6)
    assert len(noise["one-way"]) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {
                "aggregate__cliques": [["age", "grade"]],
                **{
                    f"columns__{n}": {"type": "number", "bounds": [0, 1e5], "bins": 1200}
                    for n in ("age", "grade")
                },
            },
            r"may have 144\d+ cells together, and Laplace noise is drawn for at most 1048576; use aggregate\.noise: gaussian",
        ),
        (
            {
                f"columns__{n}": {"type": "number", "bounds": [0, 1e5], "bins": 1200}
                for n in ("age", "grade")
            },
            r"may have 14\d+ cells together, and Laplace noise",
        ),
        (
            {
                "privacy__epsilon": 0.002,
                "aggregate__selection_share": 0.01,
                "aggregate__one_way_share": 0.5,
            },
            r"epsilon of the draws without Laplace noise \(.*\) must be at least 0\.001",
        ),
    ],
)
def test_what_laplace_noise_cannot_do_is_refused_before_any_draw(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        check_size(laplace(**changes))
