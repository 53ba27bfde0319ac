"""How far the default noise is from the numerical optimum, for complete plans: count, percentiles and levels together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from marginweave.measurements.plan import Plan
from marginweave.measurements.split import plan_budget
from marginweave.mechanisms.exponential import Exponential
from marginweave.mechanisms.gaussian import RoundedGaussian
from tests.support.budget_plans import configuration


def selection_loss(epsilon: float, interval: float) -> Any:
    """The exact worst curve of the exponential mechanism, (e^{eps/2} - e^{x/2})^2 / (e^eps - 1) at loss x, as a distribution.

    dp-accounting has no event for it; its pessimistic "connect the dots" takes any curve.
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    steps = math.ceil(epsilon / interval)
    places = np.arange(-steps, steps + 1)
    at = np.clip(places * interval, -epsilon, epsilon)
    curve = (math.exp(epsilon / 2) - np.exp(at / 2)) ** 2 / math.expm1(epsilon)
    curve[0], curve[-1] = max(curve[0], -math.expm1(places[0] * interval)), 0
    return pld.PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots(interval, places, curve)
    )


def composed(plan: Plan, shrink: float, interval: float) -> Any:
    """The whole plan, the noise of its levels times `shrink`; Gaussians compose to one, of the sum of their mu^2."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    gaussians = [(d.length, d.parameter) for d in plan.draws if d.mechanism is RoundedGaussian]
    mu = math.sqrt(sum((sigma * (shrink if length else 1.0)) ** -2 for length, sigma in gaussians))
    total = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=interval)
    selections = [d.parameter for d in plan.draws if d.mechanism is Exponential]
    if selections:
        total = total.compose(selection_loss(selections[0], interval).self_compose(len(selections)))
    return total


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-9])
@pytest.mark.parametrize("length", [2, 3])
@pytest.mark.parametrize("private", [False, True])
def test_default_noise_is_within_one_percent_of_the_optimum(
    epsilon: float, delta: float, length: int, private: bool
) -> None:
    """Valid at epsilon as privacy loss distributions have it; levels with 1 % less noise are not, even at all of delta.

    Columns of 2, 3, 5 and 7 values, the default shares: count, R percentiles, R levels. Where a domain is private that holds
    although a tenth of delta is the threshold's. Distributions are discretized pessimistically, by 5e-4 of epsilon.
    """
    plan = plan_budget(
        configuration(epsilon=epsilon, delta=delta, reporting_length=length, private=private)
    )
    kinds = [draw.mechanism for draw in plan.draws]
    assert kinds.count(Exponential) == length
    assert kinds.count(RoundedGaussian) == length + 1
    interval = epsilon / 4000
    left = delta - plan.delta_threshold
    assert composed(plan, 1.0, interval).get_epsilon_for_delta(left) <= epsilon * 1.0005
    optimistic = composed(plan, 0.99, interval).get_epsilon_for_delta(delta)
    assert optimistic > epsilon * 1.0005
