"""What is done to records once they are encoded: missing values imputed, and the table resized.

Both wait until bounds are known and values are codes; a draw that is binned is a draw of its bin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.configuration.attributes import Attribute
from marginweave.schemas.configuration.columns import MeasuredColumn
from marginweave.schemas.configuration.release import Configuration
from marginweave.tasks.encode.codes import Codes, EncodedTable, code_type
from marginweave.tasks.mechanisms.randomness import UniformWords
from marginweave.tasks.preprocess.impute import imputation_weights, imputed_codes, sampled_rows

Numbers = NDArray[np.int64]
Streams = Callable[[str, Numbers], UniformWords]
"""Gives the secret words of a purpose for the records of these numbers; those of different purposes are independent."""


def complete_blocks(
    blocks: Iterable[tuple[EncodedTable, Numbers]],
    numbers: Callable[[], Sequence[Numbers]],
    configuration: Configuration,
    streams: Streams,
) -> Iterator[EncodedTable]:
    """The table with declared imputations and, where it is declared, of the public size; block by block.

    DP: 1-stable by imputation, which looks at one cell and public constants; by resize as `ResizeSettings.stability` says.

    Args:
        blocks: the records, labels of private domains with the declared ones among them, and their numbers in the source.
        numbers: of all records, block by block; asked for before a table is resized.
        configuration: what is declared, bounds resolved.
        streams: secret randomness.
    """
    imputed = (_imputed(table, own, configuration, streams) for table, own in blocks)
    yield from imputed if configuration.resize is None else _resized(imputed, numbers(), configuration, streams)


def _weights(configuration: Configuration, labels: Sequence[tuple[str, ...]]) -> dict[int, tuple[float, ...]]:
    """The weight of every code of each attribute that is imputed."""
    weights = {}
    for j, attribute in enumerate(configuration.attributes):
        column = configuration.columns[attribute.columns[0]]
        if len(attribute.columns) == 1 and isinstance(column, MeasuredColumn) and column.impute is not None:
            weights[j] = imputation_weights(column, labels[j])
    return weights


def _imputed(table: EncodedTable, numbers: Numbers, configuration: Configuration, streams: Streams) -> EncodedTable:
    """One word a record, so that no record's draw depends on which others lack a value."""
    codes = list(table.codes)
    for j, weights in _weights(configuration, table.labels).items():
        words = streams(f"impute {configuration.attributes[j].name}", numbers)
        drawn = imputed_codes(weights, words.uniform_words(table.records))
        codes[j] = np.where(codes[j] == table.sizes[j], drawn, codes[j]).astype(codes[j].dtype)
    return replace(table, codes=tuple(codes))


def _resized(
    tables: Iterable[EncodedTable], numbers: Sequence[Numbers], configuration: Configuration, streams: Streams
) -> Iterator[EncodedTable]:
    """Sampled records, then added ones: independent draws of every column, empty sets."""
    settings = configuration.resize
    assert settings is not None
    every = np.concatenate(numbers)
    words = streams("resize", every)
    rows = sampled_rows(len(every), settings, configuration.privacy.stability, words)
    start, table = 0, None
    for table in tables:
        first, last = np.searchsorted(rows, [start, start + table.records])
        places = rows[first:last] - start
        yield replace(table, codes=tuple(codes[places] for codes in table.codes))
        start += table.records
    assert table is not None  # there is a block at least, if without records
    for first in range(len(rows), settings.records, configuration.block_rows):
        added = np.arange(first, min(first + configuration.block_rows, settings.records)) - len(rows)
        yield _added(table, added, configuration, streams)


def _added(table: EncodedTable, added: Numbers, configuration: Configuration, streams: Streams) -> EncodedTable:
    """Records that are drawn, over the domain of `table`."""
    weights = _weights(configuration, table.labels)

    def codes(j: int, attribute: Attribute) -> Codes:
        kind = code_type(table.sizes[j])
        if j not in weights:  # sets alone have no imputation
            return np.full((len(added), *table.codes[j].shape[1:]), table.sizes[j], kind)
        words = streams(f"augment {attribute.name}", added).uniform_words(len(added))
        return imputed_codes(weights[j], words).astype(kind)

    return replace(table, codes=tuple(codes(j, attribute) for j, attribute in enumerate(configuration.attributes)))
