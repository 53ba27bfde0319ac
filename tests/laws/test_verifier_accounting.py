"""The verifier's arithmetic, which has nothing but Python's own library, against the program's, which has SciPy."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.accounting.accountants import gdp_delta, zcdp_delta
from marginweave.accounting.selection_composition import release_delta
from marginweave.configuration.load import parse_configuration
from marginweave.measurements.plan import Plan
from marginweave.measurements.split import plan_budget
from marginweave.mechanisms.exponential import Exponential, selection_mu
from marginweave.verify.bundle_accounting import (
    concentrated_delta,
    draws_hold,
    gaussian_delta,
    mixed_total_delta,
    selection_covered,
)
from tests.support.configurations import raw

K_TUPLES = {"method": "k-tuples", "reporting_length": 3}
HIDDEN = {"type": "category", "domain": "private"}
PLANS: dict[str, dict[str, Any]] = {
    "gaussian": {"aggregate": {**K_TUPLES, "percentile": "none"}},
    "percentiles": {"aggregate": K_TUPLES},
    "replaced": {"aggregate": K_TUPLES, "privacy__neighbors": "replace-one"},
    "private": {"aggregate": K_TUPLES, "columns__region": HIDDEN},
    "marginals": {"aggregate": {"method": "marginals", "cliques": {"all": 2}}},
    "private-marginals": {"aggregate": {"method": "marginals", "cliques": {"all": 2}}, "columns__region": HIDDEN},
    "rounds": {"aggregate": {"method": "marginals", "cliques": {"adaptive": 2}}},
    "laplace": {"aggregate": {"method": "marginals", "cliques": {"all": 2}, "noise": "laplace"}},
}  # fmt: skip


def priced(plan: Plan) -> list[dict[str, Any]]:
    """The draws of a plan as the verifier reads them from rows."""
    return [
        {
            "name": draw.name,
            "mechanism": draw.mechanism.name,
            "parameter": draw.parameter,
            **{name: Decimal(text) for name, text in draw.cost.texts.items()},
        }
        for draw in plan.draws
    ]


def holds(plan: Plan, epsilon: float) -> bool:
    return draws_hold(priced(plan), epsilon, Decimal(repr(plan.delta)))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
@pytest.mark.parametrize("name", PLANS)
def test_what_the_program_plans_holds_and_no_less_does(name: str, epsilon: float) -> None:
    """Every plan passes at the epsilon that it states of its draws, and at a smaller one it does not."""
    plan = plan_budget(parse_configuration(raw(**{**PLANS[name], "privacy__epsilon": epsilon})))
    assert holds(plan, plan.spent_epsilon)
    assert holds(plan, plan.epsilon)
    assert not holds(plan, plan.spent_epsilon * (1 - 1e-6))
    if not plan.cost.plain:
        ours = mixed_total_delta(priced(plan), plan.spent_epsilon)
        assert ours == pytest.approx(
            release_delta(plan.prices.charges, plan.spent_epsilon), rel=1e-9
        )


@pytest.mark.parametrize("name", ["gaussian", "private", "percentiles", "laplace"])
def test_draws_that_cost_more_do_not_hold(name: str) -> None:
    """A fifth more of any draw is too much."""
    plan = plan_budget(parse_configuration(raw(**PLANS[name])))
    for i, draw in enumerate(plan.draws):
        dearer = replace(
            draw.cost, mu2=draw.cost.mu2 * Decimal("1.2"), rho=draw.cost.rho * Decimal("1.2")
        )
        dearer = replace(dearer, plain=dearer.plain + dearer.plain)
        other = replace(draw, cost=dearer)
        if other.mechanism is Exponential:
            other = replace(other, parameter=other.parameter * 1.2)
        assert not holds(
            replace(plan, draws=(*plan.draws[:i], other, *plan.draws[i + 1 :])), plan.spent_epsilon
        )


@settings(max_examples=75, deadline=None)
@given(mu=st.floats(0.001, 20), epsilon=st.floats(0.001, 90))
def test_closed_forms_are_the_programs(mu: float, epsilon: float) -> None:
    """Delta of a Gaussian within 1e-9, or where the two tails cancel within their last digits; of zCDP likewise."""
    assert gaussian_delta(mu, epsilon) == pytest.approx(gdp_delta(mu, epsilon), rel=1e-9, abs=1e-15)
    rho = mu * mu / 2
    assert concentrated_delta(rho, epsilon) == pytest.approx(
        zcdp_delta(rho, epsilon), rel=1e-8, abs=1e-300
    )


@pytest.mark.parametrize("epsilon", [float(value) for value in np.geomspace(1e-4, 30, 25)])
def test_selections_are_priced_alike(epsilon: float) -> None:
    """What the program charges for an exponential mechanism is enough, and a millionth less is not."""
    mu2, rho = Decimal(selection_mu(epsilon) ** 2), Decimal(epsilon**2 / 8)
    assert selection_covered(epsilon, mu2, rho)
    assert not selection_covered(epsilon, mu2 * Decimal("0.999999"), rho)
    assert not selection_covered(epsilon, mu2, rho * Decimal("0.999999"))
