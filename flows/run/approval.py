"""A release that somebody has to approve: where it waits, what can be done with it, and the decision."""

from __future__ import annotations

from pathlib import Path

from marginweave.flows.run.bookkeeping import run_lock
from marginweave.flows.run.continuity import as_booked, check_continuity
from marginweave.flows.run.lookup import existing_run
from marginweave.flows.run.request import ledger_of
from marginweave.schemas.errors import InputError
from marginweave.schemas.ledger.releases import Decision
from marginweave.schemas.released.manifest import RunState
from marginweave.tasks.checkpoint.run_folder import RunFolder
from marginweave.tasks.ledger import Ledger, Witness
from marginweave.tasks.ledger.approvals import check_words


def place_of_files(folder: RunFolder) -> Path:
    """Where what may leave stands: `proposed/` as long as the run awaits approval, `release/` otherwise."""
    manifest = folder.read_manifest()
    awaiting = manifest is not None and manifest.state == RunState.AWAITING
    return folder.proposed if awaiting else folder.release


def decide(home: Path, run: str, *, approved: bool, by: str, reason: str) -> tuple[RunFolder, Decision]:
    """Approve or reject a run that awaits it, and bring folder and manifest to where the ledger then is.

    Nothing is read but the proposed files, and of these the digests, which were booked when they were submitted. The first
    decision stands; it is returned whoever made it.

    Raises:
        InputError: no such run, one that does not await approval, no name, or no reason.
        BudgetError: the ledger does not know that the run was submitted: one of them is an older copy.
        StageError: the run is in progress, or a proposed file is missing, was changed or was added.
    """
    check_words("by", by)
    check_words("reason", reason)
    folder, manifest = existing_run(home, run)
    with run_lock(folder):
        witness = Witness(home, folder.path, manifest.release)
        ledger = Ledger.open(ledger_of(folder, home), witness=witness)
        manifest = folder.read_manifest() or manifest
        if approved:
            manifest = as_booked(folder, manifest, ledger)  # a proposal that was changed can still be rejected
        record = ledger.release(manifest.release)
        if manifest.state in {RunState.AWAITING, RunState.REJECTED}:
            check_continuity(folder, manifest, ledger)
        if record is None or not record.proposed:
            raise InputError(f"run {run} does not await approval; it is {manifest.state.value}")
        decision = ledger.decide(manifest.release, approved=approved, by=by, reason=reason)
        as_booked(folder, manifest, ledger)
    return folder, decision
