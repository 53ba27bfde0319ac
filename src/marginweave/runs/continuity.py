"""Whether what is there belongs together: a run, the request for it, its released files, and the ledger."""

from __future__ import annotations

import json
from pathlib import Path

from marginweave.accounting.records import ReleaseRecord, State
from marginweave.base.budget import Cost
from marginweave.base.durable import file_digest, replace_file
from marginweave.base.errors import BudgetError, InputError, StageError
from marginweave.checkpoints.run_folder import RunFolder, check_proposed, propose_staged, publish_staged
from marginweave.configuration.release import Configuration
from marginweave.configuration.yaml_source import written_content
from marginweave.draws.files import DrawStore
from marginweave.draws.program import program_identity
from marginweave.ledger import Ledger
from marginweave.ledger.invariants import HomeInvariant, RunAndRelease, first_misfit, was_charged
from marginweave.ledger.plans import check_same_plan
from marginweave.released.account import ACCOUNT
from marginweave.released.manifest import Correction, Manifest, RunState
from marginweave.runs.progress import reporter
from marginweave.runs.request import NEW_NAME, Request, is_example


def check_same_configuration(request: Request, present: Manifest) -> None:
    """Refuse another configuration under the name of an existing run.

    Raises:
        InputError: names the keys that differ, not their values.
    """
    if present.is_of(request.configuration):
        return
    before, now = written_content(present.written), written_content(request.configuration.written)
    differing = ", ".join(_differences(before, now, ""))
    raise InputError(f"run {present.run} has another configuration: it differs in {differing}; {NEW_NAME}")


def check_same_draws(request: Request, present: Manifest | None, ledger: Ledger) -> None:
    """Refuse to resume a run whose draws this program would make differently, before anything is read.

    Raises:
        InputError: the plan is not the one that was reserved, or a draw was begun by another program.
    """
    if present is None or present.state != RunState.RUNNING or not (record := ledger.releases.find(present.release)):
        return
    from marginweave.draws.protocol import check_same_program

    program = program_identity()
    if last_digits := check_same_plan(record, request.charged_plan, program):
        names = ", ".join(last_digits[:3])
        reporter().note(f"{names} differ from the plan in their last digits; what was reserved is drawn")
    store = DrawStore(request.folder, ledger.keys.checkpoint_key)
    for draw in record.draws:
        if draw.state == State.DRAWN and store.read(record.release, draw.name, draw.lease or "", None) is None:
            check_same_program(draw, program)


def configuration_differences(one: Configuration, other: Configuration) -> list[str]:
    """The keys, not their values, in which two configurations differ."""
    return _differences(json.loads(one.canonical()), json.loads(other.canonical()), "")


def _differences(before: object, now: object, place: str) -> list[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        below = ((f"{place}.{key}" if place else key, key) for key in sorted({*before, *now}))
        return [found for name, key in below for found in _differences(before.get(key), now.get(key), name)]
    if place == "columns" and isinstance(before, list) and isinstance(now, list):
        one, other = dict(before), dict(now)
        order = ["the order of columns"] if list(one) != list(other) else []
        return _differences(one, other, place) or order
    return [] if before == now else [place]


def check_continuity(folder: RunFolder, present: Manifest | None, ledger: Ledger) -> None:
    """Refuse a run whose parts do not belong together: going on would charge for what was drawn already.

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
    misfit = first_misfit(RunAndRelease(folder=folder, manifest=present, record=release))
    if misfit is not None:
        raise BudgetError(f"run {folder.run} {_REFUSALS[misfit.invariant].format(what=misfit.what)}")


_RESTORE = "restore the ledger that the run was charged in"
_REFUSALS = {
    HomeInvariant.KNOWN: f"was charged, but the ledger does not know its release {{what}}: an older copy, or new; {_RESTORE}",
    HomeInvariant.SAME: "has another {what} in its manifest than in the ledger; restore manifest.json",
    HomeInvariant.CHARGED: f"has drawn {{what}}, but the ledger does not know it: it is an older copy; {_RESTORE}",
    HomeInvariant.PUBLISHED: "is finished, but the ledger does not know its release as it is: is this an older copy of it?",
    HomeInvariant.SUBMITTED: "was submitted for approval, but the ledger does not know it: is this an older copy of it?",
}


def sync_with_ledger(folder: RunFolder, present: Manifest, ledger: Ledger) -> Manifest:
    """The manifest of a run that may have ended between the ledger's word on it and its own.

    Published, submitted or rejected: what the ledger says is done, and the files are brought to where they belong. With a
    publication comes account.json, which has no booked digest: it follows from the rows up to the one that published.

    Raises:
        StageError: the files are not those that were booked.
    """
    record = ledger.releases.find(present.release)
    if record is None or not (record.outputs or record.proposed):
        return present
    if record.decision is None or record.decision.approved:
        _bring_to_place(folder, record)
    if record.outputs:
        done = present.with_outputs(dict(record.outputs)).with_state(RunState.FINISHED)
        check_outputs(folder, done)
    else:
        done = present.with_state(RunState.AWAITING if record.decision is None else RunState.REJECTED)
    if done != present:
        if (
            record.outputs
        ):  # after the row that publishes, and before the manifest ends the run: a kill between repeats it
            restore_account(folder, done, ledger)
        folder.write_manifest(done)
    return done


def _bring_to_place(folder: RunFolder, record: ReleaseRecord) -> None:
    """What was submitted to `proposed/`, and what was published to `release/`; nothing that was added meanwhile."""
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
    """The refusal of a released file that is not the one that was published."""
    return StageError(
        f"{file} is missing or was changed since it was published; it is not used. Restore it from a copy"
    )


def restore_account(folder: RunFolder, manifest: Manifest, ledger: Ledger) -> None:
    """Write account.json of a finished run where it is missing: it follows from the rows up to the one that published."""
    if not (folder.release / ACCOUNT).exists():
        replace_file(folder.release / ACCOUNT, ledger.accounts.as_published(manifest.release).to_json())


def check_history(request: Request, present: Manifest | None, ledger: Ledger) -> None:
    """Refuse what would be charged again because home and ledger do not know the same; `present` is the run's manifest.

    Raises:
        InputError: the ledger knows a release of this run, and the run's folder has no manifest.
        BudgetError: the ledger does not know what the runs of this home have spent: it was replaced, or restored too old.
    """
    dataset, name = request.configuration.dataset, request.folder.run
    # Runs go on meanwhile. A draw is booked before the manifest says that it is charged: whatever these say is in the ledger
    # that is read after them.
    charged_manifests = _charged_manifests(request, present)
    releases = ledger.releases.of(dataset)
    was_reserved = any(record.run == name and record.charged != Cost() for record in releases)
    # A run has its manifest before it is reserved: where another process has begun this one, it is there by now.
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
    """The manifests of the runs of this home, but examples, that say of themselves that they were charged to the account."""
    manifests = []
    for folder in RunFolder.all_of(request.folder.home):
        # a manifest that is damaged is found by `audit_files`
        manifest = present if folder == request.folder else folder.readable_manifest()
        if manifest is None or manifest.dataset != request.configuration.dataset or not was_charged(manifest):
            continue
        if not is_example(folder):
            manifests.append(manifest)
    return manifests


def check_correction(request: Request, present: Manifest | None) -> Correction | None:
    """The release that the request is to correct, or None; a run keeps what it was begun with.

    Raises:
        InputError: no published run of that name for the same dataset, or the run was begun to correct something else.
    """
    known = None if present is None else present.supersedes
    if request.supersedes is None or (known is not None and known.run == request.supersedes):
        return known
    if present is not None:
        begun = "nothing" if known is None else f"run {known.run}"
        raise InputError(f"run {present.run} was begun to supersede {begun}; {NEW_NAME}")
    old, asked = RunFolder.at(request.folder.home, request.supersedes).read_manifest(), request.configuration.dataset
    rule = f"supersedes ({request.supersedes}) must be a"
    if old is None or old.state != RunState.FINISHED:
        raise InputError(f"{rule} run whose release is published; see `marginweave runs`")
    if old.dataset != asked:
        raise InputError(f"{rule} release of {asked}, and is one of {old.dataset}")
    return Correction(run=old.run, release=old.release)
