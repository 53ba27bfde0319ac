"""The pages of a release, from what is in it alone: written with it, and written anew from a published one."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.schemas.errors import InputError
from marginweave.schemas.released.evaluation import Evaluation, InternalEvaluation
from marginweave.tasks.publish.explore import render_explorer
from marginweave.tasks.publish.reader import PublishedRelease
from marginweave.tasks.publish.records import RecordCodes, ShownRecords, record_codes, show_records
from marginweave.tasks.publish.report import render_report
from marginweave.tasks.publish.tables import ROW_GROUP


def release_pages(published: PublishedRelease, shown: ShownRecords, evaluation: Evaluation) -> dict[str, bytes]:
    """report.html and explore.html of a release, what they show of its records, and its evaluation. DP: post-processing."""
    pages = {
        "report.html": render_report(published, shown, evaluation),
        "explore.html": render_explorer(published, shown),
    }
    return {name: page.encode() for name, page in pages.items()}


def read_pages(place: Path) -> dict[str, bytes]:
    """`release_pages` of the release in folder `place`; the bytes that were published with it. DP: post-processing.

    Raises:
        InputError: it is not there, or not complete.
    """
    return release_pages(*_read(place))


def internal_report(place: Path, internal: InternalEvaluation) -> bytes:
    """The report of the release in folder `place` with the comparison `internal` in it. DP: none: for `internal/` only.

    Raises:
        InputError: it is not there, or not complete.
    """
    published, shown, evaluation = _read(place)
    return render_report(published, shown, evaluation, internal).encode()


def _read(place: Path) -> tuple[PublishedRelease, ShownRecords, Evaluation]:
    """The release, what is shown of its records, read block by block, and its evaluation."""
    published = PublishedRelease.read(place)
    domain, configuration = published.aggregates.domain, published.configuration

    def codes_of(batch: pa.RecordBatch) -> RecordCodes:
        return record_codes(pa.Table.from_batches([batch]), domain, configuration)

    try:
        with pq.ParquetFile(place / "synthetic.parquet") as file:
            nothing = codes_of(pa.RecordBatch.from_pylist([], file.schema_arrow))
            blocks = chain([nothing], map(codes_of, file.iter_batches(ROW_GROUP)))
            shown = show_records(blocks, file.metadata.num_rows, domain, configuration)
        evaluation = Evaluation.from_json((place / "evaluation.json").read_bytes())
    except (OSError, pa.ArrowInvalid, ValueError):
        raise InputError(f"{place} does not hold a complete release (synthetic.parquet and evaluation.json)") from None
    return published, shown, evaluation
