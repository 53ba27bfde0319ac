"""Counts of keys of which there are too many for a dense array: sorted runs that are merged as they grow."""

from __future__ import annotations

import numpy as np

from marginweave.tasks.aggregate.kernels import Integers, merge_counts

SortedCounts = tuple[Integers, Integers]

NOTHING: SortedCounts = (np.zeros(0, np.int64), np.zeros(0, np.int64))


class SparseCounts:
    """Counts of keys in runs, each at least twice as long as the next, so that a key is merged a few times only. Private."""

    def __init__(self) -> None:
        self._fresh: list[Integers] = []
        self._runs: list[SortedCounts] = []

    def add(self, keys: Integers) -> None:
        """Count each of the `keys` once more; they wait to be sorted."""
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

    def sorted(self) -> SortedCounts:
        """All counts, by increasing keys."""
        self.settle()
        while len(self._runs) > 1:
            self._merge_last()
        return self._runs[0] if self._runs else NOTHING

    def _merge_last(self) -> None:
        last = self._runs.pop()
        self._runs.append(merge_counts(*self._runs.pop(), *last))
