"""Estimates of several synthetic tables are combined by the formulas for fully synthetic data, whose intervals cover."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, t

from marginweave.inference import analyze, combine, read_sets
from marginweave.schemas.errors import InputError

FALSE_ALARM = 1e-6


def by_hand(estimates: list[float], variances: list[float], level: float) -> tuple[float, float, float, float, float]:
    """Estimate, variance, degrees, low and high, in plain Python."""
    m = len(estimates)
    q, v = sum(estimates) / m, sum(variances) / m
    b = sum((x - q) ** 2 for x in estimates) / (m - 1)
    total, degrees = (1 + 1 / m) * b - v, float(m - 1)
    if total > 0:
        degrees = (m - 1) * (1 - v / ((1 + 1 / m) * b)) ** 2
    else:
        total = v
    half = float(t.ppf((1 + level) / 2, degrees)) * math.sqrt(total)
    return q, total, degrees, q - half, q + half


@pytest.mark.parametrize("variances", [[0.1, 0.2, 0.1, 0.4], [9.0, 8.0, 10.0, 9.0]], ids=["positive", "fallback"])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_by_hand(variances: list[float], level: float) -> None:
    estimates = [1.0, 2.5, 0.5, 4.0]
    found = combine(estimates, variances, level=level)
    shown = [float(x) for x in (found.estimate, found.variance, found.degrees, found.low, found.high)]
    assert shown == pytest.approx(by_hand(estimates, variances, level), rel=1e-9)
    assert bool(found.fallback) == (variances[0] > 1)


@dataclass(frozen=True)
class Setting:
    """Raghunathan, Reiter and Rubin 2003, section 3: a mean of `rows` normal values, and sets of normal populations."""

    rows: int
    records: int
    sets: int

    def coverage(self, rule: Any, repetitions: int) -> float:
        """How often the interval of a rule covers the mean 0 of the population.

        A set's population mean is drawn from the posterior given the sample, N(mean of the sample, 1/rows), its records from
        this population.
        """
        rng = np.random.default_rng(1)
        sample = rng.normal(0, self.rows**-0.5, (repetitions, 1))
        population = rng.normal(sample, self.rows**-0.5, (repetitions, self.sets))
        estimates = rng.normal(population, self.records**-0.5)
        variances = rng.chisquare(self.records - 1, estimates.shape) / (self.records - 1) / self.records
        return float(np.mean([rule(q, v) for q, v in zip(estimates, variances, strict=True)]))


SETTINGS = [Setting(rows=100, records=500, sets=20), Setting(rows=60, records=300, sets=10)]


def covers(q: Any, v: Any) -> bool:
    found = combine(q, v)
    return bool(found.low <= 0 <= found.high)


def naive(q: Any, v: Any) -> bool:
    return bool(abs(q[0]) <= 1.96 * math.sqrt(v[0]))


def partial(q: Any, v: Any) -> bool:
    """Reiter's rule for partially synthetic data."""
    return bool(abs(q.mean()) <= 1.96 * math.sqrt(v.mean() + q.var(ddof=1) / len(q)))


@pytest.mark.parametrize("setting", SETTINGS)
def test_intervals_cover_in_the_setting_of_the_paper(setting: Setting) -> None:
    """Nominal within .015, which the t distribution leaves (its degrees are matched), and noise of 1e-6; others do not."""
    repetitions = 6000
    noise = float(norm.isf(FALSE_ALARM / 2)) * math.sqrt(0.95 * 0.05 / repetitions)
    assert abs(setting.coverage(covers, repetitions) - 0.95) <= 0.015 + noise
    assert setting.coverage(naive, repetitions) < 0.85
    assert setting.coverage(partial, repetitions) < 0.85


@given(st.integers(2, 6), st.integers(1, 4), st.integers(0, 10**6), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_vector_is_its_parts_and_their_sums(sets: int, k: int, seed: int, level: float) -> None:
    rng = np.random.default_rng(seed)
    q, roots = rng.normal(size=(sets, k)), rng.normal(size=(sets, k, k))
    u = roots @ roots.transpose(0, 2, 1)
    both = combine(q, u, level=level)
    w = rng.normal(size=k)
    parts = [combine(q[:, j], u[:, j, j], level=level) for j in range(k)]
    summed = combine(q @ w, np.einsum("j,mjk,k->m", w, u, w), level=level)
    for name in ("estimate", "variance", "degrees", "low", "high", "fallback"):
        expected = [float(getattr(part, name)) for part in parts]
        assert np.allclose(getattr(both, name), expected, rtol=1e-6), name
        assert np.isclose(float(getattr(both.contrast(w), name)), float(getattr(summed, name)), rtol=1e-6), name


def test_sets_that_agree_have_the_fallback() -> None:
    found = combine([2.0, 2.0, 2.0], [0.0, 0.0, 0.0])
    assert (float(found.low), float(found.estimate), float(found.high), bool(found.fallback)) == (2, 2, 2, True)
    with pytest.raises(FrozenInstanceError):
        found.level = 0.5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("estimates", "variances", "options", "message"),
    [
        ([1.0], [1.0], {}, "at least 2"),
        ([1.0, 2.0], [1.0], {}, "do not fit"),
        ([[1.0, 2.0], [1.0, 2.0]], [[1.0, 1.0], [1.0, 1.0]], {}, "do not fit"),
        (1.0, 1.0, {}, "do not fit"),
        ([1.0, math.nan], [1.0, 1.0], {}, "not finite"),
        ([1.0, 2.0], [1.0, math.inf], {}, "not finite"),
        ([1.0, 2.0], [1.0, -1.0], {}, "negative"),
        ([1.0, 2.0], [1.0, 1.0], {"level": 95}, "between 0 and 1"),
        ([1.0, 2.0], [1.0, 1.0], {"names": ["a", "b"]}, "2 names for 1 numbers"),
    ],
)
def test_what_cannot_be_combined_is_refused(estimates: Any, variances: Any, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        combine(estimates, variances, **options)


def test_results_of_statsmodels() -> None:
    """Fitted to frames and to arrays; what another package gives that has the same two names."""
    rng = np.random.default_rng(0)
    frames = [pd.DataFrame({"x": rng.normal(size=50), "z": rng.normal(size=50)}) for _ in range(4)]
    fits = [sm.OLS(f["x"] + rng.normal(size=50), sm.add_constant(f[["x", "z"]])).fit() for f in frames]
    found = analyze(fits, lambda fit: fit)
    assert found.names == ("const", "x", "z")
    assert list(found.table.index) == ["const", "x", "z"]
    assert found.table.loc["x", "estimate"] == pytest.approx(np.mean([fit.params["x"] for fit in fits]))
    alike = analyze(fits, lambda fit: (fit.params, fit.cov_params()))
    assert np.array_equal(alike.high, found.high)
    bare = analyze(frames, lambda f: sm.OLS(f["x"].to_numpy(), f[["z"]].to_numpy()).fit())
    assert bare.names == ("x1",)
    other = analyze(fits, lambda fit: SimpleNamespace(params=fit.params, cov_params=fit.cov_params))
    assert np.array_equal(other.low, found.low)
    assert np.isclose(float(found.contrast([0, 1, -1]).estimate), found.estimate[1] - found.estimate[2])
    with pytest.raises(InputError, match="shape"):
        found.contrast([1, 2])


def test_sets_whose_coefficients_differ_are_refused() -> None:
    def fit(names: list[str]) -> SimpleNamespace:
        return SimpleNamespace(params=pd.Series([1.0, 2.0], names), cov_params=lambda: np.eye(2))

    with pytest.raises(InputError, match="different coefficients"):
        analyze([["a", "b"], ["a", "c"]], fit)
    with pytest.raises(InputError, match="different numbers"):
        analyze([2, 3], lambda k: (np.ones(k), np.eye(k)))
    with pytest.raises(InputError, match="at least 2"):
        analyze([2], lambda k: (float(k), 1.0))
    with pytest.raises(InputError, match="at least 2"):
        analyze([], lambda k: (float(k), 1.0))


def test_a_folder_without_sets_is_refused(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="has no sets"):
        read_sets(tmp_path)
