"""Finds rows that add up the other rows of a table, by a value such as "Total" in one of its columns. Private. DP: none."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Flags
from marginweave.configuration.number_texts import NumberForm
from marginweave.drafts.column_draft import ColumnDraft
from marginweave.drafts.declared_cells import DeclaredCells, DeclaredTable
from marginweave.drafts.recognise_layout import is_total_word

_MOST_ROWS = 50_000
"""A longer table has a row for each of many people, and none that adds up others."""
_LEAST_SUM = 1_000
"""Smaller sums, in steps of the decimals, are equal by chance."""
_LEAST_NUMBERS = 2
_LAYERS = (1, 2)
"""With totals of groups beside one of all, the other rows add up to twice each of them."""


def find_total_rows(
    table: pa.Table, drafts: Mapping[str, ColumnDraft], form: NumberForm
) -> dict[str, str]:
    """Return by column the value of the rows that add up all others.

    They do in one number where the value is a word for totals, and otherwise in two numbers.
    """
    if table.num_rows > _MOST_ROWS:
        return {}
    declared = DeclaredTable.of(table, drafts, form)
    numbers = [
        declared.read(name) for name, column in declared.columns.items() if column.type == "number"
    ]
    totals: dict[str, str] = {}
    for name, column in declared.columns.items():
        if column.type != "category" or not column.public_cells:
            continue
        cells = declared.read(name)
        matches = sum(
            (_adding_up(cells, number) for number in numbers), np.zeros(len(cells.labels), np.int64)
        )
        for place, label in enumerate(cells.labels):
            if matches[place] >= (1 if is_total_word(label) else _LEAST_NUMBERS):
                totals[name] = label
                break
    return totals


def _adding_up(cells: DeclaredCells, number: DeclaredCells) -> Flags:
    """Return for each value of a category whether a number of its rows adds up to that of all other rows, shape (values,)."""
    has_both = cells.filled & number.filled
    values = number.values * number.filled
    sums = np.bincount(
        cells.values[has_both], weights=values[has_both], minlength=len(cells.labels)
    )
    others = float(values.sum()) - sums
    are_equal = np.zeros(len(sums), np.bool_)
    for layers in _LAYERS:
        are_equal |= others == layers * sums
    return are_equal & (np.abs(sums) >= _LEAST_SUM)
