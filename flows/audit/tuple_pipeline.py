"""The pipeline of k-tuples from encoded rows to the last draw, on made-up tables: bounds, discovery, candidates and all."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from marginweave.flows.audit.made_up import MadeUpRelease
from marginweave.flows.audit.tables import ROOM
from marginweave.schemas.released.aggregates import Level
from marginweave.tasks.aggregate.bounded_counts import bounded_counts, contribution_histogram
from marginweave.tasks.aggregate.candidates import CandidateSet
from marginweave.tasks.aggregate.level import LevelMechanism, draw_level, plan_level
from marginweave.tasks.aggregate.released import released_values, to_released
from marginweave.tasks.aggregate.released_blocks import ReleasedBlocks
from marginweave.tasks.empirical.scores import Scores, split_cut
from marginweave.tasks.encode.blocks import EncodedBlocks
from marginweave.tasks.encode.codes import EncodedTable
from marginweave.tasks.engine.local import LocalEngine
from marginweave.tasks.mechanisms.gaussian import add_noise, count_deviation, deviation, select_percentile
from marginweave.tasks.mechanisms.randomness import KeyedBits, fresh_bits


@dataclass(frozen=True, kw_only=True)
class _Drawn:
    """A level over the released domain."""

    level: Level
    labels: tuple[tuple[str, ...], ...]
    mechanism: LevelMechanism


def tuple_pipeline_scores(release: MadeUpRelease, trials: int) -> Scores:
    """Log-likelihood ratios of everything that a release tells before it is normalised, run by run.

    Candidates are the cross-join of what survived in the run, contribution bounds those that were bought in it. The cut is
    from a fifth of the trials, which are left out then.
    """
    present, absent = (
        np.array([_run(release, blocks) for _ in range(trials)]) for blocks in (release.present, release.absent)
    )
    return split_cut(present, absent)


def _run(release: MadeUpRelease, encoded: EncodedBlocks) -> float:
    """One release, scored."""
    configuration = release.configuration
    score = _count_score(release, encoded)
    released: dict[int, tuple[str, ...]] = {}
    below: Level | None = None
    for length in range(1, configuration.reporting_length + 1):
        blocks = ReleasedBlocks(encoded, released)
        candidates = (
            CandidateSet(length=1, sizes=blocks.sizes) if below is None else CandidateSet.above(below, blocks.sizes)
        )
        if not candidates.any():
            break
        mechanism, level = _draw(release, blocks, candidates, 0 if below is None else len(below))
        if length == 1:
            table = EncodedTable(codes=(), labels=blocks.labels)
            released = released_values(level, table, sorted(mechanism.private_columns))
            level = to_released(level, table, released)
        labels = ReleasedBlocks(encoded, released).labels
        score += _level_score(release, _Drawn(level=level, labels=labels, mechanism=mechanism))
        below = level
    return score


def _draw(
    release: MadeUpRelease, blocks: ReleasedBlocks, candidates: CandidateSet, survivors: int
) -> tuple[LevelMechanism, Level]:
    configuration, length, engine = release.configuration, candidates.length, LocalEngine(1)
    bound = configuration.contribution_cap(length)
    if configuration.percentile is not None:
        histogram = contribution_histogram(blocks, candidates, bound, engine, ROOM)
        epsilon = release.plan.draw(f"percentile-{length}").parameter
        bound = select_percentile(histogram, configuration.percentile, epsilon, configuration.stability, fresh_bits())
    words = KeyedBits(key=os.urandom(32), purpose=f"level-{length}")
    counts = bounded_counts(blocks, candidates, bound, words, engine, ROOM)
    mechanism = plan_level(
        configuration,
        candidates=candidates,
        survivors_before=survivors,
        contribution_bound=bound,
        deviation=deviation(release.plan.draw(f"level-{length}").parameter, bound, configuration.stability),
        delta_threshold=release.plan.delta_threshold,
    )
    return mechanism, draw_level(counts, candidates, mechanism, fresh_bits())


def _level_score(release: MadeUpRelease, drawn: _Drawn) -> float:
    level, mechanism, score = drawn.level, drawn.mechanism, 0.0
    for values, sign in ((release.unit, 1), (release.other, -1)):
        if values is not None:
            mine = release.matches(level, drawn.labels, values)
            expected = release.expected(level.columns[mine], values, mechanism.contribution_bound)
            score += sign * float((level.counts[mine] - expected).sum())
    return score * release.configuration.stability.records / float(mechanism.deviation) ** 2


def _count_score(release: MadeUpRelease, encoded: EncodedBlocks) -> float:
    if release.other is not None:  # a replaced unit of as many rows
        return 0.0
    draw, stability = release.plan.draw("count"), release.configuration.stability
    sd = count_deviation(draw.parameter, stability)
    noisy = int(add_noise(np.array([encoded.records], np.int64), sd, fresh_bits())[0])
    return (noisy - len(release.shared)) * stability.records / float(sd) ** 2
