"""Draws of one level of combinations, and the bounds of a probability that tests of them compare with."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.stats import beta

from marginweave.configuration.release import Configuration
from marginweave.counts.candidates import CandidateSet
from marginweave.domain.combinations import Level
from marginweave.measurements.levels import LevelMechanism, plan_level
from marginweave.mechanisms.randomness import KeyedBits
from marginweave.prepare.codes import EncodedTable, code_type
from tests.support.counting import WholeCounts, count_bounded
from tests.support.tables import level_from

FALSE_ALARM = 1e-6
DELTA = 0.1


def clopper_pearson(hits: int, trials: int) -> tuple[float, float]:
    """Bounds of a probability; each is wrong with probability at most FALSE_ALARM / 4, and no test looks at more than four."""
    low = 0.0 if hits == 0 else float(beta.ppf(FALSE_ALARM / 4, hits, trials - hits + 1))
    high = 1.0 if hits == trials else float(beta.isf(FALSE_ALARM / 4, hits + 1, trials - hits))
    return low, high


def category(size: int) -> dict[str, Any]:
    """A public domain of `size` values."""
    return {"type": "category", "values": [f"v{v}" for v in range(size)]}


def table_of(columns: Sequence[Sequence[int]], sizes: Sequence[int]) -> EncodedTable:
    """An encoded table from columns of codes."""
    codes = tuple(np.array(c, code_type(size)) for c, size in zip(columns, sizes, strict=True))
    return EncodedTable(
        codes=codes, labels=tuple(tuple(f"v{v}" for v in range(size)) for size in sizes)
    )


def bounded(table: EncodedTable, candidates: CandidateSet, bound: int) -> WholeCounts:
    """Bounded counts under a fixed key."""
    return count_bounded(table, candidates, bound, KeyedBits(key=bytes(range(32)), purpose="test"))


def planned(
    config: Configuration, candidates: CandidateSet, bound: int, sd: Fraction, survivors: int = 0
) -> LevelMechanism:
    """The mechanism of a level with the large test delta."""
    return plan_level(
        config,
        candidates=candidates,
        survivors_before=survivors,
        contribution_bound=bound,
        sigma=sd,
        delta_threshold=DELTA,
    )


def surviving_values(sizes: Sequence[int]) -> Level:
    """A level of single values in which all of them survived."""
    return level_from({((j, v),): 1 for j, size in enumerate(sizes) for v in range(size)}, 1)
