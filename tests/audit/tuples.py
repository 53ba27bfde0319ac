"""The audit of k-tuples: mechanism by mechanism, thresholds, and the pipeline from encoded rows to the last draw."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.base.budget import Stability
from marginweave.base.parallel import LocalEngine
from marginweave.configuration.release import Configuration
from marginweave.counts.bounded_counts import bounded_counts, contribution_histogram
from marginweave.counts.candidates import CandidateSet
from marginweave.counts.released_rows import ReleasedBlocks, released_level
from marginweave.domain.combinations import Level
from marginweave.measurements.base import Measurement
from marginweave.measurements.contribution_bound import ContributionBound
from marginweave.measurements.levels import LevelMechanism, draw_level, plan_level
from marginweave.measurements.plan import Plan
from marginweave.measurements.record_count import RecordCount
from marginweave.measurements.tuple_level import TupleLevel
from marginweave.mechanisms.gaussian import add_noise, count_sigma, noise_sigma, select_percentile
from marginweave.mechanisms.randomness import KeyedBits, fresh_bits
from marginweave.prepare.codes import EncodedBlocks
from tests.audit.findings import Hits, TrialScores, event_scores, noise_scores, worst_pair
from tests.audit.made_up import (
    MEMORY,
    CanaryTable,
    MadeUpRelease,
    Pinned,
    noisy_number,
    one_block,
    table_of,
)

# No count is below it: what a threshold hides is lost power, and no part of the claim about the noise.
_NO_THRESHOLD = -(1 << 40)
_FULL = 64


def canary_columns(configuration: Configuration) -> int:
    """How many columns a canary has: as many as the release, or as few as make its combinations quick to draw."""
    columns = len(configuration.attributes)
    lengths = range(1, configuration.reporting_length + 1)
    while (
        columns > configuration.reporting_length
        and sum(math.comb(columns, k) for k in lengths) > _FULL
    ):
        columns -= 1
    return columns


def level_scores(
    table: CanaryTable, draw: Measurement[Any], repeats: int, bound: int | None = None
) -> TrialScores:
    """Scores of one length with V_k pinned, by the shipped counting and drawing.

    Args:
        table: Whose records hold all combinations of their columns.
        draw: The planned draw.
        repeats: How often the counts are drawn; each draw is a trial for each of the table's canaries.
        bound: The contribution bound, all that a record holds unless it is said.
    """
    in_a_record = math.comb(table.columns, draw.length)
    bound = bound or in_a_record
    candidates = Pinned.of(table, draw.length)
    sd = noise_sigma(draw.noise_multiplier, bound, table.stability)
    mechanism = LevelMechanism(
        length=draw.length, contribution_bound=bound, sigma=sd, threshold=_NO_THRESHOLD
    )
    words = KeyedBits(key=os.urandom(32), purpose=draw.name)
    counts = bounded_counts(table.encoded(), candidates, bound, words, LocalEngine(1), MEMORY)
    theta = table.stability.records
    scores = np.zeros((repeats, table.places))
    for repeat in range(repeats):
        level = draw_level(counts, candidates, mechanism, fresh_bits())
        scores[repeat] = np.bincount(
            level.values[:, 0] - level.columns[:, 0], level.counts, table.places
        )
    scores *= theta / float(sd) ** 2
    present, absent = table.split(scores)
    middle = (
        0.0 if table.stability.neighbors == "replace-one" else bound * theta**2 / float(sd) ** 2 / 2
    )
    return TrialScores(present=present, absent=absent, cut=middle)


def count_scores(draw: Measurement[Any], stability: Stability, trials: int) -> TrialScores:
    """Scores of the record count: the unit's rows come or go; a replaced unit of several rows leaves one behind."""
    sd = count_sigma(draw.noise_multiplier, stability)
    rows = np.array([1000], np.int64)
    moved = stability.records - (stability.neighbors == "replace-one")
    return noise_scores(noisy_number(sd, trials), rows + moved, rows, sd)


def percentile_scores(
    configuration: Configuration, draw: Measurement[Any], trials: int
) -> TrialScores:
    """1 where one of the lower candidates was chosen, in draws from the neighbors that tell most."""
    percentile, stability = configuration.percentile, configuration.stability
    assert percentile is not None
    pair = worst_pair(percentile, draw.epsilon, stability)
    present, absent = (
        np.array(
            [
                select_percentile(h, percentile, draw.epsilon, stability, fresh_bits())
                for _ in range(trials)
            ]
        )
        for h in (pair.present, pair.absent)
    )
    return event_scores(present <= pair.at_most, absent <= pair.at_most)


# A delta that trials can see, in place of one that they cannot.
TEST_DELTA = 0.1


def exposed_units(configuration: Configuration, plan: Plan, units: int) -> Hits:
    """How many units have a private value published that only they have, at `TEST_DELTA` and the plan's noise.

    Both extremes: all rows of a unit hold values of their own (`present` of the hits), or all the same (`absent`).

    Args:
        configuration: of k-tuples, with a private domain.
        plan: its budget.
        units: how many of them are tried.
    """
    theta = configuration.stability.records
    test, row = replace(plan, delta_threshold=TEST_DELTA), np.arange(units * theta)
    unit = row // theta
    apart, alike = (_exposed(configuration, test, unit, value) for value in (row, unit))
    return Hits(present=apart, absent=alike, trials=units)


def _exposed(configuration: Configuration, plan: Plan, unit: Integers, value: Integers) -> int:
    """How many units are exposed, each row of which has its `value` in every column that tells something of it."""
    attributes = configuration.attributes
    own = [attribute.private for attribute in attributes]
    sizes = tuple(
        int(value[-1]) + 1 if o else len(a.labels) for o, a in zip(own, attributes, strict=True)
    )
    columns = [value if o else np.zeros_like(value) for o in own]
    blocks = one_block(table_of(columns, sizes))
    _, level = _drawn(configuration, plan, blocks, _candidates(None, sizes), None, len(attributes))
    informative = np.isin(level.columns[:, 0], np.flatnonzero(own))
    owner = np.zeros(int(value[-1]) + 1, np.int64)
    owner[value] = unit
    return len(np.unique(owner[level.values[informative, 0]]))


def tuple_pipeline_score(release: MadeUpRelease, side: int) -> float:
    """Log-likelihood ratio of everything that one release of k-tuples publishes before it is normalised.

    It is of the table with the unit (`side` 0) or without it (1). Candidates are the cross-join of what survived in it,
    contribution bounds those that were bought in it.
    """
    configuration, encoded = release.configuration, (release.present, release.absent)[side]
    score = _count_score(release, encoded)
    released: dict[int, tuple[str, ...]] = {}
    below: Level | None = None
    for length in range(1, configuration.reporting_length + 1):
        blocks = ReleasedBlocks(encoded, released)
        candidates = _candidates(below, blocks.sizes)
        if not candidates.any():
            break
        bound = _bound(release, blocks, candidates)
        mechanism, level = _drawn(configuration, release.plan, blocks, candidates, below, bound)
        if length == 1:
            level, released = released_level(
                level, blocks.labels, sorted(mechanism.private_columns)
            )
        labels = ReleasedBlocks(encoded, released).labels
        score += _level_score(release, level, labels, mechanism)
        below = level
    return score


def _candidates(below: Level | None, sizes: tuple[int, ...]) -> CandidateSet:
    return (
        CandidateSet(length=1, sizes=sizes) if below is None else CandidateSet.above(below, sizes)
    )


def _bound(release: MadeUpRelease, blocks: ReleasedBlocks, candidates: CandidateSet) -> int:
    """The contribution bound of a length: its public cap, or a percentile that is drawn here."""
    configuration, length = release.configuration, candidates.length
    cap, stability = configuration.contribution_cap(length), configuration.stability
    if configuration.percentile is None:
        return cap
    histogram = contribution_histogram(blocks, candidates, cap, LocalEngine(1), MEMORY)
    epsilon = release.plan.draw(ContributionBound, length).epsilon
    return select_percentile(histogram, configuration.percentile, epsilon, stability, fresh_bits())


def _drawn(
    configuration: Configuration, plan: Plan, blocks: EncodedBlocks | ReleasedBlocks, candidates: CandidateSet,
    below: Level | None, bound: int,
) -> tuple[LevelMechanism, Level]:  # fmt: skip
    """A level as a release draws it from the rows of `blocks`."""
    draw = plan.draw(TupleLevel, candidates.length)
    mechanism = plan_level(
        configuration,
        candidates=candidates,
        survivors_before=0 if below is None else len(below),
        contribution_bound=bound,
        sigma=draw.sigma(configuration, bound),
        delta_threshold=plan.delta_threshold,
    )
    words = KeyedBits(key=os.urandom(32), purpose=str(draw))
    counts = bounded_counts(blocks, candidates, bound, words, LocalEngine(1), MEMORY)
    return mechanism, draw_level(counts, candidates, mechanism, fresh_bits())


def _level_score(
    release: MadeUpRelease,
    level: Level,
    labels: tuple[tuple[str, ...], ...],
    mechanism: LevelMechanism,
) -> float:
    """What a level over the released domain, with its `labels`, says of the unit."""
    score = 0.0
    for values, sign in ((release.unit, 1), (release.other, -1)):
        if values is not None:
            score += sign * release.difference(level, labels, values, mechanism.contribution_bound)
    return score * release.configuration.stability.records / float(mechanism.sigma) ** 2


def _count_score(release: MadeUpRelease, encoded: EncodedBlocks) -> float:
    if release.other is not None:  # a replaced unit of as many rows
        return 0.0
    draw, stability = release.plan.draw(RecordCount), release.configuration.stability
    sd = count_sigma(draw.noise_multiplier, stability)
    noisy = int(add_noise(np.array([encoded.records], np.int64), sd, fresh_bits())[0])
    return (noisy - len(release.shared)) * stability.records / float(sd) ** 2
