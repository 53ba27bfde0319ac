"""One draw of a level: noise on every candidate, zero cells included, and the integer threshold."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.aggregates import Level, LevelNoise
from marginweave.schemas.configuration import Configuration
from marginweave.tasks.aggregate.bounded_counts import BoundedCounts
from marginweave.tasks.aggregate.candidates import CandidateSet, Mask
from marginweave.tasks.budget.mechanisms import add_noise
from marginweave.tasks.budget.randomness import RandomBits
from marginweave.tasks.budget.thresholds import level_threshold, private_threshold


@dataclass(frozen=True, kw_only=True)
class LevelMechanism:
    """Everything that is fixed before the draw of length k, from public or released facts.

    `deviation` is the standard deviation of the noise (`mechanisms.deviation`: sigma_k times the L2 sensitivity of a unit);
    `threshold` the least noisy count that survives; `private_threshold` the larger one for values of the columns in
    `private_columns`, which pays for their discovery (0 where it does not apply).
    """

    length: int
    contribution_bound: int
    deviation: Fraction
    threshold: int
    private_threshold: int = 0
    private_columns: frozenset[int] = frozenset()


def plan_level(
    configuration: Configuration,
    *,
    candidates: CandidateSet,
    survivors_before: int,
    contribution_bound: int,
    deviation: Fraction,
    delta_threshold: float,
) -> LevelMechanism:
    """The mechanism of a level once its contribution bound is released.

    DP: post-processing; depends on the configuration and on released counts only.
    """
    length = candidates.length
    public_candidates = 0
    if length > 1:
        public_candidates = sum(int(candidates.mask(c).sum()) for c in candidates.column_sets())
    threshold = level_threshold(
        configuration.tuples,
        length,
        configuration.reporting_length,
        deviation,
        survivors_before,
        public_candidates,
    )
    private = (
        frozenset(j for j, attribute in enumerate(configuration.attributes) if attribute.private)
        if length == 1
        else frozenset()
    )
    held = min(contribution_bound, configuration.private_values)
    return LevelMechanism(
        length=length,
        contribution_bound=contribution_bound,
        deviation=deviation,
        threshold=threshold,
        private_threshold=max(
            threshold, private_threshold(deviation, held, configuration.stability.records, delta_threshold)
        )
        if private
        else 0,
        private_columns=private,
    )


def draw_level(
    bounded: BoundedCounts, candidates: CandidateSet, mechanism: LevelMechanism, bits: RandomBits | None = None
) -> Level:
    """Noise every candidate and keep those that reach the threshold.

    At length 1 a value of a private domain is a candidate when it occurs among the *bounded* records; that it occurs is
    what the threshold's delta pays for. Everywhere else all cells of V_k are noised, whether they occur or not.

    DP: mu-GDP with mu = 1 / sigma_k, plus delta_threshold at length 1 where domains are private; `bits` is for tests.
    """
    columns, values, counts = [], [], []
    for index, column_set in enumerate(bounded.column_sets):
        mask = _drawn(bounded, candidates, mechanism, index)
        cells = np.flatnonzero(mask)
        noisy = add_noise(bounded.dense(index, mask.size)[cells], mechanism.deviation, bits)
        private = bool(mechanism.private_columns.intersection(column_set))
        kept = noisy >= (mechanism.private_threshold if private else mechanism.threshold)
        shape = tuple(candidates.sizes[j] + 1 for j in column_set)
        values.append(np.stack(np.unravel_index(cells[kept], shape), axis=1).astype(np.int64))
        columns.append(np.broadcast_to(np.asarray(column_set, np.int64), values[-1].shape))
        counts.append(noisy[kept])
    if not counts:
        return Level.empty(mechanism.length)
    return Level(
        length=mechanism.length,
        columns=np.concatenate(columns),
        values=np.concatenate(values),
        counts=np.concatenate(counts),
    )


def level_noise(mechanism: LevelMechanism, candidates: CandidateSet) -> LevelNoise:
    """What is told about the noise of a level; the number of candidates only where it is public."""
    public = not mechanism.private_columns
    total = sum(int(candidates.mask(c).sum()) for c in candidates.column_sets()) if public else None
    return LevelNoise(
        length=mechanism.length,
        contribution_bound=mechanism.contribution_bound,
        deviation=float(mechanism.deviation),
        threshold=mechanism.threshold,
        private_threshold=mechanism.private_threshold,
        candidates=total,
    )


def _drawn(
    bounded: BoundedCounts, candidates: CandidateSet, mechanism: LevelMechanism, index: int
) -> NDArray[np.bool_]:
    """Flat mask of the cells of one set of columns that get noise."""
    column_set = bounded.column_sets[index]
    mask: Mask = candidates.mask(column_set).ravel()
    if mechanism.private_columns.intersection(column_set):
        occurring = np.zeros(mask.size, np.bool_)
        occurring[bounded.cells[index]] = True
        return mask & occurring
    return mask
