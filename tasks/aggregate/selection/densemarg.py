"""DenseMarg: the set of pairs whose noise costs less than leaving their dependence out (PrivSyn, algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.budget import CountNoise
from marginweave.schemas.errors import InputError
from marginweave.tasks.aggregate.marginals import SHARE_POWER


def select_marginals(
    cell_counts: Sequence[int],
    scores: NDArray[np.float64],
    budget: float,
    unit: float = 1.0,
    noise: CountNoise = "rounded-gaussian",
    fits: Callable[[Sequence[int]], bool] | None = None,
) -> tuple[int, ...]:
    """Greedy minimum of the noise error of what is measured plus the scores of what is not.

    A marginal of c cells at rho has the expected error c / sqrt(pi rho); marginals that share rho = budget / 2 as
    c^(2/3) have together (sum_i c_i^(2/3))^(3/2) / sqrt(pi rho), which makes one step O(m). With Laplace noise it is
    c / epsilon, and (sum_i c_i^(1/2))^2 / epsilon of those that share epsilon = budget as c^(1/2). Each step adds the
    marginal that leaves the smallest sum, as long as the sum falls. A score below 0, which only noise makes, is never worth it.

    Args:
        cell_counts: cells of each marginal.
        scores: noisy InDif of each, in records, shape (m,).
        budget: mu^2, or epsilon of Laplace noise, for measuring the selected ones.
        unit: L2 sensitivity of one marginal, L1 of Laplace noise.
        noise: what they are measured with.
        fits: whether positions can be measured together, whatever it is worth; what does not fit is passed over, as in AIM.

    Returns:
        Positions of the selected marginals, increasing. DP: post-processing.

    Raises:
        InputError: budget or unit that is not positive.
    """
    if budget <= 0 or unit <= 0:
        raise InputError(f"budget ({budget}) and unit ({unit}) must be positive")
    power = SHARE_POWER[noise]
    weights = np.asarray(cell_counts, np.float64) ** power
    scale = unit / (budget if noise == "discrete-laplace" else math.sqrt(math.pi * budget / 2))
    measured, missed = 0.0, float(scores.sum())
    least = missed
    selected, left = np.zeros(len(weights), np.bool_), np.ones(len(weights), np.bool_)
    while left.any():
        errors = scale * (measured + weights) ** (1 / power) + missed - scores
        errors[~left] = math.inf
        best = int(errors.argmin())
        if errors[best] >= least:
            break
        left[best] = False
        if fits is not None and not fits([*np.flatnonzero(selected).tolist(), best]):
            continue
        least = float(errors[best])
        selected[best] = True
        measured += float(weights[best])
        missed -= float(scores[best])
    return tuple(np.flatnonzero(selected).tolist())
