"""What is done to a table once it is encoded: missing values imputed, and the table resized.

Both wait until bounds are known and values are codes; a draw that is binned is a draw of its bin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.attributes import Attribute
from marginweave.schemas.columns import MeasuredColumn
from marginweave.schemas.configuration import Configuration
from marginweave.schemas.preparation import WeightedImputation
from marginweave.tasks.budget.randomness import UniformWords
from marginweave.tasks.encode.codes import Codes, EncodedTable, code_type
from marginweave.tasks.preprocess.impute import imputation_weights, imputed_codes
from marginweave.tasks.preprocess.resize import sampled_rows

Streams = Callable[[str], UniformWords]
"""Gives the secret stream of a purpose; streams of different purposes are independent."""


def complete_table(table: EncodedTable, configuration: Configuration, streams: Streams) -> EncodedTable:
    """The table with declared imputations and, where it is declared, of the public size.

    DP: 1-stable by imputation, which looks at one cell and public constants; by resize as `ResizeSettings.stability` says.
    """
    weights = {}
    for j, attribute in enumerate(configuration.attributes):
        column = configuration.columns[attribute.columns[0]]
        if len(attribute.columns) == 1 and isinstance(column, MeasuredColumn) and column.impute is not None:
            table = _with_declared(table, j, column) if attribute.private else table
            weights[j] = imputation_weights(column, table.labels[j])
            table = _imputed(table, j, weights[j], streams(f"impute {attribute.name}"))
    return table if configuration.resize is None else _resized(table, configuration, weights, streams)


def _imputed(table: EncodedTable, j: int, weights: tuple[float, ...], words: UniformWords) -> EncodedTable:
    """One word a record, so that no record's draw depends on which others lack a value."""
    codes = table.codes[j]
    drawn = imputed_codes(weights, words.uniform_words(table.records))
    return _with_codes(table, j, np.where(codes == table.sizes[j], drawn, codes).astype(codes.dtype))


def _resized(
    table: EncodedTable, configuration: Configuration, weights: dict[int, tuple[float, ...]], streams: Streams
) -> EncodedTable:
    """Sampled records, then added ones: independent draws of every column, empty sets."""
    settings = configuration.resize
    assert settings is not None
    rows = sampled_rows(table.records, settings, configuration.privacy.stability, streams("resize"))
    added = settings.records - len(rows)
    codes = []
    for j, attribute in enumerate(configuration.attributes):
        more = _added(table, j, attribute, weights.get(j), streams, added)
        codes.append(np.concatenate([table.codes[j][rows], more]).astype(table.codes[j].dtype))
    return replace(table, codes=tuple(codes))


def _added(
    table: EncodedTable,
    j: int,
    attribute: Attribute,
    weights: tuple[float, ...] | None,
    streams: Streams,
    count: int,
) -> NDArray[np.integer]:
    if weights is None:  # sets alone have no imputation
        return np.full((count, *table.codes[j].shape[1:]), table.sizes[j], np.int64)
    return imputed_codes(weights, streams(f"augment {attribute.name}").uniform_words(count))


def _with_declared(table: EncodedTable, j: int, column: MeasuredColumn) -> EncodedTable:
    """The declared values of an imputation among the labels of a private domain, whether they occur or not."""
    declared = column.impute.weights if isinstance(column.impute, WeightedImputation) else ()
    labels = tuple(sorted({*table.labels[j], *declared}))
    place = {label: code for code, label in enumerate(labels)}
    mapping = np.array([*(place[label] for label in table.labels[j]), len(labels)], code_type(len(labels)))
    table = _with_codes(table, j, mapping[table.codes[j]])
    return replace(table, labels=(*table.labels[:j], labels, *table.labels[j + 1 :]))


def _with_codes(table: EncodedTable, j: int, codes: Codes) -> EncodedTable:
    return replace(table, codes=(*table.codes[:j], codes, *table.codes[j + 1 :]))
