"""What a record must not hold, in compiled form, and the filling of records that may not stay incomplete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from marginweave.schemas.arrays import Flags, Floats, Integers, Records
from marginweave.schemas.configuration.attributes import find_record
from marginweave.schemas.errors import StageError
from marginweave.schemas.released.aggregates import Aggregates
from marginweave.tasks.synthesize.combinations import Combinations
from marginweave.tasks.synthesize.growing_state import Prohibitions

Rule = Sequence[tuple[int, int]]


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

    Values that would complete a forbidden combination are left out. A record for which none is left becomes a copy of another
    complete one, chosen at random; if there is no other, all get the likeliest values that can stand together.
    DP: post-processing.

    Raises:
        StageError: there are no such values, or none are found.
    """
    stuck = np.zeros(len(records), np.bool_)
    for j, size in enumerate(aggregates.domain.sizes):
        rows = np.flatnonzero(records[:, j] == size)
        if optional[j] or size == 0 or len(rows) == 0:
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


def _weights(aggregates: Aggregates, column: int) -> Floats:
    """The 1-counts of a column."""
    first = aggregates.levels[0]
    mine, size = first.columns[:, 0] == column, aggregates.domain.sizes[column]
    return np.bincount(first.values[mine, 0], weights=first.counts[mine], minlength=size).astype(np.float64)


def _fill_allowed(
    records: Records,
    rows: Integers,
    column: int,
    weights: Floats,
    rules: Sequence[Rule],
    rng: np.random.Generator,
) -> Flags:
    """Fill a column of some rows with allowed values; returns for which of them there was one."""
    allowed = np.ones((len(rows), len(weights)), np.bool_)
    for rule in rules:
        held = np.logical_and.reduce([records[rows, c] == v for c, v in rule if c != column])
        allowed[held, next(v for c, v in rule if c == column)] = False
    shares = allowed * weights
    shares[shares.sum(axis=1) == 0] = 1.0
    shares *= allowed
    edges = np.cumsum(shares, axis=1)
    drawn = (edges > (rng.random(len(rows)) * edges[:, -1])[:, None]).argmax(axis=1)
    possible = edges[:, -1] > 0
    records[rows[possible], column] = drawn[possible]
    return np.asarray(possible)


def _restart(records: Records, aggregates: Aggregates, optional: Sequence[bool], forbidden: Sequence[Rule]) -> None:
    """Give every record the same allowed values in the columns that rules name; what can be missing there is missing."""
    rules: defaultdict[tuple[int, ...], set[tuple[int, ...]]] = defaultdict(set)
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
