"""Thresholds on integers: the private one from the noise table itself, the others as the papers and SDS state them."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

from marginweave.base.errors import InputError
from marginweave.configuration.k_tuples import AggregateSettings
from marginweave.measurements.thresholds import level_threshold, private_threshold
from marginweave.mechanisms.gaussian import noise_sigma
from marginweave.mechanisms.noise_table import noise_table
from tests.support.printed_thresholds import ONE_ROW, printed_threshold, stable_quantile


def leak(sd: Fraction, contributions: int, least: int) -> Fraction:
    """Exact chance that a value of one record alone reaches `least`: 1 - P(1 + X < least)^D, in whole fractions."""
    return 1 - (1 - noise_table(sd).upper_tail(least - 1)) ** contributions


@pytest.mark.parametrize(
    "sd", [Fraction(1, 4), Fraction(4, 5), Fraction(2), Fraction(37, 8), Fraction(60)], ids=str
)
@pytest.mark.parametrize("contributions", [1, 2, 7])
@pytest.mark.parametrize("delta", [0.4, 1e-3, 5e-7, 1e-12])
def test_private_threshold_is_the_smallest_that_keeps_delta(
    sd: Fraction, contributions: int, delta: float
) -> None:
    """The exact leak at T is at most delta and at T - 1 above it, by whole fractions."""
    least = private_threshold(sd, contributions, 1, delta)
    assert leak(sd, contributions, least) <= Fraction(delta)
    assert least == 1 or leak(sd, contributions, least - 1) > Fraction(delta)


@given(st.integers(1, 400), st.integers(1, 10**6), st.floats(1e-18, 0.9))
@settings(max_examples=20, deadline=None)
def test_private_threshold_is_near_its_real_counterpart(
    sd: int, contributions: int, delta: float
) -> None:
    """About 1.5 + sd z, z the quantile of one of D values; it grows with D and with a smaller delta."""
    least = private_threshold(Fraction(sd), contributions, 1, delta)
    z = -float(ndtri(-math.expm1(math.log1p(-delta) / contributions)))
    assert least == max(1, least)
    assert least == 1 or abs(least - (1.5 + sd * z)) <= 1 + 1e-6 * sd
    assert private_threshold(Fraction(sd), contributions + 1, 1, delta) >= least
    assert private_threshold(Fraction(sd), contributions, 1, delta / 2) >= least


@pytest.mark.parametrize(
    ("sigma", "bound", "delta", "threshold"),
    [
        (7.345374920324, 1, 1e-3, 25.17015253),
        (7.345374920324, 4, 1e-3, 54.80063892),
        (5.022127702, 10, 1e-5, 78.68587554),
    ],
)
def test_published_thresholds_of_sds(
    sigma: float, bound: int, delta: float, threshold: float
) -> None:
    """The printed real form reproduces; ours, for the same noise and delta/2, is at most 1.5 above it."""
    assert printed_threshold(sigma, bound, delta) == pytest.approx(threshold, abs=1e-7)
    ours = private_threshold(noise_sigma(sigma, bound, ONE_ROW), bound, 1, delta / 2)
    assert threshold < ours <= threshold + 1.5 + 0.02


@pytest.mark.parametrize(
    ("sd", "times"), [(Fraction(4, 5), 5), (Fraction(2), 1.7), (Fraction(5), 1.2)], ids=str
)
def test_noisy_above_the_printed_threshold_would_leak(sd: Fraction, times: float) -> None:
    """On integers `noisy > rho_1` publishes a lone value with more than delta; T does not."""
    delta = 1e-6
    worst = 0.0
    for step in range(50):
        fine = sd + Fraction(step, 1024)
        printed = math.floor(printed_threshold(float(fine), 1, 2 * delta)) + 1
        worst = max(worst, float(leak(fine, 1, printed)))
        assert leak(fine, 1, private_threshold(fine, 1, 1, delta)) <= Fraction(delta)
    assert worst > times * delta


def test_quantile_of_many_values_is_computed_stably() -> None:
    """(1 - d)^{1/D} in floats gives 8.0140 for 8.0269 and leaks; the integer threshold has the true tail."""
    d, bound = 5e-13, 1000
    naive = float(ndtri((1 - d) ** (1 / bound)))
    assert naive == pytest.approx(8.014016, abs=1e-6)
    assert stable_quantile(d, bound) == pytest.approx(8.026859, abs=1e-6)
    sd = Fraction(300)
    assert leak(sd, bound, math.ceil(1.5 + 300 * naive)) > Fraction(d)
    assert private_threshold(sd, bound, 1, d) == math.ceil(1.5 + 300 * stable_quantile(d, bound))


def least(thresholds, length: int, sd: float, *, survivors: int = 10, candidates: int = 10):
    chosen = AggregateSettings.model_validate({"thresholds": thresholds})
    return level_threshold(chosen, length, Fraction(sd), survivors, candidates)


@pytest.mark.parametrize(
    ("sigma", "bound", "eta", "threshold"),
    [(2.511063851, 1, 0.1, 4.13033248), (1.6740425673, 1, 0.55, 1.0006759), (1.0, 7, 1.0, 0.0)],
)
def test_published_adaptive_thresholds_of_sds(
    sigma: float, bound: int, eta: float, threshold: float
) -> None:
    """sigma sqrt(Delta) PhiInv(1 - min(eta/2, 1/2)), read off in steps of 1e-7 by scaling the noise up."""
    magnified = sigma * math.sqrt(bound) * 1e7
    assert least({"adaptive": {2: eta}}, 2, magnified) / 1e7 == pytest.approx(threshold, abs=2e-7)
    assert least({"adaptive": {2: eta}}, 2, sigma * math.sqrt(bound)) == math.floor(threshold) + 1


def test_thresholds_are_exceeded_and_never_below_one() -> None:
    """`noisy > t and > 0` on integers, at every length a `fixed` may name; what is not named is 0, or eta 1."""
    fixed = {"fixed": {1: 4, 2: 10.5, 3: 0}}
    assert [least(fixed, k, 3.0) for k in (1, 2, 3)] == [5, 11, 1]
    assert [least({"fixed": {2: 10}}, k, 3.0) for k in (1, 2, 3)] == [1, 11, 1]
    assert [least({"adaptive": {2: 0.01}}, k, 30.0) for k in (1, 3)] == [1, 1]
    assert least({"adaptive": {2: 0.01}, "rule": "paper"}, 3, 30.0) == 1


@pytest.mark.parametrize("bound", [4, 25])
def test_adaptive_rate_needs_this_lengths_contribution_bound(bound: int) -> None:
    """With sqrt(Delta_k) an empty cell is published at about eta/2; with sqrt(Delta_1) far more often."""
    sigma, eta, first_bound = 6.0, 0.05, 2
    noise = noise_sigma(sigma, bound, ONE_ROW)
    settings_ = AggregateSettings.model_validate({"thresholds": {"adaptive": {2: eta}}})
    ours = level_threshold(settings_, 2, noise, 10, 10)
    printed = level_threshold(settings_, 2, noise_sigma(sigma, first_bound, ONE_ROW), 10, 10)
    assert float(noise_table(noise).upper_tail(ours)) == pytest.approx(eta / 2, rel=0.1)
    assert float(noise_table(noise).upper_tail(printed)) > 1.5 * eta


def test_paper_rule_bounds_the_fabricated_combinations() -> None:
    """eta min(1, |S|/|V|) keeps the expected empty cells near eta |S|; eta/2 a cell does not."""
    noise, eta, survivors, candidates = Fraction(40), 0.1, 50, 20_000

    def fabricated(rule: str) -> float:
        chosen = AggregateSettings.model_validate(
            {"thresholds": {"adaptive": {2: eta}, "rule": rule}}
        )
        at = level_threshold(chosen, 2, noise, survivors, candidates)
        return candidates * float(noise_table(noise).upper_tail(at))

    assert fabricated("paper") <= eta * survivors * 1.1
    assert fabricated("sds") > 100 * eta * survivors
    few = AggregateSettings.model_validate({"thresholds": {"adaptive": {2: 0.9}, "rule": "paper"}})
    assert level_threshold(few, 2, noise, 900, 100) == 1
    assert level_threshold(few, 2, noise, 900, 0) == 1


@pytest.mark.parametrize(
    ("contributions", "records", "delta", "message"),
    [
        (0, 1, 1e-6, "contributions"),
        (1, 0, 1e-6, "records"),
        (1, 1, 0.0, "delta_thres"),
        (1, 1, 1.0, "delta_thres"),
    ],
)
def test_impossible_thresholds_are_refused(
    contributions: int, records: int, delta: float, message: str
) -> None:
    """At least one contribution and one row, delta_threshold in (0, 1)."""
    with pytest.raises(InputError, match=message):
        private_threshold(Fraction(3), contributions, records, delta)
