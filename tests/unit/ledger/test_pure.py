"""Delta 0: for Laplace noise on public domains alone, from the configuration to the account."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from marginweave.accounting.accounts import Account
from marginweave.accounting.composition import account_epsilon, composed_epsilon
from marginweave.base.budget import BasicAmount, Cost
from marginweave.base.errors import BudgetError, InputError
from marginweave.configuration.release import Configuration
from marginweave.forecast.noise import noise_forecast
from marginweave.ledger import Ledger
from marginweave.ledger.audit import audit_ledger
from marginweave.ledger.boxes import epsilon_left
from marginweave.ledger.keys import load_key
from marginweave.measurements.split import plan_budget
from tests.support.configurations import PRIVATE, configuration

PAIRS = {"all": 2}
BOUGHT = {"type": "number", "bounds": "private", "within": [0, 200], "bins": 5}


def pure(noise: str = "laplace", **changes: Any) -> Configuration:
    base = {
        "aggregate": {"method": "marginals", "noise": noise, "cliques": PAIRS},
        "privacy__delta": 0,
    }
    return configuration(**{**base, **changes})


@pytest.mark.parametrize("noise", ["laplace", "auto"])
@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_a_pure_plan_costs_its_epsilon_and_nothing_else(noise: str, neighbors: str) -> None:
    """All draws are Laplace noise, whatever `auto` would choose with a delta; their epsilons are the stated one."""
    config = pure(noise, privacy__neighbors=neighbors)
    plan = plan_budget(config).prices
    assert {draw.mechanism for draw in plan.charges} == {"discrete-laplace"}
    assert (
        plan.delta,
        plan.delta_threshold,
        plan.cost.mu2,
        plan.cost.delta,
        plan.cost.plain.delta,
    ) == (0, 0, 0, 0, 0)
    assert plan.spent_epsilon <= 1 == pytest.approx(plan.spent_epsilon)
    assert composed_epsilon(plan.cost, Decimal(0))[0] == plan.spent_epsilon
    assert list(map(str, noise_forecast(config))) == [
        "Noise: Laplace, charged to the account's allowance with epsilon 1"
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"aggregate": None}, "where aggregate is left to auto"),
        ({"aggregate__noise": "gaussian"}, "with aggregate.noise: gaussian"),
        ({"columns__region": PRIVATE}, "with a private domain"),
        ({"columns__region": BOUGHT}, "with private bounds"),
        ({"aggregate__cliques": "selected"}, "where marginals are selected"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_needs_a_delta_is_refused(changes: dict[str, Any], words: str) -> None:
    """One sentence with the reason and what delta 0 is for."""
    with pytest.raises(
        InputError,
        match=rf"^privacy\.delta \(0\) must be positive {words}.* for 0 write aggregate:",
    ):
        pure(**changes)


def test_an_amplified_resize_needs_a_delta() -> None:
    """Its functional parameters are an (epsilon, delta)."""
    imputed: dict[str, Any] = {
        f"columns__{name}__impute": {"distribution": "uniform"}
        for name in ("sex", "region", "age", "grade")
    }
    with pytest.raises(InputError, match=r"must be positive with resize\.amplify"):
        pure(resize={"records": 100, "proportion": 0.5, "amplify": True}, **imputed)


@pytest.fixture
def without_delta(ledger: Ledger, account: Account) -> Ledger:
    """A ledger with an account of (2, 0), all of it an allowance."""
    ledger.accounts.open(
        replace(account, dataset="pure", epsilon=Decimal(2), delta=Decimal(0)),
        actor="steward",
    )
    return ledger


def test_an_account_without_delta_holds_pure_releases_alone(
    without_delta, location, reserve, plan
) -> None:
    """Two of epsilon 1 fill it exactly, by the plain sum; Gaussian noise never fits; an auditor agrees with every row."""
    asked = plan_budget(pure()).prices
    with pytest.raises(BudgetError, match="was opened with delta 0, and admits only releases with"):
        reserve("gaussian", dataset="pure", plan=plan(mu2=0.005, epsilon=1.0), source="pure")
    for number in ("first", "second"):
        reserve(number, dataset="pure", plan=asked, source="pure")
    total = without_delta.accounts.total("pure")
    assert (total.epsilon, total.composition, total.spent.cost.delta) == (2, "plain", 0)
    with pytest.raises(BudgetError, match="allowance of epsilon 0 of 2 left"):
        reserve("third", dataset="pure", plan=asked, source="pure")
    assert epsilon_left(total) == 0
    audit_ledger(location, load_key(location, {}, ""))


def test_pure_releases_compose_with_others_in_an_account_that_has_a_delta() -> None:
    """Their epsilon is added to the conversion of mu^2, at delta 0 with mu^2 nothing is valid."""
    ours, gaussian = plan_budget(pure()).prices, plan_budget(configuration()).prices
    cost = ours.cost + gaussian.cost
    stated = BasicAmount(epsilon=Decimal(2), delta=Decimal("1e-6"))
    assert account_epsilon(cost, stated, Decimal("1e-6")) == (2, "plain")
    epsilon, _ = account_epsilon(cost, stated, Decimal("5e-7"))
    assert 2 < epsilon < 2.2
    assert account_epsilon(cost, stated, Decimal(0))[0] == float("inf")
    assert account_epsilon(Cost(), BasicAmount(), Decimal(0)) == (0, "plain")


@pytest.mark.parametrize("delta", ["-1e-9", "1.0"])
def test_a_cap_has_a_delta_in_range(ledger: Ledger, account: Account, delta: str) -> None:
    with pytest.raises(InputError, match=r"must be at least 0 and below 1$"):
        ledger.accounts.open(replace(account, dataset="x", delta=Decimal(delta)), actor="steward")
