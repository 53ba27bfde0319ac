"""Synthetic records from released counts alone, what they must not hold, and how incomplete ones are filled."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from marginweave.base.arrays import Flags, Floats, Integers, Records
from marginweave.base.errors import StageError
from marginweave.configuration.attributes import most_combinations
from marginweave.configuration.rules.record_search import find_record
from marginweave.configuration.synthesis import SynthesisSettings
from marginweave.observations.combinations import Aggregates
from marginweave.records.combinations import Combinations, count_missing, number_combinations, packed
from marginweave.records.grow import grow_records
from marginweave.records.growing_state import Chances, GrowingState, Prohibitions, Rules
from marginweave.records.shards import ShardPlan, stream

Rule = Sequence[tuple[int, int]]


class SeededSynthesis:
    """Records sampled attribute by attribute, each in proportion to released counts (SDS's aggregate-seeded synthesis).

    A record grows by attribute a with probability proportional to w(a). While record + a is at most R long, w(a) is
    count(record + a); beyond, it is round(P_{weight_percentile}{count(t + a) : t part of the record, |t| < R}), the R-8
    percentile; a is impossible if one of these combinations is not released, or not available any more. With
    `use_synthetic_counts` every count is what is left of it after the records so far, and w(a) at most what is left of a alone.
    Counts and record count are first multiplied by `scale` and rounded up.

    As printed: `records: exhaust, sample_missing: false, relax: false`. Three choices are our own. A number of `records`
    starts again from the full counts if attributes run out before it is reached. `sample_missing` makes missing a
    value like any other, its counts being what the values leave (`count_missing`). `relax` looks at combinations of
    R - 1, …, 1 instead where no attribute can be added, and at last at 1-counts alone for columns that cannot be missing:
    longer combinations that are not released can then appear. The order of the records is random.

    Shards share the numbered combinations, which they only read, and the rules.

    Args:
        aggregates: Normalized counts of lengths 1..R.
        settings: What to make; the same settings and counts make the same records.
        optional: For each column whether it can be missing.
        forbidden: Combinations of (column, value) that no record holds, whatever is released.
        sets: For each column the set (0, 1, …) that it is a value of, or -1. Combinations of two
            columns of one set are not counted, so they neither hinder nor weigh.

    Raises:
        InputError: if the aggregates have no levels or are not normalized.
    """

    def __init__(
        self,
        aggregates: Aggregates,
        settings: SynthesisSettings,
        optional: Sequence[bool],
        forbidden: Sequence[Rule],
        sets: Sequence[int],
    ) -> None:
        levels = [replace(m, counts=np.ceil(m.counts * settings.scale).astype(np.int64)) for m in aggregates.levels]
        count = math.ceil(aggregates.record_count * settings.scale)
        self._aggregates = counted = replace(aggregates, record_count=count, levels=tuple(levels))
        self._settings, self._optional, self._forbidden, self._sets = settings, optional, forbidden, sets
        if settings.sample_missing:
            counted = count_missing(counted, optional, sets)
        self.combinations = number_combinations(counted, sets)
        wanted = settings.records
        self._number = None if wanted == "exhaust" else count if wanted == "count" else wanted
        self.plan = ShardPlan.of(count, self._number)

    def records(self, shard: int) -> Records:
        """The records of a shard in random order, at most its part of `max_records`; shape (n, columns).

        DP: post-processing.

        Raises:
            StageError: the forbidden combinations leave no complete record.
        """
        settings, longest = self._settings, self._aggregates.reporting_length
        counts = packed(self.plan.counts(self.combinations.counts, shard))
        combinations = self.combinations._replace(counts=counts)
        members = _members(self._sets, longest)
        rules = Rules(
            longest=longest,
            shortest=1 if settings.relax else longest,
            records=-1 if self._number is None else self.plan.records(self._number, shard),
            subtract=settings.use_synthetic_counts,
            fraction=settings.weight_percentile / 100,
        )
        state = _working_memory(combinations, self._sets, members, prohibit(combinations, self._forbidden))
        rng = stream(settings.seed, shard)  # post-processing
        records = grow_records(combinations, rules, state, np.array(self._aggregates.domain.sizes, np.int32), rng)
        if settings.relax:
            complete_records(records, self._aggregates, self._optional, self._forbidden, rng)
        most = None if settings.max_records is None else self.plan.records(settings.max_records, shard)
        return records[rng.permutation(len(records))][:most]


def _members(sets: Sequence[int], depth: int) -> int:
    """How many combinations shorter than `depth`, with at most one column of each set, a record can have at most."""
    together = Counter(group if group >= 0 else -1 - column for column, group in enumerate(sets))
    return sum(most_combinations(together.values(), length) for length in range(depth))


def _working_memory(
    combinations: Combinations, sets: Sequence[int], members: int, prohibitions: Prohibitions
) -> GrowingState:
    attributes, kinds, counts = len(combinations.columns), max(sets) + 1, combinations.counts
    number: Any = counts.dtype  # which of the two kinds of `Numbers` it is
    return GrowingState(
        left=counts.copy(),
        available=np.zeros(attributes, number),
        alone=Chances.of(combinations.columns, len(sets)),
        used=np.zeros(len(sets), np.bool_),
        members=np.zeros(members, np.int64),
        lengths=np.zeros(members, np.int64),
        chosen=np.zeros(len(sets), np.int64),
        open=np.zeros(combinations.table.shape[::-1], np.uint8),
        alive=np.zeros(attributes, np.uint8),
        candidates=np.zeros(attributes, np.int64),
        weights=np.zeros(attributes, np.int64),
        banned=np.zeros(attributes, np.int64),
        number=np.zeros(1, np.int64),
        prohibitions=prohibitions,
        decided=np.zeros(kinds, np.bool_),
        holding=np.zeros((members, kinds), np.bool_),
        whole=np.ones(1, np.bool_),
    )


def prohibit(combinations: Combinations, forbidden: Sequence[Rule]) -> Prohibitions:
    """Forbidden combinations by number of attribute; one with a value that was not released cannot come about by growing."""
    pairs = zip(combinations.columns.tolist(), combinations.values.tolist(), strict=True)
    places = {pair: attribute for attribute, pair in enumerate(pairs)}
    rules = [[places[pair] for pair in rule] for rule in forbidden if all(pair in places for pair in rule)]
    members = np.array([attribute for rule in rules for attribute in rule], np.int64)
    owners = np.array([number for number, rule in enumerate(rules) for _ in rule], np.int64)
    order = np.argsort(members, kind="stable")
    return Prohibitions(
        starts=np.cumsum([0, *map(len, rules)]),
        members=members,
        of_attribute=np.searchsorted(members[order], np.arange(len(combinations.columns) + 1)),
        rules=owners[order],
    )


def complete_records(
    records: Records,
    aggregates: Aggregates,
    optional: Sequence[bool],
    forbidden: Sequence[Rule],
    rng: np.random.Generator,
) -> None:
    """Fill what is missing where nothing can be missing, in proportion to the 1-counts (evenly where there are none).

    Nothing can be missing in columns that are not `optional`, and in records in which a rule forbids it. Values that would
    complete a forbidden combination are left out. A record for which none is left becomes a copy of another complete one,
    chosen at random; if there is no other, all get the likeliest values that can stand together.
    DP: post-processing.

    Raises:
        StageError: there are no such values, or none are found.
    """
    stuck = np.zeros(len(records), np.bool_)
    sizes = aggregates.domain.sizes
    for j in sorted(range(len(sizes)), key=lambda column: optional[column]):  # what is always there decides the rest
        size, lacking = sizes[j], records[:, j] == sizes[j]
        rows = np.flatnonzero(lacking & _broken(records, j, size, forbidden) if optional[j] else lacking)
        if size == 0 or len(rows) == 0:
            continue
        weights = _weights(aggregates, j)
        rules = [rule for rule in forbidden if any(column == j for column, _ in rule)]
        if rules:
            stuck[rows] |= ~_fill_allowed(records, rows, j, weights, rules, rng)
        else:
            shares = weights / weights.sum() if weights.sum() > 0 else np.full(size, 1 / size)
            records[rows, j] = rng.choice(size, len(rows), p=shares)
    if len(records) and stuck.all():
        _restart(records, aggregates, optional, forbidden)
    elif stuck.any():
        records[stuck] = records[rng.choice(np.flatnonzero(~stuck), int(stuck.sum()))]


def _broken(records: Records, column: int, value: int, forbidden: Sequence[Rule]) -> Flags:
    """Which records hold a forbidden combination that names this value."""
    rules = [rule for rule in forbidden if (column, value) in rule]
    broken = np.zeros(len(records), np.bool_)
    for rule in rules:
        broken |= np.logical_and.reduce([records[:, c] == v for c, v in rule])
    return broken


def _weights(aggregates: Aggregates, column: int) -> Floats:
    """The 1-counts of a column."""
    first = aggregates.levels[0]
    mine, size = first.columns[:, 0] == column, aggregates.domain.sizes[column]
    return np.bincount(first.values[mine, 0], weights=first.counts[mine], minlength=size).astype(np.float64)


def _fill_allowed(
    records: Records, rows: Integers, column: int, weights: Floats, rules: Sequence[Rule], rng: np.random.Generator
) -> Flags:
    """Fill a column of some rows with allowed values; returns for which of them there was one."""
    allowed = np.ones((len(rows), len(weights)), np.bool_)
    for rule in rules:
        value = next(v for c, v in rule if c == column)
        if value < len(weights):  # a rule against no value says nothing of any other
            matching = np.logical_and.reduce([records[rows, c] == v for c, v in rule if c != column])
            allowed[matching, value] = False
    shares = allowed * weights
    shares[shares.sum(axis=1) == 0] = 1.0
    shares *= allowed
    edges = np.cumsum(shares, axis=1)
    drawn = (edges > (rng.random(len(rows)) * edges[:, -1])[:, None]).argmax(axis=1)
    possible = edges[:, -1] > 0
    records[rows[possible], column] = drawn[possible]
    return np.asarray(possible)


def _restart(records: Records, aggregates: Aggregates, optional: Sequence[bool], forbidden: Sequence[Rule]) -> None:
    """Give every record the same allowed values in the columns that rules name; what may be missing there is missing."""
    rules: defaultdict[tuple[int, ...], set[tuple[int, ...]]] = defaultdict(set)
    needed = {column for rule in forbidden for column, value in rule if value == aggregates.domain.sizes[column]}
    optional = [can_be and column not in needed for column, can_be in enumerate(optional)]
    for rule in forbidden:
        if not any(optional[column] for column, _ in rule):
            rules[tuple(column for column, _ in rule)].add(tuple(value for _, value in rule))
    named = {column for rule in forbidden for column, _ in rule}
    values = {column: np.argsort(-_weights(aggregates, column), kind="stable").tolist() for column in named}
    try:
        found = find_record(values, rules)
    except ValueError:
        raise StageError("synthesize: the forbidden combinations leave no complete record") from None
    for column in named:
        missing = aggregates.domain.sizes[column]
        records[:, column] = missing if optional[column] else found.get(column, values[column][0])
