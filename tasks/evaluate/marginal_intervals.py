"""Confidence intervals of counts from marginals: of the cells, or sums of cells, as they were measured."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.aggregates import Aggregates, IntArray
from marginweave.schemas.configuration import Configuration
from marginweave.schemas.measurements import Clique, Marginals, Measurement
from marginweave.tasks.aggregate.selection.compress import Compression
from marginweave.tasks.evaluate.intervals import LEVEL, Intervals, count_interval
from marginweave.tasks.normalize.marginals import compression_of


def marginal_intervals(
    aggregates: Aggregates, marginals: Marginals, configuration: Configuration, *, level: float = LEVEL
) -> tuple[Intervals, ...]:
    """As `release_intervals` for counts from marginals: the `count_interval` of the cell, or sum of cells, as measured.

    No cell was selected: all are in `marginals`, whichever of them have a count above 0 in `aggregates`. A combination with a
    value that was measured together with others has at most the count of all of them, and 0 at least. DP: post-processing.
    """
    compression = compression_of(marginals, configuration)[1]
    found = []
    for told in aggregates.levels:
        low, high = np.zeros(len(told), np.int64), np.zeros(len(told), np.int64)
        for columns, rows in told.by_columns():
            inside = _cell_intervals(columns, told.values[rows], marginals, compression, level)
            low[rows], high[rows] = inside.low, inside.high
        found.append(Intervals(low=low, high=high))
    return tuple(found)


def holder_of(columns: Clique, marginals: Marginals) -> Measurement:
    """The measured marginal that tells a set of columns best: itself, or the one whose sums have the least noise.

    DP: arithmetic on released deviations.
    """
    if len(columns) == 1:
        return marginals.one_way[columns[0]]
    holders = [m for m in marginals.larger if set(columns) <= set(m.attributes)]
    return min(holders, key=lambda m: (m.attributes != columns, m.deviation**2 * _summed(m, columns)))


def project(measurement: Measurement, columns: Clique) -> tuple[NDArray[np.int64], int]:
    """Noisy counts of some attributes of a marginal, and how many of its cells each one sums. DP: post-processing."""
    others = tuple(axis for axis, a in enumerate(measurement.attributes) if a not in columns)
    return measurement.counts.sum(axis=others).astype(np.int64), _summed(measurement, columns)


def _summed(measurement: Measurement, columns: Clique) -> int:
    sizes = zip(measurement.attributes, measurement.counts.shape, strict=True)
    return math.prod(size for a, size in sizes if a not in columns)


def _cell_intervals(
    columns: Clique, values: IntArray, marginals: Marginals, compression: Compression, level: float
) -> Intervals:
    holder = holder_of(columns, marginals)
    table, summed = project(holder, columns)
    codes, alone = list(values.T), np.ones(len(values), np.bool_)
    if len(columns) > 1:
        merged = [compression.codes[a] for a in columns]
        codes = [new[old] for new, old in zip(merged, codes, strict=True)]
        alone = np.logical_and.reduce([np.bincount(new)[code] == 1 for new, code in zip(merged, codes, strict=True)])
    inside = count_interval(table[tuple(codes)], holder.deviation, noise=holder.noise, level=level, cells=summed)
    return Intervals(low=np.where(alone, inside.low, 0), high=inside.high)
