"""How noisy a planned draw is: the standard deviation of one of its queries, in counts or in records."""

from __future__ import annotations

from fractions import Fraction

from marginweave.schemas.budget import Stability
from marginweave.schemas.draws import DrawKind, GaussianMeasurement
from marginweave.tasks.mechanisms.gaussian import count_deviation, deviation, error_deviation


def query_sigma(draw: GaussianMeasurement, stability: Stability, width: int | None = None) -> Fraction:
    """Standard deviation of the noise of one query that has the draw alone: the noise multiplier times the L2 sensitivity.

    `width` is how many of the counts one record adds to, where a percentile chose fewer than the draw's public cap.
    DP: arithmetic on public or released numbers.
    """
    if draw.kind is DrawKind.COUNT:
        return count_deviation(draw.noise_multiplier, stability)
    if draw.kind is DrawKind.EVALUATION:
        return error_deviation(draw.noise_multiplier, stability)
    return deviation(draw.noise_multiplier, width or draw.width, stability)
