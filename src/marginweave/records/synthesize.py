"""Makes synthetic records from released counts only, without forbidden combinations, and fills incomplete records."""

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
from marginweave.configuration.rules.record_search import (
    ContradictionError,
    UndecidedError,
    find_record,
)
from marginweave.configuration.synthesis import SynthesisSettings
from marginweave.observations.combinations import Aggregates
from marginweave.records.combinations import (
    Combinations,
    count_missing,
    number_combinations,
    packed,
)
from marginweave.records.grow import grow_records
from marginweave.records.growing_state import Chances, GrowingState, Prohibitions, Rules
from marginweave.records.shards import ShardPlan, stream

Rule = Sequence[tuple[int, int]]


def _most_members(sets: Sequence[int], depth: int) -> int:
    """Return the most combinations shorter than `depth`, with at most one column of each set, that a record can have."""
    # a column of no set counts as a set with one column
    columns_of_sets = Counter(
        group if group >= 0 else -1 - column for column, group in enumerate(sets)
    )
    return sum(most_combinations(columns_of_sets.values(), length) for length in range(depth))


"""A forbidden combination: pairs of a column and a value."""


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
        levels = []
        for level in aggregates.levels:
            counts = np.ceil(level.counts * settings.scale).astype(np.int64)
            levels.append(replace(level, counts=counts))
        record_count = math.ceil(aggregates.record_count * settings.scale)
        self._aggregates = replace(aggregates, record_count=record_count, levels=tuple(levels))
        self._settings = settings
        self._optional = optional
        self._forbidden = forbidden
        self._sets = sets
        counted = self._aggregates
        if settings.sample_missing:
            counted = count_missing(counted, optional, sets)
        self.combinations = number_combinations(counted, sets)
        if settings.records == "exhaust":
            self._number = None
        elif settings.records == "count":
            self._number = record_count
        else:
            self._number = settings.records
        self.plan = ShardPlan.of(record_count, self._number)

    def records(self, shard: int) -> Records:
        """Return the records of a shard in random order, at most its part of `max_records`; shape (n, columns).

        DP: post-processing.

        Raises:
            StageError: the forbidden combinations leave no complete record, or the search for one took too long.
        """
        settings = self._settings
        longest = self._aggregates.reporting_length
        counts = packed(self.plan.counts(self.combinations.counts, shard))
        combinations = self.combinations._replace(counts=counts)
        rules = Rules(
            longest=longest,
            shortest=1 if settings.relax else longest,
            records=-1 if self._number is None else self.plan.records(self._number, shard),
            subtract=settings.use_synthetic_counts,
            fraction=settings.weight_percentile / 100,
        )
        members = _most_members(self._sets, longest)
        prohibitions = prohibit(combinations, self._forbidden)
        state = _working_memory(combinations, self._sets, members, prohibitions)
        empty = np.array(self._aggregates.domain.sizes, np.int32)
        rng = stream(settings.seed, shard)  # post-processing
        records = grow_records(combinations, rules, state, empty, rng)
        if settings.relax:
            complete_records(records, self._aggregates, self._optional, self._forbidden, rng)
        most = (
            None if settings.max_records is None else self.plan.records(settings.max_records, shard)
        )
        return records[rng.permutation(len(records))][:most]


def _working_memory(
    combinations: Combinations,
    sets: Sequence[int],
    members: int,
    prohibitions: Prohibitions,
) -> GrowingState:
    """Return the memory to grow records in; a record has at most `members` combinations shorter than R."""
    attributes = len(combinations.columns)
    kinds = max(sets) + 1
    number: Any = combinations.counts.dtype  # which of the two kinds of `Numbers` it is
    return GrowingState(
        remaining=combinations.counts.copy(),
        available=np.zeros(attributes, number),
        single=Chances.of(combinations.columns, len(sets)),
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
        is_member=np.ones(1, np.bool_),
    )


def prohibit(combinations: Combinations, forbidden: Sequence[Rule]) -> Prohibitions:
    """Return forbidden combinations by attribute; one with a value that was not released cannot come about by growing."""
    pairs = zip(combinations.columns.tolist(), combinations.values.tolist(), strict=True)
    places = {pair: attribute for attribute, pair in enumerate(pairs)}
    rules = []
    for rule in forbidden:
        if places.keys() >= {*rule}:
            attributes = [places[pair] for pair in rule]
            rules.append(attributes)
    lengths = np.array([len(rule) for rule in rules], np.int64)
    members = np.array([attribute for rule in rules for attribute in rule], np.int64)
    rule_numbers = np.repeat(np.arange(len(rules)), lengths)
    order = np.argsort(members, kind="stable")
    return Prohibitions(
        starts=np.concatenate([[0], np.cumsum(lengths)]),
        members=members,
        of_attribute=np.searchsorted(members[order], np.arange(len(combinations.columns) + 1)),
        rules=rule_numbers[order],
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
    complete a forbidden combination are left out. A record for which no value is left becomes a copy of another complete
    one, chosen at random; if there is no other, all get the likeliest values that are allowed together.
    DP: post-processing.

    Raises:
        StageError: there are no such values, or the search for them took too long.
    """
    stuck = np.zeros(len(records), np.bool_)
    sizes = aggregates.domain.sizes
    # a column that is never missing decides first
    for j in sorted(range(len(sizes)), key=lambda column: optional[column]):
        size = sizes[j]
        to_fill = records[:, j] == size
        if optional[j]:
            to_fill &= _broken(records, j, size, forbidden)
        rows = np.flatnonzero(to_fill)
        if size == 0 or len(rows) == 0:
            continue
        weights = _weights(aggregates, j)
        rules = [rule for rule in forbidden if j in dict(rule)]
        if rules:
            stuck[rows] |= ~_fill_allowed(records, rows, j, weights, rules, rng)
        else:
            total = weights.sum()
            shares = weights / total if total > 0 else np.full(size, 1 / size)
            records[rows, j] = rng.choice(size, len(rows), p=shares)
    if len(records) and stuck.all():
        _restart(records, aggregates, optional, forbidden)
    elif stuck.any():
        complete = np.flatnonzero(~stuck)
        records[stuck] = records[rng.choice(complete, int(stuck.sum()))]


def _broken(
    records: Records,
    column: int,
    value: int,
    forbidden: Sequence[Rule],
) -> Flags:
    """Return which records have a forbidden combination that names this value."""
    broken = np.zeros(len(records), np.bool_)
    for rule in forbidden:
        if (column, value) in rule:
            broken |= np.logical_and.reduce([records[:, c] == v for c, v in rule])
    return broken


def _weights(aggregates: Aggregates, column: int) -> Floats:
    """Return the 1-counts of a column."""
    first = aggregates.levels[0]
    rows = first.columns[:, 0] == column
    size = aggregates.domain.sizes[column]
    counts = np.bincount(first.values[rows, 0], weights=first.counts[rows], minlength=size)
    return counts.astype(np.float64)


def _fill_allowed(
    records: Records,
    rows: Integers,
    column: int,
    weights: Floats,
    rules: Sequence[Rule],
    rng: np.random.Generator,
) -> Flags:
    """Fill a column of some rows with allowed values; return for which of them there was one."""
    allowed = np.ones((len(rows), len(weights)), np.bool_)
    for rule in rules:
        value = dict(rule)[column]
        # a rule that forbids a missing value says nothing about other values
        if value < len(weights):
            matching = np.logical_and.reduce(
                [records[rows, c] == v for c, v in rule if c != column]
            )
            allowed[matching, value] = False
    shares = allowed * weights
    shares[shares.sum(axis=1) == 0] = 1.0
    shares *= allowed
    edges = np.cumsum(shares, axis=1)
    points = rng.random(len(rows)) * edges[:, -1]
    drawn = (edges > points[:, None]).argmax(axis=1)
    possible = edges[:, -1] > 0
    records[rows[possible], column] = drawn[possible]
    return np.asarray(possible)


def _restart(
    records: Records,
    aggregates: Aggregates,
    optional: Sequence[bool],
    forbidden: Sequence[Rule],
) -> None:
    """Give every record the same allowed values in the columns that rules name; where values may be missing, they are."""
    sizes = aggregates.domain.sizes
    named = {column for rule in forbidden for column, _ in rule}
    never_missing = {
        column for rule in forbidden for column, value in rule if value == sizes[column]
    }
    may_miss = {column for column, can_miss in enumerate(optional) if can_miss} - never_missing
    rules: defaultdict[tuple[int, ...], set[tuple[int, ...]]] = defaultdict(set)
    for rule in forbidden:
        columns = tuple(column for column, _ in rule)
        if may_miss.isdisjoint(columns):
            rules[columns].add(tuple(value for _, value in rule))
    values: dict[int, list[int]] = {}
    for column in named:
        by_count = np.argsort(-_weights(aggregates, column), kind="stable")
        values[column] = by_count.tolist()
    try:
        record = find_record(values, rules)
    except ContradictionError:
        raise StageError(
            "synthesize: the forbidden combinations leave no complete record"
        ) from None
    except UndecidedError:
        raise StageError(
            "synthesize: the search for a complete record without forbidden combinations took too long; forbid fewer"
        ) from None
    for column in named:
        if column in may_miss:
            records[:, column] = sizes[column]
        else:
            records[:, column] = record.get(column, values[column][0])
