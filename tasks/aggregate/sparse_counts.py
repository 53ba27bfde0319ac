"""Counts of keys of which there are too many for a dense array: sorted runs that are merged as they grow, and set aside."""

from __future__ import annotations

import numpy as np

from marginweave.schemas.arrays import Integers
from marginweave.tasks.aggregate.count_runs import CountRun, Room, SortedCounts, make_run
from marginweave.tasks.aggregate.kernels import merge_counts


class SparseCounts:
    """Counts of the keys of some sets of columns, of which at most `most` wait, and at most as many are counted, in memory.

    What is more is set aside in the room as a run; so there are several, whose sum is the counts. Private.
    """

    def __init__(self, sets: int, most: int, room: Room) -> None:
        self._sets = [_SetCounts() for _ in range(sets)]
        self._most = most
        self._room = room
        self._waiting = 0
        self._aside: list[CountRun] = []

    def add(self, index: int, keys: Integers) -> None:
        """Count each of the `keys` of a set once more; raises MachineError if the disk refuses."""
        self._sets[index].add(keys)
        self._waiting += len(keys)
        if self._waiting > self._most:
            self._settle()

    def runs(self) -> list[CountRun]:
        """Runs whose sum is the counts, the last one in memory; nothing is added any more."""
        return [*self._aside, make_run([counts.take()] for counts in self._sets)]

    def _settle(self) -> None:
        for counts in self._sets:
            counts.settle()
        self._waiting = 0
        if sum(counts.held for counts in self._sets) > self._most:
            self._aside.append(make_run(([counts.take()] for counts in self._sets), self._room))


class _SetCounts:
    """Counts of the keys of one set in runs, each at least twice as long as the next: a key is merged a few times only."""

    def __init__(self) -> None:
        self._fresh: list[Integers] = []
        self._runs: list[SortedCounts] = []

    @property
    def held(self) -> int:
        """How many counted keys, some of them more than once."""
        return sum(len(keys) for keys, _ in self._runs)

    def add(self, keys: Integers) -> None:
        """They wait to be sorted."""
        self._fresh.append(keys)

    def settle(self) -> None:
        """Sort what waits, and merge."""
        if not self._fresh:
            return
        keys, counts = np.unique(np.concatenate(self._fresh), return_counts=True)
        self._fresh.clear()
        self._runs.append((keys, counts))
        while len(self._runs) > 1 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
            self._merge_last()

    def take(self) -> SortedCounts:
        """All counts, by increasing keys, which are forgotten here."""
        self.settle()
        while len(self._runs) > 1:
            self._merge_last()
        return self._runs.pop() if self._runs else (np.zeros(0, np.int64), np.zeros(0, np.int64))

    def _merge_last(self) -> None:
        last = self._runs.pop()
        self._runs.append(merge_counts(*self._runs.pop(), *last))
