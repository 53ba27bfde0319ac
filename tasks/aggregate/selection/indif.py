"""InDif: how far every pair of attributes is from independent, with noise (PrivSyn, section 4.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.budget import Stability
from marginweave.schemas.errors import InputError, StageError
from marginweave.schemas.released.measurements import Clique
from marginweave.tasks.aggregate.marginals import count_marginals, in_passes
from marginweave.tasks.encode.codes import Codes
from marginweave.tasks.mechanisms.gaussian import add_noise, deviation
from marginweave.tasks.mechanisms.randomness import NoiseBits

FINEST_STEPS = 1024
# A noise table of this width is made in about a second, one of 2^17 in twenty and in 600 MB; a step of 1/8192 deviation is
# far below the noise.
_WIDEST = 8192
_MOST_ROWS = 1 << 30
# The sensitivity of a score knows of theta and of neighbors already.
_ONE = Stability(records=1, neighbors="add-remove")


@dataclass(frozen=True, kw_only=True)
class IndifNoise:
    """The public grid of the scores and the noise on it: scores are multiples of 1/steps, `deviation` counts steps."""

    steps: int
    deviation: Fraction

    @property
    def score_deviation(self) -> float:
        """Standard deviation of the noise of one score, in records."""
        return float(self.deviation) / self.steps


def indif_sensitivity(steps: int, stability: Stability) -> int:
    """How far one score, as a multiple of 1/steps, moves with one unit: 4 theta steps, or 8 theta steps.

    One record more moves InDif by at most 4 (n - a_x)(n - b_y) / (n (n + 1)) <= 4 (PrivSyn, lemma 4), theta records by
    4 theta, one after the other; a replaced unit leaves and comes, 8 theta. On the grid that is a whole number D of steps, and
    rounding adds nothing: floor(x + 1/2) is monotone and moves with whole steps, so x <= y + D has floor(x + 1/2) <=
    floor(y + 1/2) + D.
    DP: arithmetic on public numbers.
    """
    return (8 if stability.neighbors == "replace-one" else 4) * stability.records * steps


def plan_indif(pairs: int, multiplier: float, stability: Stability) -> IndifNoise:
    """Grid and noise of `pairs` scores, whose L2 sensitivity is sqrt(pairs) times that of one.

    The grid is 1/1024, or coarser by powers of two, down to whole records, where the noise would need a very wide table. The
    noise, in records, is that of a sensitivity of 4 theta + 1/1024 (8 theta + 1/1024) on every grid: never less than
    `indif_sensitivity`, as it would be for rounding of any kind on the finest one.
    DP: arithmetic on public numbers. Raises InputError for a parameter out of range.
    """
    if pairs < 1:
        raise InputError(f"pairs ({pairs}) must be at least 1")
    steps = FINEST_STEPS
    sd = deviation(multiplier, (indif_sensitivity(steps, stability) + 1) ** 2 * pairs, _ONE)
    while sd > _WIDEST and steps > 1:
        steps, sd = steps // 2, sd / 2
    return IndifNoise(steps=steps, deviation=sd)


def indif_score(table: NDArray[np.int64], steps: int) -> int:
    """InDif of one pair, || M_ab - M_a x M_b / n ||_1 in records, rounded to a multiple of 1/steps; exact integers.

    `table` is the pair's exact marginal. n InDif = sum |n M_ab - M_a M_b| is an integer of at most 2 n^2. An empty table
    scores 0. Private. Raises StageError beyond 2^30 rows, where n^2 would leave 64 bits.
    """
    rows = int(table.sum())
    if rows == 0:
        return 0
    if rows > _MOST_ROWS:
        raise StageError("InDif takes at most 2^30 rows")
    scaled = int(np.abs(rows * table - np.outer(table.sum(axis=1), table.sum(axis=0))).sum())
    return (2 * steps * scaled + rows) // (2 * rows)


def indif_scores(
    blocks: Iterable[Sequence[Codes]], sizes: Sequence[int], pairs: Sequence[Clique], steps: int
) -> NDArray[np.int64]:
    """InDif of every pair as a multiple of 1/steps, by few passes over the blocks of rows; shape (pairs,). Private.

    Raises as `indif_score`.
    """
    tables = (table for some in in_passes(pairs, sizes) for table in count_marginals(blocks, sizes, some))
    return np.array([indif_score(table, steps) for table in tables], np.int64)


def measure_indif(scores: NDArray[np.int64], noise: IndifNoise, bits: NoiseBits) -> NDArray[np.float64]:
    """Noisy InDif of every pair, in records, from `indif_scores` on the grid of `noise`; may be negative.

    `add_noise` of the scores of PrivSyn (Zhang et al. 2021, section 4.2), a vector of the sensitivity of `indif_sensitivity`
    times the root of their number. DP: 1/multiplier^2 in mu^2 for the multiplier of `plan_indif`.
    """
    noisy: NDArray[np.float64] = add_noise(scores, noise.deviation, bits) / noise.steps
    return noisy
