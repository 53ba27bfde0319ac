"""The runs of a home: which there are, which still hold private files, and the removal of what is private."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from marginweave.accounting.records import State
from marginweave.base.durable import at_place
from marginweave.base.errors import InputError, MarginweaveError, StageError
from marginweave.base.places import FRAME
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.ledger import Ledger, Witness
from marginweave.released.manifest import Manifest, RunState
from marginweave.runs.continuity import sync_with_ledger
from marginweave.runs.lookup import apply_decision, corrections, existing_run, in_progress, run_lock
from marginweave.runs.request import ledger_of

_WORDS = {RunState.RUNNING: "unfinished", RunState.FAILED: "purged"}


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One line of `marginweave runs`."""

    name: str
    dataset: str
    state: str
    begun: str
    holds_private: bool
    holds_exact: bool  # numbers of an internal evaluation, in internal/


def list_runs(home: Path) -> list[RunSummary]:
    """Every run below `home`, by name; one that is damaged is listed as such, one that was corrected with its successor.

    What was refused before it was begun is not listed: its folder has a lock, and of a `fit` the configuration.
    """
    corrected = corrections(home)
    listed = ((folder, _summary(folder, folder.readable_manifest(), corrected)) for folder in RunFolder.all_of(home))
    return [run for folder, run in listed if run.state != "not begun" or _left_something(folder)]


def _left_something(folder: RunFolder) -> bool:
    return not {file.name for file in folder.path.rglob("*")} <= {".lock", "internal", "configuration.yaml", FRAME}


def _summary(folder: RunFolder, manifest: Manifest | None, corrected: dict[str, str]) -> RunSummary:
    if manifest is None:
        state = "damaged" if folder.manifest_file.exists() else "not begun"
    elif manifest.state == RunState.FINISHED and manifest.release in corrected:
        state = f"superseded by {corrected[manifest.release]}"
    else:
        state = _WORDS.get(manifest.state, manifest.state.value)
    if (manifest is None or manifest.state == RunState.RUNNING) and in_progress(folder):
        state = "in progress"
    return RunSummary(
        name=folder.run,
        dataset=manifest.dataset if manifest else "",
        state=state,
        begun=f"{manifest.created:%Y-%m-%d %H:%M}" if manifest else "",
        holds_private=folder.private.exists(),
        holds_exact=holds_exact(folder),
    )


def holds_exact(folder: RunFolder) -> bool:
    """Whether an internal evaluation is kept, which compares with the rows and is exact; no purge removes it."""
    return folder.internal_evaluation.exists() or folder.internal_report.exists()


def purge_run(home: Path, run: str, *, unfinished: bool) -> None:
    """Remove what is private in a run, and what was rejected; of an unfinished one, give back what was not drawn.

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
        folder, manifest = existing_run(home, run)  # as it is now that nobody else works on it
        if manifest.state == RunState.RUNNING:
            manifest = _ended(folder, manifest, home, unfinished=unfinished)
        if manifest.state == RunState.REJECTED and folder.proposed.exists():
            with at_place(folder.proposed, "removed"):
                shutil.rmtree(folder.proposed)
        folder.purge_private()


def purge_older(home: Path, age: timedelta) -> tuple[list[str], list[str]]:
    """Purge every run of which nothing was heard for so long, unfinished ones too, but none that is in progress.

    Returns the runs that hold nothing private any more, and those that are in progress.

    Raises:
        StageError: some could not be purged; the others were.
    """
    before, done, busy, failed = datetime.now(UTC) - age, [], [], []
    for folder in RunFolder.all_of(home):
        manifest = folder.readable_manifest()
        if _last_word(folder, manifest) > before:
            continue
        try:
            if in_progress(folder):
                busy.append(folder.run)
            elif _holds_something(folder, manifest):
                purge_run(home, folder.run, unfinished=True)
                done.append(folder.run)
        except MarginweaveError as error:
            failed.append(f"{folder.run} ({error})")
    if failed:
        raise StageError(f"{len(done)} run(s) purged, and {len(failed)} could not be: {'; '.join(failed)}")
    return done, busy


def _ended(folder: RunFolder, manifest: Manifest, home: Path, *, unfinished: bool) -> Manifest:
    """An unfinished run brought to its end: to the one that the ledger knows, or given up."""
    ledger = Ledger.open(ledger_of(folder, home), witness=Witness(home, folder.path, manifest.release))
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
    """Shut out every attempt at a release, give back what was never begun, and book what was begun as lost."""
    lease = uuid.uuid4().hex
    if ledger.releases.find(release_id) is None:
        return
    ledger.draws.take_lease(release_id, lease)
    record = ledger.releases.find(release_id)  # as it stands now that no other attempt can move it
    assert record is not None
    for draw in record.draws:
        if draw.state == State.DRAWN:
            ledger.draws.lose(release_id, draw.name, lease)
    ledger.draws.return_unused(release_id, [draw.name for draw in record.draws if draw.state == State.RESERVED])


def _holds_something(folder: RunFolder, manifest: Manifest | None) -> bool:
    """Whether there is something for a purge to remove; of what awaits approval, the ledger has the last word."""
    if any(place.exists() for place in (folder.private, folder.derived, *folder.staged_releases())):
        return True
    if manifest is None or manifest.state not in {RunState.AWAITING, RunState.REJECTED} or not folder.proposed.exists():
        return False
    return apply_decision(folder, manifest).state != RunState.AWAITING


def _last_word(folder: RunFolder, manifest: Manifest | None) -> datetime:
    """When the run was begun or has ended its newest stage; without a readable manifest, when its folder was changed."""
    if manifest is None:
        with at_place(folder.path, "read"):
            return datetime.fromtimestamp(folder.path.stat().st_mtime, UTC)
    return max([manifest.created, *(entry.finished for entry in manifest.stages.values())])
