"""Row-local cleaning of a table: every step looks at one cell and public constants, so it is 1-stable.

Clean records are passed on in blocks, one of which needs to be in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from marginweave.base.arrays import Integers
from marginweave.checkpoints.codecs import pack_table, unpack_table
from marginweave.columns import values_of
from marginweave.columns.computed import difference_values
from marginweave.configuration.release import Configuration
from marginweave.configuration.rules.structure import Structure
from marginweave.configuration.sections import NESTED


def clean_table(raw: pa.Table, configuration: Configuration) -> pa.Table:
    """Clean every counted column of `raw`; missing is null.

    A category or boolean becomes a dictionary array over its public labels (a private domain: over the sorted distinct
    texts), a number float64, a date date32, a moment timestamp[s], a set a list array over such a dictionary.

    A difference is counted in place of the column that it makes superfluous. Flags of derived cells that are not as declared
    (`undeclared_flags`) follow the columns where the table has them.

    DP: 1-stable preprocessing; domains and bounds are public constants, one row in is one row out.
    """
    columns = {}
    structure = configuration.structure or Structure()
    for name in configuration.raw_names:
        kind = values_of(configuration.columns[name], configuration.missing_texts(name))
        columns[name] = kind.clean(raw.column(name).combine_chunks())
    for rule in structure.difference or ():
        minuend = columns[rule.of]
        subtrahend = columns[rule.since]
        columns[rule.column] = difference_values(
            minuend, subtrahend, configuration.columns[rule.column]
        )
    counted = {name: columns[name] for name in configuration.names}
    flags = [name for name in configuration.undeclared_flags if name in raw.column_names]
    return pa.table(counted | {name: raw.column(name).combine_chunks() for name in flags})


# Columns that are added to clean ones: no configuration has such names.
_NUMBER = ""
_ROWS_OF_UNIT = " rows of unit"
_ADDED = (_NUMBER, _ROWS_OF_UNIT)


@dataclass(frozen=True)
class CleanBlock:
    """Some clean records with their numbers: a record has the number of its source row, or of the first one joined. Private.

    The number determines the record's random words, so that a choice does not depend on blocks or partitions.
    `rows_of_unit` has, for each record, how many rows its subject has in the source, shape (records,). It is None where nothing
    is left out of a unit: a unit is a row, or all its rows are joined. `nested` has the columns with rows of linked tables that
    the records hold (`Configuration.nested_names`).
    """

    table: pa.Table
    numbers: Integers
    rows_of_unit: Integers | None = None
    nested: pa.Table = field(default_factory=lambda: pa.table({}))


@dataclass(frozen=True)
class CleanBlocks:
    """Clean records block by block, numbers increasing; private. A pass over the blocks can be repeated."""

    payloads: Sequence[bytes]

    def __iter__(self) -> Iterator[CleanBlock]:
        for packed in map(unpack_table, self.payloads):
            names = [name for name in _ADDED if name in packed.column_names]
            added = {name: packed.column(name).to_numpy() for name in names}
            nested = [name for name in packed.column_names if name.startswith(NESTED)]
            yield CleanBlock(
                packed.drop_columns([*names, *nested]),
                added[_NUMBER],
                added.get(_ROWS_OF_UNIT),
                packed.select(nested),
            )


def pack_clean(blocks: Iterable[CleanBlock]) -> Iterator[bytes]:
    """Yield the payloads of `CleanBlocks`, one block at a time. Private."""
    for block in blocks:
        table = block.table.append_column(_NUMBER, pa.array(block.numbers))
        if block.rows_of_unit is not None:
            table = table.append_column(_ROWS_OF_UNIT, pa.array(block.rows_of_unit))
        for name in block.nested.column_names:
            table = table.append_column(name, block.nested.column(name))
        yield pack_table(table)


def labels_of(values: pa.ChunkedArray) -> list[str]:
    """Return the dictionary of a clean category or set, whether all of it occurs or not."""
    array = values.combine_chunks()
    cells = array.values if pa.types.is_list(array.type) else array
    labels: list[str] = cells.dictionary.to_pylist()
    return labels
