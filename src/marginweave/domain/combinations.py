"""Combinations of values of one length, with their counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from marginweave.base.arrays import Flags, Integers


@dataclass(frozen=True, kw_only=True)
class Level:
    """All combinations of one length, in canonical order (by columns, then by values).

    `columns` and `values` have shape (n, length): row i is the combination columns[i, 0] = values[i, 0], …, with column
    numbers increasing along the row. `counts` has shape (n,).
    """

    length: int
    columns: Integers
    values: Integers
    counts: Integers

    def __post_init__(self) -> None:
        expected = (len(self.counts), self.length)
        if self.columns.shape != expected or self.values.shape != expected:
            raise ValueError(f"columns and values must have shape {expected}")

    def __len__(self) -> int:
        return len(self.counts)

    def by_columns(self) -> Iterator[tuple[tuple[int, ...], slice]]:
        """Each set of columns with the slice of rows that belong to it, in canonical order."""
        if not len(self):
            return
        change = np.any(self.columns[1:] != self.columns[:-1], axis=1)
        starts = np.concatenate(([0], np.flatnonzero(change) + 1, [len(self)]))
        for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            yield tuple(self.columns[start].tolist()), slice(start, stop)

    def select(self, rows: Flags | Integers) -> Level:
        """These rows: by flags, or by positions in the order that is wanted."""
        return replace(self, columns=self.columns[rows], values=self.values[rows], counts=self.counts[rows])

    def positive(self, counts: Integers) -> Level:
        """The same combinations with these counts, without those that are left with none."""
        return replace(self, counts=counts).select(counts > 0)

    @classmethod
    def join(cls, length: int, parts: Iterable[tuple[tuple[int, ...], Integers, Integers]]) -> Level:
        """The level of some sets of columns, each with its values, shape (n, length), and their counts, in this order."""
        none = np.zeros((0, length), np.int64)
        columns, values, counts = [none], [none], [np.zeros(0, np.int64)]
        for names, rows, numbers in parts:
            columns.append(np.broadcast_to(np.array(names, np.int64), rows.shape))
            values.append(rows)
            counts.append(numbers)
        return cls(
            length=length, columns=np.concatenate(columns), values=np.concatenate(values), counts=np.concatenate(counts)
        )

    @classmethod
    def empty(cls, length: int) -> Level:
        """A level without any combination."""
        return cls.join(length, ())
