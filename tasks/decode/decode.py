"""Codes become values again: labels for categories, uniform draws inside the bin for numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.schemas.aggregates import Domain
from marginweave.schemas.columns import Column, NumberColumn
from marginweave.schemas.errors import InputError


def decode_records(records: NDArray[np.integer], domain: Domain, columns: Mapping[str, Column], seed: int) -> pa.Table:
    """Turn encoded records into a table of declared types, in declared column order.

    A category becomes its label (string). A number becomes a uniform draw on {g / 10^resolution : first <= g <= last}, the
    grid of its bin (`NumberColumn.grid`): int64 where `decimals` is declared 0, otherwise the float64 nearest to the
    decimal. A missing value becomes null. Encoding a decoded value gives back its code.

    Args:
        records: Codes, shape (n, columns); `domain.sizes[j]` is the missing value of column j.
        domain: Names and labels of the columns of `records`.
        columns: The declared columns, by name and in declared order.
        seed: Seed of the draws; each column has a stream of its own.

    Returns:
        A table of n rows. DP: post-processing.

    Raises:
        InputError: if `domain` does not have a declared column, or not its bins.
    """
    positions = {name: j for j, name in enumerate(domain.names)}
    arrays = {}
    for name, column in columns.items():
        if name not in positions:
            raise InputError(f"columns.{name} is not in the domain of the records")
        codes, labels = records[:, positions[name]], domain.labels[positions[name]]
        if not isinstance(column, NumberColumn):
            arrays[name] = _labels(codes, labels)
        elif len(labels) == len(column.labels):
            rng = np.random.default_rng([seed, positions[name]])  # post-processing
            arrays[name] = _numbers(codes, column, rng)
        else:
            raise InputError(
                f"columns.{name} has {len(column.labels)} bins; the domain of the records has {len(labels)}"
            )
    return pa.table(arrays)


def _labels(codes: NDArray[np.integer], labels: tuple[str, ...]) -> pa.Array:
    return pa.array(labels, pa.string()).take(pa.array(codes, mask=codes == len(labels)))


def _numbers(codes: NDArray[np.integer], column: NumberColumn, rng: np.random.Generator) -> pa.Array:
    scale = 10**column.resolution
    grids = [column.grid(i) for i in range(len(column.labels))]
    missing = codes == len(grids)
    present = np.where(missing, 0, codes)
    first = np.array([float(low) for low, _ in grids])[present]
    steps = np.array([float(high - low + 1) for low, high in grids])[present]
    # The quotient of two integers below 2^53 is the correctly rounded decimal; beyond, doubles are coarser than the grid,
    # and the clip keeps what is rounded inside the bin.
    values = (first + np.floor(rng.random(len(codes)) * steps)) / scale
    lowest, highest = (np.array([grid[side] / scale for grid in grids])[present] for side in (0, 1))
    values = np.clip(values, lowest, highest)
    return pa.array(values.astype(np.int64) if column.decimals == 0 else values, mask=missing)
