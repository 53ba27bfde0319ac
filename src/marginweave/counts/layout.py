"""Layout of cells: each set of columns is counted in one dense array, or by sorted keys; and the tiles of a pass."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, product
from typing import Protocol

import numpy as np

from marginweave.base.arrays import Flags
from marginweave.counts.candidates import CandidateSet, Columns
from marginweave.counts.kernels import Steps, Tile
from marginweave.prepare.codes import EncodedTable, code_type, value_slots

Span = tuple[int, int]

# Cells that are counted densely where memory does not matter, 8 bytes each for every core.
MAX_DENSE = 1 << 25
# Records of a tile: its columns, and the cells of the sets that are counted together, stay in the caches of a core.
_TILE = 1 << 16
_FEWEST = 1 << 10
# Flags of the candidates of one tile that are counted by sorted keys.
_TILE_FLAGS = 1 << 24


class Blocks(Protocol):
    """An encoded table in blocks of records; a pass over them can be repeated. Private."""

    @property
    def offsets(self) -> tuple[int, ...]:
        """Number of the first record of each block, and number of all records at the end."""
        ...

    def table(self, block: int) -> EncodedTable:
        """Return the records of one block."""
        ...


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The way in which the candidates of one length are counted; a function of public and released facts.

    Sets of columns are counted densely while their cells are few, in canonical order, and otherwise by sorted keys. A record's
    candidates have an order in which it chooses among them: first those of the sets that are dense where memory is unlimited.
    At length 1 these are all sets, because the sizes of private domains are private and no record's choice may depend on them.
    The sets that fit into memory are the first of these, so that memory changes no choice.
    """

    dense: tuple[Columns, ...]
    places: tuple[int, ...]
    """Place of the first cell of each dense set, and the end of the last."""
    valid: Flags
    """Which of those cells are candidates."""
    steps: Steps
    """The steps over the dense sets."""
    sparse: tuple[Columns, ...]
    sparse_steps: tuple[tuple[int, tuple[int, ...]], ...]
    """The steps over the other sets: number of the set, and slots."""
    slots: int
    kind: type[np.unsignedinteger]
    """The smallest type that holds all values of a tile."""

    @property
    def tile_records(self) -> int:
        """Number of records of a tile."""
        return min(_TILE, max(_FEWEST, _TILE_FLAGS // max(1, len(self.sparse_steps))))

    def tiles(self, blocks: Blocks, span: Span) -> Iterator[tuple[int, Tile]]:
        """Yield the records of a span, tile by tile, each with the number of its first record."""
        start, stop = span
        first_block = bisect_right(blocks.offsets, start) - 1
        for block in range(first_block, len(blocks.offsets) - 1):
            first = blocks.offsets[block]
            last = min(stop, blocks.offsets[block + 1])
            if first >= stop:
                return
            if last <= max(first, start):
                continue
            slots = [slot for codes in blocks.table(block).codes for slot in value_slots(codes)]
            for begin in range(max(start, first), last, self.tile_records):
                end = min(begin + self.tile_records, last)
                tile = np.empty((self.slots, end - begin), self.kind)
                for row, slot in zip(tile, slots, strict=True):
                    row[:] = slot[begin - first : end - first]
                yield begin, tile


def lay_out(
    blocks: Blocks,
    candidates: CandidateSet,
    most_dense: int,
) -> Layout:
    """Return the layout for these candidates, with at most `most_dense` dense cells.

    It depends on the table only by the public widths of its sets.
    """
    first_table = blocks.table(0)
    widths = [1 if codes.ndim == 1 else codes.shape[1] for codes in first_table.codes]
    first_slot = [0, *accumulate(widths)]
    dense: list[Columns] = []
    sparse: list[Columns] = []
    places = [0]
    for columns in candidates.column_sets():
        end = places[-1] + math.prod(candidates.shape(columns))
        if candidates.length == 1 or (candidates.is_dense(columns) and end <= MAX_DENSE):
            dense.append(columns)
            places.append(end)
        else:
            sparse.append(columns)
    fitting = bisect_right(places, min(most_dense, MAX_DENSE)) - 1
    sparse = dense[fitting:] + sparse
    dense = dense[:fitting]
    places = places[: fitting + 1]

    masks = [candidates.mask(columns).ravel() for columns in dense]
    sparse_steps: list[tuple[int, tuple[int, ...]]] = []
    for i, columns in enumerate(sparse):
        sparse_steps += [(i, slots) for slots in _slot_choices(columns, first_slot)]
    return Layout(
        dense=tuple(dense),
        places=tuple(places),
        valid=np.concatenate([np.zeros(0, np.bool_), *masks]),
        steps=_dense_steps(candidates, dense, places, first_slot),
        sparse=tuple(sparse),
        sparse_steps=tuple(sparse_steps),
        slots=first_slot[-1],
        kind=code_type(max(candidates.sizes)),
    )


def _slot_choices(columns: Columns, first_slot: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Return every choice of one slot for each of the columns; column j has the slots from `first_slot[j]` on."""
    slots_of_columns = [range(first_slot[j], first_slot[j + 1]) for j in columns]
    return product(*slots_of_columns)


def _dense_steps(
    candidates: CandidateSet,
    dense: Sequence[Columns],
    places: Sequence[int],
    first_slot: Sequence[int],
) -> Steps:
    """Return the steps over the dense sets of columns, whose cells begin at `places`."""
    slots_of_steps: list[tuple[int, ...]] = []
    radices: list[tuple[int, ...]] = []
    starts: list[int] = []
    for place, columns in zip(places[:-1], dense, strict=True):
        for slots in _slot_choices(columns, first_slot):
            slots_of_steps.append(slots)
            radices.append(candidates.shape(columns))
            starts.append(place)
    shape = (len(starts), candidates.length)
    return Steps(
        slots=np.array(slots_of_steps, np.int64).reshape(shape),
        radices=np.array(radices, np.int64).reshape(shape),
        starts=np.array(starts, np.int64),
    )


def spans(blocks: Blocks, parts: int) -> list[Span]:
    """Return the records cut into `parts` consecutive spans of equal length; some are empty where records are few."""
    records = blocks.offsets[-1]
    return list(pairwise(records * part // parts for part in range(parts + 1)))
