"""Rows of linked tables that synthetic records hold: as a column of lists, and as tables whose keys join."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Integers
from marginweave.base.arrow import to_numpy
from marginweave.configuration.release import Configuration
from marginweave.configuration.sections import NESTED


@dataclass(frozen=True)
class Nested:
    """The rows that records have in the linked table `name`, those of the first record first; `lengths` are their numbers."""

    name: str
    table: pa.Table
    lengths: Integers

    @property
    def as_lists(self) -> pa.Array:
        """A list of structs for each record, with a field for each column."""
        fields = [column.combine_chunks() for column in self.table.columns]
        structs = pa.StructArray.from_arrays(fields, self.table.column_names)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths)])
        return pa.LargeListArray.from_arrays(pa.array(offsets), structs)


def with_nested(records: pa.Table, nested: Iterable[Nested]) -> pa.Table:
    """Return records with a column more for each linked table, of lists with the rows of each record."""
    for rows in nested:
        records = records.append_column(NESTED + rows.name, rows.as_lists)
    return records


def with_keys(tables: Iterable[pa.Table], configuration: Configuration) -> Iterator[pa.Table]:
    """Yield records without the rows that they hold; where they hold any, each has a new number, from 1, in the key column.

    The numbers say nothing of a record but its place in the file.
    """
    subject = configuration.privacy.subject
    start = 1
    for table in tables:
        records = table.select(configuration.output_names)
        if configuration.recorded_tables and subject is not None:
            keys = np.arange(start, start + len(table), dtype=np.int64)
            records = records.add_column(0, subject.column, pa.array(keys))
        yield records
        start += len(table)


def rows_of(
    tables: Iterable[pa.Table], name: str, configuration: Configuration
) -> Iterator[pa.Table]:
    """Yield the rows that records hold in the linked table `name`, each with the number of its record (`with_keys`)."""
    start = 1
    for table in tables:
        lists = table.column(NESTED + name).combine_chunks()
        keys = np.repeat(
            np.arange(start, start + len(table), dtype=np.int64), to_numpy(lists.value_lengths())
        )
        structs = lists.flatten()
        fields: Sequence[pa.Field] = list(structs.type)
        columns = {field.name: structs.field(field.name) for field in fields}
        yield pa.table({configuration.key_of(name): pa.array(keys), **columns})
        start += len(table)
