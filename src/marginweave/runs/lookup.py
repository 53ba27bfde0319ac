"""Runs that exist: their lock, the states that a command needs, and the decision on a release that awaits approval."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path

from marginweave.accounting.records import Decision
from marginweave.base.durable import PRIVATE_MODE, at_place, replace_file
from marginweave.base.errors import InputError, OperatorError, StageError
from marginweave.base.places import FRAME, refuse_long
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.ledger import Ledger, Witness
from marginweave.released.manifest import Manifest, RunState
from marginweave.runs.continuity import check_continuity, check_outputs, sync_with_ledger
from marginweave.runs.request import NEW_NAME, STOPPED, ledger_of, original_request

_LOCKED: ContextVar[frozenset[Path]] = ContextVar("locked", default=frozenset())


@contextmanager
def run_lock(folder: RunFolder, *, waiting: bool = False) -> Iterator[None]:
    """Lock the run for this context, until the end of the process at the latest; a context that has the lock may take it twice.

    Raises:
        StageError: another process, or another thread, has the run; not if `waiting`: then, once it has not.
    """
    folder.check_links()
    lock = (folder.path / ".lock").absolute()
    if lock in _LOCKED.get():
        yield
        return
    with exclusive_lock(lock, None if waiting else f"run {folder.run} is in progress in another process or thread"):
        token = _LOCKED.set(_LOCKED.get() | {lock})
        try:
            yield
        finally:
            _LOCKED.reset(token)


@contextmanager
def exclusive_lock(place: Path, refusal: str | None) -> Iterator[int]:
    """Lock the file `place`, whose folder is made where it is missing; without a `refusal`, once nobody else has the lock.

    The descriptor of the file is what a child that is given it keeps locked after us.

    Raises:
        StageError: another process has the lock; its text is `refusal`.
    """
    with at_place(place.parent, "created"):
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE_MODE)
    with os.fdopen(descriptor) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
        except OSError as error:
            raise StageError(refusal or f"{place} cannot be locked: {error.strerror}") from None
        yield lock.fileno()


@contextmanager
def shared_lock(folder: RunFolder) -> Iterator[bool]:
    """Whether no process works on the run, and none begins to while we look; nothing is written, not even a lock file."""
    still = True
    with ExitStack() as stack:
        try:
            lock = stack.enter_context((folder.path / ".lock").open("rb"))
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            still = isinstance(error, FileNotFoundError)
        yield still


def in_progress(folder: RunFolder) -> bool:
    """Whether another process works on the run."""
    with shared_lock(folder) as still:
        return not still


@contextmanager
def record_stop_reason(folder: RunFolder) -> Iterator[None]:
    """Leave the reason of a data-dependent stop in `internal/stopped.txt`: a worker's operator has no terminal to read it on.

    Also of one that comes before the run has any folder, as where its table is missing.
    """
    try:
        yield
    except OperatorError as stop:
        folder.create_internal()
        replace_file(folder.internal / STOPPED, f"{stop.detail}\n".encode(), PRIVATE_MODE)
        raise


def existing_run(home: Path, run: str) -> tuple[RunFolder, Manifest]:
    """A run with a manifest.

    Raises:
        InputError: there is no such run.
    """
    folder = RunFolder.at(home, run)
    manifest = folder.read_manifest()
    if manifest is None:
        raise InputError(f"run {run} does not exist in {home / 'runs'}; `marginweave runs` lists the runs")
    return folder, manifest


def finished_run(home: Path, run: str) -> tuple[RunFolder, Manifest]:
    """A run whose release is published.

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
    """A run whose release is published or rejected; a decision that was interrupted in the middle is carried out first.

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
        raise InputError(f"run {run} is not finished. Resume it: marginweave resume {run}")
    return folder, manifest


def check_resumable(home: Path, run: str) -> None:
    """Refuse to resume a run of a data frame, of which no copy is kept. Raises InputError with what to do in Python."""
    if Path(original_request(home, run)[1]).parts[-3:] == (run, "internal", FRAME):
        raise InputError(
            f"run {run} was made from a data frame in Python, and no copy of it is kept. Resume it there: call fit again with "
            f'the same frame and configuration, as in fit(frame, run="{run}")'
        )


def apply_decision(folder: RunFolder, manifest: Manifest) -> Manifest:
    """The manifest of a run that awaits approval after the decision that the ledger knows, its files where they then belong.

    Unchanged where there is no decision, or it awaits none. An approval or rejection that was killed in the middle is carried
    out here.

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
    """The two commands that end the waiting of a run."""
    return (
        f'marginweave approve {run} --by NAME --reason "…", or marginweave reject {run} --by NAME --reason "…", which '
        "publishes nothing and leaves the charge"
    )


def describe_progress(folder: RunFolder) -> str | None:
    """One sentence on how far the run of this folder is, and what `run` would do with it; None where there is none.

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
    """The releases that published runs of this home correct, each with the run that does; the ledger knows them as well."""
    manifests = {folder.run: folder.readable_manifest() for folder in RunFolder.all_of(home)}
    finished = {run: found for run, found in manifests.items() if found and found.state == RunState.FINISHED}
    return {found.supersedes.release: run for run, found in finished.items() if found.supersedes}


def place_of_files(folder: RunFolder) -> Path:
    """The folder of what may leave: `proposed/` as long as the run awaits approval, `release/` otherwise."""
    manifest = folder.read_manifest()
    awaiting = manifest is not None and manifest.state == RunState.AWAITING
    return folder.proposed if awaiting else folder.release


def decide(home: Path, run: str, *, approved: bool, by: str, reason: str) -> tuple[RunFolder, Decision]:
    """Approve or reject a run that awaits it, and bring folder and manifest to where the ledger then is.

    Nothing is read but the proposed files, and of these the digests, which were booked when they were submitted. The first
    decision is final; it is returned, whoever made it.

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
            manifest = sync_with_ledger(folder, manifest, ledger)  # a proposal that was changed can still be rejected
        record = ledger.releases.find(manifest.release)
        if manifest.state in {RunState.AWAITING, RunState.REJECTED}:
            check_continuity(folder, manifest, ledger)
        if record is None or not record.proposed:
            raise InputError(f"run {run} does not await approval; it is {manifest.state.value}")
        decision = ledger.approvals.decide(manifest.release, approved=approved, by=by, reason=reason)
        sync_with_ledger(folder, manifest, ledger)
    return folder, decision


def release_folder(home: Path, named: str) -> Path:
    """The folder of the release of a finished run of this name, or the folder `named` that has a release.

    Raises:
        InputError: there is neither.
    """
    refuse_long("the release", named)
    folder = Path(named)
    if (folder / "privacy.json").is_file():
        return folder
    if folder.name != named or (folder.exists() and not (home / "runs" / named).exists()):
        raise InputError(f"{named} {_no_release(folder)}")
    return finished_run(home, named)[0].release


def _no_release(folder: Path) -> str:
    """Why the answers cannot be had from `folder`, and where its release is: in `release/` below it, or around it."""
    if not folder.exists():
        return "does not exist: give the folder of a release, or the name of a run; `marginweave runs` lists the runs"
    around = folder.absolute(), *folder.absolute().parents[:2]
    near = [place for up in around for place in (up, up / "release")]
    near = [place for place in near if (place / "privacy.json").is_file()]
    return "is not the folder of a release, which has a file privacy.json" + (f"; {near[0]} is one" if near else "")
