"""Runs of a home: their list, which of them hold private files, and the removal of private files."""

from __future__ import annotations

import shutil
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from marginweave.accounting.records import State
from marginweave.base.durable import at_place
from marginweave.base.errors import InputError, MarginweaveError, StageError
from marginweave.base.places import FRAME
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.ledger import Ledger, Witness
from marginweave.released.manifest import Manifest, RunState
from marginweave.runs.continuity import sync_with_ledger
from marginweave.runs.lookup import (
    apply_decision,
    corrections,
    existing_run,
    in_progress,
    reason_file,
    run_lock,
)
from marginweave.runs.request import ledger_of, was_skipped


class Progress(StrEnum):
    """How far a run of a home is, as a reader of `marginweave runs` is interested in it."""

    NOT_BEGUN = "not begun"
    SKIPPED = "skipped"
    DAMAGED = "damaged"
    IN_PROGRESS = "in progress"
    UNFINISHED = "unfinished"
    PURGED = "purged"
    AWAITING = "awaiting approval"
    REJECTED = "rejected"
    FINISHED = "finished"
    SUPERSEDED = "superseded"


_PROGRESS = {
    RunState.RUNNING: Progress.UNFINISHED,
    RunState.AWAITING: Progress.AWAITING,
    RunState.REJECTED: Progress.REJECTED,
    RunState.FINISHED: Progress.FINISHED,
    RunState.FAILED: Progress.PURGED,
}


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One line of `marginweave runs`."""

    name: str
    dataset: str
    progress: Progress
    correction: str | None
    """The run that supersedes this one, if there is one."""
    begun: str
    holds_private: bool
    holds_exact: bool
    """Whether there are numbers of an internal evaluation, in internal/."""
    reason: Path | None = None
    """The file that says why it stopped, for the operator alone."""

    @property
    def state(self) -> str:
        """Words for how far the run is."""
        return self.progress if self.correction is None else f"superseded by {self.correction}"

    def row(self) -> dict[str, str | bool | None]:
        """Return the line as JSON has it."""
        return {
            "name": self.name,
            "dataset": self.dataset,
            "state": self.state,
            "begun": self.begun,
            "holds_private": self.holds_private,
            "holds_exact": self.holds_exact,
            "reason": None if self.reason is None else str(self.reason),
        }


def carry_out_decisions(home: Path) -> None:
    """Carry out approvals and rejections of a home that were killed in the middle, where the ledger can be asked."""
    for folder in RunFolder.all_of(home):
        manifest = folder.readable_manifest()
        if manifest is not None:
            with suppress(MarginweaveError):
                apply_decision(folder, manifest)


def list_runs(home: Path) -> list[RunSummary]:
    """Return every run below `home`, by name: a damaged one is listed as such, a corrected one with its successor.

    A run that was refused before it was begun is not listed. Its folder has only a lock, and for a `fit` the configuration.
    """
    correcting_runs = corrections(home)
    summaries = []
    for folder in RunFolder.all_of(home):
        manifest = folder.readable_manifest()
        summary = _summary(folder, manifest, correcting_runs)
        if summary.progress != Progress.NOT_BEGUN or _has_files_of_run(folder):
            summaries.append(summary)
    return summaries


def _has_files_of_run(folder: RunFolder) -> bool:
    """Return whether the folder has any file that a refused request does not leave."""
    names = {file.name for file in folder.path.rglob("*")}
    return not names <= {".lock", "internal", "configuration.yaml", FRAME}


def _summary(
    folder: RunFolder, manifest: Manifest | None, correcting_runs: dict[str, str]
) -> RunSummary:
    correction = None
    if manifest is None and folder.manifest_file.exists():
        progress = Progress.DAMAGED
    elif manifest is None:
        progress = Progress.SKIPPED if was_skipped(folder) else Progress.NOT_BEGUN
    elif manifest.state == RunState.FINISHED and manifest.release in correcting_runs:
        progress = Progress.SUPERSEDED
        correction = correcting_runs[manifest.release]
    else:
        progress = _PROGRESS[manifest.state]
    may_be_running = manifest is None or manifest.state == RunState.RUNNING
    if may_be_running and in_progress(folder):
        progress = Progress.IN_PROGRESS
    return RunSummary(
        name=folder.run,
        dataset=manifest.dataset if manifest else "",
        progress=progress,
        correction=correction,
        begun=f"{manifest.created:%Y-%m-%d %H:%M}" if manifest else "",
        holds_private=folder.private.exists(),
        holds_exact=holds_exact(folder),
        reason=reason_file(folder)
        if progress in (Progress.UNFINISHED, Progress.NOT_BEGUN, Progress.SKIPPED)
        else None,
    )


def holds_exact(folder: RunFolder) -> bool:
    """Return whether the run has an internal evaluation, which compares with the rows and is exact; no purge removes it."""
    return folder.internal_evaluation.exists() or folder.internal_report.exists()


def purge_run(home: Path, run: str, *, unfinished: bool) -> None:
    """Remove the private and the rejected files of a run; for an unfinished run, return the draws that were not begun.

    Raises:
        InputError: no such run, or an unfinished one without `unfinished`.
        StageError: the run is in progress.
    """
    folder = RunFolder.at(home, run)
    if folder.path.is_dir() and unfinished and folder.readable_manifest() is None:
        with run_lock(folder):
            folder.remove_private()
        return
    folder, manifest = existing_run(home, run)
    apply_decision(folder, manifest)
    with run_lock(folder):
        # read again: under the lock nobody else works on it
        folder, manifest = existing_run(home, run)
        if manifest.state == RunState.RUNNING:
            manifest = _end_run(folder, manifest, home, unfinished=unfinished)
        if manifest.state == RunState.REJECTED and folder.proposed.exists():
            with at_place(folder.proposed, "removed"):
                shutil.rmtree(folder.proposed)
        folder.purge_private()


def purge_older(home: Path, age: timedelta) -> tuple[list[str], list[str]]:
    """Purge every run without any activity for the time `age`, also unfinished ones, but none that is in progress.

    Returns the runs that were purged, and those that are in progress.

    Raises:
        StageError: some could not be purged; the others were.
    """
    cutoff = datetime.now(UTC) - age
    done = []
    busy = []
    failed = []
    for folder in RunFolder.all_of(home):
        manifest = folder.readable_manifest()
        if _last_activity(folder, manifest) > cutoff:
            continue
        try:
            if in_progress(folder):
                busy.append(folder.run)
            elif _is_purgeable(folder, manifest):
                purge_run(home, folder.run, unfinished=True)
                done.append(folder.run)
        except MarginweaveError as error:
            failed.append(f"{folder.run} ({error})")
    if failed:
        raise StageError(
            f"{len(done)} run(s) purged, and {len(failed)} could not be: {'; '.join(failed)}"
        )
    return done, busy


def _end_run(folder: RunFolder, manifest: Manifest, home: Path, *, unfinished: bool) -> Manifest:
    """Bring an unfinished run to the end that the ledger has for it, or give it up, and return its manifest.

    Raises:
        InputError: the ledger has no end for it, and it is not to be given up (`unfinished`).
    """
    ledger = Ledger.open(
        ledger_of(folder, home), witness=Witness(home, folder.path, manifest.release)
    )
    manifest = sync_with_ledger(folder, manifest, ledger)
    if manifest.state != RunState.RUNNING:
        return manifest
    if not unfinished:
        raise InputError(
            f"run {folder.run} is not finished: purged, it can never be resumed, and what was drawn stays charged. "
            f"If that is meant: marginweave purge {folder.run} --unfinished"
        )
    _give_up(ledger, manifest.release)
    failed = manifest.with_state(RunState.FAILED)
    folder.write_manifest(failed)
    return failed


def _give_up(ledger: Ledger, release_id: str) -> None:
    """Shut out every attempt at a release, return the draws that were never begun, and record those begun as lost."""
    lease = uuid.uuid4().hex
    if ledger.releases.find(release_id) is None:
        return
    ledger.draws.take_lease(release_id, lease)
    record = ledger.releases.find(release_id)  # read again: no other attempt can change it any more
    assert record is not None
    for draw in record.draws:
        if draw.state == State.DRAWN:
            ledger.draws.lose(release_id, draw.name, lease)
    reserved = [draw.name for draw in record.draws if draw.state == State.RESERVED]
    ledger.draws.return_unused(release_id, reserved)


def _is_purgeable(folder: RunFolder, manifest: Manifest | None) -> bool:
    """Return whether a purge would remove files; for a run that awaits approval, the ledger decides."""
    places = (folder.private, folder.derived, *folder.staged_releases())
    if any(place.exists() for place in places):
        return True
    if manifest is None or manifest.state not in {RunState.AWAITING, RunState.REJECTED}:
        return False
    if not folder.proposed.exists():
        return False
    return apply_decision(folder, manifest).state != RunState.AWAITING


def _last_activity(folder: RunFolder, manifest: Manifest | None) -> datetime:
    """Return when the run was begun or finished its last stage; without a readable manifest, when its folder changed."""
    if manifest is None:
        with at_place(folder.path, "read"):
            return datetime.fromtimestamp(folder.path.stat().st_mtime, UTC)
    stage_ends = [entry.finished for entry in manifest.stages.values()]
    return max([manifest.created, *stage_ends])
