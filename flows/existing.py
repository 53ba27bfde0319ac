"""Runs that exist: looked up by name, in the state that a command needs."""

from __future__ import annotations

from pathlib import Path

from marginweave.flows.continuity import check_outputs
from marginweave.schemas.errors import InputError
from marginweave.schemas.manifest import Manifest, RunState
from marginweave.tasks.checkpoint.run_folder import RunFolder


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
        StageError: its released files were changed.
    """
    folder, manifest = existing_run(home, run)
    if manifest.state == RunState.AWAITING:
        raise InputError(f"run {run} awaits approval: {what_to_do(run)}")
    if manifest.state == RunState.REJECTED:
        raise InputError(f"run {run} was rejected: nothing of it is published")
    if manifest.state != RunState.FINISHED:
        raise InputError(f"run {run} is not finished; go on with it: marginweave resume {run}")
    check_outputs(folder, manifest)
    return folder, manifest


def what_to_do(run: str) -> str:
    """The two commands that end the waiting of a run."""
    return (
        f'marginweave approve {run} --by NAME --reason "…", or marginweave reject {run} --by NAME --reason "…", which '
        "publishes nothing and leaves the charge"
    )


def successor(home: Path, manifest: Manifest) -> str | None:
    """The published run of this home that corrects the release of `manifest`, or None; the ledger knows it as well."""
    for path in sorted((home / "runs").glob("*/manifest.json")):
        other = RunFolder(path.parent).read_manifest()
        corrected = None if other is None or other.state != RunState.FINISHED else other.supersedes
        if corrected is not None and corrected.release == manifest.release:
            return path.parent.name
    return None
