"""The one stage right of `aggregate` that sees private rows: an exact comparison, for `internal/` only, never for release."""

from __future__ import annotations

import hmac
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from marginweave.schemas.aggregates import Domain
from marginweave.schemas.configuration import Configuration
from marginweave.schemas.errors import InputError
from marginweave.tasks.budget.randomness import KeyedBits
from marginweave.tasks.checkpoint.files import PRIVATE_MODE, replace_file
from marginweave.tasks.door import stage_task
from marginweave.tasks.encode.codes import EncodedTable, encode_table
from marginweave.tasks.evaluate.metrics import evaluate_internal
from marginweave.tasks.evaluate.rules import broken_rules
from marginweave.tasks.evaluate.task import evaluation_json
from marginweave.tasks.preprocess.clean import clean_table
from marginweave.tasks.preprocess.rows import prepare_rows
from marginweave.tasks.references import RunReference
from marginweave.tasks.validate.source import load_source, source_columns


@stage_task("evaluate internally")
def compare_internally(reference: RunReference) -> None:
    """Compare the published synthetic table with the sensitive one and write `internal/evaluation.json` (0600).

    The release is fixed before; that somebody looked is booked in the ledger first, and every later release or synthesis
    of the account is marked. DP: none. Its numbers go to no log, no terminal and no Prefect record.

    Raises:
        InputError: the source is not the one the release was made from.
    """
    manifest = reference.manifest
    configuration = reference.configuration.with_bounds(_published_bounds(reference))
    source = load_source(reference.source, configuration.source)
    if not hmac.compare_digest(reference.ledger.source_digest(source.chunks()), manifest.source_digest):
        raise InputError(f"the source is not the one that run {manifest.run} was made from")
    reference.ledger.record_internal_evaluation(configuration.dataset, manifest.release)
    raw = source.table((*configuration.source_names, *_determined(reference.source, configuration)))
    sensitive = encode_table(_rows(raw, configuration), configuration)
    published = pq.read_table(reference.folder.release / "synthetic.parquet")
    records = encode_table(clean_table(published, configuration), configuration)
    names = tuple(attribute.name for attribute in configuration.attributes)
    domain, real, made = _common_domain(sensitive, records, names)
    target = configuration.evaluate.target
    evaluation = evaluate_internal(
        real,
        made,
        domain,
        ordered=configuration.ordered,
        target=None if target is None else names.index(target),
        rules=broken_rules(published, configuration),
        sensitive_rules=broken_rules(raw, configuration),
    )
    replace_file(reference.folder.internal_evaluation, evaluation_json(evaluation), PRIVATE_MODE)


def _published_bounds(reference: RunReference) -> dict[str, tuple[float, float]]:
    """The released bounds, from the release itself: the checkpoints of a finished run are gone."""
    bounds: dict[str, tuple[float, float]] = json.loads(
        (reference.folder.release / "privacy.json").read_text(encoding="utf-8")
    )["bounds"]
    return bounds


def _determined(source: str, configuration: Configuration) -> list[str]:
    """The determined columns that the source has: they are not counted, but the rows can be held against their rules."""
    held = source_columns(source, configuration.source)
    rules = configuration.structure.determined if configuration.structure else ()
    return [rule.column for rule in rules if rule.column in held]


def _rows(raw: pa.Table, configuration: Configuration) -> pa.Table:
    """All sensitive rows, clean: joined where the release joined them, but neither sampled, imputed nor resized."""
    subject = configuration.privacy.subject
    if subject is None or not subject.join:
        return clean_table(raw, configuration)
    return prepare_rows(raw, configuration, KeyedBits(key=os.urandom(32), purpose="subjects"))


def _common_domain(
    sensitive: EncodedTable, synthetic: EncodedTable, names: tuple[str, ...]
) -> tuple[Domain, list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Both tables over the union of their values; they differ only where a domain is private."""
    labels: list[tuple[str, ...]] = []
    tables: tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]] = ([], [])
    for j, (one, other) in enumerate(zip(sensitive.labels, synthetic.labels, strict=True)):
        union = one if one == other else tuple(sorted({*one, *other}))
        place = {label: i for i, label in enumerate(union)}
        labels.append(union)
        for table, encoded in zip(tables, (sensitive, synthetic), strict=True):
            renumbered = np.array([*(place[label] for label in encoded.labels[j]), len(union)], np.int64)
            table.append(renumbered[encoded.codes[j]])
    return Domain(names=names, labels=tuple(labels)), *tables
