"""The values of private domains, over all blocks, in the place of those of one block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from marginweave.schemas.configuration.columns import MeasuredColumn
from marginweave.schemas.configuration.preparation import WeightedImputation
from marginweave.schemas.configuration.release import Configuration
from marginweave.tasks.arrow import compute as pc

Labels = Mapping[str, Sequence[str]]


def encoded_labels(found: Labels, configuration: Configuration) -> dict[str, tuple[str, ...]]:
    """The values of each private domain, sorted: those that occur, and those that its imputation declares. Private."""
    labels = {}
    for name, values in found.items():
        column = configuration.columns[name]
        impute = column.impute if isinstance(column, MeasuredColumn) else None
        declared = impute.weights if isinstance(impute, WeightedImputation) else ()
        labels[name] = tuple(sorted({*values, *declared}))
    return labels


def with_labels(clean: pa.Table, labels: Labels) -> pa.Table:
    """The same cells, over dictionaries of `labels`, which have all values of the table's own."""
    for name, values in labels.items():
        place = clean.column_names.index(name)
        cells = _whole(clean.column(name), pa.array(values, pa.string()))
        clean = clean.set_column(place, name, cells)
    return clean


def _whole(values: pa.ChunkedArray, labels: pa.Array) -> pa.Array:
    whole = values.combine_chunks()
    if not pa.types.is_list(whole.type):
        return _over(whole, labels)
    lengths = whole.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, _over(whole.flatten(), labels), mask=whole.is_null())


def _over(values: pa.DictionaryArray, labels: pa.Array) -> pa.DictionaryArray:
    places = pc.index_in(values.dictionary, value_set=labels)
    return pa.DictionaryArray.from_arrays(places.take(values.indices), labels)
