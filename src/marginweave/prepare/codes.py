"""Codes of a table, block by block: value v of an attribute is v, a missing value is one past the last."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.base.arrow import compute as pc
from marginweave.base.arrow import to_numpy
from marginweave.checkpoints.codecs import pack_codes, unpack_codes
from marginweave.columns import values_of
from marginweave.columns.category import ColumnWords, SetValues, list_offsets
from marginweave.configuration.columns import SetColumn
from marginweave.configuration.preparation import WeightedImputation
from marginweave.configuration.release import Configuration
from marginweave.configuration.sections import INDICATOR
from marginweave.mechanisms.randomness import CellWords
from marginweave.prepare.clean import labels_of
from marginweave.prepare.nested import NestedCodes

Codes = NDArray[np.unsignedinteger]
AnyCode = TypeVar("AnyCode", bound=np.integer)


@dataclass(frozen=True, kw_only=True)
class EncodedTable:
    """Codes of each attribute, in the smallest unsigned type that holds its domain and the missing code.

    `codes[j]` has shape (records,) and values 0 … sizes[j], where sizes[j] means missing. A set has shape (records,
    width): its values in the order of the labels, then the missing code. `labels[j]` names the values; for a private domain
    they are raw texts, so the whole object is sensitive. In a table that is counted, the indicators of sets follow the
    attributes (`with_indicators`). `nested` has the rows of each counted table that the records hold, in a secret order.
    """

    codes: tuple[Codes, ...]
    labels: tuple[tuple[str, ...], ...]
    nested: tuple[NestedCodes, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each attribute."""
        return tuple(len(labels) for labels in self.labels)

    @property
    def records(self) -> int:
        """Exact number of records: private."""
        return len(self.codes[0])


@dataclass(frozen=True)
class EncodedBlocks:
    """Records block by block, in the order of the whole table; private. A pass over the blocks can be repeated.

    `payloads` holds the packed codes of each block, and last their common data: the labels and the numbers of records.
    """

    payloads: Sequence[bytes]

    @cached_property
    def _shared(self) -> dict[str, Any]:
        """Labels, and numbers of records of the blocks."""
        last = self.payloads[len(self)]
        shared: dict[str, Any] = json.loads(last)
        return shared

    @cached_property
    def labels(self) -> tuple[tuple[str, ...], ...]:
        """Values of each attribute; those of a private domain are raw texts."""
        return tuple(map(tuple, self._shared["labels"]))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each attribute."""
        return tuple(map(len, self.labels))

    @cached_property
    def _offsets(self) -> tuple[int, ...]:
        return (0, *accumulate(self._shared["records"]))

    @property
    def offsets(self) -> tuple[int, ...]:
        """Number of the first record of each block, and number of all records at the end."""
        return self._offsets

    @property
    def records(self) -> int:
        """Exact number of records: private."""
        return self.offsets[-1]

    def __len__(self) -> int:
        return len(self.payloads) - 1

    def table(self, block: int) -> EncodedTable:
        """Return the records of one block."""
        arrays = iter(unpack_codes(self.payloads[block]))
        codes = tuple(next(arrays) for _ in self.labels)
        nested = []
        for columns in self._shared.get("nested", ()):
            lengths = next(arrays)
            rows = tuple(next(arrays) for _ in range(columns))
            nested.append(NestedCodes(lengths=lengths, codes=rows))
        return EncodedTable(codes=codes, labels=self.labels, nested=tuple(nested))

    def __iter__(self) -> Iterator[EncodedTable]:
        return map(self.table, range(len(self)))

    def whole(self) -> EncodedTable:
        """Return all records at once, for steps that cannot work block by block."""
        codes_of_blocks = [table.codes for table in self]
        columns = zip(*codes_of_blocks, strict=True)
        codes = tuple(np.concatenate(parts) for parts in columns)
        return EncodedTable(codes=codes, labels=self.labels)


def pack_blocks(tables: Iterable[EncodedTable]) -> Iterator[bytes]:
    """Yield the payloads of `EncodedBlocks`; `tables` has at least one table, all over the same labels. Private."""
    records = []
    labels: tuple[tuple[str, ...], ...] = ()
    nested: list[int] = []
    for table in tables:
        records.append(table.records)
        labels = table.labels
        nested = [len(rows.codes) for rows in table.nested]
        arrays = (array for rows in table.nested for array in (rows.lengths, *rows.codes))
        yield pack_codes((*table.codes, *arrays))
    shared = {"labels": labels, "records": records}
    yield json.dumps(shared | ({"nested": nested} if nested else {})).encode()


def code_type(size: int) -> type[np.unsignedinteger]:
    """Return the smallest unsigned integer type for the codes 0 … size."""
    for kind in (np.uint8, np.uint16):
        if size <= np.iinfo(kind).max:
            return kind
    assert size <= np.iinfo(np.uint32).max
    return np.uint32


def encode_table(
    clean: pa.Table,
    configuration: Configuration,
    words: CellWords | None = None,
) -> EncodedTable:
    """Encode a cleaned table attribute by attribute.

    A number x has the bin i with e_i <= x < e_i+1 (the last bin closed above), a date that of its day: edges are public,
    so this is row-local. A set keeps at most its public cap of values, a uniform choice by `words`. Without `words` no cell is
    cut (tables that are public, or compared internally). Where the values of a set are separate attributes, each has the code
    0 in the records that have the value.

    DP: 1-stable preprocessing.
    """
    codes: list[Codes] = []
    labels: list[tuple[str, ...]] = []
    columns = {}
    for name in configuration.names:
        columns[name] = column_codes(clean, configuration, name, words)
    for attribute in configuration.attributes:
        column, names = columns[attribute.column]
        if attribute.of_set:  # 1, the missing code, where a set lacks the value
            value = names.index(attribute.labels[0])
            is_lacking = (column != value).all(axis=1)
            column = is_lacking.astype(np.uint8)
            names = attribute.labels
        kind = code_type(len(names))
        codes.append(column.astype(kind, copy=False))
        labels.append(names)
    return EncodedTable(codes=tuple(codes), labels=tuple(labels))


def with_indicators(
    table: EncodedTable,
    clean: pa.Table,
    configuration: Configuration,
) -> EncodedTable:
    """Return the table with one more code for each of `indicated_sets`: 1 where the record has an undeclared value, else 0.

    DP: 1-stable preprocessing.
    """
    indicators = []
    for name in configuration.indicated_sets:
        column = configuration.columns[name]
        assert isinstance(column, SetColumn)
        cells = clean.column(name).combine_chunks()
        undeclared = SetValues(column, ()).undeclared(cells)
        indicators.append(undeclared.astype(code_type(len(INDICATOR))))
    codes = (*table.codes, *indicators)
    labels_of_indicators = [INDICATOR] * len(indicators)
    return EncodedTable(codes=codes, labels=(*table.labels, *labels_of_indicators))


def with_undeclared_cells(
    table: EncodedTable, clean: pa.Table, configuration: Configuration
) -> EncodedTable:
    """Return the table in which derived cells that are flagged as not as declared have the last code of their attribute.

    Without a missing value in the domain of the attribute, its missing code is that one already. DP: 1-stable, cell by cell.
    """
    codes = list(table.codes)
    counted = configuration.with_undeclared(configuration.undeclared)
    for j, attribute in enumerate(counted.attributes):
        flags = [name for name in counted.flags_of(attribute.name) if name in clean.column_names]
        if flags and len(attribute.gaps) > 1:
            cells = [to_numpy(clean.column(name).combine_chunks()) for name in flags]
            is_undeclared = np.logical_or.reduce(cells)
            last = table.sizes[j] + 1
            marked = np.where(is_undeclared, last, codes[j])
            codes[j] = marked.astype(code_type(last))
    return replace(table, codes=tuple(codes))


def value_slots(codes: NDArray[AnyCode]) -> Iterator[NDArray[AnyCode]]:
    """Return the values of an attribute, one a record at a time: a set has as many slots as it has values at most."""
    return iter(np.atleast_2d(codes.T))


def joined_codes(parts: Sequence[NDArray[AnyCode]], missing: int) -> NDArray[AnyCode]:
    """Return one attribute of several tables, concatenated; a set has as many slots as the widest of them."""
    if parts[0].ndim > 1:
        width = max(codes.shape[1] for codes in parts)

        def widened(codes: NDArray[AnyCode]) -> NDArray[AnyCode]:
            gap = width - codes.shape[1]
            return np.pad(codes, ((0, 0), (0, gap)), constant_values=missing)

        parts = list(map(widened, parts))
    return np.concatenate(parts)


def column_codes(
    clean: pa.Table,
    configuration: Configuration,
    name: str,
    words: CellWords | None,
) -> tuple[NDArray[np.integer], tuple[str, ...]]:
    """Return codes and labels of one column of a cleaned table, for `encode_table`. DP: 1-stable preprocessing."""
    kind = values_of(configuration.columns[name], ())
    values = clean.column(name).combine_chunks()
    column_words = None
    if words is not None:
        number = configuration.names.index(name)
        column_words = ColumnWords(words, number)
    return kind.encode(values, column_words), kind.labels(values)


Labels = Mapping[str, Sequence[str]]


def encoded_labels(tables: Iterable[pa.Table], configuration: Configuration) -> Labels:
    """Return the values of each private domain, sorted: those that occur, and those its imputation declares. Private."""
    labels: dict[str, set[str]] = {}
    for name in configuration.private_columns:
        impute = getattr(configuration.columns[name], "impute", None)
        has_weights = isinstance(impute, WeightedImputation)
        labels[name] = set(impute.weights) if has_weights else set()
    if labels:
        for table in tables:
            for name, values in labels.items():
                values.update(labels_of(table.column(name)))
    return {name: tuple(sorted(values)) for name, values in labels.items()}


def with_labels(clean: pa.Table, labels: Labels) -> pa.Table:
    """Return the same cells over dictionaries of `labels`, which have all values of the table's dictionaries."""
    for name, values in labels.items():
        place = clean.column_names.index(name)
        dictionary = pa.array(values, pa.string())
        cells = _with_dictionary(clean.column(name), dictionary)
        clean = clean.set_column(place, name, cells)
    return clean


def _with_dictionary(values: pa.ChunkedArray, labels: pa.Array) -> pa.Array:
    """Return the same labels, or sets of labels, over another dictionary."""
    cells = values.combine_chunks()
    if not pa.types.is_list(cells.type):
        return _replace_dictionary(cells, labels)
    lengths = to_numpy(cells.value_lengths().fill_null(0))
    offsets = list_offsets(lengths)
    flat = _replace_dictionary(cells.flatten(), labels)
    return pa.ListArray.from_arrays(offsets, flat, mask=cells.is_null())


def _replace_dictionary(values: pa.DictionaryArray, labels: pa.Array) -> pa.DictionaryArray:
    """Return the same labels over another dictionary."""
    places = pc.index_in(values.dictionary, value_set=labels)
    indices = places.take(values.indices)
    return pa.DictionaryArray.from_arrays(indices, labels)
