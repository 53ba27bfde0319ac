"""Confidence intervals of counts from marginals: of the cells, or sums of cells, as they were measured."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.released.aggregates import Aggregates, IntArray
from marginweave.schemas.released.measurements import Clique, Marginals, Measurement
from marginweave.tasks.aggregate.selection.compress import Compression
from marginweave.tasks.evaluate.intervals import LEVEL, Intervals, count_interval
from marginweave.tasks.normalize.holders import Holders
from marginweave.tasks.normalize.marginals import compression_of


def marginal_intervals(
    aggregates: Aggregates, marginals: Marginals, configuration: Configuration, *, level: float = LEVEL
) -> tuple[Intervals, ...]:
    """As `release_intervals` for counts from marginals: the `count_interval` of the cell, or sum of cells, as measured.

    No cell was selected: all are in `marginals`, whichever of them have a count above 0 in `aggregates`. A combination with a
    value that was measured together with others has at most the count of all of them, and 0 at least. DP: post-processing.
    """
    compression = compression_of(marginals, configuration)[1]
    holders = Holders([m.attributes for m in marginals.larger])
    found = []
    for told in aggregates.levels:
        low, high = np.zeros(len(told), np.int64), np.zeros(len(told), np.int64)
        for columns, rows in told.by_columns():
            holder = _holder(columns, marginals, holders)
            inside = _cell_intervals(columns, told.values[rows], holder, compression, level)
            low[rows], high[rows] = inside.low, inside.high
        found.append(Intervals(low=low, high=high))
    return tuple(found)


def project(measurement: Measurement, columns: Clique) -> tuple[NDArray[np.int64], int]:
    """Noisy counts of some attributes of a marginal, and how many of its cells each one sums. DP: post-processing."""
    others = tuple(axis for axis, a in enumerate(measurement.attributes) if a not in columns)
    return measurement.counts.sum(axis=others).astype(np.int64), _summed(measurement, columns)


def _holder(columns: Clique, marginals: Marginals, holders: Holders) -> Measurement:
    """The measured marginal that tells a set of columns best: itself, or the one whose sums have the least noise."""
    if len(columns) == 1:
        return marginals.one_way[columns[0]]
    larger = [marginals.larger[i] for i in holders.of(columns)]
    return min(larger, key=lambda m: (m.attributes != columns, m.deviation**2 * _summed(m, columns)))


def _summed(measurement: Measurement, columns: Clique) -> int:
    sizes = zip(measurement.attributes, measurement.counts.shape, strict=True)
    return math.prod(size for a, size in sizes if a not in columns)


def _cell_intervals(
    columns: Clique, values: IntArray, holder: Measurement, compression: Compression, level: float
) -> Intervals:
    table, summed = project(holder, columns)
    codes, alone = list(values.T), np.ones(len(values), np.bool_)
    if len(columns) > 1:
        merged = [compression.codes[a] for a in columns]
        codes = [new[old] for new, old in zip(merged, codes, strict=True)]
        alone = np.logical_and.reduce([np.bincount(new)[code] == 1 for new, code in zip(merged, codes, strict=True)])
    inside = count_interval(table[tuple(codes)], holder.deviation, noise=holder.noise, level=level, cells=summed)
    return Intervals(low=np.where(alone, inside.low, 0), high=inside.high)
