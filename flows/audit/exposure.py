"""The audit of thresholds of k-tuples: how often something is published that only one unit has."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from marginweave.flows.audit.levels import canary_columns
from marginweave.flows.audit.tables import ROOM, one_block, table_of
from marginweave.schemas.arrays import Integers
from marginweave.schemas.budget import BudgetPlan
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.released.aggregates import Level
from marginweave.tasks.aggregate.bounded_counts import bounded_counts
from marginweave.tasks.aggregate.candidates import CandidateSet
from marginweave.tasks.aggregate.level import draw_level, plan_level
from marginweave.tasks.empirical.bounds import Hits
from marginweave.tasks.engine.local import LocalEngine
from marginweave.tasks.mechanisms.gaussian import deviation
from marginweave.tasks.mechanisms.randomness import KeyedBits, fresh_bits

# A delta that trials can see, in place of one that they cannot.
TEST_DELTA = 0.1
# Flat keys of combinations are numbers of 63 bits.
_KEY_BITS = 62


def exposed_units(configuration: Configuration, plan: BudgetPlan, length: int, units: int) -> Hits:
    """How many units have something published at `length` that only they have, at `TEST_DELTA` and the plan's noise.

    That is values of private columns, or, with `fabrication: none`, combinations of all columns, all whose parts survived.
    Both extremes: all rows of a unit hold values of their own (`present` of the hits), or all the same (`absent`).

    Args:
        configuration: of k-tuples, whose length `length` publishes only what occurs.
        plan: its budget.
        length: 1 … `configuration.discoveries`.
        units: how many of them are tried at most; fewer where combinations are long.
    """
    theta = configuration.stability.records
    units = min(units, int(2 ** (_KEY_BITS / length)) // theta - 1)
    test = replace(plan, delta_threshold=TEST_DELTA * configuration.discoveries)
    row = np.arange(units * theta)
    unit = row // theta
    return Hits(
        present=_exposed(configuration, test, length, unit, row),
        absent=_exposed(configuration, test, length, unit, unit),
        trials=units,
    )


def _exposed(configuration: Configuration, plan: BudgetPlan, length: int, unit: Integers, value: Integers) -> int:
    """How many units are exposed, each row of which has its `value` in every column that tells something of it."""
    whole = configuration.tuples.fabrication == "none"
    attributes = configuration.attributes[: canary_columns(configuration)] if whole else configuration.attributes
    own = [whole or attribute.private for attribute in attributes]
    sizes = tuple(int(value[-1]) + 1 if o else len(a.labels) for o, a in zip(own, attributes, strict=True))
    columns = [value if o else np.zeros_like(value) for o in own]
    below = _below(sizes, length, int(value[-1]) + 1)
    candidates = CandidateSet(length=1, sizes=sizes) if below is None else CandidateSet.above(below, sizes)
    bound = math.comb(len(attributes), length)
    mechanism = plan_level(
        configuration,
        candidates=candidates,
        survivors_before=0 if below is None else len(below),
        contribution_bound=bound,
        deviation=deviation(plan.draw(f"level-{length}").parameter, bound, configuration.stability),
        delta_threshold=plan.delta_threshold,
    )
    words = KeyedBits(key=os.urandom(32), purpose=f"level-{length}")
    counts = bounded_counts(one_block(table_of(columns, sizes)), candidates, bound, words, LocalEngine(1), ROOM)
    level = draw_level(counts, candidates, mechanism, fresh_bits())
    telling = np.isin(level.columns[:, 0], np.flatnonzero(own))
    owner = np.zeros(int(value[-1]) + 1, np.int64)
    owner[value] = unit
    return len(np.unique(owner[level.values[telling, 0]]))


def _below(sizes: Sequence[int], length: int, values: int) -> Level | None:
    """All combinations of the length below that rows of equal values hold; None at length 1."""
    if length == 1:
        return None
    sets = np.array(list(itertools.combinations(range(len(sizes)), length - 1)))
    shape = len(sets) * values, length - 1
    return Level(
        length=length - 1,
        columns=np.repeat(sets, values, axis=0),
        values=np.broadcast_to(np.tile(np.arange(values), len(sets))[:, None], shape),
        counts=np.ones(shape[0], np.int64),
    )
