"""Tallies of the rows of counted tables, for their operator: how many rows units have. Private."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from marginweave.configuration.linked import LinkedTable
from marginweave.prepare.nested import nested_codes


@dataclass
class NestedTally:
    """How many units have rows of a table, and more than `at_most`. Private.

    `units` have rows. `units_beyond` have more than `at_most`, of which `rows_beyond` are in no count of rows.
    """

    table: LinkedTable
    units: int = 0
    units_beyond: int = 0
    rows: int = 0
    rows_beyond: int = 0

    def add(self, column: pa.ChunkedArray) -> None:
        """Take in some rows of the source, by the column with their rows of the table."""
        lengths = nested_codes(column).lengths
        beyond = np.maximum(lengths - (self.table.at_most or 0), 0)
        self.units += int((lengths > 0).sum())
        self.units_beyond += int((beyond > 0).sum())
        self.rows += int(lengths.sum())
        self.rows_beyond += int(beyond.sum())
