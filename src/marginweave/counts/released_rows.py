"""Rows over the released domain: values of private columns that were not released are missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.domain.combinations import Level
from marginweave.prepare.codes import Codes, EncodedBlocks, EncodedTable, code_type

Labels = Sequence[Sequence[str]]


def count_values(blocks: Iterable[EncodedTable], columns: Sequence[int]) -> dict[int, Integers]:
    """Count the records with each value of the attributes `columns`, by attribute; private."""
    counts: dict[int, Integers] = {}
    for table in blocks:
        for j in columns:
            size = table.sizes[j]
            with_missing = np.bincount(table.codes[j], minlength=size + 1)
            counts_of_block = with_missing[:size].astype(np.int64)
            counts[j] = counts.get(j, 0) + counts_of_block
    return counts


def released_level(
    first: Level, labels: Labels, private_columns: Sequence[int]
) -> tuple[Level, dict[int, tuple[str, ...]]]:
    """Return length 1 with the released values of private columns numbered from 0, and these values by column, sorted.

    A longer level has no private columns and remains as it is.

    DP: post-processing of the released 1-tuples: a value that did not reach its threshold does not appear.
    """
    if not private_columns:
        return first, {}
    values = first.values.copy()
    released = {}
    for j in private_columns:
        labels_of_column = labels[j]
        rows = first.columns[:, 0] == j
        names = [labels_of_column[int(value)] for value in first.values[rows, 0]]
        released[j] = tuple(sorted(names))
        position = _positions(released[j])
        values[rows, 0] = [position[name] for name in names]
    order = np.lexsort((values[:, 0], first.columns[:, 0]))
    renumbered = replace(first, values=values)
    return renumbered.select(order), released


def _positions(labels: Sequence[str]) -> dict[str, int]:
    """Return the position of each label."""
    return {label: i for i, label in enumerate(labels)}


def recode(table: EncodedTable, released: Mapping[int, tuple[str, ...]]) -> EncodedTable:
    """Return the table over the released domain: private values that were not released become missing. Private."""
    codes: list[Codes] = list(table.codes)
    labels = list(table.labels)
    for j, values in released.items():
        position = _positions(values)
        missing = len(values)
        new_codes = [position.get(label, missing) for label in table.labels[j]]
        new_code_of_code = np.array([*new_codes, missing], code_type(missing))
        codes[j] = new_code_of_code[table.codes[j]]
        labels[j] = values
    return EncodedTable(codes=tuple(codes), labels=tuple(labels))


@dataclass(frozen=True)
class ReleasedBlocks:
    """Blocks in which values of private columns that were not released are missing. Private."""

    blocks: EncodedBlocks
    released: Mapping[int, tuple[str, ...]]

    @property
    def offsets(self) -> tuple[int, ...]:
        """Number of the first record of each block, and number of all records at the end."""
        return self.blocks.offsets

    @property
    def labels(self) -> tuple[tuple[str, ...], ...]:
        """Values of each attribute: public or released."""
        return tuple(self.released.get(j, labels) for j, labels in enumerate(self.blocks.labels))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each attribute."""
        return tuple(len(labels) for labels in self.labels)

    def table(self, block: int) -> EncodedTable:
        """Return the records of one block."""
        return recode(self.blocks.table(block), self.released)
