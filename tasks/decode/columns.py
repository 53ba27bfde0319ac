"""Codes of one column become clean values again, and clean values what the configuration declares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from marginweave.schemas.arrays import Floats
from marginweave.schemas.configuration.columns import (
    BooleanColumn,
    Category,
    Column,
    DateColumn,
    NumberColumn,
    SetColumn,
)
from marginweave.schemas.configuration.columns.draws import Draw
from marginweave.schemas.configuration.columns.gaps import Run
from marginweave.schemas.configuration.columns.periods import DAY, moment_of
from marginweave.tasks.decode.draws import draw_among, draw_inside

_MONDAY = 3  # 1970-01-01 was a Thursday


def column_values(
    codes: NDArray[np.integer],
    labels: tuple[str, ...],
    column: Column,
    missing_texts: Sequence[str],
    rng: np.random.Generator,
) -> pa.Array:
    """Clean values, as `clean_column` makes them, that are encoded into `codes`; the code after the last label is null.

    No number and no date is one of the `missing_texts`, which would be read back as no value.
    The codes of a set have shape (n, slots): its values increase along a row, whatever slots are empty.
    DP: post-processing.
    """
    missing = codes == len(labels)
    if isinstance(column, NumberColumn):
        return _numbers(np.where(missing, 0, codes), missing, column, column.runs(missing_texts), rng)
    if isinstance(column, DateColumn):
        return _dates(np.where(missing, 0, codes), missing, column, column.runs(missing_texts), rng)
    if isinstance(column, SetColumn):
        return _sets(codes, missing, labels)
    indices = pa.array(codes.astype(np.int32), mask=missing)
    return pa.DictionaryArray.from_arrays(indices, pa.array(labels, pa.string()))


def as_declared(values: pa.Array, column: Column) -> pa.Array:
    """Clean values in the declared type and format.

    Text for a category, a set (joined by its separator) and a date with a `format`; bool for a boolean; int64 for a number of
    0 decimals, otherwise float64; date32 or timestamp[s]. Null stays null.
    """
    if isinstance(column, Category):
        return values.dictionary_decode()
    if isinstance(column, BooleanColumn):
        return pc.equal(values.indices, 1)
    if isinstance(column, NumberColumn):
        return values.cast(pa.int64()) if column.decimals == 0 else values
    if isinstance(column, SetColumn):
        texts = pa.ListArray.from_arrays(
            values.offsets, values.values.dictionary_decode(), mask=values.is_null() if values.null_count else None
        )
        return pc.binary_join(texts, column.separator)
    assert isinstance(column, DateColumn)  # no other kind has values
    return values if column.format is None else _formatted(values, column)


def _numbers(
    codes: NDArray[np.integer],
    missing: NDArray[np.bool_],
    column: NumberColumn,
    runs: Sequence[Run] | None,
    rng: np.random.Generator,
) -> pa.Array:
    """Draws on {g / 10^resolution : first <= g <= last}, the grid of the bin: the float64 nearest to the decimal."""
    scale = 10**column.resolution
    grids = np.array([column.grid(i) for i in range(len(column.labels))], np.float64)
    # The quotient of two integers below 2^53 is the correctly rounded decimal; beyond, doubles are coarser than the grid,
    # and the clip keeps what is rounded inside the bin.
    if runs is None:
        points = draw_inside(grids[:, 0], grids[:, 1], codes, column.draw, 1 / scale, rng)
    else:
        middle = np.floor((grids[:, 0] + grids[:, 1]) / 2)
        points = draw_among(runs, middle, codes, column.draw, 1 / scale, rng)
    values = np.clip(points / scale, (grids[:, 0] / scale)[codes], (grids[:, 1] / scale)[codes])
    return pa.array(values, mask=missing)


def _dates(
    codes: NDArray[np.integer],
    missing: NDArray[np.bool_],
    column: DateColumn,
    runs: Sequence[Run] | None,
    rng: np.random.Generator,
) -> pa.Array:
    """Days, or seconds, of the bin; of a weekday, those within the bounds."""
    if runs is None:
        units = _units(codes, column, column.draw, rng)
    else:
        middle = _units(np.arange(len(column.labels)), column, "midpoint", rng)
        units = draw_among(runs, middle, codes, column.draw, 1.0, rng)
    if column.type == "date":
        return pa.array(units.astype(np.int32), mask=missing).cast(pa.date32())
    return pa.array(units.astype(np.int64), mask=missing).cast(pa.timestamp("s"))


def _units(codes: NDArray[np.integer], column: DateColumn, how: Draw, rng: np.random.Generator) -> Floats:
    if column.bins == "weekday":
        return _on_weekday(codes, column, how, rng)
    edges = np.array(column.edges, np.float64)
    return draw_inside(edges[:-1], edges[1:] - 1, codes, how, 1.0, rng)


def _on_weekday(codes: NDArray[np.integer], column: DateColumn, how: Draw, rng: np.random.Generator) -> Floats:
    first, last = column.edges[0], column.edges[-1] - 1
    per_day = DAY // column.seconds
    start = first // per_day + (np.arange(7) - first // per_day - _MONDAY) % 7
    weeks = (last // per_day - start) // 7
    week = draw_inside(np.zeros(7), weeks.astype(np.float64), codes, how, 1.0, rng)
    second = draw_inside(np.zeros(7), np.full(7, per_day - 1.0), codes, how, 1.0, rng)
    units: Floats = np.clip((start[codes] + 7 * week) * per_day + second, first, last)
    return units


def _sets(codes: NDArray[np.integer], missing: NDArray[np.bool_], labels: tuple[str, ...]) -> pa.Array:
    """Cells of their values in the order of the labels; a cell without any is null."""
    lengths = (~missing).sum(axis=1)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    indices = pa.array(codes[~missing].astype(np.int32))
    flat = pa.DictionaryArray.from_arrays(indices, pa.array(labels, pa.string()))
    return pa.ListArray.from_arrays(offsets, flat, mask=pa.array(lengths == 0))


def _formatted(values: pa.Array, column: DateColumn) -> pa.Array:
    encoded = values.dictionary_encode()
    units = encoded.dictionary.cast(pa.int32() if column.type == "date" else pa.int64()).to_pylist()
    texts = [moment_of(unit * column.seconds).strftime(str(column.format)) for unit in units]
    return pa.array(texts, pa.string()).take(encoded.indices)
