"""Tallies of the rows of counted tables, for their operator: who has how many, and cells without a declared value. Private."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from marginweave.configuration.linked import LinkedTable
from marginweave.prepare.nested import nested_codes


@dataclass
class NestedTally:
    """How many units have rows of a table, and more than `at_most`, and how many cells have no declared value. Private.

    `units` have rows. `units_beyond` have more than `at_most`, of which `rows_beyond` are in no count of rows. `empty` has by
    column the number of cells without a declared value.
    """

    table: LinkedTable
    units: int = 0
    units_beyond: int = 0
    rows: int = 0
    rows_beyond: int = 0
    empty: dict[str, int] = field(default_factory=dict)

    def add(self, column: pa.ChunkedArray) -> None:
        """Take in some rows of the source, by the column with their rows of the table."""
        nested = nested_codes(column)
        beyond = np.maximum(nested.lengths - (self.table.at_most or 0), 0)
        self.units += int((nested.lengths > 0).sum())
        self.units_beyond += int((beyond > 0).sum())
        self.rows += int(nested.lengths.sum())
        self.rows_beyond += int(beyond.sum())
        for (name, declared), codes in zip(self.table.columns.items(), nested.codes, strict=True):
            is_empty = codes == len(declared.labels)
            self.empty[name] = self.empty.get(name, 0) + int(is_empty.sum())
