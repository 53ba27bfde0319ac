"""Exact counts that may not fit into memory: runs by increasing cells, in memory or in files, and their sum.

Private: a run has exact counts, before any noise.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Integers
from marginweave.checkpoints.spill import discard_blocks, set_aside
from marginweave.checkpoints.store import BlockFile

SortedCounts = tuple[Integers, Integers]

# Number of cells of a piece; while runs are added up, one piece of every run is in memory, and _FAN_IN runs at once.
PIECE = 1 << 15
_FAN_IN = 32
_NOTHING: SortedCounts = np.zeros(0, np.int64), np.zeros(0, np.int64)
# Dense arrays and sparse counts may each take 1/_SHARE of the memory. A cell takes 8 bytes in an array. In a run it takes 16,
# besides the keys that wait to be sorted, and twice all of that where runs are added up.
_SHARE = 4
_DENSE_BYTES = 8
_SPARSE_BYTES = 96


@dataclass(frozen=True)
class MemoryBudget:
    """Limits of counting: bytes of memory, and a private folder for all that does not fit. It changes no count.

    `key` proves that data in the folder were written by this count.
    """

    memory: int
    folder: Path
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    @property
    def dense_cells(self) -> int:
        """Number of cells in the dense arrays of all cores."""
        return self.memory // (_SHARE * _DENSE_BYTES)

    @property
    def sparse_cells(self) -> int:
        """Number of cells that are counted by sorted keys in memory, on all cores."""
        return max(1, self.memory // (_SHARE * _SPARSE_BYTES))


@dataclass(frozen=True)
class CountRun:
    """Counts of the cells of some sets of columns, set by set, by increasing cells.

    `pieces` are in memory or in a file; those of set i begin at `first[i]`. `cells` is the number of cells of all.
    """

    pieces: Sequence[bytes] = field(repr=False)
    first: tuple[int, ...] = field(repr=False)
    cells: int = field(repr=False)

    def of(self, index: int) -> Iterator[SortedCounts]:
        """Yield the pieces of one set: cells, ascending over all of them, and counts."""
        for place in range(self.first[index], self.first[index + 1]):
            piece = np.frombuffer(self.pieces[place], np.int64)
            cells, counts = piece.reshape(2, -1)
            yield cells, counts

    @property
    def sets(self) -> int:
        """Number of sets of columns."""
        return len(self.first) - 1


def make_run(
    sets: Iterable[Iterable[SortedCounts]], memory: MemoryBudget | None = None
) -> CountRun:
    """Return the run of these pieces of each set: in memory, or in a file of the folder of `memory`.

    Raises:
        MachineError: the disk refuses.
    """
    first = [0]
    total = 0

    def packed() -> Iterator[bytes]:
        nonlocal total
        for pieces in sets:
            number = first[-1]
            for piece in pieces:
                for begin in range(0, len(piece[0]), PIECE):
                    cells, counts = (part[begin : begin + PIECE] for part in piece)
                    total += len(cells)
                    number += 1
                    yield np.concatenate([cells, counts]).tobytes()
            first.append(number)

    stored: Sequence[bytes] = (
        list(packed()) if memory is None else set_aside(memory.folder, memory.key, packed())
    )
    return CountRun(stored, tuple(first), total)


def add_runs(runs: Sequence[CountRun], memory: MemoryBudget) -> CountRun:
    """Return the sum of runs over the same sets, at least one run: in memory if there is space for all, or in a file.

    Files of the runs are removed. Raises MachineError if the disk refuses.
    """
    remaining = list(runs)
    while len(remaining) > 1:
        place = None if sum(run.cells for run in remaining) <= memory.sparse_cells else memory
        groups = (remaining[first : first + _FAN_IN] for first in range(0, len(remaining), _FAN_IN))
        remaining = [_add(group, place) if len(group) > 1 else group[0] for group in groups]
    return remaining[0]


def _add(runs: Sequence[CountRun], memory: MemoryBudget | None) -> CountRun:
    def sets() -> Iterator[Iterator[SortedCounts]]:
        for index in range(runs[0].sets):
            yield add_pieces([run.of(index) for run in runs])

    added = make_run(sets(), memory)
    for run in runs:
        if isinstance(run.pieces, BlockFile):
            discard_blocks(run.pieces)
    return added


def add_pieces(streams: Iterable[Iterator[SortedCounts]]) -> Iterator[SortedCounts]:
    """Yield the sum of streams of pieces, each ascending; one piece of each is in memory.

    In every step the cells of all heads are taken up to the least of their last cells, so that all later cells are larger.
    """
    heads: list[tuple[SortedCounts, Iterator[SortedCounts]]] = []
    for stream in streams:
        head = next(stream, None)
        if head is not None:
            heads.append((head, stream))
    while len(heads) > 1:
        edge = min(cells[-1] for (cells, _), _ in heads)
        taken: list[SortedCounts] = []
        following: list[tuple[SortedCounts, Iterator[SortedCounts]]] = []
        for (cells, counts), stream in heads:
            stop = int(np.searchsorted(cells, edge, side="right"))
            taken.append((cells[:stop], counts[:stop]))
            head = (cells[stop:], counts[stop:]) if stop < len(cells) else next(stream, None)
            if head is not None:
                following.append((head, stream))
        heads = following
        yield _sum(taken)
    for head, stream in heads:
        yield head
        yield from stream


def _sum(pieces: Sequence[SortedCounts]) -> SortedCounts:
    """Return the counts of equal cells added up; the stable sort is fast where pieces are sorted already."""
    cells = np.concatenate([piece_cells for piece_cells, _ in pieces])
    counts = np.concatenate([piece_counts for _, piece_counts in pieces])
    order = np.argsort(cells, kind="stable")
    cells = cells[order]
    starts: NDArray[np.intp] = np.flatnonzero(np.diff(cells, prepend=-1))
    return cells[starts], np.add.reduceat(counts[order], starts)


class SparseCounts:
    """Counts of the keys of some sets of columns; in memory at most `most` keys wait, and at most as many are counted.

    Further counts are written to disk as a run, so that there are several runs, whose sum is the counts. Private.
    """

    def __init__(
        self,
        sets: int,
        most: int,
        memory: MemoryBudget,
    ) -> None:
        self.waiting = 0
        """Number of keys that wait to be counted."""
        self._fresh: list[list[Integers]] = [[] for _ in range(sets)]
        self._counted: list[SortedCounts] = [_NOTHING] * sets
        self._most = most
        self._memory = memory
        self._aside: list[CountRun] = []

    @property
    def counted(self) -> int:
        """Number of keys that have a count in memory."""
        return sum(len(keys) for keys, _ in self._counted)

    def add(self, index: int, keys: Integers) -> None:
        """Count each of the `keys` of a set; raises MachineError if the disk refuses."""
        self._fresh[index].append(keys)
        self.waiting += len(keys)
        if self.waiting > self._most:
            self._count()
            if self.counted > self._most:
                self._aside.append(make_run(([counts] for counts in self._counted), self._memory))
                self._counted = [_NOTHING] * len(self._counted)

    def runs(self) -> list[CountRun]:
        """Return runs whose sum is the counts, the last one in memory; nothing may be added after that."""
        self._count()
        return [*self._aside, make_run([counts] for counts in self._counted)]

    def _count(self) -> None:
        """Sort the waiting keys and add them to the counts: at most as many as are in memory, so that each costs few steps."""
        for index, fresh in enumerate(self._fresh):
            if fresh:
                keys, counts = np.unique(np.concatenate(fresh), return_counts=True)
                self._counted[index] = _sum([self._counted[index], (keys, counts)])
                fresh.clear()
        self.waiting = 0
