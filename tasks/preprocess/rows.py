"""From raw rows to clean records, none of which is anybody's one too many; one block at a time in memory.

Rows of a subject can stand anywhere in the source. They are brought together by the digest of the subject's id: the source is
scattered into a public number of partitions, each is bounded or joined by itself, and what stays is brought back into the
order of the source. So neither the records, nor their order, nor a choice among them depends on blocks or partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.schemas.configuration.privacy import SubjectUnit
from marginweave.schemas.configuration.release import Configuration
from marginweave.tasks.checkpoint.codecs import compact_table, pack_table, plain_table, unpack_table
from marginweave.tasks.checkpoint.spill import Spill
from marginweave.tasks.mechanisms.randomness import KeyedBits, RecordWords
from marginweave.tasks.preprocess.clean import CleanBlock, clean_table
from marginweave.tasks.preprocess.subjects import join_subjects, kept_rows, same_subjects, subject_digests

# Columns that are added to those of a source: no configuration has such names.
_ROW, _LOW, _HIGH = "", " low", " high"


def prepare_blocks(
    raw: Iterable[pa.Table], configuration: Configuration, key: bytes, folder: Path
) -> Iterator[CleanBlock]:
    """Clean rows of a raw table with the columns `source_names`: theta rows of a subject, or one record that joins them.

    DP: stable as `configuration.privacy.stability` says.

    Args:
        raw: the blocks of the table; with subjects to bound they are passed over twice.
        configuration: what is declared.
        key: secret of the run, for the digests of subjects and the choice of rows.
        folder: where rows may be set aside on disk, private.
    """
    subject = configuration.privacy.subject
    if subject is None:
        for numbers, table in _numbered(raw):
            yield CleanBlock(clean_table(table, configuration), numbers)
        return
    with Spill(folder) as scattered, Spill(folder) as staying:
        starts = _scatter(raw, configuration, subject, key, scattered)
        if subject.join:
            _join(configuration, starts, scattered, staying)
            yield from _gathered(raw, len(starts) - 1, staying, configuration)
            return
        _bound(configuration, key, starts, scattered, staying)
        for block, (_, table) in enumerate(_numbered(raw)):
            rows = np.sort(np.frombuffer(b"".join(staying.pieces(block)), np.int64))
            yield CleanBlock(clean_table(table.take(pa.array(rows - starts[block])), configuration), rows)


def _numbered(raw: Iterable[pa.Table]) -> Iterator[tuple[NDArray[np.int64], pa.Table]]:
    """Every block with the numbers of its rows in the source."""
    start = 0
    for table in raw:
        yield np.arange(start, start + table.num_rows), table
        start += table.num_rows


def _scatter(
    raw: Iterable[pa.Table], configuration: Configuration, subject: SubjectUnit, key: bytes, shelves: Spill
) -> list[int]:
    """Set every row that is somebody's aside by its subject: number and digest, and for a join its cells.

    Returns:
        The number of the first row of each block, and that of all rows at the end.
    """
    column = subject.column
    missing = configuration.missing_texts(column) if column in configuration.columns else configuration.missing
    starts = [0]
    for numbers, table in _numbered(raw):
        digests, known = subject_digests(table.column(column).combine_chunks(), subject, missing, key, numbers)
        cells = table.select(list(configuration.names) if subject.join else [])
        for name, values in ((_ROW, numbers), (_LOW, digests[:, 0]), (_HIGH, digests[:, 1])):
            cells = cells.append_column(name, pa.array(values))
        cells = plain_table(cells)  # so that the piece of a partition is a slice, without a dictionary of its own
        partition = np.where(known, digests[:, 0] % np.uint64(configuration.partitions), configuration.partitions)
        order = np.argsort(partition, kind="stable")
        edges = np.searchsorted(partition[order], np.arange(configuration.partitions + 1))
        cells = cells.take(pa.array(order))
        for shelf, (first, last) in enumerate(pairwise(edges.tolist())):
            if last > first:
                shelves.put(shelf, pack_table(cells.slice(first, last - first)))
        starts.append(starts[-1] + table.num_rows)
    return starts


def _partitions(configuration: Configuration, scattered: Spill) -> Iterator[tuple[pa.Table, NDArray[np.int64]]]:
    """The rows of each partition, of small ones together, and the subject of each as a number.

    Rows of a partition, and so of a subject, are in the order of the source.
    """
    pieces: list[pa.Table] = []
    for partition in range(configuration.partitions):
        pieces += map(unpack_table, scattered.pieces(partition))
        if not pieces or (
            partition + 1 < configuration.partitions and sum(p.num_rows for p in pieces) < configuration.block_rows
        ):
            continue
        table = compact_table(pa.concat_tables(pieces))
        pieces.clear()
        yield table, same_subjects(table.column(_LOW).to_numpy(), table.column(_HIGH).to_numpy())


def _bound(configuration: Configuration, key: bytes, starts: list[int], scattered: Spill, staying: Spill) -> None:
    """Set the numbers of the rows that stay aside, by block."""
    words = KeyedBits(key=key, purpose="subjects")
    for table, subjects in _partitions(configuration, scattered):
        numbers = table.column(_ROW).to_numpy()
        kept = kept_rows(subjects, configuration.privacy.stability.records, RecordWords(words=words, records=numbers))
        rows = np.sort(numbers[kept])
        for block, part in enumerate(np.split(rows, np.searchsorted(rows, starts[1:-1]))):
            if len(part):
                staying.put(block, part.tobytes())


def _join(configuration: Configuration, starts: list[int], scattered: Spill, staying: Spill) -> None:
    """Set the joined records aside, by the block in which the first row of each stands."""
    for table, subjects in _partitions(configuration, scattered):
        numbers = table.column(_ROW).to_numpy()
        joined = join_subjects(clean_table(table, configuration), subjects)
        first = np.full(joined.num_rows, np.iinfo(np.int64).max)
        np.minimum.at(first, subjects, numbers)
        joined = joined.append_column(_ROW, pa.array(first))
        block = np.searchsorted(starts[1:-1], first, side="right")
        for place in np.unique(block).tolist():
            staying.put(place, pack_table(joined.take(pa.array(np.flatnonzero(block == place)))))


def _gathered(
    raw: Iterable[pa.Table], blocks: int, staying: Spill, configuration: Configuration
) -> Iterator[CleanBlock]:
    """The joined records of each block of the source, in the order of their first rows; at least one block."""
    some = False
    for block in range(blocks):
        pieces = list(map(unpack_table, staying.pieces(block)))
        if pieces:
            whole = pa.concat_tables(pieces).combine_chunks()
            whole = whole.take(pa.array(np.argsort(whole.column(_ROW).to_numpy())))
            yield CleanBlock(whole.select(list(configuration.names)), whole.column(_ROW).to_numpy())
            some = True
    if not some:
        yield CleanBlock(clean_table(next(iter(raw)).slice(0, 0), configuration), np.empty(0, np.int64))
