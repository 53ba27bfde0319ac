"""The one stage right of `aggregate` that sees private rows: an exact comparison, for `internal/` only, never for release."""

from __future__ import annotations

import hmac

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from marginweave.schemas.aggregates import Domain
from marginweave.schemas.configuration import Configuration
from marginweave.schemas.errors import InputError
from marginweave.tasks.checkpoint.files import PRIVATE_MODE, replace_file
from marginweave.tasks.door import stage_task
from marginweave.tasks.encode.codes import EncodedTable, encode_table
from marginweave.tasks.evaluate.metrics import evaluate_internal
from marginweave.tasks.evaluate.task import evaluation_json
from marginweave.tasks.preprocess.clean import clean_table
from marginweave.tasks.references import RunReference
from marginweave.tasks.validate.source import load_source


@stage_task("evaluate internally")
def compare_internally(reference: RunReference) -> None:
    """Compare the published synthetic table with the sensitive one and write `internal/evaluation.json` (0600).

    The release is fixed before; that somebody looked is booked in the ledger first, and every later release or synthesis
    of the account is marked. DP: none. Its numbers go to no log, no terminal and no Prefect record.

    Raises:
        InputError: the source is not the one the release was made from.
    """
    manifest, configuration = reference.manifest, reference.configuration
    source = load_source(reference.source)
    if not hmac.compare_digest(reference.ledger.source_digest(source.chunks()), manifest.source_digest):
        raise InputError(f"the source is not the one that run {manifest.run} was made from")
    reference.ledger.record_internal_evaluation(configuration.dataset, manifest.release)
    sensitive = _encode(source.table(configuration.names), configuration)
    records = _encode(pq.read_table(reference.folder.release / "synthetic.parquet"), configuration)
    domain, tables = _common_domain(sensitive, records, configuration.names)
    evaluation = evaluate_internal(tables[0], tables[1], domain)
    replace_file(reference.folder.internal_evaluation, evaluation_json(evaluation), PRIVATE_MODE)


def _encode(table: pa.Table, configuration: Configuration) -> EncodedTable:
    return encode_table(clean_table(table, configuration), configuration)


def _common_domain(
    sensitive: EncodedTable, synthetic: EncodedTable, names: tuple[str, ...]
) -> tuple[Domain, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Both tables over the union of their values; they differ only where a domain is private."""
    labels, columns = [], []
    for one, other, left, right in zip(
        sensitive.labels, synthetic.labels, sensitive.codes, synthetic.codes, strict=True
    ):
        union = one if one == other else tuple(sorted({*one, *other}))
        position = {label: i for i, label in enumerate(union)}
        labels.append(union)
        columns.append(
            tuple(
                np.array([*(position[label] for label in own), len(union)], np.int64)[codes]
                for own, codes in ((one, left), (other, right))
            )
        )
    tables = tuple(np.stack([pair[side] for pair in columns], axis=1) for side in (0, 1))
    return Domain(names=names, labels=tuple(labels)), (tables[0], tables[1])
