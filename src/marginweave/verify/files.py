"""The files of the home against the ledger: kept checkpoints, draws, what was released, and what it says."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from marginweave.accounting.records import ReleaseRecord, State
from marginweave.base.durable import file_digest, read_file
from marginweave.base.errors import AuditError, BudgetError, StageError
from marginweave.checkpoints.run_folder import RunFolder, published_place
from marginweave.checkpoints.store import open_blocks, open_seal
from marginweave.draws.files import DrawStore
from marginweave.ledger.audit import AuditedLedger
from marginweave.ledger.invariants import HomeInvariant, RunAndRelease, draw_files, first_misfit, is_missing
from marginweave.ledger.keys import LedgerKey, subkey
from marginweave.ledger.published_account import PublishedAccount, published_accounts
from marginweave.ledger.witness import RECONCILE, SEEN, Sighting
from marginweave.released.account import ACCOUNT
from marginweave.released.manifest import Manifest, RunState
from marginweave.runs.lookup import shared_lock
from marginweave.runs.request import is_example
from marginweave.verify.account import check_account_file
from marginweave.verify.bundle_accounting import Fault
from marginweave.verify.bundle_statement import check_statement

RunMark = tuple[str | None, str | None]


@dataclass(frozen=True, kw_only=True)
class AuditedFiles:
    """How many runs and files were as the ledger has them, and which runs could not be looked at.

    Those `in_progress` are worked on, or were while the ledger was read; `elsewhere` are the published runs of the ledger that
    have no folder in this home.
    """

    runs: int
    files: int
    in_progress: tuple[str, ...]
    elsewhere: tuple[str, ...]


def marks_of_runs(home: Path) -> Mapping[RunFolder, RunMark]:
    """What tells whether a run of the home goes on: taken before the ledger is read that the runs are compared with."""
    return {folder: _mark(folder) for folder in RunFolder.all_of(home)}


def _mark(folder: RunFolder) -> RunMark:
    """The digests of the manifest, and of the rows that the run has noted: each draw begins with such a row."""
    return file_digest(folder.manifest_file), file_digest(folder.path / SEEN)


def audit_files(
    home: Path,
    audited: AuditedLedger,
    key: LedgerKey,
    *,
    example: bool,
    before: Mapping[RunFolder, RunMark] | None = None,
) -> AuditedFiles:
    """Check the runs below `home` that answer to this ledger; without a key, their released files alone.

    A run whose mark is not the one that it had `before` the ledger was read is ahead of it, and not compared.

    Raises:
        AuditError: the first fault, naming run and file.
    """
    runs = files = 0
    in_progress = []
    place, statements = home / "runs", StatementAudit(audited)
    for path in sorted(place.iterdir()) if place.is_dir() else ():
        folder = RunFolder(path)
        try:
            manifest = folder.read_manifest()
            if manifest is None:
                _check_nothing_is_left(folder)
            if manifest is None or is_example(folder) != example:
                continue
            with shared_lock(folder) as still:
                if not still or (before is not None and before.get(folder) != _mark(folder)):
                    in_progress.append(folder.run)
                    continue
                files += _audit_run(folder, manifest, statements, key)
        except StageError as error:
            raise AuditError(str(error)) from None
        runs += 1
    published = {record.run for record in audited.releases.values() if record.outputs}
    elsewhere = tuple(sorted(run for run in published if not (place / run).is_dir()))
    return AuditedFiles(runs=runs, files=files, in_progress=tuple(in_progress), elsewhere=elsewhere)


def _audit_run(folder: RunFolder, manifest: Manifest, statements: StatementAudit, key: LedgerKey) -> int:
    audited = statements.audited
    _check_seen(folder, audited)
    record = audited.releases.get(manifest.release)
    misfit = first_misfit(RunAndRelease(folder=folder, manifest=manifest, record=record))
    if misfit is not None:
        raise AuditError(f"{folder.manifest_file}: {_FAULTS[misfit.invariant].format(what=misfit.what)}")
    if record is None:
        return 0
    checked = _check_released(folder, manifest, record, statements)
    if key.secret is not None:
        checkpoint_key = subkey(key.material, "checkpoint")
        checked += _check_draws(folder, manifest, record, DrawStore(folder, checkpoint_key))
        checked += _check_stages(folder, manifest, checkpoint_key)
    return checked


_FAULTS = {
    HomeInvariant.KNOWN: "the run was charged, but the ledger does not know its release {what}",
    HomeInvariant.SAME: "its {what} is not the one in the ledger",
    HomeInvariant.CHARGED: "the run has made {what}, a draw that the ledger never charged",
    HomeInvariant.PUBLISHED: "its released files are not those in the ledger",
    HomeInvariant.SUBMITTED: "it says that the run was submitted, and the ledger does not",
}


def _check_seen(folder: RunFolder, audited: AuditedLedger) -> None:
    """The newest row that the run has seen is in this ledger, if it is this one that the run has seen."""
    seen = Sighting(folder.path / SEEN)
    try:
        head = seen.head() if seen.path.exists() and seen.ledger == audited.rows[0]["row_hash"] else None
    except BudgetError as error:
        raise AuditError(str(error)) from None
    if head is not None and is_missing(
        head, {row["seq"]: row["row_hash"] for row in audited.rows[head["seq"] - 1 :][:1]}
    ):
        raise AuditError(
            f"the ledger does not have row {head['seq']} that run {folder.run} has seen: it is an older copy of itself; "
            f"restore the newest copy, or: {RECONCILE}"
        )


def _check_nothing_is_left(folder: RunFolder) -> None:
    """Refuse a run that has something to show and no manifest that says what it is."""
    released = folder.release.is_dir() and any(folder.release.iterdir())
    if released or draw_files(folder):
        raise AuditError(f"{folder.manifest_file} is missing: nobody can say whose files stand beside it")


def _check_released(folder: RunFolder, manifest: Manifest, record: ReleaseRecord, statements: StatementAudit) -> int:
    proposed = _check_proposed(folder, record)
    on_the_way = manifest.state in {RunState.RUNNING, RunState.AWAITING}
    ended_before_the_last_step = on_the_way and published_place(folder, record.outputs)
    for name, digest in () if ended_before_the_last_step else record.outputs.items():
        if file_digest(folder.path / name) != digest:
            raise AuditError(f"{folder.path / name} is missing or was changed since it was published")
        if name == "release/privacy.json":
            statements.check(read_file(folder.path / name) or b"", record)
    is_finished = manifest.state == RunState.FINISHED
    if is_finished:
        statements.check_account(folder.release / ACCOUNT, record)
    return len(record.outputs) + proposed + is_finished


def _check_proposed(folder: RunFolder, record: ReleaseRecord) -> int:
    """What awaits a decision is what was submitted, here or still where its attempt has put it."""
    if not record.proposed or record.decision is not None:
        return 0
    if published_place(folder, record.proposed) is None:
        raise AuditError(f"{folder.proposed}: a file is missing or was changed since it was submitted for approval")
    return len(record.proposed)


def _check_draws(folder: RunFolder, manifest: Manifest, record: ReleaseRecord, store: DrawStore) -> int:
    purged = not folder.private.exists() and manifest.state != RunState.RUNNING
    kept = [] if purged else [draw for draw in record.draws if draw.state == State.COMMITTED]
    for draw in kept:
        damaged = store.damaged(record.release, draw.name, draw.lease or "", draw.digest or "")
        if damaged is not None:
            raise AuditError(f"{damaged} is missing, or is not the draw that was committed")
    return len(kept)


def _check_stages(folder: RunFolder, manifest: Manifest, key: bytes) -> int:
    """Checkpoints of deterministic stages, sealed with the run's private key or the public one of its configuration."""
    public = hashlib.sha256(manifest.configuration.encode()).digest()
    checked = 0
    for entry in manifest.stages.values():
        path = folder.path / entry.file
        if entry.purged is not None or path.suffix != ".ckpt" or not path.parent.exists():
            continue
        sealed, address = read_file(path), ("stage", path.name.rpartition("-")[0], entry.address)
        seal = key if path.is_relative_to(folder.private) else public
        opened = None if sealed is None else open_seal(seal, address, sealed)
        digest = _blocks_digest(path, seal, address) if opened is None else opened[1]
        if digest != entry.digest:
            raise AuditError(f"{path} is missing, or is not the checkpoint that the manifest names")
        checked += 1
    return checked


def _blocks_digest(path: Path, key: bytes, address: tuple[str, ...]) -> str | None:
    """The digest of a checkpoint of blocks, each of which was read; None where it is damaged or none."""
    try:
        blocks = open_blocks(path, key, address)
        for _ in blocks or ():
            pass
    except StageError:
        return None
    return blocks.digest if blocks else None


@dataclass(frozen=True)
class StatementAudit:
    """Compares statements with the rows of an audited ledger, which are sorted once."""

    audited: AuditedLedger

    def check(self, content: bytes, record: ReleaseRecord) -> None:
        """Refuse a privacy.json that says anything else of the release than the rows.

        Raises:
            AuditError: the first thing that differs.
        """
        try:
            rows = [*self._rows[None, record.dataset], *self._rows[record.release, None]]
            check_statement(json.loads(content), rows, record.release)
        except Fault as fault:
            raise AuditError(f"run {record.run}: {fault}") from None
        except (ValueError, KeyError, IndexError, TypeError, ArithmeticError, AttributeError):
            raise AuditError(f"run {record.run}: privacy.json is not what the program writes") from None

    @cached_property
    def _rows(self) -> Mapping[tuple[str | None, str | None], list[dict[str, Any]]]:
        """Rows by their release, or, where they are of none, by their account; bodies as objects."""
        found: dict[tuple[str | None, str | None], list[dict[str, Any]]] = defaultdict(list)
        for row in self.audited.rows:
            place = (row["release"], None) if row["release"] is not None else (None, row["account"])
            found[place].append({**row, "body": json.loads(row["body"])})
        return found

    def check_account(self, place: Path, record: ReleaseRecord) -> None:
        """Refuse an account.json that does not follow from the rows up to the publication.

        Raises:
            AuditError: it differs, or is missing.
        """
        content = read_file(place)
        if content is None:
            raise AuditError(f"{place} is missing")
        check_account_file(place, content, self._accounts[record.release])

    @cached_property
    def _accounts(self) -> Mapping[str, PublishedAccount]:
        """By release, its account when it was published."""
        return published_accounts(self.audited.events)
