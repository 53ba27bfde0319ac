"""Which of the released tables tell a fit anything: those whose counts differ from what single columns imply."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.released.measurements import CensoredMeasurement
from marginweave.tasks.accounting.plan.cost import fitting_seconds
from marginweave.tasks.estimate.mixture.calibrate import nearest_column
from marginweave.tasks.estimate.mixture.targets import expected_below, surprise

Array = NDArray[np.float64]

EVIDENCE = 2.0
"""A set of columns counts when it differs from what its parts imply by more than so many deviations of pure noise."""


class Telling:
    """Picks tables, from short sets of columns to long ones, while there is time to fit them.

    `seconds` are what is left of it.
    """

    def __init__(self, singles: Sequence[CensoredMeasurement], total: float, seconds: float) -> None:
        self._total = max(total, 1.0)
        self._shares = {}
        for m in singles:
            even = np.full(len(m.counts), self._total / len(m.counts))
            self._shares[m.attributes[0]] = nearest_column(m, even, self._total) / self._total
        self.seconds = seconds - sum(fitting_seconds(m.counts.size) for m in singles)

    def pick(self, tables: Iterable[CensoredMeasurement]) -> list[CensoredMeasurement]:
        """The tables of a length whose counts differ from the product of their columns by more than `EVIDENCE`.

        Most differing first, as many as there is time for; in the order they came in. The others would only have a fit follow
        their noise, and end before it has followed what there is to be seen. DP: post-processing.
        """
        kept: list[tuple[float, int, CensoredMeasurement]] = []
        for number, table in enumerate(tables):
            differs = self._surprise(table)
            if differs > EVIDENCE:
                heapq.heappush(kept, (differs, -number, table))
                self.seconds -= fitting_seconds(table.counts.size)
            while kept and self.seconds < 0:
                self.seconds += fitting_seconds(heapq.heappop(kept)[2].counts.size)
        return [table for _, _, table in sorted(kept, key=lambda entry: -entry[1])]

    def _surprise(self, table: CensoredMeasurement) -> float:
        """In deviations of what noise alone makes of it."""
        if not set(table.attributes) <= self._shares.keys():
            return 0.0
        shares = (self._shares[a] for a in table.attributes)
        means = self._total * functools.reduce(np.multiply.outer, shares)
        known = table.released | table.hidden
        means, deviation, cut = means[known], table.deviation, table.cut
        counts = np.where(table.released[known], table.counts[known], expected_below(means, deviation, cut))
        return surprise(counts - means, means, deviation, cut)
