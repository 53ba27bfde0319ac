"""Codes of clean records: encoded, imputed, changed to keep the rules between columns, and resized."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
from scipy.special import ndtr

from marginweave.base.arrays import Integers, Words
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.columns import MeasuredColumn, NumberColumn
from marginweave.configuration.preparation import (
    GaussianImputation,
    ResizeSettings,
    WeightedImputation,
)
from marginweave.configuration.release import Configuration
from marginweave.mechanisms.randomness import CellWords, KeyedBits, RecordWords
from marginweave.prepare import codes as coding
from marginweave.prepare.clean import CleanBlock, CleanBlocks
from marginweave.prepare.codes import Codes, EncodedTable, code_type
from marginweave.prepare.nested import NestedCodes, nested_codes
from marginweave.prepare.repair import Repair

_WORD = 1 << 64


Streams = Callable[[str, Integers], CellWords]
"""Returns the secret words of a purpose for the records of these numbers; words of different purposes are independent."""


def encode_blocks(
    clean: CleanBlocks,
    configuration: Configuration,
    key: bytes,
) -> Iterator[EncodedTable]:
    """Return the encoded records, imputed and resized, in blocks over the same labels; `configuration` has its bounds.

    DP: stable as `configuration.stability` says.
    """

    def streams(purpose: str, numbers: Integers) -> RecordWords:
        return RecordWords(words=KeyedBits(key=key, purpose=purpose), records=numbers)

    def encoded(block: CleanBlock) -> tuple[EncodedTable, Integers]:
        table = coding.with_labels(block.table, labels)
        words = streams("encode", block.numbers)
        codes = coding.encode_table(table, configuration, words)
        codes = coding.with_undeclared_cells(codes, table, configuration)
        counted = coding.with_indicators(codes, table, configuration)
        return replace(counted, nested=_nested(block, streams)), block.numbers

    labels = coding.encoded_labels((block.table for block in clean), configuration)

    def numbers() -> list[Integers]:
        return [block.numbers for block in clean]

    return complete_blocks(map(encoded, clean), numbers, configuration, streams)


def _nested(block: CleanBlock, streams: Streams) -> tuple[NestedCodes, ...]:
    """Return the rows of linked tables that the records hold, those of each record in an order of chance."""
    return tuple(
        nested_codes(block.nested.column(name)).shuffled(streams(f"rows of{name}", block.numbers))
        for name in block.nested.column_names
    )


def imputation_weights(column: MeasuredColumn, labels: tuple[str, ...]) -> tuple[float, ...]:
    """Return the weight of every code under the column's imputation (docs/sources/data-processing.md); shape (labels,).

    A value that is sampled and then binned is a sample of its bin, so only the bins' probabilities are needed. `uniform`:
    the widths of the bins inside the bounds, the days of each weekday, or equal weights of declared values. `gaussian`: Phi
    over each bin, with the mass beyond the bounds in the outermost bins, like a sample clamped to the bounds. `weights`: as
    declared, by value.
    DP: public constants; `labels` matter for a private domain alone, in which the declared values have to be found.
    """
    impute = column.impute
    if isinstance(impute, WeightedImputation):
        weights = dict.fromkeys(labels, 0.0)
        for text, weight in impute.weights.items():
            label = text if column.private else column.labels[column.code_of(text)]
            weights[label] += weight
        return tuple(weights[label] for label in labels)
    if isinstance(impute, GaussianImputation) and isinstance(column, NumberColumn):
        # Phi at the edges of the bins, 0 and 1 at the outermost
        below = [0.0]
        for edge in column.edges[1:-1]:
            z = (edge - impute.mean) / impute.deviation
            below.append(float(ndtr(z)))
        below.append(1.0)
        shares = [float(high - low) for low, high in pairwise(below)]
        no_special = [0.0] * len(column.special)
        return (*shares, *no_special)
    return column.uniform_weights(labels)


def imputed_codes(weights: tuple[float, ...], words: Words) -> Integers:
    """Return one code for each word, with probabilities proportional to `weights`, each exact to 2^-64; shape (words,).

    A word w selects the first code whose cumulative share of 2^64 is above it.
    DP: a draw of a public distribution.
    """
    total = sum(map(Fraction, weights))
    running = Fraction(0)
    edges = []
    for weight in weights:
        running += Fraction(weight)
        share = running / total
        edges.append(math.floor(share * _WORD))
    # an edge of 2^64, the last one at least, is reached by no word
    reached = np.array([edge for edge in edges if edge < _WORD], np.uint64)
    codes = np.searchsorted(reached, words, side="right")
    return codes.astype(np.int64)


def sampled_rows(
    rows: int,
    settings: ResizeSettings,
    words: CellWords,
) -> Integers:
    """Return row numbers of the records that remain, each up to c times, at most n of them, in increasing order; private.

    docs/sources/data-processing.md: of c n~ copied rows m are sampled, and n of them where m is larger. Every copy stays with
    probability s by itself, so m is Binomial(c n~, s), under both neighboring relations: a fixed share of all copies would
    move with n~, and a replaced unit can leave fewer rows (an empty row of a sheet, a row whose id is dropped). Every copy has
    a uniform word: those below s 2^64 are the sample, and the smallest n of these are a uniform choice among them.
    Stability: take two tables that differ in one unit, theta rows at most, and give all other copies the same words. The
    samples differ in the unit's K <= c theta copies in each table. Cut to n or filled up with the same imputed records, each
    copy of the unit replaces one other record: K replacements at most.
    DP: (c theta)-stable in replacements; what sampling hides is counted by `functional_parameters` alone.

    Args:
        rows: n~, the number of rows.
        settings: n and p, with c = ceil(p) copies and the rate s = p/c.
        words: secret randomness; each copy of a row has a slot.
    """
    all_rows = np.arange(rows)
    words_of_copies = [words.words_of(all_rows, copy) for copy in range(settings.copies)]
    word = np.concatenate(words_of_copies)
    limit = math.floor(settings.rate * _WORD)
    sample = np.arange(len(word)) if limit == _WORD else np.flatnonzero(word < np.uint64(limit))
    if len(sample) > settings.records:
        by_word = np.argsort(word[sample], kind="stable")
        sample = sample[by_word[: settings.records]]
    # copy c of row r has the number c rows + r
    sampled = sample % max(rows, 1)
    return np.sort(sampled).astype(np.int64)


def complete_blocks(
    blocks: Iterable[tuple[EncodedTable, Integers]],
    numbers: Callable[[], Sequence[Integers]],
    configuration: Configuration,
    streams: Streams,
) -> Iterator[EncodedTable]:
    """Yield the table with declared imputations and, where it is declared, of the public size; block by block.

    Records keep the rules between columns after that (`Repair`).

    DP: 1-stable by imputation, which looks at one cell and public constants, and by `Repair`; by resize as
    `ResizeSettings.stability` says.

    Args:
        blocks: the records, labels of private domains with the declared ones among them, and their numbers in the source.
        numbers: returns the numbers of all records, block by block; called before a table is resized.
        configuration: with resolved bounds.
        streams: secret randomness.
    """
    configuration = configuration.with_undeclared(configuration.undeclared)
    imputed = _repaired(blocks, configuration, streams)
    yield from (
        imputed
        if configuration.resize is None
        else _resized(imputed, numbers(), configuration, streams)
    )


def _repaired(
    blocks: Iterable[tuple[EncodedTable, Integers]],
    configuration: Configuration,
    streams: Streams,
) -> Iterator[EncodedTable]:
    """Yield the blocks imputed, with records that keep the rules."""
    repair: Repair | None = None
    for table, numbers in blocks:
        if repair is None:
            repair = _repair(configuration, table)
        imputed = _imputed(table, numbers, configuration, streams)
        words = streams("rules", numbers)
        yield repair(imputed, words)


def _repair(configuration: Configuration, table: EncodedTable) -> Repair:
    """Return the map of records over the domain of a table, which may have indicators after the attributes."""
    attributes = len(configuration.attributes)
    return Repair(configuration, table.labels[:attributes])


def _weights(
    configuration: Configuration,
    labels: Sequence[tuple[str, ...]],
    *,
    added: bool = False,
) -> dict[int, tuple[float, ...]]:
    """Return the weight of every code of each imputed attribute; for records that are `added`, of all that need a value.

    Sets have none.
    """
    weights = {}
    for j, attribute in enumerate(configuration.attributes):
        column = configuration.columns[attribute.column]
        needs_value = added and attribute.name in configuration.undeclared
        is_drawn = attribute.imputed or needs_value
        if is_drawn and isinstance(column, MeasuredColumn):
            weights[j] = imputation_weights(column, labels[j])
    return weights


def _imputed(
    table: EncodedTable,
    numbers: Integers,
    configuration: Configuration,
    streams: Streams,
) -> EncodedTable:
    """Return the table without missing values of imputed attributes.

    Every record has one word, so that its sample does not depend on which other records lack a value.
    """
    codes = list(table.codes)
    rows = np.arange(table.records)
    for j, weights in _weights(configuration, table.labels).items():
        name = configuration.attributes[j].name
        words = streams(f"impute {name}", numbers).words_of(rows)
        drawn = imputed_codes(weights, words)
        is_missing = codes[j] == table.sizes[j]
        complete = np.where(is_missing, drawn, codes[j])
        codes[j] = complete.astype(codes[j].dtype)
    return replace(table, codes=tuple(codes))


def _resized(
    tables: Iterable[EncodedTable],
    numbers: Sequence[Integers],
    configuration: Configuration,
    streams: Streams,
) -> Iterator[EncodedTable]:
    """Yield sampled records, then added ones: independent samples of every column, empty sets."""
    settings = configuration.resize
    assert settings is not None
    all_numbers = np.concatenate(numbers)
    words = streams("resize", all_numbers)
    rows = sampled_rows(len(all_numbers), settings, words)
    start = 0
    table = None
    for table in tables:
        first, last = np.searchsorted(rows, [start, start + table.records])
        places = rows[first:last] - start
        yield replace(table, codes=tuple(codes[places] for codes in table.codes))
        start += table.records
    assert table is not None  # there is at least one block, if without records
    for first in range(len(rows), settings.records, configuration.block_rows):
        end = min(first + configuration.block_rows, settings.records)
        added = np.arange(first, end) - len(rows)
        yield _added(table, added, configuration, streams)


def _added(
    table: EncodedTable,
    added: Integers,
    configuration: Configuration,
    streams: Streams,
) -> EncodedTable:
    """Return sampled records over the domain of `table`; none has a value that is not declared."""
    weights = _weights(configuration, table.labels, added=True)

    def codes(j: int, attribute: Attribute) -> Codes:
        kind = code_type(table.sizes[j])
        if j not in weights:  # only sets have no imputation
            shape = (len(added), *table.codes[j].shape[1:])
            return np.full(shape, table.sizes[j], kind)
        rows = np.arange(len(added))
        words = streams(f"augment {attribute.name}", added).words_of(rows)
        sampled = imputed_codes(weights[j], words)
        return sampled.astype(kind)

    attributes = enumerate(configuration.attributes)
    codes_of_attributes = [codes(j, attribute) for j, attribute in attributes]
    none_undeclared = np.zeros(len(added), np.uint8)
    indicators = [none_undeclared for _ in configuration.indicated_sets]
    records = replace(table, codes=(*codes_of_attributes, *indicators))
    repair = _repair(configuration, table)
    return repair(records, streams("augmented rules", added))
