"""The audit of k-tuples, mechanism by mechanism: counts of each length, record count, percentile."""

from __future__ import annotations

import math
import os

import numpy as np

from marginweave.flows.audit.tables import ROOM, CanaryTable, Pinned
from marginweave.schemas.budget import PlannedDraw, Stability
from marginweave.schemas.configuration.release import Configuration
from marginweave.tasks.aggregate.bounded_counts import bounded_counts
from marginweave.tasks.aggregate.level import LevelMechanism, draw_level
from marginweave.tasks.empirical.percentiles import worst_pair
from marginweave.tasks.empirical.scores import Scores, separation, shift_score
from marginweave.tasks.engine.local import LocalEngine
from marginweave.tasks.mechanisms.gaussian import add_noise, count_deviation, deviation, select_percentile
from marginweave.tasks.mechanisms.randomness import KeyedBits, fresh_bits

# No count is below it: what a threshold hides is lost power, and no part of the claim about the noise.
_NO_THRESHOLD = -(1 << 40)
_FULL = 64


def canary_columns(configuration: Configuration) -> int:
    """How many columns a canary has: as many as the release, or as few as make its combinations quick to draw."""
    columns = len(configuration.attributes)
    lengths = range(1, configuration.reporting_length + 1)
    while columns > configuration.reporting_length and sum(math.comb(columns, k) for k in lengths) > _FULL:
        columns -= 1
    return columns


def level_scores(table: CanaryTable, draw: PlannedDraw, repeats: int, bound: int | None = None) -> Scores:
    """Scores of one length with V_k pinned, by the shipped counting and drawing.

    Args:
        table: Whose records hold all combinations of their columns.
        draw: The planned draw.
        repeats: How often the counts are drawn; each draw is a trial for each of the table's canaries.
        bound: The contribution bound, all that a record holds unless it is said.
    """
    held = math.comb(table.columns, draw.length)
    bound = bound or held
    candidates = Pinned.of(table, draw.length)
    sd = deviation(draw.parameter, bound, table.stability)
    mechanism = LevelMechanism(length=draw.length, contribution_bound=bound, deviation=sd, threshold=_NO_THRESHOLD)
    words = KeyedBits(key=os.urandom(32), purpose=draw.name)
    counts = bounded_counts(table.encoded(), candidates, bound, words, LocalEngine(1), ROOM)
    theta = table.stability.records
    scores = np.zeros((repeats, table.places))
    for repeat in range(repeats):
        level = draw_level(counts, candidates, mechanism, fresh_bits())
        scores[repeat] = np.bincount(level.values[:, 0] - level.columns[:, 0], level.counts, table.places)
    scores *= theta / float(sd) ** 2
    present, absent = table.split(scores)
    middle = 0.0 if table.stability.neighbors == "replace-one" else bound * theta**2 / float(sd) ** 2 / 2
    return Scores(present=present, absent=absent, cut=middle)


def count_scores(draw: PlannedDraw, stability: Stability, trials: int) -> Scores:
    """Scores of the record count: the unit's rows come or go; a replaced unit of several rows leaves one behind."""
    sd = count_deviation(draw.parameter, stability)
    moved = stability.records - (1 if stability.neighbors == "replace-one" else 0)
    rows, shift = np.array([1000], np.int64), np.array([moved], np.int64)
    present, absent = (
        shift_score(add_noise(np.repeat(exact, trials), sd, fresh_bits())[:, None], rows, shift, sd)
        for exact in (rows + shift, rows)
    )
    return Scores(present=present, absent=absent, cut=separation([(shift, sd)]) / 2)


def percentile_scores(configuration: Configuration, draw: PlannedDraw, trials: int) -> Scores:
    """1 where one of the lower candidates was chosen, in draws from the neighbors that tell most."""
    percentile, stability = configuration.percentile, configuration.stability
    assert percentile is not None
    pair = worst_pair(percentile, draw.parameter, stability)
    present, absent = (
        np.array([select_percentile(h, percentile, draw.parameter, stability, fresh_bits()) for _ in range(trials)])
        for h in (pair.present, pair.absent)
    )
    return Scores(
        present=(present <= pair.at_most).astype(np.float64),
        absent=(absent <= pair.at_most).astype(np.float64),
        cut=0.5,
    )
