"""Laws of `accountant: joint`: the theorem against enumeration of small releases, its integral, its room, and an audit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from marginweave.schemas.budget import Discovery, Neighbors, Plain, PlannedDraw, amount
from marginweave.schemas.errors import InputError
from marginweave.tasks.aggregate.candidates import CandidateSet
from marginweave.tasks.aggregate.level import draw_level, plan_level
from marginweave.tasks.budget.accountants import gdp_delta, gdp_mu
from marginweave.tasks.budget.composition import account_epsilon, composed_epsilon
from marginweave.tasks.budget.joint import (
    JointLoss,
    joint_delta,
    joint_epsilon,
    joint_loss,
    sparse_delta,
    threshold_delta,
)
from marginweave.tasks.budget.ledger.plans import draws_fault
from marginweave.tasks.budget.mechanisms import deviation
from marginweave.tasks.budget.noise_table import NoiseTable, noise_table
from marginweave.tasks.budget.split import plan_budget
from marginweave.tasks.budget.thresholds import private_threshold
from tests.laws.test_level_draw import PRIVATE, bounded, clopper_pearson, table_of
from tests.support.configurations import configuration as people
from tests.unit.budget.plans import configuration

RESIZED: dict[str, Any] = {
    "columns": {
        "town": {**PRIVATE, "impute": {"weights": {"a": 1, "b": 2}}},
        "sex": {"type": "category", "values": ["f", "m"], "impute": {"distribution": "uniform"}},
    },
    "privacy": {"epsilon": 1.0, "delta": 1e-6, "unit": "row", "accountant": "joint"},
    "aggregate": {"reporting_length": 2},
    "resize": {"records": 100, "proportion": 1.0},
}
Row = tuple[int, int, int]
RELATIONS: tuple[Neighbors, Neighbors] = ("add-remove", "replace-one")


def test_the_signs_of_the_lemma() -> None:
    """mu 0.5, epsilon 0.3, p = 0.97: 0.11580 with new values, 0.10470 on the other side, as brute force has them."""
    assert float(sparse_delta(0.5, 0.3, math.log(0.97), 0.0)) == pytest.approx(0.11580, abs=5e-6)
    assert float(sparse_delta(0.5, 0.3, 0.0, math.log(0.97))) == pytest.approx(0.10470, abs=5e-6)


# --- enumeration of whole small releases ---------------------------------------------------------------------------


def pmf(table: NoiseTable, count: int, reach: int) -> np.ndarray:
    """Distribution of count + X over -reach … reach; what is beyond is left out, on both sides alike."""
    return np.array(
        [float(table.upper_tail(v - count) - table.upper_tail(v + 1 - count)) for v in range(-reach, reach + 1)]
    )


def shown(table: NoiseTable, count: int, threshold: int, reach: int) -> np.ndarray:
    """Distribution of a private cell's output: not published, or its noisy count; a cell that does not occur is not drawn."""
    if not count:
        return np.array([1.0, *np.zeros(reach + 1)])
    noisy = [float(table.upper_tail(v - count) - table.upper_tail(v + 1 - count)) for v in range(reach + 1)]
    noisy = [p if v >= threshold else 0.0 for v, p in enumerate(noisy)]
    return np.array([1 - float(table.upper_tail(threshold - count)), *noisy])


def hockey_stick(parts: list[tuple[np.ndarray, np.ndarray]], epsilon: float) -> float:
    """sum over all outputs of (P - e^epsilon Q)_+ for independent parts."""
    p, q = (reduce(lambda a, b: np.multiply.outer(a, b).ravel(), side) for side in zip(*parts, strict=True))
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize(("theta", "private"), [(1, 1), (1, 2), (2, 1)])
@pytest.mark.parametrize("spread", [Fraction(3, 2), Fraction(3)], ids=str)
def test_no_small_release_loses_more_than_the_theorem_says(
    neighbors: Neighbors, theta: int, private: int, spread: Fraction
) -> None:
    """Every way in which alike rows of a unit hold new, known and public values, on both sides, by the exact table.

    One public column, `private` columns of private domain, theta rows; in the release, beside the thresholded length, a
    second draw of the whole unit's mu. The worst way is at least 0.8 of the bound, so that no weaker theorem is tested.
    """
    reach, epsilon, cap = 12 if spread == 3 else 7, 0.4, 1 + private
    sd = deviation(float(spread) / math.sqrt(cap) / theta, cap, people(privacy__neighbors=neighbors).stability)
    sd = sd * theta
    table = noise_table(sd)
    least = private_threshold(sd, private, theta, 0.06)
    extremes = [1 - (1 - table.upper_tail(least - c)) ** (private * theta // c) for c in {1, theta}]
    delta = float(max(extremes))
    squared = theta**2 * cap * (2 if neighbors == "replace-one" else 1) / float(sd) ** 2
    loss = JointLoss(
        before=0.0,
        discovery=squared,
        others=0.09 if private == 1 and neighbors == "add-remove" else 0.0,
        delta_threshold=delta,
        saved=private / cap * (0.5 if neighbors == "replace-one" else 1.0),
        neighbors=neighbors,
    )

    def parts(one: Row, other: Row) -> list[tuple[np.ndarray, np.ndarray]]:
        """`one`, `other`: whether the unit is there, its new values, and those that others have as well."""
        found = []
        if loss.others:  # a draw of which the unit moves one number by 1
            rest = noise_table(Fraction(10, 3))
            found.append((pmf(rest, one[0], reach), pmf(rest, one[0] - 1, reach)))
        place = 0 if neighbors == "add-remove" else 1  # a replaced unit is in another public cell
        found.append((pmf(table, theta * one[0], reach), pmf(table, theta * other[0] * (1 - place), reach)))
        if place:
            found.append((pmf(table, 0, reach), pmf(table, theta * other[0], reach)))
        for new, side in ((one[1], 0), (other[1], 1)):
            for _ in range(new):
                both = shown(table, theta, least, reach), shown(table, 0, least, reach)
                found.append(both if side == 0 else (both[1], both[0]))
        for known in range(max(one[2], other[2])):
            base = 3
            found.append(
                (
                    pmf(table, base + theta * (known < one[2]), reach),
                    pmf(table, base + theta * (known < other[2]), reach),
                )
            )
        return found

    ways = [(1, new, private - new) for new in range(private + 1)]
    absent = (0, 0, 0)
    pairs = (
        [(way, absent) for way in ways] + [(absent, way) for way in ways]
        if neighbors == "add-remove"
        else [(a, b) for a, b in itertools.product(ways, ways) if a[2] + b[2] < 2]
    )
    worst = max(hockey_stick(parts(*pair), epsilon) for pair in pairs)
    bound = joint_delta(loss, epsilon)
    assert worst <= bound
    assert worst >= 0.8 * bound or neighbors == "replace-one"
    assert bound < gdp_delta(math.sqrt(squared + loss.others), epsilon) + delta


# --- adaptivity ----------------------------------------------------------------------------------------------------


def played(loss: JointLoss, epsilon: float, *, outside: bool) -> float:
    """The game by plain quadrature: x chosen after the first draws were seen, or once and for all (`outside`)."""
    mu = math.sqrt(loss.before)
    scores = np.linspace(-12, 12, 24_001)
    weights = norm.pdf(scores) * (scores[1] - scores[0])
    x = np.linspace(0, 1, 101)[:, None]
    left = np.sqrt(loss.discovery * (1 - x * loss.saved) + loss.others)
    log_all, at = math.log1p(-loss.delta_threshold), epsilon - mu * mu / 2 - mu * scores
    if loss.neighbors == "replace-one":
        families = [sparse_delta(left, at, x * log_all, log_all)]
    else:
        families = [sparse_delta(left, at, x * log_all, 0.0), sparse_delta(left, at, 0.0, x * log_all)]
    if outside:
        return max(float((family @ weights).max()) for family in families)
    return float(np.maximum.reduce([family.max(axis=0) for family in families]) @ weights)


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize(
    ("epsilon", "delta", "scale"), [(0.1, 1e-6, 0.021), (1.0, 1e-6, 0.22), (10.0, 1e-9, 1.4), (0.5, 0.05, 0.5)]
)
def test_the_bound_covers_a_unit_whose_values_are_chosen_late(
    neighbors: Neighbors, epsilon: float, delta: float, scale: float
) -> None:
    """At most 2 % above the game's value and never below it; a maximum outside the integral would be too small."""
    mu2 = scale * scale
    loss = JointLoss(
        before=0.1 * mu2,
        discovery=0.4 * mu2,
        others=0.5 * mu2,
        delta_threshold=0.4 * delta,
        saved=1.0,
        neighbors=neighbors,
    )
    bound = joint_delta(loss, epsilon)
    assert played(loss, epsilon, outside=False) * (1 - 1e-6) <= bound <= played(loss, epsilon, outside=False) * 1.02
    assert played(loss, epsilon, outside=True) < bound
    fixed = replace(loss, before=0.0, others=loss.before + loss.others)
    assert joint_delta(fixed, epsilon) <= bound


LOSSES = st.builds(
    JointLoss,
    before=st.sampled_from([0.0, 0.002, 0.05]),
    discovery=st.floats(1e-4, 2.0),
    others=st.floats(0.0, 2.0),
    delta_threshold=st.floats(math.log(1e-20), math.log(0.1)).map(math.exp),
    saved=st.floats(0.01, 1.0),
    neighbors=st.sampled_from(RELATIONS),
)


@given(LOSSES, st.floats(0.01, 20.0), st.floats(1.0, 1.5))
@settings(max_examples=60, deadline=None)
def test_the_bound_lies_between_the_noise_and_the_sum_and_is_monotone(
    loss: JointLoss, epsilon: float, more: float
) -> None:
    """At least what noise or threshold lose alone, at most their sum; more loss never costs less, more epsilon never more."""
    delta = joint_delta(loss, epsilon)
    noise = gdp_delta(math.sqrt(loss.before + loss.discovery + loss.others), epsilon)
    both = loss.delta_threshold + gdp_delta(
        math.sqrt(loss.before + loss.discovery + loss.others),
        max(0.0, epsilon + math.log1p(-loss.delta_threshold)),
    )
    slack = 1 + 2e-6 if not loss.before else 1.1  # chords, ten deviations out
    assert max(noise, loss.delta_threshold) <= delta * (1 + 1e-8)
    # blocks of x and chords cost what they are wide
    assert delta <= both * slack + loss.delta_threshold / 64
    assert joint_delta(loss, epsilon * more) <= delta * (1 + 1e-7)
    for name in ("before", "discovery", "others", "delta_threshold"):
        larger = replace(loss, **{name: getattr(loss, name) * more})
        assert joint_delta(larger, epsilon) >= delta * (1 - 1e-7)
    assert joint_delta(replace(loss, saved=loss.saved / more), epsilon) >= delta * (1 - 1e-7)
    if loss.neighbors == "add-remove":  # so a resized table may be priced by the other relation
        other = replace(loss, neighbors="replace-one", saved=loss.saved / 2)
        assert joint_delta(other, epsilon) >= delta * (1 - 1e-7)


def exact_delta(loss: JointLoss, epsilon: float) -> mpmath.mpf:
    """The theorem's maximum over x = j/64 without earlier draws, in sixty digits: at most the true one."""

    def lemma(mu: mpmath.mpf, p: mpmath.mpf, q: mpmath.mpf) -> mpmath.mpf:
        e = epsilon + mpmath.log(q / p)
        return 1 - p + p * (mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu))

    with mpmath.workdps(60):
        worst, hidden = mpmath.mpf(0), 1 - mpmath.mpf(loss.delta_threshold)
        for x in (mpmath.mpf(j) / 64 for j in range(65)):
            mu = mpmath.sqrt(mpmath.mpf(loss.discovery) * (1 - x * mpmath.mpf(loss.saved)) + loss.others)
            if loss.neighbors == "replace-one":
                worst = max(worst, lemma(mu, hidden**x, hidden))
            else:
                worst = max(worst, lemma(mu, hidden**x, mpmath.mpf(1)), lemma(mu, mpmath.mpf(1), hidden**x))
        return +worst


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("delta", [1e-20, 3e-17, 1e-13, 5e-9, 1e-4])
def test_no_small_delta_is_lost_to_rounding(neighbors: Neighbors, delta: float) -> None:
    """Relatively: never below sixty digits of the theorem, at most 3 % above, however small the threshold's delta is."""
    for epsilon, share in itertools.product((0.05, 1.0, 8.0), (1e-3, 0.5, 30.0)):
        mu2 = gdp_mu(epsilon, share * delta) ** 2
        loss = JointLoss(
            before=0.0,
            discovery=0.6 * mu2,
            others=0.4 * mu2,
            delta_threshold=delta,
            saved=0.5,
            neighbors=neighbors,
        )
        exact = exact_delta(loss, epsilon)
        assert exact <= mpmath.mpf(joint_delta(loss, epsilon)) <= 1.03 * exact


# --- plans ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("percentile", [99, "none"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-9), (10.0, 1e-6)])
def test_a_joint_plan_gives_the_threshold_all_that_there_is_room_for(
    neighbors: Neighbors, percentile: object, epsilon: float, delta: float
) -> None:
    """The noise is that of gdp by mu^2, the threshold gets more, 1 % more still would break it; the ledger believes it."""
    facts = {"epsilon": epsilon, "delta": delta, "neighbors": neighbors, "private": True, "percentile": percentile}
    ours, sums = plan_budget(configuration(accountant="joint", **facts)), plan_budget(configuration(**facts))
    first, other = (plan.draw("level-1").parameter for plan in (ours, sums))
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
    statement = Plain(epsilon=Decimal(repr(epsilon)), delta=Decimal(repr(delta)))
    assert draws_fault(statement, ours.draws, [ours.spare_cost], neighbors, ours.discovery) is None
    # added up the same draws would cost more than is stated: that is the gain
    assert composed_epsilon(ours.cost, statement.delta)[0] > epsilon
    dearer = [
        replace(draw, cost=replace(draw.cost, delta=draw.cost.delta * Decimal("1.05"))) if draw.length == 1 else draw
        for draw in ours.draws
    ]
    assert "more than the stated" in (draws_fault(statement, dearer, [], neighbors, ours.discovery) or "")


def test_all_of_delta_goes_to_the_noise_nearly() -> None:
    """With a share of .01 sigma is within .06 % of that without any threshold, at a threshold as low as gdp's."""
    facts = {"private": True, "percentile": "none"}
    ours = plan_budget(configuration(accountant="joint", delta_threshold_share=0.01, **facts))
    sums, free = plan_budget(configuration(**facts)), plan_budget(configuration(percentile="none"))
    assert free.draw("level-1").parameter < ours.draw("level-1").parameter < 1.0006 * free.draw("level-1").parameter
    assert ours.delta_threshold > sums.delta_threshold


def test_an_account_adds_mu2_and_deltas_or_whole_statements() -> None:
    """Two joint releases cost no more than two statements, and never less than their sums say at a larger delta."""
    plan = plan_budget(configuration(private=True, accountant="joint"))
    statement = Plain(epsilon=Decimal(1), delta=Decimal("1e-6"))
    one = account_epsilon([plan.cost], [statement], Decimal("1e-6"))
    assert one == (1.0, "plain")
    epsilon, name = account_epsilon([plan.cost] * 2, [statement] * 2, Decimal("2e-6"))
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
    with pytest.raises(ValueError, match=r"^least_share \(0\) must lie in \(0, 1\]$"):
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
    discovery, statement = plan.discovery, Plain(epsilon=Decimal(1), delta=Decimal("1e-6"))
    assert discovery is not None

    def fault(draws: Sequence[PlannedDraw], found: Discovery, neighbors: Neighbors = "add-remove") -> str:
        return draws_fault(statement, draws, [], neighbors, found) or ""

    last = replace(plan.draws[-1], cost=replace(plan.draws[-1].cost, delta=Decimal("1e-12")))
    assert "must be the only draw with a delta; level-3 has one" in fault([*plan.draws[:-1], last], discovery)
    assert "must be adaptive" in fault(plan.draws, replace(discovery, adaptive=False))
    assert "priced under add-remove" in fault(plan.draws, discovery, "replace-one")
    resized = plan_budget(people(**RESIZED))
    assert (resized.neighbors, resized.discovery and resized.discovery.neighbors) == ("add-remove", "replace-one")
    assert fault(resized.draws, resized.discovery) == ""  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^neighbors \(nobody\) must be add-remove or replace-one$"):
        replace(discovery, neighbors="nobody")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^adaptive \(0\) must be true or false$"):
        replace(discovery, adaptive=0)  # type: ignore[arg-type]


# --- the shipped draw, audited -------------------------------------------------------------------------------------

CANARIES = 60_000


def test_a_canary_with_a_public_and_a_new_value_loses_what_is_claimed() -> None:
    """The optimal event on the shipped draw, 60,000 canaries with disjoint cells: two-sided, false alarm 1e-6.

    The canary is found if its new value is out or its public cell has a high count. Delta measured is at most the plan's and
    near the theorem's value at x = 1; a threshold without "+ 1", or half the sigma, is found.
    """
    epsilon, delta = 0.5, 0.1
    public = {"type": "category", "values": [f"v{v}" for v in range(CANARIES)]}
    config = people(
        columns={"cell": public, "own": PRIVATE},
        privacy={"epsilon": epsilon, "delta": delta, "unit": "row", "accountant": "joint"},
        aggregate={"reporting_length": 1, "percentile": "none", "thresholds": {"fixed": {1: 0}}},
    )
    plan = plan_budget(config)
    assert plan.discovery is not None
    level_1 = plan.draw("level-1")
    sd = deviation(level_1.parameter, 2, config.stability)
    alone = list(range(CANARIES))
    candidates = CandidateSet(length=1, sizes=(CANARIES, CANARIES))
    mechanism = plan_level(
        config,
        candidates=candidates,
        survivors_before=0,
        contribution_bound=2,
        deviation=sd,
        delta_threshold=plan.delta_threshold,
    )
    mechanism = replace(mechanism, threshold=-(10**6))
    mu = math.sqrt(float(level_1.cost.mu2) / 2)
    # given that nothing new is out: the most powerful test of one cell, at the ratio e^epsilon / (1 - d)
    cut = float(sd) * (mu / 2 + (epsilon - math.log1p(-plan.delta_threshold)) / mu)

    def found(table: object, known: bool) -> np.ndarray:
        level = draw_level(bounded(table, candidates, 2), candidates, mechanism)  # type: ignore[arg-type]
        high = np.zeros(CANARIES, bool)
        first = level.columns[:, 0] == 0
        high[level.values[first, 0]] = level.counts[first] > cut
        if known:
            high[level.values[~first, 0]] = True
        return high

    present = found(table_of([alone, alone], candidates.sizes), True)
    absent = found(table_of([[], []], candidates.sizes), False)
    p_low, p_high = clopper_pearson(int(present.sum()), CANARIES)
    q_low, q_high = clopper_pearson(int(absent.sum()), CANARIES)
    assert p_low - math.exp(epsilon) * q_high <= delta
    exact = float(sparse_delta(mu, epsilon, 1 - plan.delta_threshold, 1.0))
    assert p_high - math.exp(epsilon) * q_low >= 0.9 * exact
    assert 0.8 * delta < exact <= delta
