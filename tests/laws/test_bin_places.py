"""How far a coefficient may move by where numbers lie inside their bins: by formula, and by placing them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from marginweave.inference.bin_places import BinnedRecords

Array = np.ndarray[Any, Any]


def _records(
    rng: np.random.Generator, x_width: float, y_width: float, size: int = 60
) -> BinnedRecords:
    """Records of two columns and a target in bins of these widths, in records of unequal weights."""
    tens, halves = rng.integers(0, 10, size) * 5.0, rng.integers(0, 2, size) * 1.0
    x = np.stack([np.ones(size), tens, halves], axis=1).astype(np.float64)
    y = x @ [3.0, 2.0, -4.0] + rng.normal(0, 10, size)
    x_half = np.zeros_like(x)
    x_half[:, 1] = x_width / 2
    return BinnedRecords(
        x=x,
        y=y,
        weights=rng.uniform(1, 9, size),
        x_half=x_half,
        y_half=np.full(size, y_width / 2),
    )


def _coefficients(records: BinnedRecords) -> Array:
    """Weighted least squares."""
    root = np.sqrt(records.weights)
    return np.linalg.lstsq(records.x * root[:, None], records.y * root, rcond=None)[0]


def _placed(records: BinnedRecords, x_places: Array, y_places: Array) -> BinnedRecords:
    """With each number at a place in its bin, from -1 to 1."""
    return replace(
        records,
        x=records.x + records.x_half * x_places,
        y=records.y + records.y_half * y_places,
    )


def test_bins_of_the_target_move_a_coefficient_by_the_sum_of_their_weights() -> None:
    """Exactly: sum |a_i| h_i with beta = a y, which some places have."""
    records = _records(np.random.default_rng(1), 0.0, 8.0)
    weighted = records.x.T * records.weights
    transfer = np.linalg.solve(weighted @ records.x, weighted)
    shifts = records.largest_shifts("linear")
    assert np.allclose(shifts, np.abs(transfer) @ records.y_half)
    middle = _coefficients(records)
    for column in range(3):
        for direction in (-1.0, 1.0):
            places = direction * np.sign(transfer[column])
            moved = _coefficients(_placed(records, np.zeros_like(records.x), places)) - middle
            assert np.isclose(moved[column], direction * shifts[column])


@pytest.mark.parametrize("y_width", [0.0, 8.0])
def test_no_places_that_were_tried_move_a_coefficient_further(y_width: float) -> None:
    """Random ones, and orders by the other column, the target and the residual, in bins of all columns."""
    rng = np.random.default_rng(2)
    records = _records(rng, 4.0, y_width)
    shifts = records.largest_shifts("linear")
    assert np.isfinite(shifts).all()
    middle = _coefficients(records)
    residuals = records.y - records.x @ middle
    ordered = [
        np.sign(values - np.median(values)) for values in (*records.x.T, records.y, residuals)
    ]
    tried = [rng.choice([-1.0, 1.0], 60) for _ in range(300)]
    tried += [sign * places for places in ordered for sign in (-1.0, 1.0)]
    for x_places in tried:
        for y_places in (x_places, -x_places, rng.choice([-1.0, 1.0], 60)):
            x_all = np.outer(x_places, np.ones(3))
            moved = _coefficients(_placed(records, x_all, y_places)) - middle
            assert (np.abs(moved) <= shifts * (1 + 1e-9)).all()


def test_two_bins_that_touch_leave_a_slope_without_a_limit() -> None:
    """All values may lie where the bins meet."""
    x = np.array([[1.0, 25.0], [1.0, 75.0]] * 3)
    records = BinnedRecords(
        x=x,
        y=np.arange(6.0),
        weights=np.ones(6),
        x_half=np.array([[0.0, 25.0]] * 6),
        y_half=np.zeros(6),
    )
    assert np.isinf(records.largest_shifts("linear")).all()


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_numbers_without_bins_move_nothing(kind: Any) -> None:
    records = _records(np.random.default_rng(4), 0.0, 0.0)
    assert not replace(records, y=np.arange(60) % 2.0).largest_shifts(kind).any()


def test_bins_of_a_column_move_a_logistic_coefficient() -> None:
    """Places by the target, which narrow what tells 0 from 1, are found; not the formula of a linear regression."""
    rng = np.random.default_rng(5)
    records = _records(rng, 4.0, 0.0)
    target = (rng.random(60) < 1 / (1 + np.exp(-(records.x[:, 1] - 22) / 10))).astype(np.float64)
    records = replace(records, y=target)
    shifts = records.largest_shifts("logistic")
    narrow, wide = (
        _placed(records, np.outer(sign * np.sign(target - 0.5), np.ones(3)), np.zeros(60))
        for sign in (-1.0, 1.0)
    )
    slopes = [_logistic(one)[1] for one in (records, narrow, wide)]
    assert slopes[1] < slopes[0] < slopes[2]
    assert shifts[1] >= max(slopes[0] - slopes[1], slopes[2] - slopes[0]) * (1 - 1e-6)
    assert shifts[1] < 10 * slopes[0]


def _binned(values: Array, edges: Sequence[float]) -> tuple[Array, Array]:
    """The middle of the bin of each whole number, and half of its width."""
    ends = np.asarray(edges, np.float64)
    bins = np.clip(np.searchsorted(ends, values, side="right") - 1, 0, len(ends) - 2)
    high = np.where(bins == len(ends) - 2, ends[bins + 1], np.ceil(ends[bins + 1]) - 1)
    low = np.ceil(ends[bins])
    return (low + high) / 2, (high - low) / 2


COARSE = [18, 30, 40, 50, 65, 80, 100]
TENS = np.linspace(18, 100, 9).tolist()


@pytest.mark.parametrize(
    ("target", "column", "target_bins", "column_bins", "slopes"),
    [
        ("cost", "age", [0, 100, 200, 300, 500, 1000, 5000], COARSE, (8.2, 5.9)),
        ("cost", "age", [*range(0, 1500, 50), 2000, 5000], [*range(18, 100, 4), 100], (5.9, 5.9)),
        ("income", "age", np.linspace(0, 7500, 13).tolist(), TENS, (48.4, 50.0)),
        ("age", "income", TENS, np.linspace(0, 7500, 13).tolist(), (0.017, 0.018)),
        ("score", "dose", np.linspace(0, 100, 21), np.linspace(0, 100, 21), (0.30, 0.31)),
        ("score", "dose", np.linspace(0, 100, 21), [0, 50, 100], (0.10, 0.31)),
    ],
)
def test_numbers_move_slopes_by_an_eighth_of_the_worst_at_most(
    target: str,
    column: str,
    target_bins: Sequence[float],
    column_bins: Sequence[float],
    slopes: tuple[float, float],
) -> None:
    """Slopes of middles and of numbers; ten widths of an interval (`MOST_WIDTHS`) are flagged, of which that is about one."""
    rng, size = np.random.default_rng(4), 30_000
    age = (18 + 82 * rng.beta(1.5, 3, size)).astype(int)
    dose = rng.normal(50, 10, size).round().clip(0, 100)
    numbers = {
        "age": age,
        "cost": rng.gamma(2, (20 + 3 * age)).round().clip(0, 5000),
        "income": (1000 + 50 * age + rng.normal(0, 300, size)).round(),
        "dose": dose,
        "score": (20 + 0.3 * dose + 0.1 * age + rng.normal(0, 5, size)).round().clip(0, 100),
    }
    y, y_half = _binned(numbers[target], target_bins)
    x, x_half = _binned(numbers[column], column_bins)
    ones, zeros = np.ones(size), np.zeros(size)
    records = BinnedRecords(
        x=np.stack([ones, x], axis=1),
        y=y,
        weights=ones,
        x_half=np.stack([zeros, x_half], axis=1),
        y_half=y_half,
    )
    of_middles = _coefficients(records)[1]
    own = replace(records, x=np.stack([ones, numbers[column]], axis=1), y=numbers[target])
    of_numbers = _coefficients(own)[1]
    assert (of_middles, of_numbers) == pytest.approx(slopes, rel=0.06)
    shift = records.largest_shifts("linear")[1]
    assert abs(of_middles - of_numbers) < shift / 8


def _logistic(records: BinnedRecords) -> Array:
    b = np.zeros(records.x.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-records.x @ b))
        curvature = (records.x.T * (records.weights * p * (1 - p))) @ records.x
        b = b + np.linalg.solve(curvature, records.x.T @ (records.weights * (records.y - p)))
    return b
