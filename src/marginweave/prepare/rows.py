"""Raw rows become clean records, at most the declared number for each person; one block at a time is in memory.

Rows of a subject can be anywhere in the source. They are grouped by the digest of the subject's id: the source is scattered
into a public number of partitions, each is bounded or joined by itself, and the remaining rows are brought back into the
order of the source. So neither the records, nor their order, nor a choice among them depends on blocks or partitions.

Bounding and joining look at the rows of one subject at a time. Coupling: a row's word is uniform and independent of every other
row's, so the choice among the rows of one subject has the same distribution whatever other subjects there are. Two tables
that differ in one subject can be given the same words for all other rows, and then differ in that subject's rows alone:
theta of them at most.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Flags, Integers, Words
from marginweave.base.arrow import compute as pc
from marginweave.base.arrow import to_numpy
from marginweave.checkpoints.codecs import compact_table, pack_table, plain_table, unpack_table
from marginweave.checkpoints.spill import Spill
from marginweave.columns.base import distinct_texts
from marginweave.columns.category import distinct_sets, lowest_words
from marginweave.configuration.privacy import SubjectUnit
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import ValueMatcher
from marginweave.mechanisms.randomness import CellWords, KeyedBits, RecordWords
from marginweave.prepare.clean import CleanBlock, clean_table

_WIDTH = 16
# Columns that are added to those of a source: no configuration has such names.
_ROW = ""
_SUBJECT = " subject"


def prepare_blocks(
    raw: Iterable[pa.Table],
    configuration: Configuration,
    key: bytes,
    folder: Path,
) -> Iterator[CleanBlock]:
    """Yield clean rows of a raw table with the columns `source_names`: theta rows of a subject, or one joined record.

    DP: stable as `configuration.privacy.stability` says.

    Args:
        raw: the blocks of the table; with subjects to bound they are read twice.
        configuration: of the release.
        key: secret of the run, for the digests of subjects and the choice of rows.
        folder: private folder on disk for rows that do not remain in memory.
    """
    subject = configuration.privacy.subject
    if subject is None:
        for numbers, table in _numbered(raw):
            yield CleanBlock(clean_table(table, configuration), numbers)
        return
    with Spill(folder) as scattered, Spill(folder) as remaining:
        starts = _scatter(raw, configuration, subject, key, scattered)
        if subject.join:
            _join(configuration, starts, scattered, remaining)
            yield from _gathered(raw, len(starts) - 1, remaining, configuration)
            return
        _bound(configuration, key, starts, scattered, remaining)
        for block, (_, table) in enumerate(_numbered(raw)):
            numbers_and_rows = b"".join(remaining.pieces(block))
            pairs = np.frombuffer(numbers_and_rows, np.int64).reshape(-1, 2)
            order = np.argsort(pairs[:, 0])
            rows, rows_of_unit = pairs[order].T
            taken = table.take(pa.array(rows - starts[block]))
            nested = [name for name in configuration.nested_names if name in taken.column_names]
            yield CleanBlock(
                clean_table(taken, configuration),
                rows,
                rows_of_unit=rows_of_unit,
                nested=taken.select(nested),
            )


def _numbered(raw: Iterable[pa.Table]) -> Iterator[tuple[Integers, pa.Table]]:
    """Yield every block with the numbers of its rows in the source."""
    start = 0
    for table in raw:
        end = start + table.num_rows
        yield np.arange(start, end), table
        start = end


def _scatter(
    raw: Iterable[pa.Table],
    configuration: Configuration,
    subject: SubjectUnit,
    key: bytes,
    shelves: Spill,
) -> list[int]:
    """Write every row that has a subject to the partition of its subject: number and digest, and for a join its cells.

    Returns:
        The number of the first row of each block, and that of all rows at the end.
    """
    column = subject.column
    missing = configuration.missing_ids
    starts = [0]
    for numbers, table in _numbered(raw):
        ids = table.column(column).combine_chunks()
        digests, has_subject = subject_digests(ids, subject, missing, key, numbers)
        flags = (name for name in configuration.undeclared_flags if name in table.column_names)
        joined = [*configuration.raw_names, *flags]
        buffers = [None, pa.py_buffer(digests)]
        owners = pa.Array.from_buffers(pa.binary(_WIDTH), len(digests), buffers)
        cells = table.select(joined if subject.join else [])
        cells = cells.append_column(_ROW, pa.array(numbers))
        cells = cells.append_column(_SUBJECT, owners)
        # so that the piece of a partition is a slice, without a separate dictionary
        cells = plain_table(cells)
        partitions = configuration.partitions
        partition_of_digest = digests[:, 0] % np.uint64(partitions)
        # rows without a subject come after the last partition
        partition = np.where(has_subject, partition_of_digest, partitions)
        order = np.argsort(partition, kind="stable")
        edges = np.searchsorted(partition[order], np.arange(partitions + 1))
        cells = cells.take(pa.array(order))
        for shelf, (first, end) in enumerate(pairwise(edges.tolist())):
            if end > first:
                piece = cells.slice(first, end - first)
                shelves.put(shelf, pack_table(piece))
        starts.append(starts[-1] + table.num_rows)
    return starts


def _partitions(
    configuration: Configuration, scattered: Spill
) -> Iterator[tuple[pa.Table, Integers]]:
    """Yield the rows of each partition, small partitions combined, and the subject of each row as a number.

    Rows of a partition, and so of a subject, are in the order of the source.
    """
    pieces: list[pa.Table] = []
    for partition in range(configuration.partitions):
        pieces += map(unpack_table, scattered.pieces(partition))
        is_last = partition + 1 == configuration.partitions
        rows = sum(piece.num_rows for piece in pieces)
        if not pieces or not (is_last or rows >= configuration.block_rows):
            continue
        table = compact_table(pa.concat_tables(pieces))
        pieces.clear()
        digests = table.column(_SUBJECT).combine_chunks()
        subjects = digests.dictionary_encode().indices
        yield table, subjects.to_numpy().astype(np.int64)


def _bound(
    configuration: Configuration,
    key: bytes,
    starts: list[int],
    scattered: Spill,
    remaining: Spill,
) -> None:
    """Write the numbers of the rows that remain, by block, and with each how many rows its subject has."""
    bits = KeyedBits(key=key, purpose="subjects")
    most = configuration.privacy.stability.records
    for table, subjects in _partitions(configuration, scattered):
        numbers = table.column(_ROW).to_numpy()
        words = RecordWords(words=bits, records=numbers)
        is_counted = kept_rows(subjects, most, words)
        rows_of_subject = np.bincount(subjects)[subjects]
        rows = np.stack([numbers, rows_of_subject], axis=1)
        counted = rows[is_counted]
        counted = counted[np.argsort(counted[:, 0])]
        ends = np.searchsorted(counted[:, 0], starts[1:-1])
        for block, part in enumerate(np.split(counted, ends)):
            if len(part):
                remaining.put(block, part.tobytes())


def _join(
    configuration: Configuration,
    starts: list[int],
    scattered: Spill,
    remaining: Spill,
) -> None:
    """Write the joined records, by the block that has the first row of each."""
    for table, subjects in _partitions(configuration, scattered):
        numbers = table.column(_ROW).to_numpy()
        clean = clean_table(table, configuration)
        joined = join_subjects(clean, subjects)
        first = np.full(joined.num_rows, np.iinfo(np.int64).max)
        np.minimum.at(first, subjects, numbers)
        joined = joined.append_column(_ROW, pa.array(first))
        block = np.searchsorted(starts[1:-1], first, side="right")
        for place in np.unique(block).tolist():
            rows = pa.array(np.flatnonzero(block == place))
            remaining.put(place, pack_table(joined.take(rows)))


def _gathered(
    raw: Iterable[pa.Table],
    blocks: int,
    remaining: Spill,
    configuration: Configuration,
) -> Iterator[CleanBlock]:
    """Yield the joined records of each block of the source, in the order of their first rows."""
    first_block = next(iter(raw))
    empty = clean_table(first_block.slice(0, 0), configuration)
    empty = empty.append_column(_ROW, pa.array([], pa.int64()))
    for block in range(blocks):
        pieces = map(unpack_table, remaining.pieces(block))
        records = pa.concat_tables([empty, *pieces]).combine_chunks()
        order = np.argsort(records.column(_ROW).to_numpy())
        records = records.take(pa.array(order))
        numbers = records.column(_ROW).to_numpy()
        yield CleanBlock(records.drop_columns([_ROW]), numbers)


def subject_digests(
    ids: pa.Array,
    unit: SubjectUnit,
    missing: tuple[str, ...],
    key: bytes,
    numbers: Integers,
) -> tuple[Words, Flags]:
    """Return a keyed digest of the subject of every row, shape (rows, 2), and which rows have a subject. Private.

    A row without an id has no subject, or, with `missing_subject: own`, is a separate subject, represented by its number in
    the source.
    """
    subjects, has_subject = id_digests(ids, missing, key)
    if unit.missing_subject == "own":
        subjects[~has_subject, 0] = numbers[~has_subject].astype(np.uint64)
        has_subject = np.ones(len(has_subject), np.bool_)
    return subjects, has_subject


def id_digests(ids: pa.Array, missing: Sequence[str], key: bytes) -> tuple[Words, Flags]:
    """Return a keyed digest of every id, shape (rows, 2), and which rows have an id that is not empty or missing. Private.

    BLAKE2b, 128 bits, under the run's key: no id is written to disk, and two ids share a digest with a chance of n^2 / 2^129.
    Ids are one subject's when they are equal as trimmed texts.
    """
    distinct, positions = distinct_texts(ids)
    matcher = ValueMatcher(missing)
    keyed = hashlib.blake2b(digest_size=_WIDTH, key=key, person=b"subject")
    digests = [bytes(_WIDTH)] * len(distinct)
    present = np.zeros(len(distinct), np.bool_)
    for place, text in enumerate(distinct.to_pylist()):
        trimmed = text.strip()
        if trimmed and matcher.index(trimmed) < 0:
            digest = keyed.copy()
            digest.update(trimmed.encode())
            digests[place] = digest.digest()
            present[place] = True
    words = np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)
    return words[positions], present[positions]


def kept_rows(
    subjects: Integers,
    most: int,
    words: CellWords,
) -> Flags:
    """Return which rows are counted: all rows of a subject with at most `most`, else a uniformly chosen `most` of its rows.

    The rows of a subject with the smallest words are kept; words are one a row, so that no row's word depends on another
    row. Equal words, which have probability 2^-64 a pair, are told apart by position.
    DP: `most`-stable for subjects that come, go or change.

    Args:
        subjects: the number of each row's subject, shape (rows,).
        most: theta, at least 1.
        words: secret randomness; one word is taken for each row, whatever the subjects are.
    """
    word = words.words_of(np.arange(len(subjects)))
    is_counted = np.ones(len(subjects), np.bool_)
    rows_of_subject = np.bincount(subjects)[subjects]
    over = np.flatnonzero(rows_of_subject > most)
    is_counted[over] = lowest_words(subjects[over], word[over], most)
    return is_counted


def join_subjects(clean: pa.Table, subjects: Integers) -> pa.Table:
    """Return one record for each subject, in the order of the subjects' numbers (SDS's joiner).

    A set becomes the union of the subject's sets. Any other column has the value in which all rows of the subject that have
    one agree, and is missing where they disagree: a rule that is public, and looks at one subject alone.
    DP: 1-stable for subjects that come, go or change.

    Args:
        clean: a clean table, with a row for each row of the source; sets not yet capped.
        subjects: the number of each row's subject, every number from 0 on at least once; shape (rows,).
    """
    records = int(subjects.max(initial=-1)) + 1
    columns = {}
    for name in clean.column_names:
        values = clean.column(name).combine_chunks()
        joined = _united if pa.types.is_list(values.type) else _agreed
        columns[name] = joined(values, subjects, records)
    return pa.table(columns)


def _agreed(
    values: pa.Array,
    owners: Integers,
    records: int,
) -> pa.Array:
    """Return the only value of each owner; null for none and for several."""
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    present = to_numpy(encoded.indices.is_valid())
    indices = to_numpy(encoded.indices.fill_null(0))
    codes = indices[present].astype(np.int64)
    # -1 remains where an owner has no value; lowest and highest code differ where there are several
    lowest = np.full(records, len(encoded.dictionary), np.int64)
    highest = np.full(records, -1, np.int64)
    np.minimum.at(lowest, owners[present], codes)
    np.maximum.at(highest, owners[present], codes)
    disagree = lowest != highest
    chosen = pa.array(lowest.astype(np.int32), mask=disagree)
    if pa.types.is_dictionary(values.type):
        return pa.DictionaryArray.from_arrays(chosen, encoded.dictionary)
    return encoded.dictionary.take(chosen)


def _united(
    values: pa.ListArray,
    owners: Integers,
    records: int,
) -> pa.ListArray:
    """Return all values of each owner, once each, in the order of the labels."""
    flat = values.flatten()
    labels = flat.dictionary.to_pylist()
    lengths = to_numpy(pc.fill_null(pc.list_value_length(values), 0))
    codes = to_numpy(flat.indices).astype(np.int64)
    owners_of_values = np.repeat(owners, lengths)
    return distinct_sets(owners_of_values, codes, records, labels)
