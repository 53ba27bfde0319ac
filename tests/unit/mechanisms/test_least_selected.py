"""The least count behind a noisy one that was selected, against sums of the printed probabilities of its noise."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import norm

from marginweave.mechanisms.catalogue import least_selected

LEVEL = 0.95


def gaussian_tail(sigma: float, least: int) -> float:
    """P(Z >= least) of a normal number that was rounded."""
    return float(norm.sf((least - 0.5) / sigma))


def laplace_tail(sigma: float, least: int) -> float:
    """P(Z >= least), the sum of (1 - p) / (1 + p) p^|k| over k >= least; sigma = 1 / (sqrt(2) sinh(1 / (2 b)))."""
    p = math.exp(-2 * math.asinh(1 / (math.sqrt(2) * sigma)))
    most = max(least, 0) + math.ceil(-60 / math.log(p))
    return math.fsum((1 - p) / (1 + p) * p ** abs(k) for k in range(least, most))


@pytest.mark.parametrize(
    ("name", "tail"),
    [("rounded-gaussian", gaussian_tail), ("discrete-laplace", laplace_tail)],
)
@pytest.mark.parametrize(("sigma", "threshold"), [(0.7, 3), (4.0, 12), (9.0, 1)])
def test_the_least_count_is_the_first_that_explains_what_is_known(
    name: str, tail: Callable[[float, int], float], sigma: float, threshold: int
) -> None:
    counts = np.arange(threshold, threshold + 60)
    lows = least_selected(name, sigma, counts, threshold, LEVEL)

    def explained(count: int, m: int) -> float:
        return tail(sigma, count - m) / tail(sigma, threshold - m)

    for count, low in zip(counts.tolist(), lows.tolist(), strict=True):
        assert explained(count, low) >= (1 - LEVEL) / 2
        assert low == 0 or explained(count, low - 1) < (1 - LEVEL) / 2
