"""Internal evaluations of finished releases; their results stay in `internal/`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

from marginweave.configuration.release import Configuration
from marginweave.linked.places import TablePlaces
from marginweave.runs.capabilities import RunReference
from marginweave.runs.lookup import finished_run
from marginweave.runs.request import ledger_file_of, original_request
from marginweave.sources.parts import find_from


def evaluate_internally(home: Path, run: str, source: str | None) -> Path:
    """Compare a finished release with the sensitive table; return the path of the report, never one of its numbers.

    Raises:
        InputError: no finished run, or another source than the release was made from.
    """
    from ..tasks.internal import compare_internally
    from ..tasks.publish import report_internally

    reference = _reference(home, run, source)
    compare_internally(reference)
    report_internally(reference)
    return reference.folder.internal_report


def _reference(home: Path, run: str, source: str | None) -> RunReference:
    """Return the reference of a finished run, with its original source or with another place of the same table.

    Linked tables are where the configuration says, beside the file that the run was begun with.
    """
    folder, manifest = finished_run(home, run)
    if source is not None:
        source = find_from(Path.cwd(), source)
    configuration = Configuration.from_canonical(manifest.configuration)
    linked: Mapping[str, str] = {}
    if source is None or configuration.tables is not None:
        original = original_request(home, run)
        source = source or original.source
        linked = TablePlaces.of(configuration, source, original.below, {}).linked
    return RunReference(
        folder=folder,
        source=source,
        linked=linked,
        ledger_file=ledger_file_of(folder, home),
        lease=uuid.uuid4().hex,
    )
