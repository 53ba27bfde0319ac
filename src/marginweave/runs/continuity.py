"""Checks that a run, the request for it, its released files, and the ledger belong to each other."""

from __future__ import annotations

import json
from pathlib import Path

from marginweave.accounting.records import ReleaseRecord, State
from marginweave.base.budget import Cost
from marginweave.base.durable import file_digest, replace_file
from marginweave.base.errors import NEW_NAME, BudgetError, InputError, StageError
from marginweave.checkpoints.run_folder import (
    RunFolder,
    check_proposed,
    propose_staged,
    publish_staged,
)
from marginweave.configuration.release import Configuration
from marginweave.configuration.yaml_source import written_content
from marginweave.draws.files import DrawStore
from marginweave.draws.program import program_identity
from marginweave.ledger import Ledger
from marginweave.ledger.invariants import HomeInvariant, RunAndRelease, first_violation, was_charged
from marginweave.ledger.plans import check_same_plan
from marginweave.released.account import ACCOUNT
from marginweave.released.manifest import Correction, Manifest, RunState
from marginweave.runs.progress import reporter
from marginweave.runs.request import Request, is_example


def check_same_configuration(request: Request, present: Manifest) -> None:
    """Refuse another configuration under the name of an existing run.

    Raises:
        InputError: names the keys that differ, not their values.
    """
    if present.is_of(request.configuration):
        return
    begun_with = written_content(present.written)
    requested = written_content(request.configuration.written)
    differing = ", ".join(_differences(begun_with, requested, ""))
    raise InputError(
        f"run {present.run} has another configuration: it differs in {differing}; {NEW_NAME}"
    )


def check_same_draws(request: Request, present: Manifest | None, ledger: Ledger) -> None:
    """Refuse to resume a run whose draws this program would make differently, before anything is read.

    Raises:
        InputError: the plan is not the one that was reserved, or a draw was begun by another program.
    """
    if present is None or present.state != RunState.RUNNING:
        return
    record = ledger.releases.find(present.release)
    if record is None:
        return
    from marginweave.draws.protocol import check_same_program

    program = program_identity()
    differing_draws = check_same_plan(record, request.charged_plan, program)
    if differing_draws:
        names = ", ".join(differing_draws[:3])
        reporter().note(
            f"{names} differ from the plan in their last digits; what was reserved is drawn"
        )
    store = DrawStore(request.folder, ledger.keys.checkpoint_key)
    for draw in record.draws:
        if (
            draw.state == State.DRAWN
            and store.read(record.release, draw.name, draw.lease or "", None) is None
        ):
            check_same_program(draw, program)


def configuration_differences(first: Configuration, second: Configuration) -> list[str]:
    """Return the keys, not their values, in which two configurations differ."""
    return _differences(json.loads(first.canonical()), json.loads(second.canonical()), "")


def _differences(before: object, after: object, place: str) -> list[str]:
    """Return the keys below `place` in which two JSON values differ, written as `section.key`."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = []
        for key in sorted({*before, *after}):
            key_place = f"{place}.{key}" if place else key
            keys += _differences(before.get(key), after.get(key), key_place)
        return keys
    if place == "columns" and isinstance(before, list) and isinstance(after, list):
        columns_before = dict(before)
        columns_after = dict(after)
        differences = _differences(columns_before, columns_after, place)
        if not differences and list(columns_before) != list(columns_after):
            return ["the order of columns"]
        return differences
    return [] if before == after else [place]


def check_continuity(folder: RunFolder, present: Manifest | None, ledger: Ledger) -> None:
    """Refuse a run whose parts do not belong to each other: to resume it would charge again for existing draws.

    Raises:
        StageError: draws without their manifest, or a run without its key.
        BudgetError: a draw, or a finished or submitted run, that the ledger does not know, as after the restore of an old copy.
    """
    release = ledger.releases.find(present.release) if present is not None else None
    if release is None and folder.draws.is_dir() and any(folder.draws.iterdir()):
        raise StageError(
            f"run {folder.run} has draws, but its manifest is missing or is not that of a release in the ledger; restore "
            f"manifest.json, or {NEW_NAME}"
        )
    if present is None:
        return
    if present.state == RunState.RUNNING and not (folder.private / "key").is_file():
        raise StageError(f"run {folder.run} has lost private/key and cannot be resumed; {NEW_NAME}")
    violation = first_violation(RunAndRelease(folder=folder, manifest=present, record=release))
    if violation is not None:
        raise BudgetError(
            f"run {folder.run} {_REFUSALS[violation.invariant].format(what=violation.contradiction)}"
        )


_RESTORE = "restore the ledger that the run was charged in"
_REFUSALS = {
    HomeInvariant.KNOWN: f"was charged, but the ledger does not know its release {{what}}: an older copy, or new; {_RESTORE}",
    HomeInvariant.SAME: "has another {what} in its manifest than in the ledger; restore manifest.json",
    HomeInvariant.CHARGED: f"has drawn {{what}}, but the ledger does not know it: it is an older copy; {_RESTORE}",
    HomeInvariant.PUBLISHED: "is finished, but the ledger does not know its release as it is: is this an older copy of it?",
    HomeInvariant.SUBMITTED: "was submitted for approval, but the ledger does not know it: is this an older copy of it?",
}


def sync_with_ledger(folder: RunFolder, present: Manifest, ledger: Ledger) -> Manifest:
    """Bring a run to the state that the ledger has for it, and return its manifest.

    A process may have ended after the ledger's row and before the manifest was written. Published, submitted or rejected: the
    ledger decides, and the files are moved to their place. A publication also writes account.json, which has no digest in the
    ledger: it follows from the rows up to the one that published.

    Raises:
        StageError: the files are not those that were booked.
    """
    record = ledger.releases.find(present.release)
    if record is None or not (record.outputs or record.proposed):
        return present
    if record.decision is None or record.decision.approved:
        _move_files(folder, record)
    if record.outputs:
        done = present.with_outputs(dict(record.outputs)).with_state(RunState.FINISHED)
        check_outputs(folder, done)
    else:
        done = present.with_state(
            RunState.AWAITING if record.decision is None else RunState.REJECTED
        )
    if done != present:
        # After the row that publishes, and before the manifest ends the run: after a kill in between, this is repeated.
        if record.outputs:
            restore_account(folder, done, ledger)
        folder.write_manifest(done)
    return done


def _move_files(folder: RunFolder, record: ReleaseRecord) -> None:
    """Move submitted files to `proposed/` and published files to `release/`, but no file that was added meanwhile."""
    if not record.outputs:
        propose_staged(folder, record.proposed)
    if record.proposed and (not record.outputs or folder.proposed.exists()):
        check_proposed(folder, record.proposed)
    if record.outputs:
        publish_staged(folder, record.outputs)


def check_outputs(folder: RunFolder, manifest: Manifest) -> None:
    """Refuse a release whose files are not those that were published.

    Raises:
        StageError: a file is missing or was changed.
    """
    for file, digest in manifest.outputs.items():
        if file_digest(folder.path / file) != digest:
            raise changed(folder.path / file)


def changed(file: Path) -> StageError:
    """Return the refusal of a released file that is not the one that was published."""
    return StageError(
        f"{file} is missing or was changed since it was published; it is not used. Restore it from a copy"
    )


def restore_account(folder: RunFolder, manifest: Manifest, ledger: Ledger) -> None:
    """Write account.json of a finished run where it is missing: it follows from the rows up to the one that published."""
    if not (folder.release / ACCOUNT).exists():
        replace_file(
            folder.release / ACCOUNT, ledger.accounts.as_published(manifest.release).to_json()
        )


def check_history(request: Request, present: Manifest | None, ledger: Ledger) -> None:
    """Refuse a run that would be charged again because home and ledger disagree; `present` is the run's manifest.

    Raises:
        InputError: the ledger knows a release of this run, and the run's folder has no manifest.
        BudgetError: the ledger does not know what the runs of this home have spent: it was replaced, or restored too old.
    """
    dataset = request.configuration.dataset
    name = request.folder.run
    # Other runs continue meanwhile. A draw is entered in the ledger before a manifest says that it is charged. So the manifests
    # are read first: the ledger, read after them, has every draw that they have.
    charged_manifests = _charged_manifests(request, present)
    releases = ledger.releases.of(dataset)
    was_reserved = any(record.run == name and record.charged != Cost() for record in releases)
    # A run gets its manifest before it is reserved: where another process has begun this run, the manifest exists by this time.
    if was_reserved and present is None and not request.folder.manifest_file.exists():
        raise InputError(
            f"run {name} was charged to account {dataset} before, but {request.folder.manifest_file} is not here; restore the "
            f"run's folder, or, for one more charge, {NEW_NAME}"
        )
    in_ledger = {record.release for record in releases}
    for manifest in charged_manifests:
        if manifest.release not in in_ledger:
            raise BudgetError(
                f"run {manifest.run} was charged to account {dataset}, but the ledger {ledger.location} does not know it: it "
                "is new, or an old backup; restore the ledger that the run was charged in"
            )


def _charged_manifests(request: Request, present: Manifest | None) -> list[Manifest]:
    """Return the manifests of runs of this home, without examples, that say that they were charged to the account."""
    manifests = []
    for folder in RunFolder.all_of(request.folder.home):
        # a manifest that is damaged is found by `audit_files`
        manifest = present if folder == request.folder else folder.readable_manifest()
        if (
            manifest is None
            or manifest.dataset != request.configuration.dataset
            or not was_charged(manifest)
        ):
            continue
        if not is_example(folder):
            manifests.append(manifest)
    return manifests


def check_correction(request: Request, present: Manifest | None) -> Correction | None:
    """Return the release that the request is to correct, or None; a run keeps the correction that it was begun with.

    Raises:
        InputError: no published run of that name for the same dataset, or the run was begun to correct something else.
    """
    begun_correction = None if present is None else present.supersedes
    if request.supersedes is None:
        return begun_correction
    if begun_correction is not None and begun_correction.run == request.supersedes:
        return begun_correction
    if present is not None:
        corrected = "nothing" if begun_correction is None else f"run {begun_correction.run}"
        raise InputError(f"run {present.run} was begun to supersede {corrected}; {NEW_NAME}")
    old = RunFolder.at(request.folder.home, request.supersedes).read_manifest()
    dataset = request.configuration.dataset
    rule = f"supersedes ({request.supersedes}) must be a"
    if old is None or old.state != RunState.FINISHED:
        raise InputError(f"{rule} run whose release is published; see `marginweave runs`")
    if old.dataset != dataset:
        raise InputError(f"{rule} release of {dataset}, and is one of {old.dataset}")
    return Correction(run=old.run, release=old.release)
