"""Brings values that were drawn inside bins into the order that is declared of their columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Codes, Flags, Floats
from marginweave.columns.computed import points_of, values_like
from marginweave.configuration.columns import Column
from marginweave.configuration.columns.binned import BinnedColumn
from marginweave.configuration.rules.structure import Orders

Cells: TypeAlias = tuple[Floats, Floats]
"""Least and largest value of each record's bin; NaN where there is none, which orders nothing."""


def keep_order(
    drawn: Mapping[str, pa.Array],
    codes: Mapping[str, Codes],
    columns: Mapping[str, Column],
    orders: Orders,
) -> dict[str, pa.Array]:
    """Return the same columns, with every value still in its bin, and none less than one that has to come before it.

    The codes of each record must allow an order (`structure.ordered` is kept by all codes that are made). Two values in the
    wrong order are exchanged where each lies in the other's bin. A value that is then still too large for a later one is
    lowered as far as it has to be, and one that is too small for an earlier one is raised. DP: post-processing.

    Args:
        drawn: what kinds of columns decode, before it is declared.
        codes: of each column, shape (records,).
        columns: what is declared of them.
        orders: which column comes before which, directly or through others, and by how many steps at least.
    """
    gaps = {}  # least difference of the values of two columns
    for (low, high), steps in orders.items():
        if isinstance(columns[low], BinnedColumn):
            gaps[low, high] = steps * float(columns[low].step)
    sorter = TopologicalSorter(_columns_before(gaps))
    names = list(sorter.static_order())
    values: dict[str, Floats] = {}
    cells: dict[str, Cells] = {}
    most: dict[str, Floats] = {}
    for name in names:
        values[name] = points_of(drawn[name])
        cells[name] = _cells(columns[name], codes[name], values[name])
        _, largest_of_cell = cells[name]
        most[name] = largest_of_cell.copy()
    for low, high in gaps:
        _exchange(values, cells, low, high)
    # a value is at most what leaves room for all later ones: from the last column to the first
    from_last = sorted(gaps, key=lambda pair: -names.index(pair[1]))
    for low, high in from_last:
        most_before_high = most[high] - gaps[low, high]
        most[low] = np.fmin(most[low], most_before_high)
    for name in names:
        is_too_large = values[name] > most[name]
        values[name] = np.where(is_too_large, most[name], values[name])
        for (low, high), gap in gaps.items():
            if high == name:
                least = values[low] + gap
                is_too_small = values[name] < least
                values[name] = np.where(is_too_small, least, values[name])
    ordered = {name: values_like(values[name], drawn[name]) for name in names}
    return {**drawn, **ordered}


def _columns_before(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return for each column the columns that come before it, from pairs of an earlier and a later one."""
    columns: dict[str, list[str]] = {}
    for low, high in pairs:
        columns.setdefault(low, [])
        columns.setdefault(high, []).append(low)
    return columns


def _cells(column: Column, codes: Codes, values: Floats) -> Cells:
    """Return the ends of the bin of each value."""
    unknown = (np.nan, np.nan)
    limits_of_codes = [limits or unknown for limits in column.label_limits]
    low, high = np.array([*limits_of_codes, unknown], np.float64).T
    is_missing = np.isnan(values)
    least = np.where(is_missing, np.nan, low[codes])
    most = np.where(is_missing, np.nan, high[codes])
    return least, most


def _exchange(
    values: dict[str, Floats],
    cells: Mapping[str, Cells],
    low: str,
    high: str,
) -> None:
    """Exchange two values of a record in the wrong order, where each lies in the other's bin."""
    low_values = values[low]
    high_values = values[high]
    fits_low = _contain(cells[low], high_values)
    fits_high = _contain(cells[high], low_values)
    is_wrong = low_values > high_values
    exchanged = is_wrong & fits_low & fits_high
    values[low] = np.where(exchanged, high_values, low_values)
    values[high] = np.where(exchanged, low_values, high_values)


def _contain(cells: Cells, values: Floats) -> Flags:
    """Return whether each value lies in its cell."""
    least, most = cells
    return (least <= values) & (values <= most)
