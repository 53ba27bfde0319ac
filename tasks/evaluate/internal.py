"""The one stage right of `aggregate` that sees private rows: an exact comparison, for `internal/` only, never for release."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.aggregates import Domain
from marginweave.tasks.checkpoint.files import PRIVATE_MODE, replace_file
from marginweave.tasks.checkpoint.tables import compact_table, in_blocks, plain_table
from marginweave.tasks.encode.codes import Codes, EncodedTable, code_type, encode_table
from marginweave.tasks.evaluate.metrics import evaluate_internal
from marginweave.tasks.evaluate.rules import BrokenRule, add_rules, broken_rules
from marginweave.tasks.evaluate.task import evaluation_json
from marginweave.tasks.preprocess.clean import clean_table
from marginweave.tasks.preprocess.rows import prepare_blocks
from marginweave.tasks.references import RunReference
from marginweave.tasks.stage import stage_task
from marginweave.tasks.validate.source import TableSource, source_columns


@stage_task("evaluate internally")
def compare_internally(reference: RunReference) -> None:
    """Compare the published synthetic table with the sensitive one and write `internal/evaluation.json` (0600).

    The release is fixed before; that somebody looked is booked in the ledger first, and every later release or synthesis
    of the account is marked. DP: none. Its numbers go to no log, no terminal and no Prefect record.

    Raises:
        InputError: the source is not the one the release was made from.
    """
    manifest = reference.manifest
    configuration = reference.configuration.with_bounds(published_bounds(reference))
    source = TableSource(reference.source, configuration.source)
    state = source.state()
    check_source(reference, source)
    reference.ledger.record_internal_evaluation(configuration.dataset, manifest.release)
    raw = RawBlocks(source, configuration, (*configuration.source_names, *_determined(reference.source, configuration)))
    sensitive = joined_tables(encoded_rows(raw, configuration, reference.folder.internal))
    broken = add_rules([(broken_rules(plain_table(table), configuration), table.num_rows) for table in raw])
    if source.state() != state:
        raise InputError(f"the source was changed while run {manifest.run} was compared with it")
    check_source(reference, source)
    records, broken_made = published_records(reference.folder.release / "synthetic.parquet", configuration)
    names = tuple(attribute.name for attribute in configuration.attributes)
    domain, real, made = _common_domain(sensitive, records, names)
    target = configuration.evaluate.target
    evaluation = evaluate_internal(
        real,
        made,
        domain,
        ordered=configuration.ordered,
        target=None if target is None else names.index(target),
        rules=broken_made,
        sensitive_rules=broken,
    )
    replace_file(reference.folder.internal_evaluation, evaluation_json(evaluation), PRIVATE_MODE)


def published_bounds(reference: RunReference) -> dict[str, tuple[float, float]]:
    """The released bounds, from the release itself: the checkpoints of a finished run are gone."""
    bounds: dict[str, tuple[float, float]] = json.loads(
        (reference.folder.release / "privacy.json").read_text(encoding="utf-8")
    )["bounds"]
    return bounds


def published_records(place: Path, configuration: Configuration) -> tuple[EncodedTable, tuple[BrokenRule, ...]]:
    """The codes of the published records at `place`, which are read block by block, and the rules that they break.

    DP: post-processing.
    """
    encoded, broken = [], []
    with pq.ParquetFile(place) as file:
        blocks = map(pa.Table.from_batches, ([batch] for batch in file.iter_batches(configuration.block_rows)))
        for table in chain(blocks, [file.schema_arrow.empty_table()]):
            encoded.append(encode_table(clean_table(table, configuration), configuration))
            broken.append((broken_rules(table, configuration), table.num_rows))
    return joined_tables(encoded), add_rules(broken)


def _determined(source: str, configuration: Configuration) -> list[str]:
    """The determined columns that the source has: they are not counted, but the rows can be held against their rules."""
    held = source_columns(source, configuration.source)
    rules = configuration.structure.determined if configuration.structure else ()
    return [rule.column for rule in rules if rule.column in held]


def check_source(reference: RunReference, source: TableSource) -> None:
    """Raise InputError unless `source` holds the bytes that the release was made from."""
    manifest = reference.manifest
    if not reference.ledger.source_digest(source.chunks()).matches(manifest.release, manifest.source_digest):
        raise InputError(f"the source is not the one that run {manifest.run} was made from")


@dataclass(frozen=True)
class RawBlocks:
    """The source in blocks; a pass over them can be repeated."""

    source: TableSource
    configuration: Configuration
    columns: tuple[str, ...]

    def __iter__(self) -> Iterator[pa.Table]:
        return map(compact_table, in_blocks(self.source.tables(self.columns), self.configuration.block_rows))


def encoded_rows(raw: RawBlocks, configuration: Configuration, folder: Path) -> Iterator[EncodedTable]:
    """All sensitive rows, clean: joined where the release joined them, but neither sampled, imputed nor resized."""
    subject = configuration.privacy.subject
    if subject is None or not subject.join:
        tables = (clean_table(table, configuration) for table in raw)
    else:
        tables = (block.table for block in prepare_blocks(raw, configuration, os.urandom(32), folder))
    return (encode_table(table, configuration) for table in tables)


def joined_tables(tables: Iterable[EncodedTable]) -> EncodedTable:
    """One table of all rows, each over its own labels so far, over the union of these; sets as wide as the longest cell."""
    parts = list(tables)
    labels = tuple(_union(found) for found in zip(*(part.labels for part in parts), strict=True))
    codes = []
    for j, union in enumerate(labels):
        some = [_renumbered(part, j, union) for part in parts]
        width = max(values.shape[1] if values.ndim > 1 else 1 for values in some)
        if some[0].ndim > 1:
            gaps = [((0, 0), (0, width - values.shape[1])) for values in some]
            some = [np.pad(v, gap, constant_values=len(union)) for v, gap in zip(some, gaps, strict=True)]
        codes.append(np.concatenate(some))
    return EncodedTable(codes=tuple(codes), labels=labels)


def _union(labels: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The labels where all agree, as in every public domain, or all of them, sorted."""
    found = set(labels)
    return found.pop() if len(found) == 1 else tuple(sorted({text for some in found for text in some}))


def _renumbered(table: EncodedTable, j: int, labels: tuple[str, ...]) -> Codes:
    place = {label: i for i, label in enumerate(labels)}
    numbers = np.array([*(place[label] for label in table.labels[j]), len(labels)], code_type(len(labels)))
    return numbers[table.codes[j]]


def _common_domain(
    sensitive: EncodedTable, synthetic: EncodedTable, names: tuple[str, ...]
) -> tuple[Domain, list[Codes], list[Codes]]:
    """Both tables over the union of their values; they differ only where a domain is private."""
    labels = tuple(_union(both) for both in zip(sensitive.labels, synthetic.labels, strict=True))
    tables = ([_renumbered(table, j, union) for j, union in enumerate(labels)] for table in (sensitive, synthetic))
    real, made = tables
    return Domain(names=names, labels=labels), real, made
