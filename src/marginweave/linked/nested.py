"""Rows of a counted table, as a column of the source: each row of the source holds those of its unit.

Whatever happens to a row of the source afterwards happens to all rows of its unit at once: a unit stays one record.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Integers
from marginweave.configuration.columns import Texts
from marginweave.configuration.linked import LinkedTable
from marginweave.linked.derivations import DerivedColumn, LinkedRows
from marginweave.prepare.codes import Codes, code_type


class NestedRows(DerivedColumn):
    """The codes of the rows of each unit: a list of structs with a field for each column, which is numbered.

    The rows of a unit are sorted by their codes, so that the order of the table is lost.
    DP: 1-stable for units that come, go or change with all their rows: the value of a unit is a function of its rows.
    """

    def __init__(self, units: int, table: LinkedTable, usual_missing: Texts) -> None:
        super().__init__(units)
        self._attributes = [table.attribute(name, usual_missing) for name in table.columns]
        self._kinds = [code_type(len(each.labels) + len(each.gaps)) for each in self._attributes]
        self._owners: list[Integers] = []
        self._codes: list[list[Codes]] = [[] for _ in self._attributes]

    def add(self, rows: LinkedRows) -> None:
        """Keep the units and codes of the rows; a cell that is not as declared has the last code of its column."""
        self._owners.append(rows.units)
        for attribute, kind, parts in zip(self._attributes, self._kinds, self._codes, strict=True):
            name = attribute.name
            codes = rows.values[name].encode(rows.clean(name), None).astype(kind)
            if attribute.undeclared:
                codes[rows.undeclared(name)] = len(attribute.labels) + len(attribute.gaps) - 1
            parts.append(codes)

    def values(self) -> pa.Array:
        """Return a list for each unit, and last the empty one of a unit without rows; shape (units + 1,)."""
        owners = np.concatenate([np.zeros(0, np.int64), *self._owners])
        columns = [
            np.concatenate([np.zeros(0, kind), *parts])
            for kind, parts in zip(self._kinds, self._codes, strict=True)
        ]
        order = np.lexsort((*reversed(columns), owners))
        fields = [pa.array(codes[order]) for codes in columns]
        structs = pa.StructArray.from_arrays(fields, [str(i) for i in range(len(fields))])
        ends = np.cumsum(np.bincount(owners, minlength=self._units + 1))
        offsets = np.concatenate([np.zeros(1, np.int64), ends])
        return pa.LargeListArray.from_arrays(pa.array(offsets), structs)
