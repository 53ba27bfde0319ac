"""Finds columns of which one is never less than another: dates of one type, numbers of as many decimals. Private. DP: none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import permutations

import numpy as np

from marginweave.drafts.chance import (
    MOST_BROKEN,
    are_exceptions,
    has_effect,
    needed_evidence,
    permutation_evidence,
    unbroken_evidence,
)
from marginweave.drafts.declared_cells import DeclaredTable
from marginweave.drafts.relations import Relation, SampledTable, quoted

_OFTEN = 0.05
_CLEARLY_MORE = 10
_Pair = tuple[str, str]


def find_orders(tables: SampledTable, computed: Collection[str]) -> list[Relation]:
    """Return the orders between columns that are not `computed`, without those that follow from two others.

    Of columns that are equal, the first alone is in an order.

    An order is suggested where shuffled columns would break it in `LEAST_EFFECT` of the rows at least, so not where the ranges
    of the two columns hardly meet.
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
    return [order for pair, order in one_way.items() if not _follows(pair, one_way)]


def _pairs(tables: SampledTable, computed: Collection[str]) -> Iterator[_Pair]:
    """Yield the pairs of columns that can be compared, in both directions."""
    groups: defaultdict[tuple[str, object], list[str]] = defaultdict(list)
    for name in tables.kinds("number", "date", "datetime"):
        column = tables.table.columns[name]
        if name not in computed:
            groups[column.type, column.step].append(name)
    for names in groups.values():
        yield from permutations(names, 2)


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
    first = tables.sample.read(low)
    second = tables.sample.read(high)
    filled = first.filled & second.filled
    return unbroken_evidence(first.values[filled], second.values[filled]) >= least_evidence


def _broken(table: DeclaredTable, low: str, high: str) -> tuple[int, int]:
    """Return how many rows break the order, and how many have both values."""
    first = table.read(low)
    second = table.read(high)
    filled = first.filled & second.filled
    return int((filled & (first.values > second.values)).sum()), int(filled.sum())


def _is_edge(tables: SampledTable, low: str, high: str) -> bool:
    """Return whether an order that has exceptions is one by its nature, and not because one column is mostly small.

    That is assumed of dates. Of numbers, the lower one is at least three quarters of the other in a twentieth of the rows; and
    ten times as many rows as the exceptions keep the order by no more than half of the exceptions break it by. The tolls of a
    trip are mostly below its miles, and no rule says so.
    """
    if tables.table.columns[low].type != "number":
        return True
    first = tables.sample.read(low)
    second = tables.sample.read(high)
    filled = first.filled & second.filled
    lower = first.values[filled]
    upper = second.values[filled]
    slack = upper - lower
    is_near = (upper != 0) & (4 * np.abs(slack) <= np.maximum(np.abs(lower), np.abs(upper)))
    if int(is_near.sum()) < _OFTEN * len(lower):
        return False
    exceptions = -slack[slack < 0]
    if not len(exceptions):
        return True
    inside = (slack >= 0) & (slack <= np.median(exceptions))
    return int(inside.sum()) >= _CLEARLY_MORE * len(exceptions)


def _expected(table: DeclaredTable, low: str, high: str) -> float:
    """Return the mean number of broken rows over all ways to shuffle one column among the rows that have both values."""
    first = table.read(low)
    second = table.read(high)
    filled = first.filled & second.filled
    ordered = np.sort(second.values[filled])
    less = np.searchsorted(ordered, first.values[filled], side="left")
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
