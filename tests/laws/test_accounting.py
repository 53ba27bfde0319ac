"""Laws of the accountants: exact where a closed form is known, safe in every direction, tighter than what SDS prints."""

# opendp.prelude hands on names without saying so:
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.accounting.accountants import (
    budget_mu2,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    zcdp_delta,
    zcdp_epsilon,
)
from marginweave.base.errors import InputError
from marginweave.measurements.split import level_multipliers, plan_budget
from marginweave.mechanisms.exponential import selection_epsilon, selection_mu
from tests.oracles.sds import printed_noise, sds_rho
from tests.oracles.zcdp import zcdp_rho
from tests.support.budget_plans import configuration

EPSILONS = st.floats(math.log(1e-3), math.log(100)).map(math.exp)
DELTAS = st.floats(math.log(1e-15), math.log(0.5)).map(math.exp)


def exact_gdp_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """Balle and Wang's formula in 50 digits."""
    with mpmath.workdps(50):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@given(EPSILONS, DELTAS)
@settings(max_examples=25, deadline=None)
def test_gdp_inverses_are_safe_and_tight_against_fifty_digits(epsilon: float, delta: float) -> None:
    """The exact delta of the budgeted mu never exceeds delta, 1e-7 more of it does; epsilon likewise."""
    mu = gdp_mu(epsilon, delta)
    assert exact_gdp_delta(mu, epsilon) <= delta
    assert exact_gdp_delta(mu * (1 + 1e-7), epsilon) > delta
    assert abs(gdp_delta(mu, epsilon) / exact_gdp_delta(mu, epsilon) - 1) < 1e-9
    assert exact_gdp_delta(mu, gdp_epsilon(mu, delta)) <= delta
    assert gdp_epsilon(mu, delta) <= epsilon * (1 + 1e-9)


def brute_zcdp_delta(rho: float, epsilon: float) -> float:
    """Proposition 12 minimized over a fine grid of orders."""
    t = np.exp(np.linspace(-12, 30, 400_001))
    exponent = t * ((t + 1) * rho - epsilon) + (t + 1) * (np.log(t) - np.log1p(t)) - np.log(t)
    return float(np.exp(min(0.0, exponent.min())))


@pytest.mark.parametrize("epsilon", [0.001, 0.3, 1.0, 12.0, 100.0])
@pytest.mark.parametrize("delta", [1e-15, 1e-6, 0.5])
def test_zcdp_conversion_is_the_minimum_over_all_orders(epsilon: float, delta: float) -> None:
    """A grid of orders finds the same delta, and the inverses stay on the safe side of it."""
    rho = zcdp_rho(epsilon, delta)
    assert zcdp_delta(rho, epsilon) <= delta
    assert brute_zcdp_delta(rho, epsilon) == pytest.approx(zcdp_delta(rho, epsilon), rel=1e-6)
    assert brute_zcdp_delta(rho * (1 + 1e-5), epsilon) > delta
    assert zcdp_delta(rho, zcdp_epsilon(rho, delta)) <= delta
    assert zcdp_epsilon(rho, delta) <= epsilon * (1 + 1e-9)


def test_zcdp_conversion_gives_the_published_sigma() -> None:
    """One Gaussian for (1, 1e-6): sigma 4.530877117036443."""
    assert 1 / math.sqrt(2 * zcdp_rho(1, 1e-6)) == pytest.approx(4.530877117036443, abs=1e-9)


@pytest.mark.parametrize(("scale", "delta"), [(4.0, 1e-6), (20.0, 1e-9), (0.9, 1e-5)])
def test_zcdp_conversion_agrees_with_opendp(scale: float, delta: float) -> None:
    """OpenDP's own conversion of a discrete Gaussian's zCDP gives the same epsilon."""
    import opendp.prelude

    dp: Any = opendp.prelude  # which declares nothing that it exports
    dp.enable_features("contrib")
    gaussian = dp.m.make_gaussian(
        dp.atom_domain(T="i64"), dp.absolute_distance(T="i64"), scale=scale
    )
    profile = dp.c.make_zCDP_to_approxDP(gaussian).map(1)
    assert zcdp_epsilon(0.5 / scale**2, delta) == pytest.approx(profile.epsilon(delta), rel=1e-6)


@given(EPSILONS, DELTAS)
@settings(max_examples=20, deadline=None)
def test_the_three_conversions_are_ordered(epsilon: float, delta: float) -> None:
    """Exact GDP buys at least what zCDP buys, and that at least what the conversion of Bun and Steinke does."""
    sds = 2 * sds_rho(epsilon, 2 * delta)
    assert budget_mu2(epsilon, delta) > 2 * zcdp_rho(epsilon, delta) > sds > 0


@given(EPSILONS, EPSILONS, DELTAS, DELTAS)
@settings(max_examples=20, deadline=None)
def test_budgets_grow_with_epsilon_and_delta(e1: float, e2: float, d1: float, d2: float) -> None:
    """More epsilon or more delta never buys less, beyond the last digits of the arithmetic."""
    for budget in (budget_mu2, zcdp_rho):
        assert budget(min(e1, e2), min(d1, d2)) <= budget(max(e1, e2), max(d1, d2)) * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_gaussian_plans_are_within_one_percent_of_the_numerical_optimum(epsilon: float) -> None:
    """Privacy loss distributions confirm the plan at epsilon; noise smaller by 1 % is refuted by them."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    delta = 1e-6
    plan = plan_budget(
        configuration(epsilon=epsilon, delta=delta, missing=False, reporting_length=3)
    )
    assert {draw.mechanism.name for draw in plan.draws} == {"rounded-gaussian"}

    def loss(shrink: float) -> float:
        total: Any = None
        for draw in plan.draws:
            one = pld.from_gaussian_mechanism(
                draw.parameter * shrink, value_discretization_interval=epsilon / 2000
            )
            total = one if total is None else total.compose(one)
        return float(total.get_epsilon_for_delta(delta))

    assert loss(1.0) <= epsilon * 1.0005
    assert loss(0.99) > epsilon * 1.0005


@pytest.mark.parametrize("epsilon", [1e-4, 0.05, 0.5, 1.0, 2.0, 6.0, 40.0])
def test_selection_mu_dominates_every_bounded_range_mechanism(epsilon: float) -> None:
    """The exact worst hockey-stick curve (e^{eps/2} - e^{x/2})^2/(e^eps - 1) lies below GDP at mu and not at 0.98 mu."""
    mu = selection_mu(epsilon)
    x = np.linspace(0, epsilon, 400, endpoint=False)
    worst = np.exp(2 * np.log(np.exp(epsilon / 2) - np.exp(x / 2)) - np.log(np.expm1(epsilon)))
    ours = np.array([gdp_delta(mu, float(at)) for at in x])
    assert np.all(worst <= ours * (1 + 1e-6))
    assert any(worst > [gdp_delta(0.98 * mu, float(at)) for at in x])
    assert mu <= epsilon * math.sqrt(2 * math.pi) / 4 * (1 + 1e-12)


@given(st.floats(1e-8, 30))
def test_selection_inverse_never_overspends(mu: float) -> None:
    """The epsilon a mu buys costs at most that mu, and nearly all of it."""
    assert mu * (1 - 1e-9) <= selection_mu(selection_epsilon(mu)) <= mu


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_unsquared_rho_would_break_the_claim(epsilon: float) -> None:
    """sqrt(rho) spent as rho has a real epsilon above the asked one; the squared form has not."""
    delta = 1e-5
    squared = sds_rho(epsilon, delta)
    assert squared + 2 * math.sqrt(squared * math.log(2 / delta)) == pytest.approx(
        epsilon, rel=1e-12
    )
    assert gdp_epsilon(math.sqrt(2 * squared), delta / 2) < epsilon
    assert gdp_epsilon(math.sqrt(2 * math.sqrt(squared)), delta / 2) > epsilon * 1.15


@pytest.mark.parametrize(
    ("records", "epsilon", "percent"),
    [
        (5_000, 0.1, 37.0),
        (5_000, 1, 24.8),
        (5_000, 10, 12.7),
        (50_000, 0.1, 31.5),
        (50_000, 1, 21.6),
        (50_000, 10, 11.6),
        (1_000_000, 0.1, 26.6),
        (1_000_000, 1, 18.7),
        (1_000_000, 10, 10.6),
    ],
)
@pytest.mark.parametrize("length", [2, 3, 4])
def test_gdp_lowers_sigma_by_the_published_percentage(
    records: int, epsilon: float, percent: float, length: int
) -> None:
    """All-GDP accounting against the printed formula, percentile and count as exact as SDS has them: +- 0.2 points."""
    delta, proportions = (
        1 / (records * math.log(records)),
        tuple(1 / k for k in range(1, length + 1)),
    )
    printed = printed_noise(epsilon, delta, 0.01, 0.005, proportions)
    left = (
        budget_mu2(epsilon, delta / 2)
        - printed.count**-2
        - length * selection_mu(printed.percentile) ** 2
    )
    for ours, theirs in zip(level_multipliers(proportions, left), printed.levels, strict=True):
        assert 100 * (1 - ours / theirs) == pytest.approx(percent, abs=0.2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gdp_mu(-1.0, 1e-6), r"^epsilon \(-1.0\) must be positive$"),
        (lambda: gdp_epsilon(-1.0, 1e-6), r"^mu \(-1.0\) must be finite and not negative$"),
        (lambda: gdp_mu(1.0, 0.0), r"^delta \(0.0\) must lie strictly between 0 and 1$"),
        (lambda: zcdp_epsilon(math.nan, 1e-6), r"^rho \(nan\) must be finite and not negative$"),
        (lambda: selection_mu(math.inf), r"^epsilon \(inf\) must be positive$"),
    ],
)
def test_impossible_parameters_are_refused(call: Callable[[], float], message: str) -> None:
    """Every conversion names the parameter and its rule."""
    with pytest.raises(InputError, match=message):
        call()


def test_no_loss_costs_nothing() -> None:
    """mu 0 and rho 0 are epsilon 0 at any delta; a large enough delta makes any mu epsilon 0."""
    assert (
        gdp_epsilon(0.0, 1e-9)
        == zcdp_epsilon(0.0, 1e-9)
        == gdp_delta(0.0, 0.0)
        == zcdp_delta(0.0, 0.0)
        == 0
    )
    assert gdp_epsilon(0.1, 0.9) == 0
    assert zcdp_delta(1e6, 1.0) == 1
