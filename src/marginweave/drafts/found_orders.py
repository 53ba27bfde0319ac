"""Finds columns of which one is never less than another: dates of one type, or numbers. Private. DP: none."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.configuration.columns import NumberColumn
from marginweave.drafts.chance import (
    MOST_BROKEN,
    are_exceptions,
    has_effect,
    needed_evidence,
    permutation_evidence,
    unbroken_evidence,
)
from marginweave.drafts.column_draft import ColumnDraft
from marginweave.drafts.declared_cells import LARGEST, DeclaredTable
from marginweave.drafts.relations import Relation, SampledTable, quoted

_OFTEN = 0.05
"""Share of the rows in which the lower number comes near the other one, where some rows break the order."""
_NEAR = Fraction(3, 4)
"""What share of the higher number the lower one is at least there."""
_CLEARLY_MORE = 10
_Pair = tuple[str, str]


def find_orders(
    tables: SampledTable,
    drafts: Mapping[str, ColumnDraft],
    computed: Collection[str],
) -> list[Relation]:
    """Return the orders between columns that are not `computed`, without those that follow from two others.

    Of columns that are equal, the first alone is in an order.

    An order is suggested where shuffled columns would break it in `LEAST_EFFECT` of the rows at least, so not where the ranges
    of the two columns hardly meet: there, records keep it without a rule. An order that some rows break is suggested where it
    looks like a rule all the same (`_is_edge`).
    Numbers of a rule have as many decimals: those of the finest that they are compared with.

    Args:
        tables: The table and its sample.
        drafts: The columns, as other rules have changed them.
        computed: Columns that a rule computes.
    """
    tests = list(_pairs(tables, computed))
    least_evidence = needed_evidence(len(tests))
    orders: dict[_Pair, Relation] = {}
    for low, high in tests:
        if _is_no_chance(tables, low, high, least_evidence):
            broken, rows = _broken(tables.table, low, high)
            if are_exceptions(broken, rows) and (not broken or _is_edge(tables, low, high)):
                orders[low, high] = _order(tables, low, high, broken, rows)
    names = list(tables.table.columns)
    copies = {
        high
        for low, high in orders
        if (high, low) in orders and names.index(low) < names.index(high)
    }
    one_way = {
        pair: order
        for pair, order in orders.items()
        if pair[::-1] not in orders and copies.isdisjoint(pair)
    }
    not_implied = [order for pair, order in one_way.items() if not _follows(pair, one_way)]
    return _with_decimals(not_implied, drafts)


def find_possible_orders(
    tables: SampledTable, computed: Collection[str], suggested: Sequence[Relation]
) -> list[Relation]:
    """Return the orders that no row breaks and that may be chance, where records would break them without a rule.

    Shuffled columns would break each in `LEAST_EFFECT` of the rows at least, though they may also keep it. Those that are
    `suggested`, or follow from two others, are left out, and columns that are equal.
    """
    known = {
        pair
        for relation in suggested
        if relation.key == "ordered"
        for entry in relation.entries
        for pair in itertools.pairwise(entry["columns"])
    }
    unbroken: dict[_Pair, Relation] = {}
    for low, high in _pairs(tables, computed):
        if _is_unbroken(tables, low, high):
            rows = tables.table.rows
            unbroken[low, high] = _order(tables, low, high, 0, rows)
    one_way = {pair for pair in unbroken if pair[::-1] not in unbroken} | known
    return [
        order
        for pair, order in unbroken.items()
        if pair in one_way - known and not _follows(pair, one_way)
    ]


def _is_unbroken(tables: SampledTable, low: str, high: str) -> bool:
    """Return whether no row breaks an order that shuffled columns would break."""
    if _broken(tables.first, low, high)[0]:
        return False
    _, rows = _broken(tables.sample, low, high)
    if not rows or not has_effect(0, _expected(tables.sample, low, high), rows):
        return False
    return not _broken(tables.table, low, high)[0]


def _with_decimals(orders: Sequence[Relation], drafts: Mapping[str, ColumnDraft]) -> list[Relation]:
    """Return the orders with the decimals that their numbers need, the same in all that orders connect."""
    decimals = {
        name: int(drafts[name].facts.get("decimals", 0))
        for order in orders
        for name in order.columns
    }
    for _ in orders:  # each pass takes the finest decimals one order further
        for order in orders:
            finest = max(decimals[name] for name in order.columns)
            decimals |= dict.fromkeys(order.columns, finest)
    changed = []
    for order in orders:
        changes: dict[str, ColumnDraft] = {}
        for name in order.columns:
            facts = drafts[name].facts
            if int(facts.get("decimals", 0)) < decimals[name]:
                finer = {**facts, "decimals": decimals[name]}
                changes[name] = replace(drafts[name], facts=finer)
        changed.append(replace(order, changes=changes))
    return changed


def _pairs(tables: SampledTable, computed: Collection[str]) -> Iterator[_Pair]:
    """Yield the pairs of columns that can be compared, in both directions."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in tables.kinds("number", "date", "datetime"):
        if name not in computed:
            groups[tables.table.columns[name].type].append(name)
    for names in groups.values():
        for low, high in itertools.permutations(names, 2):
            if _are_exact(tables.table, low, high):
                yield low, high


def _are_exact(table: DeclaredTable, low: str, high: str) -> bool:
    """Return whether two columns have exact values also with the decimals of the finer one."""
    columns = [table.columns[name] for name in (low, high)]
    numbers = [column for column in columns if isinstance(column, NumberColumn)]
    finest = max((number.decimals or 0 for number in numbers), default=0)
    return all(max(map(abs, number.clamp)) * 10**finest < LARGEST for number in numbers)


def _filled_values(table: DeclaredTable, low: str, high: str) -> tuple[Integers, Integers]:
    """Return the values of both columns in the rows that have both, in steps of the finer one."""
    first = table.read(low)
    second = table.read(high)
    filled = first.filled & second.filled
    decimals = [getattr(table.columns[name], "decimals", 0) or 0 for name in (low, high)]
    scales = [10 ** (max(decimals) - own_decimals) for own_decimals in decimals]
    return first.values[filled] * scales[0], second.values[filled] * scales[1]


def _is_no_chance(tables: SampledTable, low: str, high: str, least_evidence: float) -> bool:
    """Return whether the sample has far fewer broken rows than shuffled columns would have."""
    broken, rows = _broken(tables.first, low, high)
    if broken > 2 * MOST_BROKEN * rows:
        return False
    broken, rows = _broken(tables.sample, low, high)
    expected = _expected(tables.sample, low, high)
    if broken > 2 * MOST_BROKEN * rows or not has_effect(broken, expected, rows):
        return False
    if broken:
        return permutation_evidence(broken, expected) >= least_evidence
    lower, upper = _filled_values(tables.sample, low, high)
    return unbroken_evidence(lower, upper) >= least_evidence


def _broken(table: DeclaredTable, low: str, high: str) -> tuple[int, int]:
    """Return how many rows break the order, and how many have both values."""
    lower, upper = _filled_values(table, low, high)
    return int((lower > upper).sum()), len(lower)


def _is_edge(tables: SampledTable, low: str, high: str) -> bool:
    """Return whether an order with exceptions is one by its nature, and not because one column is mostly small.

    That is assumed of dates. Of numbers, the lower one comes near the other: it is at least the share `_NEAR` of it in a
    twentieth of the rows. And ten times as many rows as the exceptions keep the order by no more than half of the exceptions
    break it by. The tolls of a trip are mostly below its miles, and no rule says so.
    """
    if tables.table.columns[low].type != "number":
        return True
    lower, upper = _filled_values(tables.sample, low, high)
    slack = upper - lower
    if not _comes_near(lower, upper):
        return False
    exceptions = -slack[slack < 0]
    if not len(exceptions):
        return True
    inside = (slack >= 0) & (slack <= np.median(exceptions))
    return int(inside.sum()) >= _CLEARLY_MORE * len(exceptions)


def _comes_near(lower: Integers, upper: Integers) -> bool:
    """Return whether the lower of two numbers is at least the share `_NEAR` of the other in a twentieth of the rows."""
    largest = np.maximum(np.abs(lower), np.abs(upper))
    are_near = (upper - lower) * _NEAR.denominator <= largest * (
        _NEAR.denominator - _NEAR.numerator
    )
    return int((are_near & (upper != 0)).sum()) >= _OFTEN * len(lower)


def _expected(table: DeclaredTable, low: str, high: str) -> float:
    """Return the mean number of broken rows over all ways to shuffle one column among the rows that have both values."""
    lower, upper = _filled_values(table, low, high)
    ordered = np.sort(upper)
    less = np.searchsorted(ordered, lower, side="left")
    return float(less.sum() / max(len(ordered), 1))


def _follows(pair: _Pair, orders: Collection[_Pair]) -> bool:
    """Return whether an order follows from two others."""
    low, high = pair
    return any(start == low and (middle, high) in orders for start, middle in orders)


def _order(tables: SampledTable, low: str, high: str, broken: int, rows: int) -> Relation:
    is_number = tables.table.columns[low].type == "number"
    relation = "below" if is_number else "before"
    return Relation(
        key="ordered",
        entries=({"columns": [low, high]},),
        columns=(low, high),
        words=f"{quoted(high)} is never {relation} {quoted(low)}",
        broken=broken,
        rows=rows,
    )


def in_questions(relations: Sequence[Relation]) -> list[Relation]:
    """Return the relations with the orders that share columns, directly or through others, as one question.

    Its counts are those of the order that most rows break.
    """
    groups: list[list[Relation]] = []
    for relation in relations:
        connected = [group for group in groups if _are_connected(group, relation)]
        groups = [group for group in groups if group not in connected]
        groups.append([*itertools.chain(*connected), relation])
    return [_as_one(group) for group in groups]


def _are_connected(group: Sequence[Relation], relation: Relation) -> bool:
    """Return whether a relation is an order of a column that a group of orders names."""
    named = {name for one in group for name in one.columns}
    return relation.key == group[0].key == "ordered" and not named.isdisjoint(relation.columns)


def _as_one(orders: Sequence[Relation]) -> Relation:
    """Return orders, or a single relation, as one question."""
    most_broken = max(orders, key=lambda order: order.broken)
    changes: dict[str, ColumnDraft] = {}
    for order in orders:
        changes |= order.changes
    return replace(
        most_broken,
        entries=tuple(entry for order in orders for entry in order.entries),
        columns=tuple(dict.fromkeys(name for order in orders for name in order.columns)),
        words="; ".join(order.words for order in orders),
        changes=changes,
    )
