"""Synthetic records from released counts alone."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.aggregates import Aggregates
from marginweave.schemas.configuration import SynthesisSettings
from marginweave.tasks.synthesize.combinations import Combinations, number_combinations
from marginweave.tasks.synthesize.grow import Rules, State, grow_records


def synthesize_records(aggregates: Aggregates, settings: SynthesisSettings) -> NDArray[np.int32]:
    """x"""
    combinations = number_combinations(aggregates)
    scaled = np.ceil(combinations.counts * settings.scale).astype(np.int64)
    combinations = combinations._replace(counts=scaled)
    width = len(aggregates.domain.names)
    length = aggregates.reporting_length
    records = -1 if settings.records == "exhaust" else int(scaled[0]) if settings.records == "count" else settings.records
    fraction = settings.weight_percentile / 100
    rules = Rules(length, records, settings.use_synthetic_counts, fraction, _kept(width, length, fraction))
    empty = np.array(aggregates.domain.sizes, np.int32)
    rng = np.random.default_rng(settings.seed)  # post-processing
    return grow_records(combinations, rules, _state(combinations, rules, width), empty, rng)


def _members(taken: int, length: int) -> int:
    return sum(math.comb(taken, k) for k in range(length))


def _kept(width: int, length: int, fraction: float) -> int:
    numbers = [_members(taken, length) for taken in range(length, width)]
    ranks = [n - int((n + 1 / 3) * fraction + 1 / 3) + 1 for n in numbers]
    return max([1, *(min(r, n) for r, n in zip(ranks, numbers, strict=True))])


def _state(combinations: Combinations, rules: Rules, width: int) -> State:
    attributes = len(combinations.columns)
    members = _members(width, rules.length)
    number = lambda *shape: np.zeros(shape, np.int64)
    return State(
        left=combinations.counts.copy(),
        available=combinations.counts[1 : 1 + attributes].copy(),
        members=number(members), lengths=number(members), hits=number(attributes), direct=number(attributes),
        blocked=np.zeros(attributes, np.bool_), largest=number(attributes, rules.kept), candidates=number(attributes), weights=number(attributes))
