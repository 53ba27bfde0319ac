"""Synthetic records from released counts alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.aggregates import Aggregates
from marginweave.schemas.configuration import SynthesisSettings
from marginweave.tasks.synthesize.combinations import Combinations, number_combinations
from marginweave.tasks.synthesize.grow import Rules, State, grow_records
from marginweave.tasks.synthesize.missing import count_missing


def synthesize_records(
    aggregates: Aggregates, settings: SynthesisSettings, optional: Sequence[bool] | None = None
) -> NDArray[np.int32]:
    """Sample records attribute by attribute, each in proportion to released counts (SDS's aggregate-seeded synthesis).

    A record grows by attribute a with probability proportional to w(a). While record + a is at most R long, w(a) is
    count(record + a); beyond, it is round(P_{weight_percentile}{count(t + a) : t part of the record, |t| < R}), the R-8
    percentile; a is impossible if one of these combinations is not released, or not available any more (sds-dp.md 4). With
    `use_synthetic_counts` every count is what is left of it after the records so far (4.3). Counts and record count are
    first multiplied by `scale` and rounded up.

    As printed: `records: exhaust, sample_missing: false, relax: false`. Three choices are ours. A number of `records`
    begins again with the full counts if attributes run out before it is reached. `sample_missing` makes missing a
    value like any other, its counts being what the values leave (`count_missing`). `relax` looks at combinations of
    R - 1, …, 1 instead where no attribute can be added, and at last at 1-counts alone for columns that cannot be missing:
    longer combinations that are not released can then appear. The order of the records is random.

    Args:
        aggregates: Normalized counts of lengths 1..R.
        settings: What to make; the same settings and counts make the same records.
        optional: For each column whether it can be missing; all of them if not given.

    Returns:
        Codes, shape (n, columns), the size of a column being its missing value. DP: post-processing.

    Raises:
        InputError: if the aggregates have no levels or are not normalized.
    """
    sizes = aggregates.domain.sizes
    scaled = _scale(aggregates, settings.scale)
    can_be_missing = (True,) * len(sizes) if optional is None else tuple(optional)
    combinations = number_combinations(count_missing(scaled, can_be_missing) if settings.sample_missing else scaled)
    rules = _rules(settings, scaled.record_count, aggregates.reporting_length, len(sizes))
    state = _working_memory(combinations, rules, len(sizes))
    rng = np.random.default_rng(settings.seed)  # post-processing
    records = grow_records(combinations, rules, state, np.array(sizes, np.int32), rng)
    if settings.relax:
        _complete(records, scaled, can_be_missing, rng)
    shuffled: NDArray[np.int32] = records[rng.permutation(len(records))]
    return shuffled


def _complete(
    records: NDArray[np.int32], aggregates: Aggregates, optional: Sequence[bool], rng: np.random.Generator
) -> None:
    """Fill what is missing where nothing can be missing, in proportion to the 1-counts (evenly where there are none)."""
    first = aggregates.levels[0]
    for j, size in enumerate(aggregates.domain.sizes):
        rows = np.flatnonzero(records[:, j] == size)
        if optional[j] or size == 0 or len(rows) == 0:
            continue
        mine = first.columns[:, 0] == j
        weights = np.bincount(first.values[mine, 0], weights=first.counts[mine], minlength=size)
        shares = weights / weights.sum() if weights.sum() > 0 else np.full(size, 1 / size)
        records[rows, j] = rng.choice(size, len(rows), p=shares)


def _scale(aggregates: Aggregates, scale: float) -> Aggregates:
    levels = tuple(replace(level, counts=np.ceil(level.counts * scale).astype(np.int64)) for level in aggregates.levels)
    return replace(aggregates, record_count=math.ceil(aggregates.record_count * scale), levels=levels)


def _rules(settings: SynthesisSettings, record_count: int, longest: int, width: int) -> Rules:
    shortest = 1 if settings.relax else longest
    fraction = settings.weight_percentile / 100
    return Rules(
        longest=longest,
        shortest=shortest,
        records={"exhaust": -1, "count": record_count}.get(settings.records, settings.records),  # type: ignore[arg-type]
        subtract=settings.use_synthetic_counts,
        fraction=fraction,
        kept=max(_ranks_needed(width, depth, fraction) for depth in range(shortest, longest + 1)),
    )


def _parts(values: int, depth: int) -> int:
    """Number of combinations shorter than `depth` inside a record of so many values."""
    return sum(math.comb(values, k) for k in range(depth))


def _ranks_needed(width: int, depth: int, fraction: float) -> int:
    """How many of the largest counts the percentile looks at, in records of any length from `depth` on."""
    needed = 1
    for values in range(depth, width):
        number = _parts(values, depth)
        rank = int((number + 1 / 3) * fraction + 1 / 3)
        needed = max(needed, min(number - rank + 1, number))
    return needed


def _working_memory(combinations: Combinations, rules: Rules, width: int) -> State:
    attributes, members = len(combinations.columns), _parts(width, rules.longest)
    return State(
        left=combinations.counts.copy(),
        available=np.zeros(attributes, np.int64),
        used=np.zeros(width, np.bool_),
        members=np.zeros(members, np.int64),
        lengths=np.zeros(members, np.int64),
        hits=np.zeros(attributes, np.int64),
        direct=np.zeros(attributes, np.int64),
        blocked=np.zeros(attributes, np.bool_),
        largest=np.zeros((attributes, rules.kept), np.int64),
        candidates=np.zeros(attributes, np.int64),
        weights=np.zeros(attributes, np.int64),
    )
