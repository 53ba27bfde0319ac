"""Computations of the internal comparison of records with the sensitive rows; never for release."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.checkpoints.codecs import compact_table, in_blocks
from marginweave.configuration.release import Configuration
from marginweave.counts.released_rows import recode
from marginweave.evaluate.numbers import NumberTallies
from marginweave.evaluate.rules import add_rules, broken_rules
from marginweave.linked.source import ReleaseSource
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import EncodedTable, encode_table, joined_codes
from marginweave.prepare.rows import prepare_blocks
from marginweave.released.evaluation import BrokenRule


def published_records(
    place: Path, configuration: Configuration, numbers: NumberTallies | None = None
) -> tuple[EncodedTable, tuple[BrokenRule, ...]]:
    """Return the codes of the published records at `place`, and the rules that they break.

    The file is read block by block. The values of number columns are counted in `numbers`.

    DP: post-processing.
    """
    encoded: list[EncodedTable] = []
    broken: list[tuple[tuple[BrokenRule, ...], int]] = []
    with pq.ParquetFile(place) as file:
        batches = file.iter_batches(configuration.block_rows)
        blocks = (pa.Table.from_batches([batch]) for batch in batches)
        no_records = file.schema_arrow.empty_table()
        for table in chain(blocks, [no_records]):
            clean = clean_table(table, configuration)
            if numbers is not None:
                numbers.add(clean)
            encoded.append(encode_table(clean, configuration))
            broken.append((broken_rules(table, configuration), table.num_rows))
    return joined_tables(encoded), add_rules(broken)


@dataclass(frozen=True)
class RawBlocks:
    """The source in blocks; a pass over them can be repeated."""

    source: ReleaseSource
    configuration: Configuration
    columns: tuple[str, ...]

    def __iter__(self) -> Iterator[pa.Table]:
        tables = self.source.tables(self.columns)
        return map(compact_table, in_blocks(tables, self.configuration.block_rows))


def encoded_rows(
    raw: RawBlocks,
    configuration: Configuration,
    folder: Path,
    numbers: NumberTallies | None = None,
) -> Iterator[EncodedTable]:
    """Yield all sensitive rows, clean: joined where the release joined them, but neither sampled, imputed nor resized.

    The values of number columns are counted in `numbers`.
    """
    subject = configuration.privacy.subject
    if subject is None or not subject.join:
        tables = (clean_table(table, configuration) for table in raw)
    else:
        tables = (
            block.table for block in prepare_blocks(raw, configuration, os.urandom(32), folder)
        )
    for table in tables:
        if numbers is not None:
            numbers.add(table)
        yield encode_table(table, configuration)


def joined_tables(tables: Iterable[EncodedTable]) -> EncodedTable:
    """Return one table of all rows, over the union of the labels of the tables; sets are as wide as the longest cell."""
    parts = list(tables)
    part_labels = [part.labels for part in parts]
    labels = tuple(map(_union, zip(*part_labels, strict=True)))
    recoded: list[EncodedTable] = []
    for part in parts:
        changed = {j: new for j, new in enumerate(labels) if part.labels[j] != new}
        recoded.append(recode(part, changed))
    columns = []
    for j, attribute_labels in enumerate(labels):
        codes = [part.codes[j] for part in recoded]
        columns.append(joined_codes(codes, len(attribute_labels)))
    return EncodedTable(codes=tuple(columns), labels=labels)


def over_one_domain(*tables: EncodedTable) -> list[EncodedTable]:
    """Return the tables over the union of their values; they differ only where a domain is private."""
    joined = joined_tables(tables)
    ends = list(accumulate(table.records for table in tables))
    recoded: list[EncodedTable] = []
    for start, stop in pairwise([0, *ends]):
        codes = tuple(column[start:stop] for column in joined.codes)
        recoded.append(EncodedTable(codes=codes, labels=joined.labels))
    return recoded


def _union(labels: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the labels where all tables agree, as in every public domain; else the labels of all tables, sorted."""
    distinct = set(labels)
    if len(distinct) == 1:
        return distinct.pop()
    return tuple(sorted(set(chain.from_iterable(distinct))))
