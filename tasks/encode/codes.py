"""Codes of a table: value v of a column is v, a missing value is one past the last."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.schemas.columns import NumberColumn
from marginweave.schemas.configuration import Configuration

Codes = NDArray[np.unsignedinteger]


@dataclass(frozen=True, kw_only=True)
class EncodedTable:
    """Column-major codes, each column in the smallest unsigned type that holds its domain and the missing code.

    `codes[j]` has shape (records,) and values 0 … sizes[j]; sizes[j] stands for missing. `labels[j]` names the values; for
    a private domain they are raw texts, so the whole object is sensitive.
    """

    codes: tuple[Codes, ...]
    labels: tuple[tuple[str, ...], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each column."""
        return tuple(len(labels) for labels in self.labels)

    @property
    def records(self) -> int:
        """Exact number of records: private."""
        return len(self.codes[0])


def code_type(size: int) -> type[np.unsignedinteger]:
    """The smallest unsigned integer type for the codes 0 … size."""
    return next(t for t in (np.uint8, np.uint16, np.uint32) if size <= np.iinfo(t).max)


def encode_table(clean: pa.Table, configuration: Configuration) -> EncodedTable:
    """Encode a cleaned table column by column.

    A number x has the bin i with e_i <= x < e_i+1 (the last bin closed above): edges are public, so this is row-local.

    DP: 1-stable preprocessing.
    """
    codes, labels = [], []
    for name, column in configuration.columns.items():
        values = clean.column(name).combine_chunks()
        if isinstance(column, NumberColumn):
            names = column.labels
            code = bin_numbers(values, column)
        else:
            names = tuple(values.dictionary.to_pylist())
            code = np.where(
                values.indices.is_null().to_numpy(zero_copy_only=False),
                len(names),
                values.indices.fill_null(0).to_numpy(zero_copy_only=False),
            )
        codes.append(code.astype(code_type(len(names))))
        labels.append(names)
    return EncodedTable(codes=tuple(codes), labels=tuple(labels))


def bin_numbers(values: pa.Array, column: NumberColumn) -> NDArray[np.int64]:
    """Bin codes of float64 `values` inside the bounds; null becomes the missing code, the number of bins."""
    bins = len(column.edges) - 1
    numbers = values.fill_null(column.edges[0]).to_numpy(zero_copy_only=False)
    code = np.searchsorted(np.asarray(column.edges), numbers, side="right") - 1
    code = np.minimum(code, bins - 1)
    return np.where(values.is_null().to_numpy(zero_copy_only=False), bins, code)
