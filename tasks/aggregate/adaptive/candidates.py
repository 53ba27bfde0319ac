"""Which marginals a round may choose, and how far a model is from each: scores of the exponential mechanism, in integers.

Score. AIM (McKenna, Mullins, Sheldon and Miklau 2022, arXiv 2201.12677, algorithm 2) scores a set r of attributes by
w_r (||M_r - m_r||_1 - sqrt(2/pi) sigma n_r): the exact marginal M_r against the model's m_r, less the expected error of
measuring its n_r cells. Everything but M_r is public or released.

Grid. m_r and the last term are rounded to multiples of 1/1024 before they meet M_r, and w_r is an integer: a score is an exact
integer, and no float ever touches a private count.

Sensitivity. A unit of theta records moves M_r by a vector u >= 0 with |u|_1 <= theta where it comes or goes, by u - v, |u|_1,
|v|_1 <= theta, where it is replaced: theta, or 2 theta, in L1. By the triangle inequality ||M_r - m_r||_1 moves by no more,
whatever m_r is, and the score by w_r times that; the largest w_r holds for all candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.budget import PlannedDraw, Stability
from marginweave.schemas.configuration.marginals import AdaptiveCliques
from marginweave.schemas.configuration.numbers import MAX_CELLS
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.released.measurements import Clique
from marginweave.tasks.accounting.plan.marginals import rounds_of
from marginweave.tasks.aggregate.adaptive.schedule import expected_noise
from marginweave.tasks.aggregate.cliques import fitting
from marginweave.tasks.aggregate.marginals import all_cliques, marginal_deviation
from marginweave.tasks.mechanisms.gaussian import error_sensitivity

STEPS = 1024
"""Distances are multiples of 1/STEPS record."""


def candidate_sets(settings: AdaptiveCliques, sizes: Sequence[int]) -> tuple[Clique, ...]:
    """All sets of 2 to k attributes with at most `max_cells` cells, shorter ones first, but for the largest if they are many.

    All of them together have at most 2^26 cells, which are counted once. An attribute with a single value tells nothing.
    DP: arithmetic on released sizes.
    """
    longest = min(settings.adaptive, len(sizes))
    found = [c for length in range(2, longest + 1) for c in all_cliques(sizes, length, settings.max_cells)]
    return fitting([c for c in found if min(sizes[a] for a in c) > 1], sizes, MAX_CELLS)


def weight(settings: AdaptiveCliques, clique: Clique) -> int:
    """w_r: by AIM the sum over the workload of |r and s|, which counts each attribute of r as often as a set s has it.

    In the workload of all sets of 2 to k attributes that is equally often for all, so that w_r is the number of attributes in
    r, but for a common factor that changes no choice. DP: arithmetic on public numbers.
    """
    return len(clique) if settings.weights == "workload" else 1


def score_sensitivity(settings: AdaptiveCliques, candidates: Sequence[Clique], stability: Stability) -> int:
    """How far one unit moves any score, in its steps: the largest weight times theta, or 2 theta under replace-one.

    DP: arithmetic on released sizes.
    """
    return STEPS * error_sensitivity(stability) * max(weight(settings, clique) for clique in candidates)


def share_deviation(configuration: Configuration, draw: PlannedDraw) -> Fraction:
    """Deviation of a cell that is measured with one share, where a whole batch has it together equally.

    DP: arithmetic on public numbers.
    """
    rounds = rounds_of(configuration)
    batch = 1 if rounds is None else rounds.batch
    return marginal_deviation(draw.parameter * math.sqrt(batch), configuration.stability)


def distance_steps(exact: NDArray[np.int64], expected: NDArray[np.float64]) -> int:
    """||exact - expected||_1 in steps of 1/1024, `expected` rounded to them first. Private."""
    return int(np.abs(exact * STEPS - np.rint(expected * STEPS).astype(np.int64)).sum())


def noise_steps(number: int, deviation: float) -> int:
    """The expected error of measuring so many cells, in steps. DP: arithmetic on public numbers."""
    return round(STEPS * expected_noise(deviation, number))


def candidate_scores(
    tables: Iterable[tuple[Clique, NDArray[np.int64]]],
    expected: Callable[[Clique], NDArray[np.float64]],
    settings: AdaptiveCliques,
    deviation: float,
) -> NDArray[np.int64]:
    """The score of every candidate, in steps, shape (candidates,). Private.

    Args:
        tables: the exact marginal of each candidate.
        expected: what the model says of it.
        settings: of the rounds.
        deviation: of the noise that a cell will have, if it is measured.
    """
    scores = [
        weight(settings, clique) * (distance_steps(exact, expected(clique)) - noise_steps(exact.size, deviation))
        for clique, exact in tables
    ]
    return np.array(scores, np.int64)
