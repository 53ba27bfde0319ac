"""Made-up tables: records that share nothing with each other, so that one draw is many independent trials."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.arrays import Floats, Integers
from marginweave.schemas.budget import Stability
from marginweave.tasks.aggregate.candidates import CandidateSet, flat_keys
from marginweave.tasks.aggregate.count_runs import Room
from marginweave.tasks.encode.blocks import EncodedBlocks, pack_blocks
from marginweave.tasks.encode.codes import EncodedTable, code_type

# Trials of one draw.
CANARIES = 2000
# Made-up tables are small: their counts are never set aside.
ROOM = Room(8 * 10**9, Path(tempfile.gettempdir()))


def table_of(columns: Sequence[Integers], sizes: Sequence[int]) -> EncodedTable:
    """An encoded table from columns of codes; its labels are the codes as text."""
    codes = tuple(column.astype(code_type(size)) for column, size in zip(columns, sizes, strict=True))
    return EncodedTable(codes=codes, labels=tuple(tuple(map(str, range(size))) for size in sizes))


class _Unpacked(EncodedBlocks):
    """One block, unpacked once: an audit passes over it thousands of times."""

    @cached_property
    def _tables(self) -> list[EncodedTable]:
        return list(map(super().table, range(len(self))))

    def table(self, block: int) -> EncodedTable:
        """The records of the block."""
        return self._tables[block]


def one_block(table: EncodedTable) -> EncodedBlocks:
    """The table as a stage gets it."""
    return _Unpacked(list(pack_blocks([table])))


@dataclass(frozen=True, kw_only=True)
class CanaryTable:
    """Units of full contributions over `columns` columns, each alone in all of its cells.

    Unit i has the value i + j in column j, so that no two columns have domains of one size. Under add-remove the first half of
    the places has units, the second half has none; under replace-one a trial is a pair of places, of which the unit is in the
    first (its table: present) or in the second (absent).
    """

    columns: int
    stability: Stability
    canaries: int = CANARIES

    @property
    def places(self) -> int:
        """Places for units, taken or not."""
        return self.canaries * (4 if self.stability.neighbors == "replace-one" else 2)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The size of every domain."""
        return tuple(self.places + j for j in range(self.columns))

    def encoded(self) -> EncodedBlocks:
        """The records, as many alike of every unit as a unit may have."""
        units = np.arange(self.canaries)
        if self.stability.neighbors == "replace-one":
            units = np.concatenate([units, units + 3 * self.canaries])
        units = np.repeat(units, self.stability.records)
        return one_block(table_of([units + j for j in range(self.columns)], self.sizes))

    def split(self, scores: Floats) -> tuple[Floats, Floats]:
        """Scores of trials with and without the canary, from those of all places; the last axis is that of places."""
        blocks = [scores[..., i : i + self.canaries] for i in range(0, self.places, self.canaries)]
        if len(blocks) == 2:
            return blocks[0].ravel(), blocks[1].ravel()
        return (blocks[0] - blocks[1]).ravel(), (blocks[2] - blocks[3]).ravel()


@dataclass(frozen=True, kw_only=True)
class Pinned(CandidateSet):
    """Candidates of which only the cells of the places are drawn: V_k is public, and these are what the audit scores."""

    places: int = field(default=0)

    @classmethod
    def of(cls, table: CanaryTable, length: int) -> Pinned:
        """The candidates of `length`."""
        return cls(length=length, sizes=table.sizes, places=table.places)

    def cells(self, columns: tuple[int, ...]) -> Iterator[Integers]:
        """The flat keys of the places, ascending."""
        yield flat_keys([np.arange(self.places) + j for j in columns], self.shape(columns))

    def contains(self, columns: tuple[int, ...], values: Integers) -> NDArray[np.bool_]:
        """Whether combinations are those of one place."""
        places = values - np.asarray(columns)
        alike: NDArray[np.bool_] = (places == places[:, :1]).all(axis=1) & (places[:, 0] < self.places)
        return alike

    def column_sets(self) -> Iterator[tuple[int, ...]]:
        """All sets of columns of this length."""
        yield from itertools.combinations(range(len(self.sizes)), self.length)
