"""Laws of Gaussians and selections composed by their exact curves: domination, enumeration, direction of every rounding."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.accounting.accountants import gdp_delta, gdp_mu
from marginweave.accounting.selection_composition import (
    _selection_masses,
    gaussian_deltas,
    mixed_delta,
    release_delta,
    release_epsilon,
)
from marginweave.base.budget import BasicAmount, amount
from marginweave.ledger.plans import draws_fault
from marginweave.measurements.split import plan_budget
from marginweave.mechanisms.exponential import selection_mu
from tests.support.budget_plans import configuration


@pytest.mark.parametrize("epsilon", [1e-3, 0.3, 2.0, 15.0])
@pytest.mark.parametrize("steps", [4, 64])
def test_masses_lie_above_the_exact_curve_and_touch_it(epsilon: float, steps: int) -> None:
    """P and Q are distributions; H at the places is (e^{eps/2} - e^{x/2})^2/(e^eps - 1), between them above it."""
    step = epsilon / steps
    places = step * np.arange(-steps, steps + 1)
    masses = _selection_masses(steps, step)
    assert masses.sum() == pytest.approx(1, abs=1e-12)
    assert (masses * np.exp(-places)).sum() == pytest.approx(1, abs=1e-12)

    def joined(x: float) -> float:
        return float((masses * np.maximum(-np.expm1(x - places), 0)).sum())

    for x in np.linspace(-epsilon, epsilon, 41):
        exact = (math.exp(epsilon / 2) - math.exp(x / 2)) ** 2 / math.expm1(epsilon)
        assert joined(float(x)) >= exact * (1 - 1e-9) - 1e-13
    for x in places:
        exact = (math.exp(epsilon / 2) - math.exp(x / 2)) ** 2 / math.expm1(epsilon)
        assert joined(float(x)) == pytest.approx(exact, abs=1e-12)


def two_point(epsilon: float, t: float) -> tuple[np.ndarray, np.ndarray]:
    """The pair with losses t and t - epsilon: their places, and their masses under P."""
    share = (math.exp(epsilon) - math.exp(t)) / math.expm1(epsilon)
    return np.array([t, t - epsilon]), np.array([share, 1 - share])


@given(
    st.lists(st.tuples(st.floats(0.01, 1.5), st.floats(0.0, 1.0)), min_size=1, max_size=4),
    st.floats(0.05, 2.0),
    st.floats(0.05, 3.0),
)
@settings(max_examples=30, deadline=None)
def test_no_choice_of_selections_loses_more(
    pairs: list[tuple[float, float]], mu: float, epsilon: float
) -> None:
    """Extreme pairs of every kind, t anywhere in [0, eps], enumerated with a Gaussian: at most the bound, both ways."""
    bound = mixed_delta(mu * mu, [range_ for range_, _ in pairs], epsilon)
    for sign in (1, -1):
        total = 0.0
        chosen = [two_point(range_, where * range_) for range_, where in pairs]
        for picks in itertools.product((0, 1), repeat=len(pairs)):
            places = [chosen[i][0][k] for i, k in enumerate(picks)]
            masses = [chosen[i][1][k] for i, k in enumerate(picks)]
            loss, mass = sum(places), math.prod(masses)
            if sign < 0:  # the loss of Q against P, under Q
                loss, mass = -loss, mass * math.exp(-loss)
            total += mass * float(gaussian_deltas(mu, np.array(epsilon - loss)))
        assert total <= bound * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("chosen", [0.2, 1.0, 3.0])
@pytest.mark.parametrize(("mu", "epsilon"), [(0.2, 0.5), (0.5, 1.0), (1.0, 4.0)])
def test_a_selection_that_follows_from_an_earlier_draw_loses_what_is_claimed(
    chosen: float, mu: float, epsilon: float
) -> None:
    """Two stages by quadrature: who picks t after a Gaussian was seen reaches the bound to 1e-3, and never passes it.

    Who picks it before loses 0.5 % less at least: a bound for parameters that are fixed beforehand would be too small.
    """
    scores = np.linspace(-10, 10, 8_001)
    weights = np.exp(-scores * scores / 2) / math.sqrt(2 * math.pi) * (scores[1] - scores[0])
    left = epsilon - mu * mu / 2 - mu * scores  # what the loss of the Gaussian leaves of epsilon
    pairs = [two_point(chosen, t) for t in np.linspace(0, chosen, 401)]
    games = np.array(
        [masses @ -np.expm1(np.minimum(left - places[:, None], 0)) for places, masses in pairs]
    )
    bound = mixed_delta(mu * mu, [chosen], epsilon)
    late, early = float(games.max(axis=0) @ weights), float((games @ weights).max())
    assert late <= bound <= late * (1 + 1e-3)
    assert early < 0.995 * bound


@given(st.floats(1e-3, 20), st.floats(1e-10, 0.05), st.floats(0.01, 0.9), st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_it_is_never_dearer_than_mu_and_never_cheaper_than_the_variance(
    epsilon: float, delta: float, share: float, number: int
) -> None:
    """Between Gaussians of (epsilon_i/2)^2, the variance of an even loss, and of selection_mu^2; monotone in every part."""
    mu2 = gdp_mu(epsilon, delta) ** 2
    chosen = math.sqrt(share * mu2 / number) / 0.6267
    selections, gaussian = [chosen] * number, (1 - share) * mu2
    ours = mixed_delta(gaussian, selections, epsilon)
    assert ours <= gdp_delta(math.sqrt(gaussian + number * selection_mu(chosen) ** 2), epsilon) * (
        1 + 2e-3
    )
    assert ours >= gdp_delta(math.sqrt(gaussian), epsilon)
    assert mixed_delta(gaussian * 1.01, selections, epsilon) > ours
    assert mixed_delta(gaussian, [chosen * 1.05, *selections[1:]], epsilon) >= ours
    assert mixed_delta(gaussian, [*selections, chosen], epsilon) > ours
    assert mixed_delta(gaussian, selections, epsilon * 1.01) < ours


def test_different_selections_share_a_grid_upwards() -> None:
    """An epsilon off the grid is priced as the next one on it; far too large ones, or no Gaussian at all, are not priced."""
    both = mixed_delta(0.04, [0.1, 0.0721], 1.0)
    assert mixed_delta(0.04, [0.1, 0.0720], 1.0) <= both <= mixed_delta(0.04, [0.1, 0.0735], 1.0)
    assert mixed_delta(0.04, [300.0], 1.0) == mixed_delta(0.0, [0.1], 1.0) == 1
    assert mixed_delta(0.04, [], 1.0) == pytest.approx(gdp_delta(0.2, 1.0), rel=1e-7)


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 1.0, 10.0, 32.0])
def test_the_default_plan_spends_its_budget_by_the_exact_curve(epsilon: float) -> None:
    """mu^2 alone says more than epsilon, the exact composition as much as that; the ledger refuses 0.1 % less noise."""
    plan = plan_budget(configuration(epsilon=epsilon)).prices
    statement = BasicAmount(epsilon=Decimal(repr(epsilon)), delta=Decimal("1e-6"))
    assert gdp_delta(math.sqrt(plan.cost.mu2), epsilon) > 1.02e-6
    assert epsilon * (1 - 1e-6) < plan.spent_epsilon <= epsilon
    assert release_delta(plan.charges, epsilon) <= 1e-6
    assert release_epsilon(plan.charges, 1e-6, epsilon) == plan.spent_epsilon
    assert release_epsilon(plan.charges, 1e-7, epsilon) == math.inf
    assert draws_fault(statement, plan.charges) is None
    louder = [
        replace(draw, cost=replace(draw.cost, mu2=amount(float(draw.cost.mu2) * 1.002)))
        if draw.length
        else draw
        for draw in plan.charges
    ]
    assert "more than the stated" in (draws_fault(statement, louder) or "")


def test_plain_charges_are_not_composed_with_curves() -> None:
    """What is known in plain epsilon only has no curve here."""
    plan = plan_budget(configuration()).prices
    plain = replace(
        plan.charges[0],
        cost=replace(plan.charges[0].cost, plain=BasicAmount(epsilon=Decimal("0.1"))),
    )
    assert release_delta([plain, *plan.charges[1:]], 1.0) == 1
