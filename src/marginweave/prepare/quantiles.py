"""Quantiles of a column from a noisy fine marginal over public cells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Integers
from marginweave.columns.base import binned
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.columns.scales import BoughtBins, QuantileBins


def fine_counts(values: pa.Array, column: NumberColumn) -> Integers:
    """How many values lie in each fine cell of the column, as in bins; missing ones in none. Private.

    A row is in one cell at most.
    """
    cells = column.cells[0]
    points = values.fill_null(cells[0]).to_numpy(zero_copy_only=False)
    return np.bincount(binned(values, points, cells), minlength=len(cells))[:-1].astype(np.int64)


def bought_bins(column: NumberColumn, counts: Integers, sigma: float) -> BoughtBins:
    """The bins of a column with quantiles, from the noisy `counts` of its fine cells. DP: post-processing."""
    assert isinstance(column.bins, QuantileBins)
    cells, smallest = column.cells
    edges = quantile_edges(cells, counts, column.bins.quantiles)
    noisy = tuple(counts.tolist())
    return BoughtBins(edges=edges, cells=cells, counts=noisy, deviation=sigma, smallest=smallest)


def quantile_edges(cells: Sequence[float], counts: Integers, number: int) -> tuple[float, ...]:
    """`number` bins of whole cells with about as many records each.

    The records below each edge are the nondecreasing sequence nearest to the sums of noisy counts (isotonic regression), and
    at least 0. Each bin takes cells while it comes nearer to its part of what is left; one cell at least, and it leaves one
    to each bin after it. So a value that very many have gets a bin of its own. DP: post-processing.

    Args:
        cells: Edges of the cells, at least `number` + 1.
        counts: Noisy counts of the cells.
        number: Bins.
    """
    from scipy.optimize import isotonic_regression

    below = np.append(0.0, np.maximum(isotonic_regression(np.cumsum(counts, dtype=np.float64)).x, 0.0))
    edges, place = [cells[0]], 0
    for bins in range(number, 1, -1):
        aim, last = below[place] + (below[-1] - below[place]) / bins, len(cells) - bins
        at = int(np.clip(np.searchsorted(below, aim), place + 1, last))
        if at > place + 1 and aim - below[at - 1] < below[at] - aim:
            at -= 1
        edges.append(cells[at])
        place = at
    return (*edges, cells[-1])
