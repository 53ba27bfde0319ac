"""What thresholds and noise cost together is no more than the sum that is charged: a theorem, against enumeration."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from functools import reduce

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from marginweave.accounting.accountants import gdp_delta, gdp_mu
from marginweave.base.budget import Neighbors
from marginweave.counts.candidates import CandidateSet
from marginweave.measurements.levels import draw_level, plan_level
from marginweave.measurements.split import plan_budget
from marginweave.measurements.thresholds import private_threshold
from marginweave.mechanisms.gaussian import noise_sigma
from marginweave.mechanisms.noise_table import NoiseTable, noise_table
from marginweave.mechanisms.randomness import fresh_bits
from tests.oracles.sparse_histogram import JointLoss, joint_delta, sparse_delta
from tests.support.configurations import PRIVATE
from tests.support.configurations import configuration as people
from tests.support.level_draws import bounded, clopper_pearson, table_of
from tests.support.samples import every

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
        [
            float(table.upper_tail(v - count) - table.upper_tail(v + 1 - count))
            for v in range(-reach, reach + 1)
        ]
    )


def shown(table: NoiseTable, count: int, threshold: int, reach: int) -> np.ndarray:
    """Distribution of a private cell's output: not published, or its noisy count; a cell that does not occur is not drawn."""
    if not count:
        return np.array([1.0, *np.zeros(reach + 1)])
    noisy = [
        float(table.upper_tail(v - count) - table.upper_tail(v + 1 - count))
        for v in range(reach + 1)
    ]
    noisy = [p if v >= threshold else 0.0 for v, p in enumerate(noisy)]
    return np.array([1 - float(table.upper_tail(threshold - count)), *noisy])


def hockey_stick(parts: list[tuple[np.ndarray, np.ndarray]], epsilon: float) -> float:
    """sum over all outputs of (P - e^epsilon Q)_+ for independent parts."""
    p, q = (
        reduce(lambda a, b: np.multiply.outer(a, b).ravel(), side)
        for side in zip(*parts, strict=True)
    )
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


LONGEST = (Fraction(3), 1, 2, "replace-one")  # as long as all others together


@pytest.mark.parametrize(
    ("spread", "theta", "private", "neighbors"),
    [
        pytest.param(
            spread,
            *rows,
            neighbors,
            marks=pytest.mark.long if (spread, *rows, neighbors) == LONGEST else (),
        )
        for spread in (Fraction(3, 2), Fraction(3))
        for rows in ((1, 1), (1, 2), (2, 1))
        for neighbors in RELATIONS
    ],
)
def test_no_small_release_loses_more_than_the_theorem_says(
    spread: Fraction, theta: int, private: int, neighbors: Neighbors
) -> None:
    """Every way in which alike rows of a unit hold new, known and public values, on both sides, by the exact table.

    One public column, `private` columns of private domain, theta rows; in the release, beside the thresholded length, a
    second draw of the whole unit's mu. The worst way is at least 0.8 of the bound, so that no weaker theorem is tested.
    """
    reach, epsilon, cap = 12 if spread == 3 else 7, 0.4, 1 + private
    sd = noise_sigma(
        float(spread) / math.sqrt(cap) / theta, cap, people(privacy__neighbors=neighbors).stability
    )
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
        found.append(
            (pmf(table, theta * one[0], reach), pmf(table, theta * other[0] * (1 - place), reach))
        )
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
        families = [
            sparse_delta(left, at, x * log_all, 0.0),
            sparse_delta(left, at, 0.0, x * log_all),
        ]
    if outside:
        return max(float((family @ weights).max()) for family in families)
    return float(np.maximum.reduce([family.max(axis=0) for family in families]) @ weights)


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize(
    ("epsilon", "delta", "scale"),
    every(2, [(0.1, 1e-6, 0.021), (1.0, 1e-6, 0.22), (10.0, 1e-9, 1.4), (0.5, 0.05, 0.5)]),
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
    assert (
        played(loss, epsilon, outside=False) * (1 - 1e-6)
        <= bound
        <= played(loss, epsilon, outside=False) * 1.02
    )
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
@settings(max_examples=25, deadline=None)
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
        return (
            1
            - p
            + p * (mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu))
        )

    with mpmath.workdps(60):
        worst, hidden = mpmath.mpf(0), 1 - mpmath.mpf(loss.delta_threshold)
        for x in (mpmath.mpf(j) / 64 for j in range(65)):
            mu = mpmath.sqrt(
                mpmath.mpf(loss.discovery) * (1 - x * mpmath.mpf(loss.saved)) + loss.others
            )
            if loss.neighbors == "replace-one":
                worst = max(worst, lemma(mu, hidden**x, hidden))
            else:
                worst = max(
                    worst, lemma(mu, hidden**x, mpmath.mpf(1)), lemma(mu, mpmath.mpf(1), hidden**x)
                )
        return +worst


@pytest.mark.parametrize(
    ("delta", "neighbors"),
    every(3, itertools.product([1e-20, 3e-17, 1e-13, 5e-9, 1e-4], RELATIONS)),
)
def test_no_small_delta_is_lost_to_rounding(delta: float, neighbors: Neighbors) -> None:
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
        privacy={"epsilon": epsilon, "delta": delta, "weak_delta": "measured", "unit": "row"},
        aggregate={"reporting_length": 1, "percentile": "none", "thresholds": {"fixed": {1: 0}}},
    )
    plan = plan_budget(config)
    level_1 = plan.by_name["level-1"]
    sd = noise_sigma(level_1.parameter, 2, config.stability)
    alone = list(range(CANARIES))
    candidates = CandidateSet(length=1, sizes=(CANARIES, CANARIES))
    mechanism = plan_level(
        config,
        candidates=candidates,
        survivors_before=0,
        contribution_bound=2,
        sigma=sd,
        delta_threshold=plan.delta_threshold,
    )
    mechanism = replace(mechanism, threshold=-(10**6))
    mu = math.sqrt(float(level_1.cost.mu2) / 2)
    # given that nothing new is out: the most powerful test of one cell, at the ratio e^epsilon / (1 - d)
    cut = float(sd) * (mu / 2 + (epsilon - math.log1p(-plan.delta_threshold)) / mu)

    def found(table: object, known: bool) -> np.ndarray:
        level = draw_level(bounded(table, candidates, 2), candidates, mechanism, fresh_bits())  # pyright: ignore[reportArgumentType]
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
    exact = float(sparse_delta(mu, epsilon, math.log1p(-plan.delta_threshold), 0.0))
    assert p_high - math.exp(epsilon) * q_low >= 0.9 * exact
    assert exact <= delta
