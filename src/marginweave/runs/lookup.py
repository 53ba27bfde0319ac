"""Existing runs: their lock, the states that a command needs, and the decision on a release that awaits approval."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path

from marginweave.accounting.records import Decision
from marginweave.base.durable import PRIVATE_MODE, at_place, replace_file
from marginweave.base.errors import NEW_NAME, InputError, OperatorError, StageError
from marginweave.base.places import FRAME, refuse_long
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.ledger import Ledger, Witness
from marginweave.released.manifest import Manifest, RunState
from marginweave.runs.continuity import check_continuity, check_outputs, sync_with_ledger
from marginweave.runs.request import (
    SKIPPED,
    STOPPED,
    ledger_of,
    no_such_run,
    original_request,
    was_skipped,
)

_LOCKED: ContextVar[frozenset[Path]] = ContextVar("locked", default=frozenset())


@contextmanager
def run_lock(folder: RunFolder, *, waiting: bool = False) -> Iterator[None]:
    """Lock the run for this context, until the end of the process at the latest; a context that has the lock may take it twice.

    With `waiting`, wait until no other process or thread has the run.

    Raises:
        StageError: another process, or another thread, has the run, and not `waiting`.
    """
    folder.check_links()
    lock = (folder.path / ".lock").absolute()
    if lock in _LOCKED.get():
        yield
        return
    refusal = None if waiting else f"run {folder.run} is in progress in another process or thread"
    with exclusive_lock(lock, refusal):
        token = _LOCKED.set(_LOCKED.get() | {lock})
        try:
            yield
        finally:
            _LOCKED.reset(token)


@contextmanager
def exclusive_lock(place: Path, refusal: str | None) -> Iterator[int]:
    """Lock the file `place`, and make its folder where that is missing; without a `refusal`, wait for the lock.

    Yields the descriptor of the file. A child process that gets the descriptor keeps the lock after we end.

    Raises:
        StageError: another process has the lock; its text is `refusal`.
    """
    with at_place(place.parent, "created"):
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE_MODE)
    with os.fdopen(descriptor) as lock:
        try:
            no_wait = fcntl.LOCK_NB if refusal else 0
            fcntl.flock(lock, fcntl.LOCK_EX | no_wait)
        except OSError as error:
            raise StageError(refusal or f"{place} cannot be locked: {error.strerror}") from None
        yield lock.fileno()


@contextmanager
def shared_lock(folder: RunFolder) -> Iterator[bool]:
    """Yield whether no process works on the run, and let none begin inside; nothing is written, not even a lock file."""
    is_idle = True
    with ExitStack() as stack:
        try:
            lock = stack.enter_context((folder.path / ".lock").open("rb"))
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            is_idle = isinstance(error, FileNotFoundError)
        yield is_idle


def in_progress(folder: RunFolder) -> bool:
    """Return whether another process works on the run."""
    with shared_lock(folder) as is_idle:
        return not is_idle


@contextmanager
def record_stop_reason(folder: RunFolder) -> Iterator[None]:
    """Write the reason of a data-dependent stop to `internal/stopped.txt`: a worker's operator has no terminal to read it on.

    This includes a stop before the run has any folder, such as for a missing table.
    """
    try:
        yield
    except OperatorError as stop:
        folder.create_internal()
        place = folder.internal / STOPPED
        replace_file(place, f"{stop.detail}\n".encode(), PRIVATE_MODE)
        stop.is_in(place)
        raise


def reason_file(folder: RunFolder) -> Path | None:
    """Return the file that says why an unfinished run stopped or was skipped, for its operator alone, if there is one."""
    file = folder.internal / (SKIPPED if was_skipped(folder) else STOPPED)
    return file if file.exists() else None


def existing_run(home: Path, run: str) -> tuple[RunFolder, Manifest]:
    """Return the folder and the manifest of a run that has a manifest.

    Raises:
        InputError: there is no such run, or it was skipped.
    """
    folder = RunFolder.at(home, run)
    manifest = folder.read_manifest()
    if manifest is None:
        raise no_such_run(folder)
    return folder, manifest


def finished_run(home: Path, run: str) -> tuple[RunFolder, Manifest]:
    """Return the folder and the manifest of a run whose release is published.

    Raises:
        InputError: there is no such run, or it is not finished.
        BudgetError: it awaits approval, and there is no ledger to say whether it still does.
        StageError: its released files were changed.
    """
    folder, manifest = decided_run(home, run)
    if manifest.state == RunState.REJECTED:
        raise InputError(f"run {run} was rejected: nothing of it is published")
    check_outputs(folder, manifest)
    return folder, manifest


def decided_run(home: Path, run: str) -> tuple[RunFolder, Manifest]:
    """Return a run whose release is published or rejected; a decision that was interrupted in the middle is carried out first.

    Raises:
        InputError: there is no such run, or it is neither.
        BudgetError: it awaits approval, and there is no ledger to say whether it still does.
        StageError: the run is in progress, or a file of an approved release was changed.
    """
    folder, manifest = existing_run(home, run)
    manifest = apply_decision(folder, manifest)
    if manifest.state == RunState.AWAITING:
        raise InputError(f"run {run} awaits approval: {what_to_do(run)}")
    if manifest.state not in {RunState.FINISHED, RunState.REJECTED}:
        check_resumable(home, run)
        reason = reason_file(folder)
        why = "" if reason is None else f" ({reason} says why)"
        raise InputError(f"run {run} is not finished{why}. Resume it: marginweave resume {run}")
    return folder, manifest


def check_resumable(home: Path, run: str) -> None:
    """Refuse to resume a run of a data frame, of which no copy is kept. Raises InputError with what to do in Python."""
    source = original_request(home, run).source
    if Path(source).parts[-3:] == (run, "internal", FRAME):
        raise InputError(
            f"run {run} was made from a data frame in Python, and no copy of it is kept. Resume it there: call fit again with "
            f'the same frame and configuration, as in fit(frame, run="{run}")'
        )


def apply_decision(folder: RunFolder, manifest: Manifest) -> Manifest:
    """Apply the decision that the ledger has on a run that awaits approval: move its files, and return the new manifest.

    Returns `manifest` where there is no decision, or where the run awaits none. An approval or rejection that was killed in the
    middle is carried out here.

    Raises:
        BudgetError: there is no ledger to ask.
        StageError: the run is in progress, or a file of an approved release was changed.
    """
    if manifest.state != RunState.AWAITING:
        return manifest
    ledger = Ledger.open(ledger_of(folder, folder.home), witness=Witness(folder.home))
    record = ledger.releases.find(manifest.release)
    if record is None or record.decision is None:
        return manifest
    with run_lock(folder):
        return sync_with_ledger(folder, folder.read_manifest() or manifest, ledger)


def what_to_do(run: str) -> str:
    """Return the two commands that decide on a run that awaits approval."""
    return (
        f'marginweave approve {run} --by NAME --reason "…", or marginweave reject {run} --by NAME --reason "…", which '
        "publishes nothing and leaves the charge"
    )


def describe_progress(folder: RunFolder) -> str | None:
    """Return one sentence on the state of a folder's run, and what `run` would do with it; None where there is no run.

    DP: from the manifest, which is public.
    """
    manifest = folder.read_manifest()
    if manifest is None:
        return None
    follows = {
        RunState.FINISHED: "`run` finds its release and charges nothing",
        RunState.AWAITING: "`run` finds it and charges nothing",
        RunState.REJECTED: "it was charged, and nothing of it is published",
        RunState.FAILED: f"it was purged and cannot be resumed; {NEW_NAME}",
        RunState.RUNNING: "`run` resumes it; only what is not charged yet will be charged",
    }
    return f"run {folder.run} is {manifest.state}: {follows[manifest.state]}"


def corrections(home: Path) -> dict[str, str]:
    """Return the releases that published runs of this home correct, each with the correcting run; the ledger has them too."""
    correcting_runs = {}
    for folder in RunFolder.all_of(home):
        manifest = folder.readable_manifest()
        if manifest is None or manifest.state != RunState.FINISHED:
            continue
        if manifest.supersedes is not None:
            correcting_runs[manifest.supersedes.release] = folder.run
    return correcting_runs


def place_of_files(folder: RunFolder) -> Path:
    """Return the folder of files that may leave: `proposed/` while the run awaits approval, `release/` otherwise."""
    manifest = folder.read_manifest()
    awaiting = manifest is not None and manifest.state == RunState.AWAITING
    return folder.proposed if awaiting else folder.release


def decide(
    home: Path, run: str, *, approved: bool, by: str, reason: str
) -> tuple[RunFolder, Decision]:
    """Approve or reject a run that awaits approval, and bring folder and manifest to the state in the ledger.

    Nothing is read but the proposed files, to compare their digests with those in the ledger. The first decision is final; it
    is returned also where somebody else made it.

    Raises:
        InputError: no such run, one that does not await approval, no name, or no reason.
        BudgetError: the ledger does not know that the run was submitted: one of them is an older copy.
        StageError: the run is in progress, or a proposed file is missing, was changed or was added.
    """
    folder, manifest = existing_run(home, run)
    with run_lock(folder):
        witness = Witness(home, folder.path, manifest.release)
        ledger = Ledger.open(ledger_of(folder, home), witness=witness)
        manifest = folder.read_manifest() or manifest
        if approved:
            # a proposal that was changed can still be rejected
            manifest = sync_with_ledger(folder, manifest, ledger)
        record = ledger.releases.find(manifest.release)
        if manifest.state in {RunState.AWAITING, RunState.REJECTED}:
            check_continuity(folder, manifest, ledger)
        if record is None or not record.proposed:
            raise InputError(f"run {run} does not await approval; it is {manifest.state.value}")
        decision = ledger.approvals.decide(
            manifest.release, approved=approved, by=by, reason=reason
        )
        sync_with_ledger(folder, manifest, ledger)
    return folder, decision


def release_folder(home: Path, named: str) -> Path:
    """Return the folder of the release of a finished run of this name, or the folder `named` if it has a release.

    Raises:
        InputError: there is neither.
    """
    refuse_long("the release", named)
    folder = Path(named)
    if (folder / "privacy.json").is_file():
        return folder
    if folder.name != named or (folder.exists() and not (home / "runs" / named).exists()):
        raise InputError(f"{named} {_no_release(folder)}")
    run_folder, _ = finished_run(home, named)
    return run_folder.release


def _no_release(folder: Path) -> str:
    """Return why `folder` has no answers, and a release that is near: in `release/` below it, or in a folder above it."""
    if not folder.exists():
        return "does not exist: give the folder of a release, or the name of a run; `marginweave runs` lists the runs"
    reason = "is not the folder of a release, which has a file privacy.json"
    for parent in (folder.absolute(), *folder.absolute().parents[:2]):
        for place in (parent, parent / "release"):
            if (place / "privacy.json").is_file():
                return f"{reason}; {place} is one"
    return reason
