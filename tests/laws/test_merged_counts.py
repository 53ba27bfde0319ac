"""Counts of values that were measured together with others: the interval holds the truth whatever these values do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from marginweave.answers.intervals import Reach
from marginweave.answers.least_squares import NotMeasuredError
from marginweave.answers.merged import count_between
from tests.support.dense_least_squares import Survey
from tests.support.samples import every

FALSE_ALARM = 1e-6
SIZES, MERGED = (3, 6, 4), ((0, 1, 2), (0, 1, 2, 2, 2, 2), (0, 0, 1, 2))
TABLES = (((0, 1), 4.0, True), ((1, 2), 6.0, True), ((0, 1, 2), 12.0, True))
SURVEY = Survey(sizes=SIZES, sets=(*(((a,), 3.0, False) for a in range(3)), *TABLES), merged=MERGED)
EXACT = Survey(sizes=SIZES, sets=tuple((c, 1e-4, m) for c, _, m in SURVEY.sets), merged=MERGED)


@given(seed=st.integers(0, 2**32 - 1), level=st.sampled_from([0.5, 0.95]))
@settings(max_examples=60, deadline=None)
def test_without_noise_the_truth_is_always_inside(seed: int, level: float) -> None:
    """Tables in which values of a block have nothing in common, and any values of any columns."""
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 30, SIZES) * (rng.random(SIZES) < 0.4).astype(np.float64)
    axes = rng.choice(3, rng.integers(2, 4), replace=False).tolist()
    weights = {a: (rng.random((1, SIZES[a])) < 0.5).astype(np.float64) for a in sorted(axes)}
    try:
        found = count_between(EXACT.measure(table, rng), weights, Reach(level=level))
    except NotMeasuredError:
        assert set(axes) == {0, 2}
        return
    kept = [weights[a][0] if a in weights else np.ones(SIZES[a]) for a in range(3)]
    truth = np.einsum("ijk,i,j,k->", table, *kept)
    assert found.low <= truth <= found.high
    assert found.estimate is not None
    assert found.low <= found.estimate <= found.high


@pytest.mark.parametrize(
    ("asked", "widest"), every(3, [((2, 3, 4), 140), ((2,), 130), ((0, 1, 5), 130)])
)
def test_it_covers_as_often_as_it_says(asked: tuple[int, ...], widest: int) -> None:
    """600 noisy tables in which the four values of a block go with different values of another column; false alarms 1e-6."""
    rng = np.random.default_rng(3)
    table = rng.poisson(60, SIZES).astype(np.float64)
    table[:, 2:] = 0
    table[0, 2, :], table[1, 3, :], table[2, 4, :], table[0, 5, :] = 30, 20, 5, 40
    weights = {0: np.array([[1.0, 0, 1]]), 1: np.isin(np.arange(6), asked)[None].astype(np.float64)}
    truth, hits, widths = float(table[[0, 2]][:, list(asked)].sum()), 0, []
    for _ in range(600):
        found = count_between(SURVEY.measure(table, rng), weights, Reach(level=0.95))
        hits += found.low <= truth <= found.high
        widths.append(found.high - found.low)
    assert hits >= binom.ppf(FALSE_ALARM, 600, 0.95)
    assert np.mean(widths) < widest
