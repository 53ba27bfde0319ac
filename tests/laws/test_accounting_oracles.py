"""Whole plans against independent accountants: privacy loss distributions of dp-accounting, and what OpenDP measures.

Everything here is exact arithmetic on public numbers: no statistics, no false alarms. Each oracle is shown a plan that spends
too much, and refutes it.
"""

# opendp.prelude hands on names without saying so:
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.accounting.accountants import gdp_delta
from marginweave.accounting.amplification import functional_parameters
from marginweave.accounting.composition import composed_epsilon
from marginweave.base.budget import BasicAmount, Cost, Stability, amount
from marginweave.measurements.base import Measurement
from marginweave.measurements.plan import Plan
from marginweave.measurements.split import plan_budget
from marginweave.measurements.thresholds import private_threshold
from marginweave.mechanisms.base import l1_sensitivity
from marginweave.mechanisms.exponential import Exponential, selection_mu
from marginweave.mechanisms.gaussian import RoundedGaussian, noise_sigma
from marginweave.mechanisms.laplace import DiscreteLaplace, laplace_scale
from marginweave.mechanisms.noise_table import noise_table
from tests.support.budget_plans import configuration

DELTA = 1e-6
Loss = pld.PrivacyLossDistribution


def selection_loss(epsilon: float, step: float) -> Loss:
    """The worst pair of an exponential mechanism: hockey-stick (e^{eps/2} - e^{x/2})^2 / (e^eps - 1) at |x| <= eps.

    The largest, over a shift t, of the randomized responses whose two losses are t and t - eps (Dong, Durfee, Rogers 2020).
    """
    reach = math.ceil(epsilon / step)
    losses = np.arange(-reach, reach + 1) * step
    inside = np.clip(losses, -epsilon, epsilon)
    stick = (math.exp(epsilon / 2) - np.exp(inside / 2)) ** 2 / math.expm1(epsilon)
    stick[0], stick[-1] = max(stick[0], -math.expm1(losses[0])), 0.0
    return Loss(
        pld_pmf.create_pmf_pessimistic_connect_dots(step, np.arange(-reach, reach + 1), stick)
    )


def draw_loss(draw: Measurement[Any], shrink: float, step: float) -> Loss:
    """The loss of one draw with `shrink` times its noise."""
    if draw.mechanism is Exponential:
        return selection_loss(draw.parameter / shrink, step)
    if draw.mechanism is DiscreteLaplace:
        return pld.from_laplace_mechanism(
            shrink / draw.parameter, value_discretization_interval=step
        )
    return pld.from_gaussian_mechanism(draw.parameter * shrink, value_discretization_interval=step)


def plan_epsilon(plan: Plan, shrink: float = 1.0) -> float:
    """Epsilon of all draws together at what the threshold leaves of delta, rounded up by dp-accounting's grid."""
    step = plan.epsilon / 4000
    losses = [draw_loss(draw, shrink, step) for draw in plan.draws]
    total = losses[0]
    for loss in losses[1:]:
        total = total.compose(loss)
    return float(total.get_epsilon_for_delta(plan.delta - plan.delta_threshold))


# each with the share of its noise that does no longer do
PLANS: dict[str, tuple[dict[str, Any], float]] = {
    "as it is": ({}, 0.98),
    "four lengths": ({"reporting_length": 4}, 0.98),
    "large percentile share": ({"percentile_share": 0.4}, 0.9),
    "private domain": ({"private": True}, 0.98),
    "rounds of pairs": (
        {"method": "marginals", "cliques": {"adaptive": 2}, "one_way_share": 0.7},
        0.98,
    ),
}


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize(("changes", "too_little"), PLANS.values(), ids=PLANS)
def test_a_whole_plan_keeps_its_epsilon(
    epsilon: float, changes: dict[str, Any], too_little: float
) -> None:
    """Record count, percentiles and levels together, by privacy loss distributions: at most epsilon, and little less.

    The grid rounds up, and is allowed 0.05 %. With all noise 2 % smaller the plan is refuted; with 10 % less where percentiles
    have most of the budget, each of which is priced by the Gaussian that is as bad at its worst point.
    """
    plan = plan_budget(configuration(epsilon=epsilon, delta=DELTA, **changes))
    assert {draw.mechanism.name for draw in plan.draws} == {"rounded-gaussian", "exponential"}
    assert plan_epsilon(plan) <= epsilon * 1.0005
    assert plan_epsilon(plan, too_little) > epsilon * 1.0005


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_marginals_with_laplace_noise_keep_their_epsilon(epsilon: float) -> None:
    """Plain epsilons of Laplace draws beside Gaussian ones: the sum that is charged is no less than the exact composition."""
    plan = plan_budget(
        configuration(
            epsilon=epsilon,
            delta=DELTA,
            private=True,
            method="marginals",
            noise="laplace",
            cliques={"all": 2},
        )
    )
    assert {draw.mechanism.name for draw in plan.draws} == {"rounded-gaussian", "discrete-laplace"}
    assert plan_epsilon(plan) <= epsilon * 1.0005
    assert plan_epsilon(plan, 0.5) > epsilon


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_pure_plans_of_laplace_noise_need_no_delta(epsilon: float) -> None:
    """Worst pair of discrete Laplace noise: at the scale that is drawn its loss is at most the epsilon that is charged."""
    plan = plan_budget(
        configuration(
            epsilon=epsilon, delta=DELTA, method="marginals", noise="laplace", cliques={"all": 1}
        )
    )
    unit = Stability(records=3, neighbors="replace-one")
    for draw in plan.draws:
        scale = laplace_scale(Fraction(repr(draw.parameter)), unit)
        exact = pld.from_discrete_laplace_mechanism(
            float(1 / scale),
            sensitivity=l1_sensitivity(unit),
            value_discretization_interval=epsilon / 1000,
        )
        assert exact.get_delta_for_epsilon(draw.parameter * 1.0005) <= 1e-12
        assert exact.get_delta_for_epsilon(draw.parameter * 0.9) > 1e-6
    assert sum(Fraction(repr(draw.parameter)) for draw in plan.draws) <= Fraction(repr(epsilon))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0, 40.0])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 6.0])
def test_the_gaussian_curve_is_that_of_dp_accounting(sigma: float, epsilon: float) -> None:
    """gdp_delta against dp-accounting's closed form and its inverse."""
    from dp_accounting import get_epsilon_gaussian, get_sigma_gaussian

    delta = gdp_delta(1 / sigma, epsilon)
    if delta > 1e-30:
        assert get_sigma_gaussian(epsilon, delta) == pytest.approx(sigma, rel=1e-5)
        assert get_epsilon_gaussian(sigma, delta) == pytest.approx(epsilon, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.02, 0.3, 1.0, 4.0])
def test_a_selection_costs_no_less_than_its_worst_pair(epsilon: float) -> None:
    """selection_mu against the loss of ten selections, at every delta: never below it, and 10 % less mu is.

    (One selection needs all of its mu, `test_accounting`; ten of them come nearer to a Gaussian of mu epsilon/2 each.)"""
    step = epsilon / 2000
    worst = selection_loss(epsilon, step).self_compose(10)
    at = np.linspace(0.0, 6 * epsilon, 40)
    mu = selection_mu(epsilon) * math.sqrt(10)
    exact = np.array(worst.get_delta_for_epsilon(at.tolist()))
    assert all(e <= gdp_delta(mu, float(x)) * 1.002 + 1e-10 for e, x in zip(exact, at, strict=True))
    assert any(e > gdp_delta(mu * 0.9, float(x)) for e, x in zip(exact, at, strict=True))


@pytest.mark.parametrize("sd", [Fraction(2), Fraction(15), Fraction(120)], ids=str)
@pytest.mark.parametrize(("values", "delta"), [(1, 1e-6), (4, 1e-4), (12, 1e-9)])
def test_the_threshold_agrees_with_that_of_opendp(sd: Fraction, values: int, delta: float) -> None:
    """OpenDP's discrete Gaussian with a threshold: the delta that it states for ours is about the planned one, less one is not.

    Its noise is discrete and ours rounded (variance sd^2 + 1/12), which is worth less than a step of the threshold.
    """
    import opendp.prelude

    dp: Any = opendp.prelude  # which declares nothing that it exports
    dp.enable_features("contrib")
    space = (
        dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T="i32")),
        dp.l02inf_distance(dp.absolute_distance(T="f64")),
    )
    ours = private_threshold(sd, values, 1, delta)

    def stated(threshold: int) -> float:
        mechanism = space >> dp.m.then_gaussian_threshold(scale=float(sd), threshold=threshold)
        return float(mechanism.map((values, math.sqrt(values), 1.0))[1])

    assert stated(ours + 1) <= delta
    assert stated(ours - 2) > delta


def test_deviation_buys_in_opendp_what_it_is_planned_for() -> None:
    """rho of OpenDP's Gaussian mechanism at our deviation, for the L2 sensitivity of a unit: at most the planned cost."""
    import opendp.prelude

    dp: Any = opendp.prelude  # which declares nothing that it exports
    dp.enable_features("contrib")
    plan = plan_budget(configuration(epsilon=1.0, delta=DELTA))
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    for unit in (
        Stability(records=3, neighbors="add-remove"),
        Stability(records=2, neighbors="replace-one"),
    ):
        for length, bound in ((1, 4), (2, 6), (3, 4)):
            draw = plan.by_name[f"level-{length}"]
            mechanism = space >> dp.m.then_gaussian(
                scale=float(noise_sigma(draw.parameter, bound, unit))
            )
            sensitivity = unit.records * math.sqrt(
                bound * (2 if unit.neighbors == "replace-one" else 1)
            )
            assert mechanism.map(sensitivity) <= float(draw.cost.rho) * (1 + 1e-12)
            assert mechanism.map(sensitivity * 1.02) > float(draw.cost.rho)


@pytest.mark.parametrize("formula", ["printed", "tight"])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_a_sampled_gaussian_keeps_what_the_resize_formula_says(
    formula: Any, rate: float, epsilon: float
) -> None:
    """A Gaussian of exactly the functional (epsilon, delta), on a Poisson sample: dp-accounting finds it private enough."""
    from dp_accounting import get_sigma_gaussian

    functional, delta = functional_parameters(epsilon, DELTA, 1, Fraction(rate), formula)
    sigma = get_sigma_gaussian(functional, delta)
    sampled = pld.from_gaussian_mechanism(
        sigma, sampling_prob=rate, value_discretization_interval=epsilon / 4000
    )
    assert sampled.get_delta_for_epsilon(epsilon) <= DELTA * 1.01
    bare = pld.from_gaussian_mechanism(sigma, value_discretization_interval=epsilon / 4000)
    assert bare.get_delta_for_epsilon(epsilon) > DELTA


# --- monotonicity --------------------------------------------------------------------------------------------------

EPSILONS = st.floats(math.log(0.01), math.log(20)).map(math.exp)
AMOUNTS = st.floats(0, 4)
COSTS = st.builds(
    lambda mu2, delta, plain: Cost(
        mu2=amount(mu2),
        rho=amount(mu2 / 2),
        delta=amount(delta),
        plain=BasicAmount(epsilon=amount(plain)),
    ),
    AMOUNTS,
    st.floats(0, 1e-7),
    st.floats(0, 2),
)


@given(COSTS, COSTS, st.floats(1e-6, 0.1), st.floats(1, 100))
@settings(max_examples=30, deadline=None)
def test_more_cost_or_less_delta_is_no_less_epsilon(
    cost: Cost, more: Cost, delta: float, times: float
) -> None:
    """The epsilon of a sum is at least that of a part, and falls with delta; GDP never beats plain parts that it contains."""
    small, large = Decimal(delta), Decimal(min(0.5, delta * times))
    alone, together = composed_epsilon(cost, small)[0], composed_epsilon(cost + more, small)[0]
    assert together >= alone * (1 - 1e-9)
    assert composed_epsilon(cost, large)[0] <= alone * (1 + 1e-9)
    assert alone >= float(cost.plain.epsilon) * (1 - 1e-12)


@given(EPSILONS, EPSILONS, st.booleans())
@settings(max_examples=20, deadline=None)
def test_a_larger_budget_never_means_more_noise(one: float, other: float, private: bool) -> None:
    """Every Gaussian multiplier falls and every selection's epsilon rises with epsilon."""
    small, large = (
        plan_budget(configuration(epsilon=e, delta=DELTA, private=private))
        for e in sorted((one, other))
    )
    for less, more in zip(small.draws, large.draws, strict=True):
        low, high = (more, less) if less.mechanism is RoundedGaussian else (less, more)
        assert low.parameter <= high.parameter * (1 + 1e-9)


RELATIONS = ("add-remove", "replace-one")
Sensitivity = Callable[..., Fraction | int]


@given(st.integers(1, 50), st.integers(1, 400), st.floats(0.1, 50))
def test_noise_grows_with_theta_bound_and_relation(
    records: int, bound: int, multiplier: float
) -> None:
    """A unit of more rows, a larger bound and replacement never get less noise, in L1 or L2."""
    measures: list[Sensitivity] = [
        lambda stability: noise_sigma(multiplier, bound, stability),
        l1_sensitivity,
    ]
    for measure in measures:
        for relation in RELATIONS:
            here, next_ = (
                measure(Stability(records=n, neighbors=relation)) for n in (records, records + 1)
            )
            assert here < next_
        assert measure(Stability(records=records, neighbors="add-remove")) < measure(
            Stability(records=records, neighbors="replace-one")
        )
    unit = Stability(records=records, neighbors="add-remove")
    assert noise_sigma(multiplier, bound, unit) <= noise_sigma(multiplier, bound + 1, unit)


def test_the_noise_that_is_drawn_is_no_less_than_a_real_gaussian() -> None:
    """Hockey-stick of the rounded table at neighboring counts, at all thresholds: below that of the Gaussian it rounds.

    By exact sums of the table: post-processing cannot raise a divergence, and a table that were too narrow would.
    """
    for sd in (Fraction(1, 2), Fraction(1), Fraction(3), Fraction(20)):
        table = noise_table(sd)
        reach = table.largest
        tails = [table.upper_tail(t) for t in range(-reach - 1, reach + 3)]
        mass = np.array([float(a - b) for a, b in itertools.pairwise(tails)])
        for epsilon in (0.0, 0.1, 1.0, 3.0):
            stick = np.maximum(mass[:-1] - math.exp(epsilon) * mass[1:], 0).sum()
            assert stick <= gdp_delta(float(1 / sd), epsilon) * (1 + 1e-9) + 1e-15
            assert stick > gdp_delta(float(1 / sd) * 0.8, epsilon)
