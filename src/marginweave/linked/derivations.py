"""Columns of the source that follow from the rows of a linked table: each is summed up unit by unit while the rows are read.

Every row of the linked table changes the value of its own unit alone. So a value depends on the rows that have its unit's id,
and on nothing else: neither on other units nor on the order of the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.base.arrow import to_numpy
from marginweave.columns import values_of
from marginweave.columns.base import ColumnValues, nulls
from marginweave.columns.category import BooleanValues
from marginweave.columns.date import DateValues
from marginweave.configuration.columns import DateColumn, NumberColumn
from marginweave.configuration.linked import Derivation, LinkedTable
from marginweave.configuration.linked_checks import met_labels
from marginweave.configuration.release import Configuration

_AT_ONCE = 1 << 20
"""Rows whose dates are compared at a time."""


@dataclass(frozen=True)
class LinkedRows:
    """Some rows of a linked table, all of units that the source has: their units as numbers, and their cells. Private."""

    units: Integers
    table: pa.Table
    values: Mapping[str, ColumnValues[Any]]
    _cleaned: dict[str, pa.Array] = field(default_factory=dict)
    _undeclared: dict[str, Flags] = field(default_factory=dict)

    def cells(self, name: str) -> pa.Array:
        """Return the cells of a column as they were read."""
        return self.table.column(name).combine_chunks()

    def clean(self, name: str) -> pa.Array:
        """Return the clean values of a column (`clean_table`), null where a cell has none."""
        if name not in self._cleaned:
            self._cleaned[name] = self.values[name].clean(self.cells(name))
        return self._cleaned[name]

    def undeclared(self, name: str) -> Flags:
        """Return which cells of a column are not as declared: neither missing nor a value; none where `outside` is written."""
        if name not in self._undeclared:
            kind = self.values[name]
            is_undeclared = nulls(self.clean(name)).copy()
            if kind.column.outside is not None:
                is_undeclared = np.zeros_like(is_undeclared)
            elif is_undeclared.any():
                cells = self.cells(name).filter(pa.array(is_undeclared))
                is_undeclared[is_undeclared] = kind.judge(cells).unread_cells
            self._undeclared[name] = is_undeclared
        return self._undeclared[name]

    def meets(self, conditions: Mapping[str, Flags]) -> tuple[Flags, Flags]:
        """Return which rows meet all conditions, and which do or would with other cells in place of those not as declared.

        `conditions` have, for each code of a column, whether it meets the condition on it.
        """
        meets = np.ones(len(self.units), np.bool_)
        may_meet = meets.copy()
        for name, allowed in conditions.items():
            codes = self.values[name].encode(self.clean(name), None)
            is_met = allowed[codes.astype(np.int64)]
            meets &= is_met
            may_meet &= is_met | self.undeclared(name)
        return meets, may_meet


class DerivedColumn(ABC):
    """A column of the source in the making: `add` takes in rows, `values` has the value of every unit.

    Where cells of the rows are not as declared, a value is as declared all the same if no other cells in their place could
    change it. A unit of which they could has no value, and is among `undeclared`.

    DP: 1-stable for units that come, go or change with all their rows: the value of a unit is a function of its rows.
    """

    def __init__(self, units: int) -> None:
        self._units = units

    @abstractmethod
    def add(self, rows: LinkedRows) -> None:
        """Take in some rows."""

    @abstractmethod
    def values(self) -> pa.Array:
        """Return the values of all units, and last that of a unit without rows; shape (units + 1,)."""

    def undeclared(self) -> Flags:
        """Return of which units the value is not as declared, after all rows were taken in; shape (units + 1,)."""
        return np.zeros(self._units + 1, np.bool_)


class RowCount(DerivedColumn):
    """The number of rows: 0 where there is none."""

    def __init__(self, units: int) -> None:
        super().__init__(units)
        self._rows = np.zeros(units + 1, np.int64)

    def add(self, rows: LinkedRows) -> None:
        """Count the rows of each unit."""
        np.add.at(self._rows, rows.units, 1)

    def values(self) -> pa.Array:
        """Return whole numbers."""
        return pa.array(self._rows)


class AnyRow(DerivedColumn):
    """Whether a row meets the conditions: false where there is none."""

    def __init__(self, units: int, conditions: Mapping[str, Flags], kind: BooleanValues) -> None:
        super().__init__(units)
        self._conditions = conditions
        self._kind = kind
        self._is_met = np.zeros(units + 1, np.bool_)
        self._may_be_met = np.zeros(units + 1, np.bool_)

    def add(self, rows: LinkedRows) -> None:
        """Mark the units of rows that meet the conditions, and of those that may."""
        meets, may_meet = rows.meets(self._conditions)
        self._is_met[rows.units[meets]] = True
        self._may_be_met[rows.units[may_meet]] = True

    def values(self) -> pa.Array:
        """Return booleans, in the spelling that the column declares."""
        return self._kind.spelled(pa.array(self._is_met, mask=self.undeclared()))

    def undeclared(self) -> Flags:
        """Return the units without a row that meets the conditions, but with one that may."""
        return self._may_be_met & ~self._is_met


class EndValue(DerivedColumn):
    """The largest, or smallest, value of a number or date: null where no row that meets the conditions has one.

    A code of a number, which is no number, is no end. A cell that is not as declared could be the bound of its column.
    """

    def __init__(
        self,
        units: int,
        derivation: Derivation,
        conditions: Mapping[str, Flags],
        kind: ColumnValues[Any],
    ) -> None:
        super().__init__(units)
        self._name = derivation.column
        self._conditions = conditions
        self._type = kind.clean_type
        self._codes = kind.column.special if isinstance(kind.column, NumberColumn) else ()
        is_largest = derivation.kind == "largest"
        self._sign = 1.0 if is_largest else -1.0
        self._bound = kind.column.clamp[1 if is_largest else 0]
        self._best = np.full(units + 1, -np.inf)
        self._best_possible = self._best.copy()

    def add(self, rows: LinkedRows) -> None:
        """Take in the values of rows that meet the conditions, or may; numbers and seconds are exact as doubles."""
        clean = rows.clean(self._name)
        is_undeclared = rows.undeclared(self._name)
        numbers = np.where(is_undeclared, self._bound, _numbers(clean))
        is_no_number = nulls(clean) | np.isin(numbers, self._codes)
        meets, may_meet = rows.meets(self._conditions)
        for best, is_end in (
            (self._best, meets & ~is_no_number),
            (self._best_possible, may_meet & (~is_no_number | is_undeclared)),
        ):
            np.maximum.at(best, rows.units[is_end], self._sign * numbers[is_end])

    def undeclared(self) -> Flags:
        """Return the units in which a row may have a farther value than that of all rows that meet the conditions."""
        return self._best_possible > self._best

    def values(self) -> pa.Array:
        """Return numbers, dates or moments."""
        is_missing = np.isneginf(self._best) | self.undeclared()
        best = np.where(is_missing, 0.0, self._sign * self._best) + 0.0  # a negative zero is 0
        if pa.types.is_floating(self._type):
            return pa.array(best, mask=is_missing)
        width = np.int32 if pa.types.is_date(self._type) else np.int64
        return pa.array(best.astype(width), mask=is_missing).cast(self._type)


def _numbers(clean: pa.Array) -> Floats:
    """Return clean numbers as they are, dates and moments as days and seconds from 1970-01-01; 0 for null."""
    if not pa.types.is_floating(clean.type):
        clean = clean.cast(pa.int32() if pa.types.is_date(clean.type) else pa.int64())
    return to_numpy(clean.fill_null(0)).astype(np.float64)


class WithinDays(DerivedColumn):
    """Whether a row has its `to` 0 to n days after the `from` of another row; false where no two rows have.

    Dates beyond the bounds of their column are those that are written: moved to a bound, they could be near to others.
    """

    def __init__(
        self, units: int, derivation: Derivation, columns: Sequence[DateColumn], kind: BooleanValues
    ) -> None:
        super().__init__(units)
        self._names = (derivation.start or "", derivation.end or "")
        self._most = derivation.days * columns[0].per_day
        self._kind = kind
        self._parts: list[DatedRows] = []
        self._doubts = DoubtfulPairs(units)

    def add(self, rows: LinkedRows) -> None:
        """Keep the units and dates of the rows that have one of the two dates."""
        dates: list[Integers] = []
        undeclared: list[Flags] = []
        for name in self._names:
            kind = rows.values[name]
            assert isinstance(kind, DateValues)
            days, has_date = kind.days_or_seconds(rows.cells(name))
            dates.append(np.where(has_date, days, NO_DATE))
            is_beyond_all_years = ~has_date & ~nulls(rows.clean(name))
            undeclared.append(rows.undeclared(name) | is_beyond_all_years)
        starts, ends = dates
        self._doubts.add(rows.units, dates, undeclared)
        is_kept = (starts != NO_DATE) | (ends != NO_DATE)
        units = rows.units.astype(np.int32)
        self._parts.append(DatedRows(units[is_kept], starts[is_kept], ends[is_kept]))

    @cached_property
    def _is_near(self) -> Flags:
        """Of each unit, whether two rows are near, after all rows were taken in."""
        is_near = np.zeros(self._units + 1, np.bool_)
        if self._parts:
            dated = DatedRows.joined(self._parts)
            self._parts.clear()
            is_near[units_with_near_rows(dated, self._most)] = True
        return is_near

    def values(self) -> pa.Array:
        """Return booleans, in the spelling that the column declares."""
        return self._kind.spelled(pa.array(self._is_near, mask=self.undeclared()))

    def undeclared(self) -> Flags:
        """Return the units without two rows that are near, but with two that may be."""
        return self._doubts.units & ~self._is_near


class DoubtfulPairs:
    """Of each unit, whether one row's `from` and another row's `to` may be near, as one of the two is not as declared.

    With f and t the rows whose `from`, and `to`, is not missing, these are f t pairs less those of a row with itself; of them,
    pairs of declared dates are subtracted in the same way.
    """

    def __init__(self, units: int) -> None:
        self._rows = np.zeros((6, units + 1), np.int64)

    def add(self, units: Integers, dates: Sequence[Integers], undeclared: Sequence[Flags]) -> None:
        """Count the rows of each unit by which of their two dates are declared, and which are not missing."""
        declared = [each != NO_DATE for each in dates]
        there = [a | b for a, b in zip(declared, undeclared, strict=True)]
        for place, (start, end) in enumerate((declared, there)):
            for row, flags in enumerate((start, end, start & end)):
                np.add.at(self._rows[3 * place + row], units[flags], 1)

    @property
    def units(self) -> Flags:
        """Flags of the units; shape (units + 1,)."""
        declared, there = (
            starts * ends - both for starts, ends, both in self._rows.reshape(2, 3, -1)
        )
        return there > declared


NO_DATE = np.iinfo(np.int64).min
_WIDEST = 1 << 62
"""Largest product of a number of units and the width of their dates, which a sorted number holds."""


@dataclass(frozen=True)
class DatedRows:
    """The unit of each row, and its two dates as days or seconds, `NO_DATE` where it has none; shape (rows,) each. Private."""

    units: NDArray[np.int32]
    starts: Integers
    ends: Integers

    @classmethod
    def joined(cls, parts: Sequence[DatedRows]) -> DatedRows:
        """Return the rows of all parts."""
        return cls(
            np.concatenate([part.units for part in parts]),
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.ends for part in parts]),
        )

    def of_units(self, first: int, number: int) -> DatedRows:
        """Return the rows of so many units from the `first` on, which become units from 0 on."""
        is_kept = (self.units >= first) & (self.units < first + number)
        return DatedRows(
            self.units[is_kept] - np.int32(first), self.starts[is_kept], self.ends[is_kept]
        )


def units_with_near_rows(rows: DatedRows, most: int) -> Integers:
    """Return the units, some of them several times, in which a row ends 0 to `most` days or seconds after another row starts.

    Of unit u, row j counts if #{i : 0 <= end_j - start_i <= most} exceeds 1 where row j itself is among these, else 0. The
    starts are sorted as u W + start, W being wider than all dates and `most` together, so that a range of `most` before a date
    has starts of its own unit alone. Where such a number could be too large, some units are looked at after others.

    DP: 1-stable for units that come, go or change with all their rows: whether u is among the units depends on its rows.
    """
    has_start = rows.starts != NO_DATE
    has_end = rows.ends != NO_DATE
    if not has_start.any() or not has_end.any():
        return np.zeros(0, np.int64)
    low = min(int(rows.starts[has_start].min()), int(rows.ends[has_end].min())) - most
    high = max(int(rows.starts[has_start].max()), int(rows.ends[has_end].max()))
    width = high - low + 1
    last = int(rows.units.max())
    number = _WIDEST // width
    if last < number:
        return _near_units(rows, most, low, width)
    near = [
        first + _near_units(rows.of_units(first, number), most, low, width)
        for first in range(0, last + 1, number)
    ]
    return np.concatenate(near)


def _near_units(rows: DatedRows, most: int, low: int, width: int) -> Integers:
    """Return the units of `units_with_near_rows`, whose dates are `low` + `most` to `low` + `width` - 1."""
    has_start = rows.starts != NO_DATE
    has_end = rows.ends != NO_DATE
    starts = rows.units[has_start] * np.int64(width) + (rows.starts[has_start] - low)
    starts.sort()
    near: list[Integers] = [np.zeros(0, np.int64)]
    for first in range(0, len(rows.units), _AT_ONCE):
        chosen = slice(first, first + _AT_ONCE)
        is_dated = has_end[chosen]
        units = rows.units[chosen][is_dated].astype(np.int64)
        ends = rows.ends[chosen][is_dated]
        own = rows.starts[chosen][is_dated]
        places = units * width + (ends - low)
        number = np.searchsorted(starts, places, side="right")
        number -= np.searchsorted(starts, places - most, side="left")
        number -= (own != NO_DATE) & (own <= ends) & (own >= ends - most)
        near.append(units[number > 0])
    return np.concatenate(near)


def derived_column(
    configuration: Configuration, table: LinkedTable, name: str, units: int
) -> DerivedColumn:
    """Return the column `name` in the making, for a number of units; `table` derives it."""
    derivation = table.derive[name]
    target = values_of(configuration.columns[name], configuration.missing_texts(name))
    allowed = {
        column: _allowed_codes(configuration, table, derivation, column)
        for column in derivation.conditions
    }
    if derivation.kind == "count":
        return RowCount(units)
    if isinstance(target, BooleanValues):
        if derivation.kind == "any":
            return AnyRow(units, allowed, target)
        columns = [table.columns[each] for each in (derivation.start, derivation.end) if each]
        dates = [column for column in columns if isinstance(column, DateColumn)]
        return WithinDays(units, derivation, dates, target)
    return EndValue(
        units, derivation, allowed, linked_values(configuration, table, derivation.column)
    )


def linked_values(configuration: Configuration, table: LinkedTable, name: str) -> ColumnValues[Any]:
    """Return the values of a column of a linked table, by its declaration there."""
    missing = table.missing_texts(name, configuration.missing)
    return values_of(table.columns[name], missing)


def _allowed_codes(
    configuration: Configuration, table: LinkedTable, derivation: Derivation, name: str
) -> Flags:
    """Return for each code of a column, that of a missing value last, whether it meets the condition on the column."""
    labels = table.columns[name].labels
    met = set(met_labels(configuration, table, derivation, name))
    return np.array([*(label in met for label in labels), False], np.bool_)
