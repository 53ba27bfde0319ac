"""Exact counts that may be more than memory holds: runs by increasing cells, in memory or in files, and their sum.

Private: a run holds what was counted, before any noise.
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

# Cells of a piece, of which one of every run is in memory while runs are added up, and how many runs are at once.
PIECE = 1 << 15
_FAN_IN = 32
_NOTHING: SortedCounts = np.zeros(0, np.int64), np.zeros(0, np.int64)
# Shares of the memory that dense arrays and sparse counts may take, and bytes that a cell takes of each: 8 in an array; 16 in a
# run, beside what waits to be sorted, and all again, twice, where runs are added up.
_SHARE = 4
_DENSE_BYTES, _SPARSE_BYTES = 8, 96


@dataclass(frozen=True)
class MemoryBudget:
    """What counting may take: bytes of memory, and a private folder for what these do not hold. It changes no count.

    `key` proves that what is read there was written by this count.
    """

    memory: int
    folder: Path
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    @property
    def dense_cells(self) -> int:
        """Cells in the dense arrays of all cores together."""
        return self.memory // (_SHARE * _DENSE_BYTES)

    @property
    def sparse_cells(self) -> int:
        """Cells that are counted by sorted keys in memory, on all cores together."""
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
        """The pieces of one set: cells, ascending over all of them, and counts."""
        for place in range(self.first[index], self.first[index + 1]):
            cells, counts = np.frombuffer(self.pieces[place], np.int64).reshape(2, -1)
            yield cells, counts

    @property
    def sets(self) -> int:
        """How many sets of columns."""
        return len(self.first) - 1


def make_run(sets: Iterable[Iterable[SortedCounts]], memory: MemoryBudget | None = None) -> CountRun:
    """The run of these pieces of each set: in memory, or in a file of its folder.

    Raises:
        MachineError: the disk refuses.
    """
    first, total = [0], 0

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

    stored: Sequence[bytes] = list(packed()) if memory is None else set_aside(memory.folder, memory.key, packed())
    return CountRun(stored, tuple(first), total)


def add_runs(runs: Sequence[CountRun], memory: MemoryBudget) -> CountRun:
    """The sum of runs over the same sets, at least one: in memory if it holds all of them, or in a file.

    Files of the runs are removed. Raises MachineError if the disk refuses.
    """
    left = list(runs)
    while len(left) > 1:
        place = None if sum(run.cells for run in left) <= memory.sparse_cells else memory
        groups = (left[first : first + _FAN_IN] for first in range(0, len(left), _FAN_IN))
        left = [_add(group, place) if len(group) > 1 else group[0] for group in groups]
    return left[0]


def _add(runs: Sequence[CountRun], memory: MemoryBudget | None) -> CountRun:
    sets = (add_pieces([run.of(index) for run in runs]) for index in range(runs[0].sets))
    added = make_run(sets, memory)
    for run in runs:
        if isinstance(run.pieces, BlockFile):
            discard_blocks(run.pieces)
    return added


def add_pieces(streams: Iterable[Iterator[SortedCounts]]) -> Iterator[SortedCounts]:
    """The sum of streams of pieces, each ascending; one piece of each is in memory.

    In every step all heads are taken up to the least of their last cells, so that what comes later is larger.
    """
    heads = [(head, stream) for stream in streams if (head := next(stream, None)) is not None]
    while len(heads) > 1:
        edge = min(cells[-1] for (cells, _), _ in heads)
        taken, rest = [], []
        for (cells, counts), stream in heads:
            stop = int(np.searchsorted(cells, edge, side="right"))
            taken.append((cells[:stop], counts[:stop]))
            head = (cells[stop:], counts[stop:]) if stop < len(cells) else next(stream, None)
            if head is not None:
                rest.append((head, stream))
        heads = rest
        yield _sum(taken)
    for head, stream in heads:
        yield head
        yield from stream


def _sum(pieces: Sequence[SortedCounts]) -> SortedCounts:
    """The counts of equal cells added up; the stable sort finds what is sorted already."""
    cells, counts = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    order = np.argsort(cells, kind="stable")
    cells = cells[order]
    starts: NDArray[np.intp] = np.flatnonzero(np.diff(cells, prepend=-1))
    return cells[starts], np.add.reduceat(counts[order], starts)


class SparseCounts:
    """Counts of the keys of some sets of columns, of which at most `most` wait, and at most as many are counted, in memory.

    What is more is set aside as a run; so there are several, whose sum is the counts. Private.
    """

    def __init__(self, sets: int, most: int, memory: MemoryBudget) -> None:
        self.waiting = 0
        """How many keys wait to be counted."""
        self._fresh: list[list[Integers]] = [[] for _ in range(sets)]
        self._counted: list[SortedCounts] = [_NOTHING] * sets
        self._most = most
        self._memory = memory
        self._aside: list[CountRun] = []

    @property
    def counted(self) -> int:
        """How many keys have a count in memory."""
        return sum(len(keys) for keys, _ in self._counted)

    def add(self, index: int, keys: Integers) -> None:
        """Count each of the `keys` of a set once more; raises MachineError if the disk refuses."""
        self._fresh[index].append(keys)
        self.waiting += len(keys)
        if self.waiting > self._most:
            self._count()
            if self.counted > self._most:
                self._aside.append(make_run(([counts] for counts in self._counted), self._memory))
                self._counted = [_NOTHING] * len(self._counted)

    def runs(self) -> list[CountRun]:
        """Runs whose sum is the counts, the last one in memory; nothing is added any more."""
        self._count()
        return [*self._aside, make_run([counts] for counts in self._counted)]

    def _count(self) -> None:
        """Sort what waits and add it to the counts: as many keys as are in memory at most, so that each costs a few steps."""
        for index, fresh in enumerate(self._fresh):
            if fresh:
                keys, counts = np.unique(np.concatenate(fresh), return_counts=True)
                self._counted[index] = _sum([self._counted[index], (keys, counts)])
                fresh.clear()
        self.waiting = 0
