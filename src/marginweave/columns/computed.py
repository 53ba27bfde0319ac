"""Columns that follow from others, row by row: by a mapping, as a difference or as a sum."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Flags, Floats
from marginweave.base.arrow import compute as pc
from marginweave.base.arrow import to_numpy
from marginweave.columns import values_of
from marginweave.columns.base import distinct_texts
from marginweave.configuration.columns import BooleanColumn, Column, NumberColumn
from marginweave.configuration.rules.computed import ComputedColumn, DeterminedColumn
from marginweave.configuration.values import ValueMatcher


def difference_values(
    minuend: pa.Array,
    subtrahend: pa.Array,
    column: Column,
) -> pa.Array:
    """Return clean numbers of a column that is a difference, inside its bounds; null where a clean value is.

    DP: 1-stable preprocessing; a row looks at its own two cells and public constants.
    """
    assert isinstance(column, NumberColumn)
    points = points_of(minuend) - points_of(subtrahend)
    difference = np.round(points, column.resolution)
    bounded = np.clip(difference, *column.clamp)
    return pa.array(bounded, mask=np.isnan(difference))


def computed_values(
    rule: ComputedColumn,
    clean: Mapping[str, pa.Array] | pa.Table,
    columns: Mapping[str, Column],
) -> pa.Array:
    """Return clean values of the column that the rule computes from its sources; null where one of these is.

    DP: 1-stable preprocessing, or post-processing.
    """
    column = columns[rule.computed]
    arrays = []
    for name in rule.sources:
        source = clean[name]
        is_chunked = isinstance(source, pa.ChunkedArray)
        arrays.append(source.combine_chunks() if is_chunked else source)
    if isinstance(rule, DeterminedColumn):
        return _determined(arrays[0], rule, columns)
    total = np.sum([points_of(array) for array in arrays], axis=0)
    if isinstance(column, NumberColumn):
        total = np.round(total, column.resolution)
    return values_like(total, arrays[0])


def _determined(
    by: pa.Array,
    rule: DeterminedColumn,
    columns: Mapping[str, Column],
) -> pa.Array:
    """Return clean values of the column that the rule's mapping gives to the clean values `by`; null where these are."""
    source = columns[rule.by]
    keys = list(rule.mapping)
    if isinstance(source, BooleanColumn):
        keys = [source.labels[source.code_of(key)] for key in keys]
    matcher = ValueMatcher(keys)
    mapped_texts = list(rule.mapping.values())
    declared = values_of(source, ()).declare(by)
    distinct, positions = distinct_texts(declared)
    mapped = []
    for text in distinct.to_pylist():
        place = matcher.index(text)
        mapped.append(mapped_texts[place] if place >= 0 else rule.default)
    distinct_mapped = pa.array(mapped, pa.string())
    mapped_cells = distinct_mapped.take(pa.array(positions))
    texts = pc.if_else(by.is_valid(), mapped_cells, None)
    computed = values_of(columns[rule.column], ())
    return computed.clean(texts)


def points_of(array: pa.Array) -> Floats:
    """Return clean numbers, or dates as days or seconds from 1970-01-01; NaN for null."""
    if pa.types.is_floating(array.type):
        numbers = to_numpy(array.fill_null(np.nan))
        return np.asarray(numbers, np.float64)
    integer = pa.int32() if pa.types.is_date(array.type) else pa.int64()
    units = array.cast(integer).cast(pa.float64())
    filled = units.fill_null(np.nan)
    return np.asarray(to_numpy(filled))


def values_like(points: Floats, like: pa.Array) -> pa.Array:
    """Return the inverse of `points_of`, in the type of another array."""
    missing: Flags = np.isnan(points)
    if pa.types.is_floating(like.type):
        return pa.array(points, mask=missing)
    numbers = np.where(missing, 0, points).astype(np.int64)
    units = pa.array(numbers, mask=missing)
    if pa.types.is_date(like.type):
        units = units.cast(pa.int32())
    return units.cast(like.type)
