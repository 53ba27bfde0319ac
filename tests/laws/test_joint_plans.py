"""Plans by `accountant: joint`: the room that they use, and what is refused as too cheap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from marginweave.accounting.composition import account_epsilon, composed_epsilon
from marginweave.accounting.sparse_histogram import joint_delta, joint_epsilon, joint_loss, threshold_delta
from marginweave.base.budget import BasicAmount, Neighbors, amount
from marginweave.base.errors import InputError
from marginweave.ledger.plans import draws_fault
from marginweave.measurements.plan import Discovery, PlannedDraw
from marginweave.planning.split import plan_budget
from tests.support.budget_plans import configuration
from tests.support.configurations import PRIVATE
from tests.support.configurations import configuration as people

RESIZED: dict[str, Any] = {
    "columns": {
        "town": {**PRIVATE, "impute": {"weights": {"a": 1, "b": 2}}},
        "sex": {"type": "category", "values": ["f", "m"], "impute": {"distribution": "uniform"}},
    },
    "privacy": {"epsilon": 1.0, "delta": 1e-6, "unit": "row", "accountant": "joint"},
    "aggregate": {"reporting_length": 2},
    "resize": {"records": 100, "proportion": 1.0},
}
RELATIONS: tuple[Neighbors, Neighbors] = ("add-remove", "replace-one")


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("percentile", [99, "none"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-9), (10.0, 1e-6)])
def test_a_joint_plan_gives_the_threshold_all_that_there_is_room_for(
    neighbors: Neighbors, percentile: object, epsilon: float, delta: float
) -> None:
    """The noise is that of gdp by mu^2, the threshold gets more, 1 % more still would break it; the ledger believes it."""
    facts = {"epsilon": epsilon, "delta": delta, "neighbors": neighbors, "private": True, "percentile": percentile}
    ours, sums = plan_budget(configuration(accountant="joint", **facts)), plan_budget(configuration(**facts))
    first, other = (plan.by_name["level-1"].parameter for plan in (ours, sums))
    # gdp composes percentiles by their exact curves, joint by mu^2
    assert first == other if percentile == "none" else other < first < 1.02 * other
    assert 1.4 * sums.delta_threshold < ours.delta_threshold < delta
    assert ours.discovery is not None
    assert ours.spent_epsilon <= epsilon
    loss = joint_loss(ours.draws, ours.discovery)
    assert loss.before > 0 if percentile == 99 else loss.before == 0
    assert loss.saved == pytest.approx(1 / 4 * (0.5 if neighbors == "replace-one" else 1.0))
    assert joint_delta(loss, epsilon) <= delta
    assert joint_delta(replace(loss, delta_threshold=1.01 * loss.delta_threshold), epsilon) > delta
    statement = BasicAmount(epsilon=Decimal(repr(epsilon)), delta=Decimal(repr(delta)))
    assert draws_fault(statement, ours.draws, neighbors, ours.discovery) is None
    # added up the same draws would cost more than is stated: that is the gain
    assert composed_epsilon(ours.cost, statement.delta)[0] > epsilon
    dearer = [
        replace(draw, cost=replace(draw.cost, delta=draw.cost.delta * Decimal("1.05"))) if draw.length == 1 else draw
        for draw in ours.draws
    ]
    assert "more than the stated" in (draws_fault(statement, dearer, neighbors, ours.discovery) or "")


def test_all_of_delta_goes_to_the_noise_nearly() -> None:
    """With a share of .01 sigma is within .06 % of that without any threshold, at a threshold as low as gdp's."""
    facts = {"private": True, "percentile": "none"}
    ours = plan_budget(configuration(accountant="joint", delta_threshold_share=0.01, **facts))
    sums, free = plan_budget(configuration(**facts)), plan_budget(configuration(percentile="none"))
    assert (
        free.by_name["level-1"].parameter
        < ours.by_name["level-1"].parameter
        < 1.0006 * free.by_name["level-1"].parameter
    )
    assert ours.delta_threshold > sums.delta_threshold


def test_an_account_adds_mu2_and_deltas_or_whole_statements() -> None:
    """Two joint releases cost no more than two statements, and never less than their sums say at a larger delta."""
    plan = plan_budget(configuration(private=True, accountant="joint"))
    statement = BasicAmount(epsilon=Decimal(1), delta=Decimal("1e-6"))
    one = account_epsilon(plan.cost, statement, Decimal("1e-6"))
    assert one == (1.0, "plain")
    epsilon, name = account_epsilon(plan.cost + plan.cost, statement + statement, Decimal("2e-6"))
    assert name == "gdp"
    assert 1 < epsilon < 2
    assert epsilon == composed_epsilon(plan.cost + plan.cost, Decimal("2e-6"))[0]


def test_without_private_domains_joint_is_gdp() -> None:
    """The same draws at the same price, where no percentile is bought; nothing to discover."""
    ours, theirs = (plan_budget(configuration(accountant=name, percentile="none")) for name in ("joint", "gdp"))
    assert (ours.draws, ours.discovery) == (theirs.draws, None)


def test_discovered_values_of_marginals_are_treated_jointly_as_well() -> None:
    """The draw `values` has all private columns and nothing else: what new values take is saved whole."""
    columns = {"town": PRIVATE, "job": PRIVATE, "sex": {"type": "category", "values": ["f", "m"]}}
    plans = [
        plan_budget(people(columns=columns, aggregate={"method": "marginals"}, privacy__accountant=name))
        for name in ("joint", "gdp")
    ]
    discovery = plans[0].discovery
    assert discovery == Discovery(draw="values", least_share=1.0, adaptive=False, neighbors="add-remove")
    assert plans[0].delta_threshold > 1.4 * plans[1].delta_threshold


def test_impossible_joint_plans_are_refused() -> None:
    """An epsilon beyond the exponentials, a discovery that is no draw, a share that is none."""
    plan = plan_budget(configuration(private=True, accountant="joint"))
    with pytest.raises(InputError, match=r"^discovery \(values\) must be one of the draws$"):
        joint_loss(plan.draws, Discovery(draw="values", least_share=1.0, adaptive=False, neighbors="add-remove"))
    with pytest.raises(ValueError, match=r"least_share\n  Input should be greater than 0"):
        Discovery(draw="level-1", least_share=0, adaptive=False, neighbors="add-remove")
    assert plan.discovery is not None
    loss = joint_loss(plan.draws, plan.discovery)
    with pytest.raises(InputError, match=r"^epsilon \(200\) must be positive and at most 100 with accountant joint$"):
        joint_delta(loss, 200.0)
    assert joint_epsilon(loss, 1e-9, 1.0) == math.inf
    assert threshold_delta(replace(loss, discovery=4.0), 1.0, 1e-6) == 0
    assert amount(loss.delta_threshold) >= Decimal(loss.delta_threshold)


def test_a_discovery_must_fit_the_draws() -> None:
    """Deltas of other draws, percentiles that are not told, another relation, words that are none: all would be too cheap."""
    plan = plan_budget(configuration(private=True, accountant="joint"))
    discovery, statement = plan.discovery, BasicAmount(epsilon=Decimal(1), delta=Decimal("1e-6"))
    assert discovery is not None

    def fault(draws: Sequence[PlannedDraw], found: Discovery, neighbors: Neighbors = "add-remove") -> str:
        return draws_fault(statement, draws, neighbors, found) or ""

    last = replace(plan.draws[-1], cost=replace(plan.draws[-1].cost, delta=Decimal("1e-12")))
    assert "must be the only draw with a delta; level-3 has one" in fault([*plan.draws[:-1], last], discovery)
    assert "must be adaptive" in fault(plan.draws, replace(discovery, adaptive=False))
    assert "priced under add-remove" in fault(plan.draws, discovery, "replace-one")
    resized = plan_budget(people(**RESIZED))
    assert (resized.neighbors, resized.discovery and resized.discovery.neighbors) == ("add-remove", "replace-one")
    assert fault(resized.draws, resized.discovery) == ""  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"neighbors\n  Input should be 'add-remove' or 'replace-one'"):
        replace(discovery, neighbors="nobody")
    with pytest.raises(ValueError, match=r"adaptive\n  Input should be a valid boolean"):
        replace(discovery, adaptive=0)
