"""Rows over the released domain: values of private columns that were not released are missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marginweave.domain.combinations import Level
from marginweave.prepare.codes import Codes, EncodedBlocks, EncodedTable, code_type

Labels = Sequence[Sequence[str]]


def count_values(blocks: Iterable[EncodedTable], columns: Sequence[int]) -> dict[int, NDArray[np.int64]]:
    """How many records have each value of the attributes `columns`, by attribute; private."""
    counts: dict[int, NDArray[np.int64]] = {}
    for table in blocks:
        for j in columns:
            here = np.bincount(table.codes[j], minlength=table.sizes[j] + 1)[: table.sizes[j]].astype(np.int64)
            counts[j] = counts[j] + here if j in counts else here
    return counts


def released_level(
    first: Level, labels: Labels, private_columns: Sequence[int]
) -> tuple[Level, dict[int, tuple[str, ...]]]:
    """Length 1 with the values of private columns numbered as in the released domain, and that domain by column, sorted.

    A longer level has no private columns and stays as it is.

    DP: post-processing of the released 1-tuples: a value that did not reach its threshold does not appear.
    """
    if not private_columns:
        return first, {}
    values, released = first.values.copy(), {}
    for j in private_columns:
        rows = first.columns[:, 0] == j
        names = [labels[j][int(v)] for v in first.values[rows, 0]]
        released[j] = tuple(sorted(names))
        position = {label: i for i, label in enumerate(released[j])}
        values[rows, 0] = [position[name] for name in names]
    return replace(first, values=values).select(np.lexsort((values[:, 0], first.columns[:, 0]))), released


def recode(table: EncodedTable, released: Mapping[int, tuple[str, ...]]) -> EncodedTable:
    """The table over the released domain: values of private columns that were not released become missing. Private."""
    codes: list[Codes] = list(table.codes)
    labels = list(table.labels)
    for j, values in released.items():
        position = {label: i for i, label in enumerate(values)}
        lookup = np.array([*(position.get(label, len(values)) for label in table.labels[j]), len(values)])
        codes[j] = lookup.astype(code_type(len(values)))[table.codes[j]]
        labels[j] = values
    return EncodedTable(codes=tuple(codes), labels=tuple(labels))


@dataclass(frozen=True)
class ReleasedBlocks:
    """Blocks in which values of private columns that were not released are missing. Private."""

    blocks: EncodedBlocks
    released: Mapping[int, tuple[str, ...]]

    @property
    def offsets(self) -> tuple[int, ...]:
        """The number of the first record of each block, and the number of all records at the end."""
        return self.blocks.offsets

    @property
    def labels(self) -> tuple[tuple[str, ...], ...]:
        """The values of each attribute: public or released."""
        return tuple(self.released.get(j, labels) for j, labels in enumerate(self.blocks.labels))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each attribute."""
        return tuple(len(labels) for labels in self.labels)

    def table(self, block: int) -> EncodedTable:
        """The records of one block."""
        return recode(self.blocks.table(block), self.released)
