"""Judges whether derived columns of synthetic records follow from the rows that they get, by their definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Codes, Flags, Integers
from marginweave.base.arrow import compute as pc
from marginweave.columns import values_of
from marginweave.columns.base import ColumnValues, nulls
from marginweave.configuration.linked import Derivation, LinkedTable
from marginweave.configuration.release import Configuration
from marginweave.domain.labels import Domain
from marginweave.linked.derivations import LinkedRows, derived_column, linked_values


class Judgement(NamedTuple):
    """How many derived columns of each record follow from its rows, and which rows go with no record of theirs.

    Such a row has a value that some column of its record excludes, whatever the other rows are.
    """

    agreeing: Integers
    excluded: Flags


@dataclass(frozen=True)
class Agreement:
    """Derived columns of some records, but numbers of rows, and the rows that they may have in the linked table `name`.

    `codes` are those of the records, over `domain`. Records are named by their places.
    """

    name: str
    configuration: Configuration
    domain: Domain
    codes: Sequence[Codes]

    @cached_property
    def _table(self) -> LinkedTable:
        return (self.configuration.tables or {})[self.name]

    @cached_property
    def _kinds(self) -> dict[str, ColumnValues[Any]]:
        """Values of each derived column."""
        return {
            name: values_of(
                self.configuration.columns[name], self.configuration.missing_texts(name)
            )
            for name, rule in self._table.derive.items()
            if not rule.count
        }

    @property
    def columns(self) -> int:
        """Number of derived columns."""
        return len(self._kinds)

    def wanted(self, name: str) -> Integers:
        """Return the codes of a derived column in all records."""
        return self.codes[self.domain.names.index(name)].astype(np.int64)

    def judge(self, rows: pa.Table, owners: Integers, records: Integers) -> Judgement:
        """Return how rows go with some `records`; `owners` are places among these.

        A record without a value agrees with all rows where rows always give one: nobody knows what was not as declared.
        """
        together = self._values(rows, owners, len(records))
        alone = self._values(rows, np.arange(len(owners)), len(owners))
        agreeing = np.zeros(len(records), np.int64)
        excluded = np.zeros(len(owners), np.bool_)
        for name, kind in self._kinds.items():
            rule = self._table.derive[name]
            missing = len(kind.column.labels)
            wanted = self.wanted(name)[records]
            is_unknown = (wanted == missing) & rule.always_has_value
            agreeing += is_unknown | (kind.encode(together[name], None) == wanted)
            codes = kind.encode(alone[name], None)
            is_open = is_unknown[owners]
            excluded |= ~is_open & _excluded(rule, codes, wanted[owners], missing)
        return Judgement(agreeing, excluded)

    def ends_like(self, name: str, drawn: pa.Array, rows: pa.Table, owners: Integers) -> pa.Array:
        """Return the ends of the rows in a derived column where they have the record's code, else what was `drawn`."""
        kind = self._kinds[name]
        values = self._values(rows, owners, len(drawn))[name]
        is_same = (kind.encode(values, None) == self.wanted(name)) & ~nulls(values)
        ends = kind.declare(values).cast(drawn.type)
        return pc.if_else(pa.array(is_same), ends, drawn)

    def _values(self, rows: pa.Table, owners: Integers, records: int) -> dict[str, pa.Array]:
        """Return the clean values of derived columns that follow from rows, for so many records."""
        table = self._table
        kinds = {name: linked_values(self.configuration, table, name) for name in table.columns}
        linked = LinkedRows(owners, rows, kinds)
        values = {}
        for name, kind in self._kinds.items():
            column = derived_column(self.configuration, table, name, records)
            column.add(linked)
            values[name] = kind.clean(column.values()[:records])
        return values


def _excluded(rule: Derivation, codes: Codes, wanted: Integers, missing: int) -> Flags:
    """Return which rows exclude the code that is wanted; `codes` are those of the derived column by each row alone."""
    if rule.always_has_value:  # false and true
        return np.asarray((codes == 1) & (wanted == 0))
    is_beyond = codes > wanted if rule.largest else codes < wanted
    return np.asarray((codes != missing) & (is_beyond | (wanted == missing)))
