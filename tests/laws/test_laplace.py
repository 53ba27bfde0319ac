"""Laplace noise on marginals: its distribution, what a unit can move, what it costs, and when it is the smaller one."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from marginweave.base.budget import Stability
from marginweave.base.errors import InputError, StageError
from marginweave.counts.marginals import all_cliques
from marginweave.measurements.marginals import budget_shares, measure_marginals, split_noise
from marginweave.mechanisms import laplace as mechanisms
from marginweave.mechanisms.base import l1_sensitivity
from marginweave.mechanisms.laplace import (
    DiscreteLaplace,
    add_drawn_noise,
    draw_laplace_noise,
    gaussian_variance,
    laplace_scale,
    laplace_sigma,
    laplace_variance,
)
from marginweave.mechanisms.randomness import fresh_bits
from tests.oracles.sds import sds_rho
from tests.oracles.zcdp import zcdp_rho

SIZES = (2, 3, 5, 7)
ONE = Stability(records=1, neighbors="add-remove")
STABILITIES = [
    Stability(records=r, neighbors=n) for r in (1, 2, 3) for n in ("add-remove", "replace-one")
]
DRAWS = 100_000
FALSE_ALARM = 1e-6


def mass(scale: Fraction, reach: int) -> np.ndarray:
    """P(X = x) for |x| <= reach, by the printed formula."""
    p = math.exp(-1 / float(scale))
    return (1 - p) / (1 + p) * p ** np.abs(np.arange(-reach, reach + 1)).astype(float)


def cells_of(scale: Fraction, reach: int) -> np.ndarray:
    """Probabilities of every |x| < reach with its sign, and of the two tails."""
    inner = mass(scale, reach - 1)
    return np.concatenate(([(1 - inner.sum()) / 2], inner, [(1 - inner.sum()) / 2]))


def observed(epsilon: Fraction, reach: int) -> np.ndarray:
    drawn = draw_laplace_noise(DRAWS, epsilon, ONE)
    return np.bincount(np.clip(drawn, -reach, reach) + reach, minlength=2 * reach + 1)


@pytest.mark.parametrize(
    ("epsilon", "reach"), [(Fraction(3), 2), (Fraction(1, 2), 10), (Fraction(1, 10), 40)], ids=str
)
def test_the_noise_has_its_exact_distribution(epsilon: Fraction, reach: int) -> None:
    """Chi-square of 1e5 draws against the printed mass, every value and sign apart: false alarm 1e-6 each."""
    expected = cells_of(laplace_scale(epsilon, ONE), reach) * DRAWS
    assert expected.min() > 50
    assert stats.chisquare(observed(epsilon, reach), expected).pvalue > FALSE_ALARM


def test_the_goodness_of_fit_would_see_five_percent() -> None:
    """Noise of a scale that is 5 % too small fails the same test by far: it has power."""
    expected = cells_of(laplace_scale(Fraction(1, 10), ONE), 40) * DRAWS
    assert stats.chisquare(observed(Fraction(105, 1000), 40), expected).pvalue < 1e-9


@given(st.fractions(Fraction(1, 500), 20))
def test_the_deviation_is_that_of_the_distribution(epsilon: Fraction) -> None:
    """sqrt(sum x^2 P(x)) over 60 scales, beyond which less than e^-50 is left."""
    scale = laplace_scale(epsilon, ONE)
    reach = math.ceil(60 * scale)
    x = np.arange(-reach, reach + 1).astype(float)
    assert laplace_sigma(scale) == pytest.approx(math.sqrt(mass(scale, reach) @ x**2), rel=1e-9)


@pytest.mark.parametrize("unit", STABILITIES, ids=str)
def test_the_sensitivity_is_the_largest_move_of_one_subject(unit: Stability) -> None:
    """All ways in which a subject of at most theta records can come, go or be replaced: the bound is reached, not passed."""
    subjects = [
        np.bincount(np.array(chosen, np.int64), minlength=6)
        for n in range(unit.records + 1)
        for chosen in itertools.combinations_with_replacement(range(6), n)
    ]
    others = subjects if unit.neighbors == "replace-one" else [np.zeros(6, np.int64)]
    assert max(int(np.abs(u - v).sum()) for u in subjects for v in others) == l1_sensitivity(unit)


@given(st.fractions(Fraction(1, 10**4), 100), st.sampled_from(STABILITIES))
def test_the_loss_of_neighbors_is_at_most_epsilon(epsilon: Fraction, unit: Stability) -> None:
    """S/b <= epsilon exactly, also as OpenDP measures it, and no step of the scale smaller would do."""
    scale = laplace_scale(epsilon, unit)
    loss = mechanisms._discrete_laplace(float(scale)).map(l1_sensitivity(unit))
    assert Fraction(l1_sensitivity(unit)) / scale <= Fraction(loss) <= epsilon
    if scale > Fraction(1, 1024):
        assert l1_sensitivity(unit) / (scale - Fraction(1, 1024)) > epsilon * (
            1 - Fraction(1, 2**39)
        )


def test_a_loss_above_the_planned_one_is_never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scale that is too small, wherever it came from, stops the draw."""
    monkeypatch.setattr(
        mechanisms, "laplace_scale", lambda epsilon, _: 1 / epsilon * Fraction(9, 10)
    )
    with pytest.raises(StageError, match="the measured privacy loss is above the planned one"):
        draw_laplace_noise(3, Fraction(1), ONE)


def test_what_is_no_noise_is_refused() -> None:
    with pytest.raises(InputError, match=r"epsilon \(0\) must be positive"):
        draw_laplace_noise(3, Fraction(0), ONE)
    with pytest.raises(InputError, match=r"counts \(float64\) must be int64"):
        add_drawn_noise(np.zeros(3), np.zeros(3, np.int64))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "noise",
    [
        np.zeros(5, np.int64),
        np.zeros(7, np.int64),
        np.zeros((2, 3), np.int64),
        np.zeros(6),
        np.zeros(1, np.int64),
    ],
)
def test_noise_that_was_drawn_for_another_marginal_is_refused(noise: Any) -> None:
    """Nothing is broadcast, cut or cast: each cell has the noise that was made for it."""
    with pytest.raises(StageError, match="it was drawn for another one"):
        add_drawn_noise(np.zeros((2, 3), np.int64), noise)


def test_drawn_noise_is_added_in_place_and_in_64_bits() -> None:
    """Cell i of the flattened marginal has noise i; a sum that could leave 64 bits is refused, whatever its sign."""
    counts = np.arange(6).reshape(2, 3)
    assert add_drawn_noise(counts, np.array([5, 0, -9, 1, 2, 3])).tolist() == [
        [5, 1, -7],
        [4, 6, 8],
    ]
    for extreme in (np.iinfo(np.int64).max, -np.iinfo(np.int64).max):
        with pytest.raises(StageError, match="must fit 64 bits"):
            add_drawn_noise(np.array([0, extreme]), np.array([-1, 0]))


@given(
    st.floats(1e-4, 1e3),
    st.integers(1, 4),
    st.sampled_from(["equal", "cells"]),
    st.sampled_from(STABILITIES),
)
def test_the_epsilons_of_a_draw_add_up_to_what_is_charged(
    epsilon: float, length: int, split: Any, unit: Stability
) -> None:
    """Exactly to the decimal that the joint epsilon prints as; the losses of the noise to no more."""
    epsilons = split_noise(DiscreteLaplace(unit), epsilon, all_cliques(SIZES, length), SIZES, split)
    assert sum(epsilons) == Fraction(repr(epsilon))
    assert sum(l1_sensitivity(unit) / laplace_scale(part, unit) for part in epsilons) <= Fraction(
        repr(epsilon)
    )


def test_the_split_by_cells_has_the_least_error() -> None:
    """sum c_i / epsilon_i at epsilon_i proportional to sqrt(c_i), against 200 other splits and the equal one."""
    cliques = all_cliques(SIZES, 2)
    sizes = np.array([SIZES[a] * SIZES[b] for a, b in cliques], float)
    best = float(
        (sizes / budget_shares(cliques, SIZES, "cells", DiscreteLaplace.share_power)).sum()
    )
    assert best == pytest.approx(np.sqrt(sizes).sum() ** 2)
    for seed in range(200):
        other = np.random.default_rng(seed).dirichlet(np.full(len(sizes), 20.0))
        assert (sizes / other).sum() > best
    assert (sizes * len(sizes)).sum() > best


def test_every_cell_gets_noise_of_its_own() -> None:
    """Two marginals of 2500 empty cells, drawn together: the deviations they claim, |r| < 5.2/sqrt(2500), zeros noised.

    The mean square of 2500 cells is within 5.1 of its standard errors, sqrt(5/2500) of itself (kurtosis 6): 5e-7 each.
    """
    empty = [np.zeros((50, 50), np.int64)] * 2
    noise = DiscreteLaplace(ONE)
    parts = split_noise(noise, 0.2, [(0, 1), (1, 2)], (50, 50, 50), "cells")
    ready = noise.presample([2500, 2500], parts)
    first, second = measure_marginals(noise, empty, [(0, 1), (1, 2)], parts, fresh_bits(), ready)
    for m in (first, second):
        assert m.noise == "discrete-laplace"
        assert m.deviation == pytest.approx(math.sqrt(2) * 10, rel=1e-3)
        assert abs(float((m.counts**2).mean()) / m.deviation**2 - 1) < 5.1 * math.sqrt(5 / 2500)
    assert abs(np.corrcoef(first.counts.ravel(), second.counts.ravel())[0, 1]) < 5.2 / 50


def most_marginals(epsilon: float, rho: float) -> int:
    """The largest number of marginals for which Laplace noise has the smaller variance."""
    return next(
        m - 1
        for m in itertools.count(1)
        if laplace_variance(m, epsilon, ONE) >= gaussian_variance(m, (2 * rho) ** -0.5, ONE)
    )


@pytest.mark.parametrize(
    ("delta", "seed", "exact"),
    [(1e-6, [13, 14, 14, 14], [7, 9, 10, 11]), (1e-9, [20, 20, 21, 21], [14, 15, 16, 17])],
)
def test_the_variances_cross_where_they_should(
    delta: float, seed: list[int], exact: list[int]
) -> None:
    """Gaussian iff m > epsilon^2/(4 rho), at epsilon .1, .5, 1, 2: by DPSyn's conversion, and by the exact one.

    At (1, 1e-6) all pairs of 5 columns are few enough for Laplace noise, those of 6 are not.
    """
    epsilons = [0.1, 0.5, 1.0, 2.0]
    assert [most_marginals(e, sds_rho(e, 2 * delta)) for e in epsilons] == seed
    assert [most_marginals(e, zcdp_rho(e, delta)) for e in epsilons] == exact
    for e, m in zip(epsilons, exact, strict=True):
        assert m <= e**2 / (4 * zcdp_rho(e, delta)) < m + 1
    assert math.comb(5, 2) <= most_marginals(1.0, zcdp_rho(1.0, 1e-6)) < math.comb(6, 2)


@settings(max_examples=25)
@given(st.integers(1, 30), st.floats(0.01, 10), st.sampled_from(STABILITIES))
def test_the_variances_are_those_of_the_noise(number: int, epsilon: float, unit: Stability) -> None:
    """2 b^2 for scale b = m S_1/epsilon; m (S_2 M)^2 with S_2^2 = theta^2 or 2 theta^2."""
    b = number * l1_sensitivity(unit) / epsilon
    assert laplace_variance(number, epsilon, unit) == pytest.approx(2 * b**2)
    square = unit.records**2 * (2 if unit.neighbors == "replace-one" else 1)
    assert gaussian_variance(number, epsilon, unit) == pytest.approx(number * square * epsilon**2)
