"""Bounds and verdicts of an audit: exact, two-sided, and right about what is known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from marginweave.base.budget import Stability
from marginweave.mechanisms.percentile import rank_scores, score_sensitivity
from tests.audit.findings import (
    Finding,
    Hits,
    Interval,
    Quantity,
    TrialScores,
    epsilon_interval,
    joint_scores,
    mu_interval,
    refuted,
    separation,
    shift_score,
    split_cut,
    worst_pair,
)


@given(st.floats(0.05, 3), st.floats(0, 0.05))
def test_mu_is_bracketed_at_the_rates_of_a_gaussian_beside_a_delta(mu: float, delta: float) -> None:
    trials = 10**7
    true, false = ndtr(mu / 2) + delta, ndtr(-mu / 2)
    bounds = mu_interval(
        Hits(present=round(true * trials), absent=round(false * trials), trials=trials), delta
    )
    assert bounds.low <= mu
    assert bounds.low >= mu - 0.02
    assert bounds.high >= mu


def test_epsilon_is_bracketed_and_unbounded_where_nothing_was_hit() -> None:
    bounds = epsilon_interval(Hits(present=50_000, absent=round(50_000 / math.e), trials=100_000))
    assert bounds.low <= 1 <= bounds.high
    assert bounds.high - bounds.low < 0.15
    assert epsilon_interval(Hits(present=0, absent=0, trials=10)) == Interval(
        low=-math.inf, high=math.inf
    )


@pytest.mark.parametrize(
    ("low", "high", "tight", "verdict"),
    [
        (0.9, 1.1, True, "holds"),
        (1.01, 1.1, False, "exceeded"),
        (0.8, 0.94, True, "over-noised"),
        (0.8, 0.94, False, "holds"),
    ],
)
def test_a_verdict_is_about_both_ends(low: float, high: float, tight: bool, verdict: str) -> None:
    quantity: Quantity = "mu"
    measured = Interval(low=low, high=high)
    finding = Finding(
        name="count", quantity=quantity, claim=1.0, measured=measured, trials=10, tight=tight
    )
    assert finding.verdict == verdict
    assert refuted([finding]) == (verdict == "exceeded")


def test_scores_are_log_likelihood_ratios() -> None:
    """Against the densities themselves, but for the constant that the cut stands for."""
    exact, shift, sd = np.array([3, 0, 7]), np.array([1, -2, 0]), 1.5
    noisy = np.array([[4, 1, 9], [0, -3, 7]])
    ratio = ((noisy - exact) ** 2 - (noisy - exact - shift) ** 2).sum(axis=1) / (2 * sd**2)
    cut = separation([(shift, sd)]) / 2
    np.testing.assert_allclose(shift_score(noisy, exact, shift, sd) - cut, ratio)


def test_joint_scores_and_cuts_add_up() -> None:
    part = TrialScores(present=np.array([2.0, 0.0]), absent=np.array([0.0, 0.0]), cut=0.5)
    joint = joint_scores([part, part])
    assert joint.hits == Hits(present=1, absent=0, trials=2)
    assert joint.cut == 1.0


def test_a_cut_is_from_trials_that_are_left_out() -> None:
    scores = split_cut(np.arange(10.0), np.arange(10.0) - 4)
    assert scores.cut == (0.5 - 3.5) / 2
    assert scores.hits.trials == 8


@pytest.mark.parametrize(
    "stability",
    [Stability(records=t, neighbors=n) for t in (1, 3) for n in ("add-remove", "replace-one")],
)
@pytest.mark.parametrize("percentile", [25.0, 50.0, 75.0, 99.0])
def test_the_worst_pair_are_neighbors_that_move_scores_by_the_sensitivity(
    percentile: float, stability: Stability
) -> None:
    pair = worst_pair(percentile, 1.0, stability)
    assert min(pair.present.min(), pair.absent.min()) >= 0
    moved = np.abs(pair.present - pair.absent)
    assert moved.sum() == stability.records * (2 if stability.neighbors == "replace-one" else 1)
    scores = (rank_scores(pair.present, percentile), rank_scores(pair.absent, percentile))
    assert np.abs(scores[0] - scores[1]).max() == score_sensitivity(percentile, stability)
