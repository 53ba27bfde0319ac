"""Skip a new run over a table that was released before, where the configuration says `unchanged: skip`.

Equality of the bytes is known from the keyed marks that the ledger has of each source; nothing else is kept. That a run is
skipped reveals that no row has changed. So the reason is in a file for the operator alone, and privacy.json lists it among the
stops that the guarantee does not cover. A skip is no look at the table: it shows nothing that a configuration could follow.
"""

from __future__ import annotations

from pathlib import Path

from marginweave.accounting.records import ReleaseRecord
from marginweave.base.durable import PRIVATE_MODE, replace_file
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.runs.preparation import open_ledger, table_digest
from marginweave.runs.request import SKIPPED, Request

_NEWEST = 100  # releases of the account that are looked at, of all configurations


def unchanged_since(request: Request) -> str | None:
    """Return the run that has released this table as it is configured; None where the request is to be carried out.

    Only a new run can be skipped, where `unchanged: skip` is declared and it corrects nothing. It is compared with the newest
    release of the same configuration that is published or awaits approval.

    DP: depends on the rows, and costs nothing: a data-dependent stop, which the guarantee does not cover.
    """
    configuration = request.configuration
    is_new = request.folder.read_manifest() is None and request.supersedes is None
    if configuration.unchanged != "skip" or not is_new:
        return None
    ledger = open_ledger(request)
    for record in reversed(ledger.releases.newest(configuration.dataset, _NEWEST)):
        if record.plan_digest == configuration.written_digest and _is_offered(record):
            digest = table_digest(request, ledger)
            return record.run if digest.matches(record.release, record.source_digest) else None
    return None


def _is_offered(record: ReleaseRecord) -> bool:
    """Return whether a release is published, or awaits the decision on it."""
    return record.published is not None or (bool(record.proposed) and record.decision is None)


def record_skip(folder: RunFolder, earlier: str) -> Path:
    """Write why a run is skipped, for its operator alone, and return the file."""
    folder.create_internal()
    place = folder.internal / SKIPPED
    reason = (
        f"Nothing was drawn or charged: table and configuration are those of run {earlier}, byte for byte. To release them "
        "again, leave `unchanged: skip` out of the configuration."
    )
    replace_file(place, f"{reason}\n".encode(), PRIVATE_MODE)
    return place
