"""Runs that exist: looked up by name, in the state that a command needs."""

from __future__ import annotations

from pathlib import Path

from marginweave.flows.run.bookkeeping import run_lock
from marginweave.flows.run.continuity import as_booked, check_outputs
from marginweave.flows.run.request import ledger_of
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.manifest import Manifest, RunState
from marginweave.tasks.checkpoint.run_folder import RunFolder
from marginweave.tasks.ledger import Ledger, Witness


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
    if manifest.state == RunState.AWAITING:
        manifest = as_decided(folder, manifest, home)
    if manifest.state == RunState.AWAITING:
        raise InputError(f"run {run} awaits approval: {what_to_do(run)}")
    if manifest.state not in {RunState.FINISHED, RunState.REJECTED}:
        raise InputError(f"run {run} is not finished; go on with it: marginweave resume {run}")
    return folder, manifest


def as_decided(folder: RunFolder, manifest: Manifest, home: Path) -> Manifest:
    """The manifest of a run that awaits approval after the decision that the ledger knows, its files where they then belong.

    Unchanged where there is no decision. An approval or rejection that was killed in the middle is carried out here.

    Raises:
        BudgetError: there is no ledger to ask.
        StageError: the run is in progress, or a file of an approved release was changed.
    """
    ledger = Ledger.open(ledger_of(folder, home), witness=Witness(home))
    record = ledger.release(manifest.release)
    if record is None or record.decision is None:
        return manifest
    with run_lock(folder):
        return as_booked(folder, folder.read_manifest() or manifest, ledger)


def what_to_do(run: str) -> str:
    """The two commands that end the waiting of a run."""
    return (
        f'marginweave approve {run} --by NAME --reason "…", or marginweave reject {run} --by NAME --reason "…", which '
        "publishes nothing and leaves the charge"
    )


def there_already(folder: RunFolder) -> str | None:
    """How far the run of this folder is, and what the same command would do, in words; None where there is none.

    DP: from the manifest, which is public.
    """
    manifest = folder.read_manifest()
    if manifest is None:
        return None
    follows = {
        RunState.FINISHED: "`run` finds its release and charges nothing",
        RunState.AWAITING: "`run` finds it and charges nothing",
        RunState.REJECTED: "it was charged, and nothing of it is published",
    }
    goes_on = "`run` goes on with it, and charges what is not charged yet"
    return f"run {folder.run} is {manifest.state}: {follows.get(manifest.state, goes_on)}"


def successor(home: Path, manifest: Manifest) -> str | None:
    """The published run of this home that corrects the release of `manifest`, or None; the ledger knows it as well."""
    for path in sorted((home / "runs").glob("*/manifest.json")):
        other = RunFolder(path.parent).read_manifest()
        corrected = None if other is None or other.state != RunState.FINISHED else other.supersedes
        if corrected is not None and corrected.release == manifest.release:
            return path.parent.name
    return None
