"""Values that were drawn inside bins, brought into the order that is declared of their columns."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import TopologicalSorter
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Codes, Floats
from marginweave.columns.computed import points_of, values_like
from marginweave.configuration.columns import Column
from marginweave.configuration.columns.binned import BinnedColumn
from marginweave.configuration.rules.structure import Orders

Cells: TypeAlias = tuple[Floats, Floats]
"""The least and the largest value of each record's bin; NaN where there is none, which orders nothing."""


def keep_order(
    drawn: Mapping[str, pa.Array], codes: Mapping[str, Codes], columns: Mapping[str, Column], orders: Orders
) -> dict[str, pa.Array]:
    """The same columns, with every value still in its bin, and none less than one that has to come before it.

    The codes of each record must allow an order (`structure.ordered` is kept by all codes that are made). Two values that
    stand the wrong way round are exchanged where each lies in the other's bin; what is then still too large for a later one is
    lowered as far as it has to be, and what is too small for an earlier one raised. DP: post-processing.

    Args:
        drawn: what kinds of columns decode, before it is declared.
        codes: of each column, shape (records,).
        columns: what is declared of them.
        orders: which column comes before which, directly or through others, and by how many steps at least.
    """
    orders = {pair: steps for pair, steps in orders.items() if isinstance(columns[pair[0]], BinnedColumn)}
    names = list(TopologicalSorter(_before(orders)).static_order())
    values = {name: points_of(drawn[name]) for name in names}
    cells = {name: _cells(columns[name], codes[name], values[name]) for name in names}
    for low, high in orders:
        _exchange(values, cells, low, high)
    most = {name: cells[name][1].copy() for name in names}
    for low, high in sorted(orders, key=lambda pair: -names.index(pair[1])):
        most[low] = np.fmin(most[low], most[high] - orders[low, high] * float(columns[low].step))
    for name in names:
        values[name] = np.where(values[name] > most[name], most[name], values[name])
        for low, high in orders:
            if high == name:
                least = values[low] + orders[low, high] * float(columns[low].step)
                values[name] = np.where(values[name] < least, least, values[name])
    return {**drawn, **{name: values_like(values[name], drawn[name]) for name in names}}


def _before(orders: Orders) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for pair in orders for name in pair}
    for low, high in orders:
        found[high].append(low)
    return found


def _cells(column: Column, codes: Codes, values: Floats) -> Cells:
    ends = [(float(ends[0]), float(ends[1])) if ends else (np.nan, np.nan) for ends in column.label_limits]
    low, high = np.array([*ends, (np.nan, np.nan)]).T
    none = np.isnan(values)
    return np.where(none, np.nan, low[codes]), np.where(none, np.nan, high[codes])


def _exchange(values: dict[str, Floats], cells: Mapping[str, Cells], low: str, high: str) -> None:
    one, other = values[low], values[high]
    fits = (cells[low][0] <= other) & (other <= cells[low][1]) & (cells[high][0] <= one) & (one <= cells[high][1])
    wrong = (one > other) & fits
    values[low], values[high] = np.where(wrong, other, one), np.where(wrong, one, other)
