"""Test whether columns of linked tables have cells that are not as declared, by their noisy counts. DP: post-processing.

It is the test of the columns of the source (`undeclared`), over both counts of all columns of linked tables jointly. A code is
in the released histograms, whatever the test says; answers and the verdict ignore it where noise explains all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from marginweave.configuration.columns.base import NOT_DECLARED
from marginweave.domain.labels import UndeclaredCells
from marginweave.observations.linked import CountOf, LinkedObservation
from marginweave.observations.tables import Observation
from marginweave.observations.undeclared import counted_last


@dataclass(frozen=True, kw_only=True)
class LinkedUndeclared:
    """The cells of a column of a linked `table` that are not as declared, in a count of its units or rows.

    `total` is the noisy count of all cells of the column, and `total_deviation` the standard deviation of its noise.
    """

    table: str
    column: str
    count_of: CountOf
    cells: UndeclaredCells
    total: float
    total_deviation: float

    @property
    def lower_end(self) -> float:
        """Least share of the cells, at 95 %."""
        return self.cells.share_ends(self.total, self.total_deviation)[0]


def linked_undeclared(observations: Sequence[LinkedObservation]) -> tuple[LinkedUndeclared, ...]:
    """Return the decision on each column that can have such cells, by units and by rows."""
    single = [
        seen
        for seen in observations
        if len(seen.axes) == 1 and seen.axes[0].table and seen.axes[0].texts[-1] == NOT_DECLARED
    ]
    return tuple(_decided(seen, observations, len(single)) for seen in single)


def _decided(
    single: LinkedObservation, observations: Sequence[LinkedObservation], tested: int
) -> LinkedUndeclared:
    """Return the decision on the column of a histogram, one of so many that are `tested`, by all histograms of its draw."""
    axis = single.axes[0]
    beside = [seen for seen in observations if seen.draw == single.draw and axis in seen.axes]
    tables = [single, *(seen for seen in beside if len(seen.axes) > 1)]
    count = counted_last(0, [_places(seen, single) for seen in tables])
    cells = count.cells(axis.name, tested)
    if cells.found:
        # what the grid of weights adds by chance: none to cells that nothing is in
        steps = single.steps if single.count_of == "units" else math.inf
        spread = math.sqrt(count.sigma**2 + cells.count / steps)
        wider = replace(count, sigma=spread).cells(axis.name, tested)
        cells = replace(cells, low=min(cells.low, wider.low), high=wider.high)
    return LinkedUndeclared(
        table=single.table,
        column=axis.column,
        count_of=single.count_of,
        cells=cells,
        total=float(single.counts.sum()),
        total_deviation=single.deviation * math.sqrt(single.counts.size),
    )


def _places(seen: LinkedObservation, single: LinkedObservation) -> Observation:
    """Return a histogram as a marginal in which the column of `single` is attribute 0."""
    counts = np.moveaxis(seen.counts, seen.axes.index(single.axes[0]), 0)
    return Observation(
        attributes=tuple(range(counts.ndim)), counts=counts, deviation=seen.deviation
    )
