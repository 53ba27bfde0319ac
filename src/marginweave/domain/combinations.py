"""Combinations of values of one length, with their counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

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
        """Yield each set of columns with the slice of its rows, in canonical order."""
        if not len(self):
            return
        differs = self.columns[1:] != self.columns[:-1]
        changes = np.flatnonzero(np.any(differs, axis=1)) + 1
        for start, stop in pairwise([0, *changes.tolist(), len(self)]):
            yield tuple(self.columns[start].tolist()), slice(start, stop)

    def select(self, rows: Flags | Integers) -> Level:
        """Return these rows: by flags, or by positions in the desired order."""
        return replace(
            self,
            columns=self.columns[rows],
            values=self.values[rows],
            counts=self.counts[rows],
        )

    def positive(self, counts: Integers) -> Level:
        """Return the same combinations with other counts, without those whose count is not positive."""
        return replace(self, counts=counts).select(counts > 0)

    @classmethod
    def join(
        cls, length: int, parts: Iterable[tuple[tuple[int, ...], Integers, Integers]]
    ) -> Level:
        """Return the level of some sets of columns, each with its values, shape (n, length), and counts, in this order."""
        columns = [np.zeros((0, length), np.int64)]
        values = [np.zeros((0, length), np.int64)]
        counts = [np.zeros(0, np.int64)]
        for names, rows, numbers in parts:
            row = np.array(names, np.int64)
            columns.append(np.broadcast_to(row, rows.shape))
            values.append(rows)
            counts.append(numbers)
        return cls(
            length=length,
            columns=np.concatenate(columns),
            values=np.concatenate(values),
            counts=np.concatenate(counts),
        )

    @classmethod
    def empty(cls, length: int) -> Level:
        """Return a level without any combination."""
        return cls.join(length, ())
