"""How many shares of the budget a round takes: one at first, four times as many where rounds teach no more than noise.

The plan has a fixed number of equal shares, each a draw with a price of its own. A round of m shares measures its marginals
once with each; the mean of m measurements has 1/sqrt(m) of the noise, as one measurement with m shares would have. So what
earlier rounds have found decides what a draw measures, never what it costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.released.measurements import Clique, Measurement

_ANNEALING = 4
_ROUNDING = 1 / 12
"""Variance of rounding, which a noisy count has beside that of its Gaussian."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """A round that is planned: it takes `shares` from number `first` on; `pace` is what it would take of plenty."""

    number: int
    pace: int
    first: int
    shares: int

    @property
    def last(self) -> int:
        """Its last share."""
        return self.first + self.shares - 1


def shares_of(pace: int, left: int) -> int:
    """How many of the shares that are left a round takes: `pace`, or all where no further round of that pace would be left.

    Algorithm 3 of AIM, by shares. DP: arithmetic on released numbers.
    """
    return left if left < 2 * pace else pace


def next_pace(pace: int, moved: float, noise: float) -> int:
    """The pace of the next round: four times as many shares where the model `moved` no farther than the `noise` of the last.

    DP: post-processing.
    """
    return pace * _ANNEALING if moved <= noise else pace


def next_round(before: Round | None, pace: int, shares: int) -> Round:
    """The round after `before` (None: the first one), of `shares` that all rounds have together."""
    number, first = (1, 1) if before is None else (before.number + 1, before.last + 1)
    return Round(number=number, pace=pace, first=first, shares=shares_of(pace, shares - first + 1))


def expected_noise(deviation: float, cells: int) -> float:
    """The mean L1 norm of Gaussian noise on so many cells: sqrt(2/pi) deviation cells. DP: arithmetic on public numbers."""
    return math.sqrt(2 / math.pi) * deviation * cells


def distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """L1 distance of two tables of a model. DP: post-processing."""
    return float(np.abs(one - other).sum())


def merge_measurements(measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """One measurement for each set of attributes: the mean of its measurements by their inverse variances, rounded.

    The mean of rounded Gaussian counts of variances v_i = deviation_i^2 + 1/12 has the variance V = 1 / sum 1/v_i. Rounded, it
    counts as a rounded Gaussian of deviation sqrt(V), whose own rounding is the 1/12 that every noisy count has. In order of
    first appearance. DP: post-processing.
    """
    together: dict[Clique, list[Measurement]] = {}
    for m in measurements:
        together.setdefault(m.attributes, []).append(m)
    return tuple(group[0] if len(group) == 1 else _mean(group) for group in together.values())


def _mean(group: Sequence[Measurement]) -> Measurement:
    weights = np.array([1 / (m.deviation**2 + _ROUNDING) for m in group])
    summed = np.tensordot(weights, np.stack([m.counts for m in group]), axes=1)
    counts = np.rint(summed / weights.sum()).astype(np.int64)
    return replace(group[0], counts=counts, deviation=float(weights.sum() ** -0.5))
