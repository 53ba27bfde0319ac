"""Codes of a table: value v of an attribute is v, a missing value is one past the last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.schemas.configuration.release import Configuration
from marginweave.tasks.columns import values_of
from marginweave.tasks.columns.sets import ColumnWords
from marginweave.tasks.encode.groups import group_codes
from marginweave.tasks.mechanisms.randomness import CellWords

Codes = NDArray[np.unsignedinteger]
AnyCode = TypeVar("AnyCode", bound=np.integer)


@dataclass(frozen=True, kw_only=True)
class EncodedTable:
    """Codes of each attribute, in the smallest unsigned type that holds its domain and the missing code.

    `codes[j]` has shape (records,) and values 0 … sizes[j]; sizes[j] stands for missing. That of a set has shape (records,
    width): its values in the order of the labels, then the missing code. `labels[j]` names the values; for a private domain
    they are raw texts, so the whole object is sensitive.
    """

    codes: tuple[Codes, ...]
    labels: tuple[tuple[str, ...], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each attribute."""
        return tuple(len(labels) for labels in self.labels)

    @property
    def records(self) -> int:
        """Exact number of records: private."""
        return len(self.codes[0])


def code_type(size: int) -> type[np.unsignedinteger]:
    """The smallest unsigned integer type for the codes 0 … size."""
    return next(t for t in (np.uint8, np.uint16, np.uint32) if size <= np.iinfo(t).max)


def encode_table(clean: pa.Table, configuration: Configuration, words: CellWords | None = None) -> EncodedTable:
    """Encode a cleaned table attribute by attribute.

    A number x has the bin i with e_i <= x < e_i+1 (the last bin closed above), a date that of its day, a group the number of
    its combination: edges and combinations are public, so this is row-local. A set keeps at most its public cap of values, a
    uniform choice by `words`; without them (tables that are public, or compared internally) no cell is cut. Where the values of
    a set are attributes of their own, each has the code 0 in the records that hold it.

    DP: 1-stable preprocessing.

    Raises:
        InputError: a record has a combination that its group, with `outside: error`, does not declare.
    """
    structure = configuration.structure
    groups = {group.name: group for group in structure.grouped} if structure else {}
    codes: list[Codes] = []
    labels: list[tuple[str, ...]] = []
    columns = {name: column_codes(clean, configuration, name, words) for name in configuration.names}
    for attribute in configuration.attributes:
        parts = [columns[name] for name in attribute.columns]
        if attribute.of_set:
            parts = [(_lacks(*parts[0], attribute.labels[0]), attribute.labels)]
        if attribute.name in groups:
            combinations = configuration.member_codes(groups[attribute.name])
            parts = [(group_codes(groups[attribute.name], [c for c, _ in parts], combinations), attribute.labels)]
        code, names = parts[0]
        codes.append(code.astype(code_type(len(names)), copy=False))
        labels.append(names)
    return EncodedTable(codes=tuple(codes), labels=tuple(labels))


def value_slots(codes: NDArray[AnyCode]) -> Iterator[NDArray[AnyCode]]:
    """The values of an attribute, one a record at a time: a set has as many slots as it has values at most."""
    if codes.ndim == 1:
        yield codes
    else:
        yield from codes.T


def _lacks(cells: NDArray[np.integer], labels: tuple[str, ...], value: str) -> NDArray[np.integer]:
    """0 where a set of shape (records, width) holds a value, and 1, the missing code, where not."""
    held: NDArray[np.bool_] = (cells == labels.index(value)).any(axis=1)
    return 1 - held.astype(np.uint8)


def column_codes(
    clean: pa.Table, configuration: Configuration, name: str, words: CellWords | None
) -> tuple[NDArray[np.integer], tuple[str, ...]]:
    """Codes and labels of one column of a cleaned table, as `encode_table` gives them. DP: 1-stable preprocessing."""
    kind, values = values_of(configuration.columns[name], ()), clean.column(name).combine_chunks()
    own = None if words is None else ColumnWords(words, configuration.names.index(name))
    return kind.encode(values, own), kind.labels(values)
