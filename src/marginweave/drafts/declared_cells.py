"""Reads the columns of a table as their drafts declare them: numbers and dates in steps, other values as codes.

Private, as the table is. DP: none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from marginweave.base.arrays import Flags, Integers
from marginweave.base.arrow import compute as pc
from marginweave.base.arrow import is_text
from marginweave.columns import values_of
from marginweave.configuration.columns import (
    BooleanColumn,
    Category,
    Column,
    DateColumn,
    NumberColumn,
)
from marginweave.configuration.number_texts import NumberForm
from marginweave.drafts.column_draft import ColumnDraft
from marginweave.sources.number_cells import NumberTexts, plain_numbers
from marginweave.sources.source import types_as_read

Nameable: TypeAlias = Category | BooleanColumn | NumberColumn | DateColumn
"""Kinds of columns that relations can name."""
_COLUMN: TypeAdapter[Column] = TypeAdapter(Column)
_MOST_CELLS = 4_000_000
LARGEST = 2**53
"""Numbers up to here are exact as doubles."""


@dataclass(frozen=True)
class DeclaredCells:
    """The cells of one column, shape (rows,); what `values` has where a cell is not `filled` means nothing."""

    values: Integers
    """Numbers in steps of the column's decimals, dates in days, moments in seconds; of other columns places in `labels`."""
    filled: Flags
    labels: Sequence[str] = ()
    """The values that a category or boolean has."""

    @cached_property
    def varied(self) -> Flags:
        """Cells that differ from the most frequent one; a cell without a value is one more value."""
        coded = self.places
        counts = np.bincount(coded)
        return np.asarray(coded != counts.argmax())

    @cached_property
    def places(self) -> Integers:
        """Return the place of each cell among the distinct values; cells without a value come behind the last."""
        if self.labels:
            return np.where(self.filled, self.values, len(self.labels))
        distinct, places = np.unique(self.values, return_inverse=True)
        return np.where(self.filled, places, len(distinct))


@dataclass(frozen=True)
class DeclaredTable:
    """A table whose columns are read as drafted, each when it is asked for the first time.

    Only columns with one value a cell are read, and no numbers with codes: rules of sums and orders cannot name these.
    """

    table: pa.Table
    columns: Mapping[str, Nameable]
    form: NumberForm
    """The spelling of numbers in the source."""
    cells: dict[str, DeclaredCells] = field(default_factory=dict)
    """Columns that were read: of a long table the last few alone, to save memory."""

    @classmethod
    def of(
        cls, table: pa.Table, drafts: Mapping[str, ColumnDraft], form: NumberForm
    ) -> DeclaredTable:
        """Return the drafted columns of a table that relations can name, in the types in which a release reads them."""
        columns = declared_columns(drafts)
        named = table.select(list(columns))
        for place, name in enumerate(columns):
            kind = types_as_read(named.schema, [name]).field(0).type
            if is_text(kind):
                kind = pa.string()
            if kind != named.schema.field(place).type:
                named = named.set_column(place, name, named.column(place).cast(kind))
        return cls(named, columns, form)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    def read(self, name: str) -> DeclaredCells:
        """Return the cells of a column."""
        if name not in self.cells:
            while self.cells and len(self.cells) * self.rows > _MOST_CELLS:
                del self.cells[next(iter(self.cells))]
            self.cells[name] = self._read(name)
        return self.cells[name]

    def _read(self, name: str) -> DeclaredCells:
        column = self.columns[name]
        missing = column.missing or ()
        source = self.table.select([name])
        if isinstance(column, NumberColumn) and not column.form_in(self.form).is_usual:
            written = NumberTexts(column.form_in(self.form), missing)
            source = plain_numbers(source, {name: written})
        chunks = source.column(0)
        kind = values_of(column, missing)
        clean = kind.clean(chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks())
        filled = ~np.asarray(clean.is_null())
        if isinstance(column, NumberColumn):
            scale = 10.0 ** (column.decimals or 0)
            numbers = clean.fill_null(0.0).to_numpy(zero_copy_only=False)
            return DeclaredCells(np.rint(numbers * scale).astype(np.int64), filled)
        if isinstance(column, DateColumn):
            steps = pc.cast(clean, pa.int32() if column.type == "date" else pa.int64())
            return DeclaredCells(
                steps.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64), filled
            )
        codes = kind.encode(clean, None).astype(np.int64)
        labels = kind.labels(clean)
        return DeclaredCells(codes, codes < len(labels), labels)

    def scattered(self, rows: int) -> DeclaredTable:
        """Return this many of the rows in an order without a pattern, or all of them where there are fewer.

        Row i is (i * step) mod n, where the step is close to n times the golden ratio and has no divisor in common with n.
        """
        step = max(1, round(self.rows * 0.6180339887))
        while math.gcd(step, self.rows) > 1:
            step += 1
        places = np.arange(min(rows, self.rows), dtype=np.int64) * step % max(1, self.rows)
        return DeclaredTable(self.table.take(pa.array(places)), self.columns, self.form)


def declared_columns(drafts: Mapping[str, ColumnDraft]) -> dict[str, Nameable]:
    """Return the columns that relations can name, as their drafts declare them."""
    columns: dict[str, Nameable] = {}
    for name, draft in drafts.items():
        column = declared_column(draft)
        if column is not None:
            columns[name] = column
    return columns


def declared_column(draft: ColumnDraft) -> Nameable | None:
    """Return a column as its draft declares it; None where no relation can name it.

    None also where its values are beyond 2^53 steps, as doubles tell these not apart.
    """
    public = {} if draft.is_private else {"public": "drafted"}
    try:
        column = _COLUMN.validate_python({"type": draft.type, **draft.facts, **public})
    except ValidationError:
        return None
    if not isinstance(column, Category | BooleanColumn | NumberColumn | DateColumn):
        return None
    if isinstance(column, NumberColumn):
        has_codes = bool(column.codes)
        if has_codes or column.decimals is None or column.buys_bounds:
            return None
        if max(map(abs, column.clamp)) * 10**column.decimals >= LARGEST:
            return None
    return column
