"""Functional (epsilon, delta) of a resized table: the published numbers, and what they guarantee."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from marginweave.accounting.amplification import functional_parameters
from marginweave.base.errors import InputError

FORMULAS = ("printed", "tight")
HALF_MORE = 2, Fraction(3, 4)  # p = 1.5


def copies_and_rate(proportion: float) -> tuple[int, Fraction]:
    """C = ceil(p) and s = p/c."""
    copies = math.ceil(proportion)
    return copies, Fraction(proportion) / copies


def test_published_values() -> None:
    """Step 29 of docs/privacy.md, p = 1.5 and epsilon = 1: delta_f/delta .47380 and .50339, epsilon_f .596 and .623."""
    printed = functional_parameters(1.0, 1e-6, *HALF_MORE, "printed")
    tight = functional_parameters(1.0, 1e-6, *HALF_MORE, "tight")
    assert printed[1] / 1e-6 == pytest.approx(0.47380, abs=5e-6)
    assert tight[1] / 1e-6 == pytest.approx(0.50339, abs=5e-6)
    assert printed[0] == pytest.approx(0.596, abs=5e-4)
    assert tight[0] == pytest.approx(0.623, abs=5e-4)
    gains = [
        functional_parameters(epsilon, 1e-6, *HALF_MORE, "tight")[0]
        / functional_parameters(epsilon, 1e-6, *HALF_MORE, "printed")[0]
        for epsilon in (0.1, 0.5, 1.0, 2.0)
    ]
    assert gains == pytest.approx([1.008, 1.031, 1.046, 1.057], abs=6e-4)


def test_the_sum_begins_at_zero_and_has_the_functional_exponent() -> None:
    """From 1 the sum is empty for one copy; e^{i epsilon} gives another delta_f."""
    assert functional_parameters(0.5, 1e-6, 1, Fraction(1, 2), "printed")[1] == pytest.approx(2e-6)
    epsilon, delta = functional_parameters(0.1, 1e-6, *HALF_MORE, "printed")
    assert delta == pytest.approx(1e-6 / (0.75 * (1 + math.exp(epsilon))))
    from_one = 1e-6 / (0.75 * math.exp(0.1))
    assert from_one / delta == pytest.approx(1.87, abs=0.06)


@pytest.mark.parametrize("formula", FORMULAS)
@given(st.floats(1e-3, 30.0), st.floats(1e-15, 0.1), st.floats(0.01, 6.0))
@settings(max_examples=50, deadline=None)
def test_what_the_formula_undoes_is_what_was_asked_for(
    formula, epsilon: float, delta: float, proportion: float
) -> None:
    """Forward, by group privacy and amplification in the order of the formula: at most (epsilon, delta), and nearly it."""
    copies, rate = copies_and_rate(proportion)
    s = float(rate)
    inner, inner_delta = functional_parameters(epsilon, delta, copies, rate, formula)
    if formula == "tight":
        one = math.log1p(s * math.expm1(inner))
        got = copies * one
        got_delta = s * inner_delta * sum(math.exp(i * one) for i in range(copies))
    else:
        got = math.log1p(s * math.expm1(copies * inner))
        got_delta = s * inner_delta * sum(math.exp(i * inner) for i in range(copies))
    assert epsilon * (1 - 1e-9) <= got <= epsilon * (1 + 1e-12)
    assert got_delta <= delta * (1 + 1e-12)
    assert inner_delta == 0.5 or got_delta >= delta * (1 - 1e-9)


@given(st.floats(1e-3, 20.0), st.floats(0.05, 5.0))
@settings(max_examples=40, deadline=None)
def test_the_tight_formula_gives_more_than_the_printed_one(
    epsilon: float, proportion: float
) -> None:
    """Amplify, then group, is never worse; for one copy the two are the same."""
    copies, rate = copies_and_rate(proportion)
    printed, tight = (
        functional_parameters(epsilon, 1e-6, copies, rate, formula) for formula in FORMULAS
    )
    assert tight[0] >= printed[0] * (1 - 1e-9)
    assert tight[1] >= printed[1] * (1 - 1e-9) or copies > 1
    if copies == 1:
        assert tight == pytest.approx(printed, rel=1e-9)


@pytest.mark.parametrize("proportion", [0.75, 1.0, 1.5, 2.5, 3.7])
@pytest.mark.parametrize("asked", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("formula", FORMULAS)
def test_a_worst_mechanism_keeps_epsilon_in_both_directions(
    formula, asked: float, proportion: float
) -> None:
    """Geometric noise on a count, K ~ Bin(c, s) copies of one row: the largest log-ratio, exactly, is at most epsilon.

    `tight` reaches it, so any slip that lets epsilon_f grow is found.
    """
    copies, rate = copies_and_rate(proportion)
    inner, _ = functional_parameters(asked, 1e-6, copies, rate, formula)
    at = np.arange(-20, 21)
    weights = stats.binom(copies, float(rate)).pmf(np.arange(copies + 1))
    with_row = sum(w * np.exp(-inner * np.abs(at - k)) for k, w in enumerate(weights))
    without = np.exp(-inner * np.abs(at))
    ratio = np.log(with_row) - np.log(without)
    assert np.abs(ratio).max() <= asked * (1 + 1e-12)
    if formula == "tight":
        assert ratio.max() == pytest.approx(asked, rel=1e-9)


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("proportion", [0.75, 1.5, 3.7])
def test_a_worst_mechanism_keeps_delta_in_both_directions(formula, proportion: float) -> None:
    """The most that k replaced records can leak, delta (e^{k eps} - 1)/(e^eps - 1), mixed over K ~ Bin(c, s): at most delta.

    The divergence at epsilon on either side, over all probabilities that an event can have without the row.
    """
    asked, delta = 1.0, 1e-3
    copies, rate = copies_and_rate(proportion)
    inner, inner_delta = functional_parameters(asked, delta, copies, rate, formula)
    weights = stats.binom(copies, float(rate)).pmf(np.arange(copies + 1))
    k = np.arange(copies + 1)
    grouped = inner_delta * np.expm1(k * inner) / np.expm1(inner)
    # P_k(S) <= e^{k eps} P_0(S) + grouped_k for every S: at P_0(S) = x the mixture is at most sum w (e^{k eps} x + grouped)
    x = np.linspace(0, 1, 2001)
    most = sum(
        w * np.minimum(1, np.exp(j * inner) * x + g)
        for j, w, g in zip(k, weights, grouped, strict=True)
    )
    assert (most - np.exp(asked) * x).max() <= delta * (1 + 1e-9)
    # and the other way: P_0(S) = y forces P_k(S) >= e^{-k eps} (y - grouped_k)
    least = sum(
        w * np.maximum(0, np.exp(-j * inner) * (x - g))
        for j, w, g in zip(k, weights, grouped, strict=True)
    )
    assert (x - np.exp(asked) * least).max() <= delta * (1 + 1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1e-6, 1, Fraction(1)), "epsilon"),
        ((math.inf, 1e-6, 1, Fraction(1)), "epsilon"),
        ((1.0, 0.0, 1, Fraction(1)), "delta"),
        ((1.0, 1e-6, 0, Fraction(1)), "copies"),
        ((1.0, 1e-6, 1, Fraction(0)), "rate"),
        ((1.0, 1e-6, 1, Fraction(3, 2)), "rate"),
    ],
)
def test_impossible_parameters_are_refused(
    arguments: tuple[float, float, int, Fraction], message: str
) -> None:
    """Each by name."""
    with pytest.raises(InputError, match=message):
        functional_parameters(*arguments, "tight")
