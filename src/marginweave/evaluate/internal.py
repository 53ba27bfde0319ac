"""The internal comparison: what it computes; never for release."""

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
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import EncodedTable, encode_table, joined_codes
from marginweave.prepare.rows import prepare_blocks
from marginweave.released.evaluation import BrokenRule
from marginweave.sources.source import TableSource


def published_records(
    place: Path, configuration: Configuration, numbers: NumberTallies | None = None
) -> tuple[EncodedTable, tuple[BrokenRule, ...]]:
    """The codes of the published records at `place`, which are read block by block, and the rules that they break.

    Their numbers are counted in `numbers`.

    DP: post-processing.
    """
    encoded, broken = [], []
    with pq.ParquetFile(place) as file:
        blocks = map(pa.Table.from_batches, ([batch] for batch in file.iter_batches(configuration.block_rows)))
        for table in chain(blocks, [file.schema_arrow.empty_table()]):
            clean = clean_table(table, configuration)
            if numbers is not None:
                numbers.add(clean)
            encoded.append(encode_table(clean, configuration))
            broken.append((broken_rules(table, configuration), table.num_rows))
    return joined_tables(encoded), add_rules(broken)


@dataclass(frozen=True)
class RawBlocks:
    """The source in blocks; a pass over them can be repeated."""

    source: TableSource
    configuration: Configuration
    columns: tuple[str, ...]

    def __iter__(self) -> Iterator[pa.Table]:
        return map(compact_table, in_blocks(self.source.tables(self.columns), self.configuration.block_rows))


def encoded_rows(
    raw: RawBlocks, configuration: Configuration, folder: Path, numbers: NumberTallies | None = None
) -> Iterator[EncodedTable]:
    """All sensitive rows, clean: joined where the release joined them, but neither sampled, imputed nor resized.

    Their numbers are counted in `numbers`.
    """
    subject = configuration.privacy.subject
    if subject is None or not subject.join:
        tables = (clean_table(table, configuration) for table in raw)
    else:
        tables = (block.table for block in prepare_blocks(raw, configuration, os.urandom(32), folder))
    for table in tables:
        if numbers is not None:
            numbers.add(table)
        yield encode_table(table, configuration)


def joined_tables(tables: Iterable[EncodedTable]) -> EncodedTable:
    """One table of all rows, each over its own labels so far, over the union of these; sets as wide as the longest cell."""
    parts = list(tables)
    labels = tuple(_union(found) for found in zip(*(part.labels for part in parts), strict=True))
    recoded = [recode(p, {j: own for j, own in enumerate(labels) if p.labels[j] != own}) for p in parts]
    codes = [joined_codes([part.codes[j] for part in recoded], len(own)) for j, own in enumerate(labels)]
    return EncodedTable(codes=tuple(codes), labels=labels)


def over_one_domain(*tables: EncodedTable) -> list[EncodedTable]:
    """The tables over the union of their values; they differ only where a domain is private."""
    together = joined_tables(tables)
    edges = pairwise([0, *accumulate(table.records for table in tables)])
    parts = (tuple(codes[start:stop] for codes in together.codes) for start, stop in edges)
    return [EncodedTable(codes=part, labels=together.labels) for part in parts]


def _union(labels: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The labels where all agree, as in every public domain, or all of them, sorted."""
    found = set(labels)
    return found.pop() if len(found) == 1 else tuple(sorted({text for some in found for text in some}))
