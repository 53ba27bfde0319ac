"""Whether what is there belongs together: a run, the request for it, its released files, and the ledger."""

from __future__ import annotations

import json

from marginweave.flows.audit import unknown_charges
from marginweave.flows.request import Request
from marginweave.schemas.budget import Cost
from marginweave.schemas.errors import BudgetError, InputError, StageError
from marginweave.schemas.ledger import ReleaseRecord, State
from marginweave.schemas.manifest import Manifest, RunState
from marginweave.tasks.budget.ledger import Ledger
from marginweave.tasks.checkpoint.draws import unknown_draw
from marginweave.tasks.checkpoint.files import file_digest
from marginweave.tasks.checkpoint.publication import publish_staged
from marginweave.tasks.checkpoint.run_folder import RunFolder


def check_same_configuration(request: Request, present: Manifest) -> None:
    """Refuse another configuration under the name of an existing run.

    Raises:
        InputError: names the keys that differ, not their values.
    """
    if present.configuration_digest == request.configuration.digest:
        return
    before, now = json.loads(present.configuration), json.loads(request.configuration.canonical())
    places = ", ".join(_differences(before, now, ""))
    raise InputError(
        f"run {present.run} has another configuration; it differs in {places}. Give the new release a name with --run"
    )


def _differences(before: object, now: object, place: str) -> list[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        keys = sorted({*before, *now})
        return [
            d for key in keys for d in _differences(before.get(key), now.get(key), f"{place}.{key}" if place else key)
        ]
    if place == "columns" and isinstance(before, list) and isinstance(now, list):
        one, other = dict(before), dict(now)
        order = ["the order of columns"] if list(one) != list(other) else []
        return _differences(one, other, place) or order
    return [] if before == now else [place]


def check_continuity(folder: RunFolder, present: Manifest | None, ledger: Ledger) -> None:
    """Refuse a run whose parts do not belong together: going on would charge for what was drawn already.

    Raises:
        StageError: draws without their manifest, or a run without its key.
        BudgetError: a finished run that the ledger does not know, as after the restore of an old copy.
    """
    release = ledger.release(present.release) if present is not None else None
    drawn = folder.draws.is_dir() and any(folder.draws.iterdir())
    if release is not None and present is not None:
        _check_charges(folder, present, release)
    if drawn and release is None:
        raise StageError(
            f"run {folder.run} has draws, but its manifest is missing or is not that of a release in the ledger; "
            "restore manifest.json, or give a new release a name with --run"
        )
    if present is None:
        return
    if present.state == RunState.RUNNING and not (folder.private / "key").is_file():
        raise StageError(
            f"run {folder.run} has lost private/key and cannot go on; give a new release a name with --run"
        )
    if present.state == RunState.FINISHED and (release is None or dict(release.outputs) != present.outputs):
        raise BudgetError(
            f"run {folder.run} is finished, but the ledger does not know its release as it is: is this an older copy of it?"
        )


def _check_charges(folder: RunFolder, present: Manifest, release: ReleaseRecord) -> None:
    """Refuse to go on where the run has drawn what the ledger takes for not yet begun: it is an older copy of itself."""
    charged = {name for entry in present.stages.values() for name in entry.charged}
    forgotten = [draw.name for draw in release.draws if draw.state == State.RESERVED and draw.name in charged]
    stranger = unknown_draw(folder, release)
    if forgotten or stranger is not None:
        raise BudgetError(
            f"run {folder.run} has drawn {', '.join(forgotten) or stranger}, but the ledger does not know it: it is an older "
            "copy; restore the ledger that the run was charged in"
        )


def published_before_its_end(folder: RunFolder, present: Manifest, ledger: Ledger) -> Manifest:
    """The manifest of a run that ended between the ledger's word that it is published and its own."""
    record = ledger.release(present.release)
    if record is None or not record.outputs:
        return present
    finished = present.with_outputs(dict(record.outputs)).with_state(RunState.FINISHED)
    publish_staged(folder, record.outputs)
    check_outputs(folder, finished)
    folder.write_manifest(finished)
    return finished


def check_outputs(folder: RunFolder, manifest: Manifest) -> None:
    """Refuse a release whose files are not those that were published.

    Raises:
        StageError: a file is missing or was changed.
    """
    for file, digest in manifest.outputs.items():
        if file_digest(folder.path / file) != digest:
            raise StageError(f"{folder.path / file} is missing or was changed since it was published; it is not used")


def check_history(request: Request, ledger: Ledger) -> None:
    """Refuse what would be charged again because home and ledger do not know the same.

    Raises:
        InputError: the ledger knows a release of this run, and the run's folder has no manifest.
        BudgetError: the ledger does not know what the runs of this home have spent: it was replaced, or restored too old.
    """
    dataset, name = request.configuration.dataset, request.folder.run
    releases = ledger.releases(dataset)
    if request.folder.read_manifest() is None and any(
        record.run == name and record.charged != Cost() for record in releases
    ):
        raise InputError(
            f"run {name} was charged to account {dataset} before, but {request.folder.manifest_file} is not here; restore the "
            "run's folder, or give a new release, which is charged anew, a name of its own with --run"
        )
    known = frozenset(record.release for record in releases)
    run = unknown_charges(request.folder.path.parent.parent, dataset, known)
    if run is not None:
        raise BudgetError(
            f"run {run} was charged to account {dataset}, but the ledger {ledger.location} does not know it: it is new, or an "
            "old backup; restore the ledger that the run was charged in"
        )
