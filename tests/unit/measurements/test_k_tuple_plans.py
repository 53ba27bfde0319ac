"""The split of the budget over the draws of a release."""

from __future__ import annotations

import math
import subprocess
import sys
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.accounting.accountants import gdp_epsilon, gdp_mu
from marginweave.accounting.composition import account_epsilon
from marginweave.base.budget import BasicAmount
from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.measurements.plan import Plan
from marginweave.measurements.prices import check_uncharged, uncharged_delta
from marginweave.measurements.split import level_multipliers, plan_budget
from marginweave.mechanisms.exponential import Exponential, selection_mu
from marginweave.mechanisms.gaussian import RoundedGaussian
from marginweave.mechanisms.noise_table import MAX_SIGMA
from tests.oracles.sds import printed_noise, sds_rho
from tests.support.budget_plans import configuration

# R, epsilon, delta, Qp, Np, p, rho, eps_Q, sigma, with the square
PRINTED = [
    (3, 1, 1e-3, 0.1, None, (1, 1, 1), 0.0308902066735, 0.0453800298762, (7.34537492,) * 3),
    (3, 4, 1e-5, 0.01, 0.005, (1, 1 / 2, 1 / 3), 0.280341467245, 0.0432312747321, (5.022127702, 2.511063851, 1.674042567)),
    (3, 4, 1e-5, 0.01, 0.005, (1 / 3, 1 / 2, 1), 0.280341467245, 0.0432312747321, (1.674042567, 2.511063851, 5.022127702)),
    (
        4, 4, 1e-5, 0.01, 0.005, (1, 1 / 2, 1 / 3, 1 / 4), 0.280341467245, 0.037439382156,
        (7.351642186, 3.675821093, 2.450547395, 1.837910547),
    ),
    (2, 0.5, 1e-6, 0.01, 0.005, (1, 1), 0.00419321329029, 0.00647550252127, (15.52061499,) * 2),
    (3, 10, 1e-9, 0.01, 0.005, (1, 1, 1), 0.946311643684, 0.0794276040884, (1.265350789,) * 3),
]  # fmt: skip


@pytest.mark.parametrize(
    ("length", "epsilon", "delta", "qp", "np_", "p", "rho", "eps_q", "sigma"), PRINTED
)
def test_the_oracle_has_the_published_noise(
    length, epsilon, delta, qp, np_, p, rho, eps_q, sigma
) -> None:
    """Every sigma_k and the undivided percentile epsilon of the published vectors, to 1e-8."""
    # the vector without a protected count leaves the whole epsilon to the mechanism
    share = 0.005 if np_ is None else np_
    asked = epsilon / (1 - share) if np_ is None else epsilon
    printed = printed_noise(asked, delta, qp, share, p)
    assert sds_rho(asked * (1 - share), delta) == pytest.approx(rho, rel=1e-8)
    assert printed.percentile == pytest.approx(eps_q, rel=1e-8)
    assert printed.levels == pytest.approx(sigma, rel=1e-8)
    spent = length * eps_q**2 / 2 + sum(1 / (2 * s**2) for s in sigma)
    assert spent == pytest.approx(rho, rel=1e-8)


def test_draws_stand_in_the_order_they_are_made() -> None:
    """`count`, then each length's percentile before its level; no percentile where no column can be missing."""
    names = [draw.name for draw in plan_budget(configuration(reporting_length=2)).draws]
    assert names == ["count", "percentile-1", "level-1", "percentile-2", "level-2"]
    names = [
        draw.name for draw in plan_budget(configuration(reporting_length=2, missing=False)).draws
    ]
    assert names == ["count", "level-1", "level-2"]


def accepted_plan(settings: Configuration) -> Plan:
    """The plan of a configuration; one whose draws cost more than its epsilon is refused, and fails the test."""
    try:
        return plan_budget(settings)
    except InputError as refusal:
        pytest.fail(str(refusal))


@pytest.mark.parametrize("private", [False, True])
def test_shares_are_shares_of_the_budget(private: bool) -> None:
    """Count, percentiles and levels cost 2, 10 and 88 % of the budget, which is a little more than mu^2 alone would allow."""
    plan = accepted_plan(configuration(private=private, delta=1e-6))
    budget = float(plan.cost.mu2)
    # selections are composed by their exact curves
    assert 1.01 < budget / gdp_mu(1.0, 1e-6 - plan.delta_threshold) ** 2 < 1.03
    selections = sum(
        selection_mu(d.parameter) ** 2 for d in plan.draws if d.mechanism is Exponential
    )
    levels = sum(1 / d.parameter**2 for d in plan.draws if d.name.startswith("level"))
    assert 1 / plan.by_name["count"].parameter ** 2 / budget == pytest.approx(0.02, rel=1e-8)
    assert selections / budget == pytest.approx(0.10, rel=1e-8)
    assert levels / budget == pytest.approx(0.88, rel=1e-8)


def test_every_draw_is_priced_in_both_currencies() -> None:
    """A Gaussian costs 1/sigma^2 and 1/(2 sigma^2), a selection selection_mu^2 and eps^2/8, and never less."""
    for draw in plan_budget(configuration(private=True)).draws:
        if draw.mechanism is RoundedGaussian:
            mu2, rho = 1 / draw.parameter**2, 1 / (2 * draw.parameter**2)
        else:
            mu2, rho = selection_mu(draw.parameter) ** 2, draw.parameter**2 / 8
        assert mu2 * (1 - 1e-15) <= float(draw.cost.mu2) <= mu2 * (1 + 1e-14)
        assert rho * (1 - 1e-15) <= float(draw.cost.rho) <= rho * (1 + 1e-14)


def test_only_private_domains_pay_for_a_threshold() -> None:
    """delta_threshold is 0 where every domain is public, and otherwise stands in the cost of level-1 alone."""
    assert plan_budget(configuration()).delta_threshold == 0
    plan = plan_budget(configuration(private=True))
    assert plan.delta_threshold == pytest.approx(0.1 * plan.delta)
    assert [d.name for d in plan.draws if d.cost.delta] == ["level-1"]
    assert plan.cost.delta >= Decimal(plan.delta_threshold)


@given(
    epsilon=st.floats(math.log(1e-3), math.log(100)).map(math.exp),
    delta=st.floats(math.log(1e-15), math.log(0.5)).map(math.exp),
    private=st.booleans(),
    missing=st.booleans(),
    sigma=st.one_of(
        st.sampled_from(["long", "short", "balanced", "singles"]),
        st.tuples(*[st.floats(1e-3, 1e3)] * 3),
    ),
    percentile_share=st.floats(1e-4, 0.999),
    count_share=st.floats(1e-4, 0.999),
    neighbors=st.sampled_from(["add-remove", "replace-one"]),
)
@settings(max_examples=40, deadline=None)
def test_no_configuration_spends_more_than_it_states(
    epsilon, delta, private, missing, sigma, percentile_share, count_share, neighbors
) -> None:
    """A plan costs at most its epsilon at its delta, alone in an account of that size; otherwise it is refused."""
    asked = configuration(
        epsilon=epsilon,
        delta=delta,
        private=private,
        missing=missing,
        sigma=sigma,
        reporting_length=3,
        percentile_share=percentile_share,
        count_share=count_share,
        neighbors=neighbors,
    )
    try:
        plan = plan_budget(asked)
    except InputError:
        return
    assert plan.spent_epsilon <= epsilon
    cap = BasicAmount(epsilon=Decimal(repr(epsilon)), delta=Decimal(repr(delta)))
    total, _ = account_epsilon(plan.cost, cap, cap.delta)
    assert total <= epsilon
    assert Decimal(total) <= cap.epsilon or total == float(cap.epsilon)


def test_nearly_all_that_is_asked_is_spent() -> None:
    """The plan is not below its epsilon by more than the rounding margin."""
    plan = plan_budget(configuration(missing=False))
    alone = gdp_epsilon(math.sqrt(float(plan.cost.mu2)), plan.delta)
    assert plan.spent_epsilon == pytest.approx(alone, rel=1e-9)
    assert plan.spent_epsilon == pytest.approx(1.0, rel=1e-8)


def test_sigma_sum_must_run_to_the_last_length() -> None:
    """The printed sum to k spends up to R times the budget; ours spends it exactly, in the given proportions."""
    budget, p = gdp_mu(1, 1e-6) ** 2, (1.0, 0.5, 0.2)
    ours = level_multipliers(p, budget)
    assert sum(s**-2 for s in ours) == pytest.approx(budget)
    assert [s / ours[0] for s in ours] == pytest.approx(p)
    to_k = [pk * math.sqrt(sum(q**-2 for q in p[: k + 1]) / budget) for k, pk in enumerate(p)]
    assert sum(s**-2 for s in to_k) > 2 * budget


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"count_share": 0.6, "percentile_share": 0.5}, "together below 1"),
        ({"sigma": [1e-300, 1.0, 1e300]}, "must be at most 131072"),
        ({"epsilon": 1e-4}, r"privacy.epsilon \(0.0001\) must be at least 0.001"),
        ({"epsilon": 1e300}, "at most 1e.06"),
        ({"delta": 1e-40}, r"privacy.delta \(1e-40\) must be at least 1e-20"),
        (
            {"epsilon": 10.0, "delta": 2e-16},
            r"^privacy.delta \(2e-16\) must be at least 1e-20 \(1 \+ e\^epsilon\)",
        ),
        (
            {"epsilon": 60.0},
            "with epsilon 60: noise is drawn to 128 bits; with this delta epsilon is at most 32.23$",
        ),
        (
            {"epsilon": 1e6, "delta": 0.4},
            "noise is drawn to 128 bits; with this delta epsilon is at most 45.13$",
        ),
    ],
)
def test_impossible_splits_are_refused_in_words(settings_, message: str) -> None:
    """What cannot be planned is an InputError that names the key."""
    with pytest.raises(InputError, match=message):
        plan_budget(configuration(**settings_))


@given(
    st.floats(math.log(1e-3), math.log(100)).map(math.exp),
    st.floats(math.log(1e-20), math.log(0.5)).map(math.exp),
)
@settings(max_examples=40, deadline=None)
def test_what_is_not_charged_is_one_percent_of_delta_at_most(epsilon: float, delta: float) -> None:
    """Planned where (1 + e^epsilon) 1e-22 is below 1 % of delta, refused where it is above: the largest table proves 1e-22."""
    uncharged = (1 + math.exp(epsilon)) * 1e-22
    assert uncharged_delta(epsilon) == pytest.approx(uncharged, rel=1e-12)
    if uncharged > 0.01 * delta * (1 + 1e-9):
        with pytest.raises(InputError, match="noise is drawn to 128 bits"):
            check_uncharged(epsilon, delta)
    elif uncharged < 0.01 * delta * (1 - 1e-9):
        check_uncharged(epsilon, delta)
    cells = 10**10  # of the widest noise that there is: J is 15 deviations
    assert cells * (15 * MAX_SIGMA + 3) * 2.0**-128 < 1e-22


def test_planning_loads_no_heavy_library() -> None:
    """A plan or a refusal must answer in under a second: no pandas, numba, OpenDP or Prefect."""
    heavy = {"pandas", "numba", "opendp", "prefect", "great_expectations", "sqlalchemy"}
    code = (
        "import sys, marginweave.measurements.split, marginweave.mechanisms.gaussian, "
        "marginweave.measurements.thresholds, marginweave.accounting.composition;"
        f"sys.exit(bool({heavy!r} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
