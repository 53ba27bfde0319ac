"""Rows of linked tables that records hold: read from columns of lists, and put into a secret order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Codes, Integers
from marginweave.base.arrow import to_numpy
from marginweave.mechanisms.randomness import CellWords


@dataclass(frozen=True, kw_only=True)
class NestedCodes:
    """The rows of a linked table that some records hold: `lengths`, shape (records,), and the codes of each column. Private.

    `codes[j]` has shape (rows,): the rows of the first record, then those of the second, and so on.
    """

    lengths: Integers
    codes: tuple[Codes, ...]

    @property
    def owners(self) -> Integers:
        """Place of the record that holds each row, shape (rows,)."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @property
    def ranks(self) -> Integers:
        """Number of each row among those of its record, from 0; shape (rows,)."""
        starts = np.cumsum(self.lengths) - self.lengths
        ranks: Integers = np.arange(int(self.lengths.sum())) - np.repeat(starts, self.lengths)
        return ranks

    def shuffled(self, words: CellWords) -> NestedCodes:
        """Return the rows of each record in an order of chance, each order alike.

        A row has the word of its record and of its rank there, and the rows of a record are sorted by their words. So the order
        in a record depends on no other record. DP: 1-stable.
        """
        owners = self.owners
        order = np.lexsort((words.words_of(owners, self.ranks), owners))
        return NestedCodes(lengths=self.lengths, codes=tuple(codes[order] for codes in self.codes))


def nested_codes(column: pa.ChunkedArray) -> NestedCodes:
    """Return the rows in a column of lists of structs, one field for each column."""
    lists = column.combine_chunks()
    rows = lists.flatten()
    fields = (rows.field(i) for i in range(rows.type.num_fields))
    lengths = to_numpy(lists.value_lengths()).astype(np.int64)
    return NestedCodes(lengths=lengths, codes=tuple(map(to_numpy, fields)))
