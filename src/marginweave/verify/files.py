"""Compares the files of a home with the ledger: checkpoints, draws, released files, and the statements in them."""

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
from marginweave.ledger.invariants import (
    HomeInvariant,
    RunAndRelease,
    draw_files,
    first_violation,
    lacks_row,
)
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
    """Result of an audit of files: numbers of runs and files that agree with the ledger, and the runs that were not compared.

    A process works on the runs `in_progress`, or did while the ledger was read. The runs `elsewhere` are published in the
    ledger and have no folder in this home.
    """

    runs: int
    files: int
    in_progress: tuple[str, ...]
    elsewhere: tuple[str, ...]


def marks_of_runs(home: Path) -> Mapping[RunFolder, RunMark]:
    """Return a mark of each run of the home, which changes when the run makes progress.

    Take the marks before you read the ledger that the runs are compared with (`audit_files`).
    """
    return {folder: _mark(folder) for folder in RunFolder.all_of(home)}


def _mark(folder: RunFolder) -> RunMark:
    """Return the digests of the manifest and of the newest row that the run has noted: each draw begins with such a row."""
    return file_digest(folder.manifest_file), file_digest(folder.path / SEEN)


def audit_files(
    home: Path,
    audited: AuditedLedger,
    key: LedgerKey,
    *,
    example: bool,
    before: Mapping[RunFolder, RunMark] | None = None,
) -> AuditedFiles:
    """Check the runs below `home` that were charged in this ledger; if `key.secret` is None, only their released files.

    A run whose mark differs from its mark `before` the ledger was read may be ahead of the ledger, and is not compared.

    Raises:
        AuditError: the first fault, naming run and file.
    """
    runs = 0
    files = 0
    in_progress = []
    runs_folder = home / "runs"
    statements = StatementAudit(audited)
    for path in sorted(runs_folder.iterdir()) if runs_folder.is_dir() else ():
        folder = RunFolder(path)
        try:
            manifest = folder.read_manifest()
            if manifest is None:
                _refuse_files_without_manifest(folder)
                continue
            if is_example(folder) != example:
                continue
            with shared_lock(folder) as is_idle:
                if not is_idle or (before is not None and before.get(folder) != _mark(folder)):
                    in_progress.append(folder.run)
                    continue
                files += _audit_run(folder, manifest, statements, key)
        except StageError as error:
            raise AuditError(str(error)) from None
        runs += 1
    published = {record.run for record in audited.releases.values() if record.outputs}
    elsewhere = tuple(sorted(run for run in published if not (runs_folder / run).is_dir()))
    return AuditedFiles(runs=runs, files=files, in_progress=tuple(in_progress), elsewhere=elsewhere)


def _audit_run(
    folder: RunFolder, manifest: Manifest, statements: StatementAudit, key: LedgerKey
) -> int:
    """Refuse a run with a file that differs from the ledger; return the number of files compared."""
    audited = statements.audited
    _check_seen(folder, audited)
    record = audited.releases.get(manifest.release)
    violation = first_violation(RunAndRelease(folder=folder, manifest=manifest, record=record))
    if violation is not None:
        raise AuditError(
            f"{folder.manifest_file}: {_FAULTS[violation.invariant].format(what=violation.contradiction)}"
        )
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
    """Refuse a ledger without the newest row that the run has seen in it; a run that has seen another ledger passes."""
    seen = Sighting(folder.path / SEEN)
    try:
        if not seen.path.exists() or seen.ledger != audited.rows[0]["row_hash"]:
            return
        head = seen.head()
    except BudgetError as error:
        raise AuditError(str(error)) from None
    if head is None:
        return
    row_at_head = audited.rows[head["seq"] - 1 :][:1]  # empty if the ledger is shorter
    if lacks_row({row["seq"]: row["row_hash"] for row in row_at_head}, head):
        raise AuditError(
            f"the ledger does not have row {head['seq']} that run {folder.run} has seen: it is an older copy of itself; "
            f"restore the newest copy, or: {RECONCILE}"
        )


def _refuse_files_without_manifest(folder: RunFolder) -> None:
    """Refuse a run without a manifest that has draws or released files."""
    released = folder.release.is_dir() and any(folder.release.iterdir())
    if released or draw_files(folder):
        raise AuditError(
            f"{folder.manifest_file} is missing: nobody can say which release the files of the run belong to"
        )


def _check_released(
    folder: RunFolder, manifest: Manifest, record: ReleaseRecord, statements: StatementAudit
) -> int:
    """Refuse a released, or proposed, file that differs from the ledger; return the number of files compared."""
    proposed = _check_proposed(folder, record)
    is_unfinished = manifest.state in {RunState.RUNNING, RunState.AWAITING}
    # The attempt ended after the row of the publication, and the manifest does not know it yet: the files, which
    # `published_place` compares, may still be in the staged or proposed folder.
    awaits_last_step = is_unfinished and published_place(folder, record.outputs) is not None
    for name, digest in () if awaits_last_step else record.outputs.items():
        if file_digest(folder.path / name) != digest:
            raise AuditError(
                f"{folder.path / name} is missing or was changed since it was published"
            )
        if name == "release/privacy.json":
            statements.check(read_file(folder.path / name) or b"", record)
    is_finished = manifest.state == RunState.FINISHED
    if is_finished:
        statements.check_account(folder.release / ACCOUNT, record)
    return len(record.outputs) + proposed + is_finished


def _check_proposed(folder: RunFolder, record: ReleaseRecord) -> int:
    """Refuse files that await a decision and are not those that were submitted; return their number.

    They may also be in the folder where an attempt has staged them.
    """
    if not record.proposed or record.decision is not None:
        return 0
    if published_place(folder, record.proposed) is None:
        raise AuditError(
            f"{folder.proposed}: a file is missing or was changed since it was submitted for approval"
        )
    return len(record.proposed)


def _check_draws(
    folder: RunFolder, manifest: Manifest, record: ReleaseRecord, store: DrawStore
) -> int:
    """Refuse a committed draw whose file or copy is missing or damaged; return the number of draws, 0 after a purge."""
    if not folder.private.exists() and manifest.state != RunState.RUNNING:
        return 0
    committed = [draw for draw in record.draws if draw.state == State.COMMITTED]
    for draw in committed:
        damaged = store.damaged(record.release, draw.name, draw.lease or "", draw.digest or "")
        if damaged is not None:
            raise AuditError(f"{damaged} is missing, or is not the draw that was committed")
    return len(committed)


def _check_stages(folder: RunFolder, manifest: Manifest, key: bytes) -> int:
    """Refuse a checkpoint that is not the one in the manifest; return the number of checkpoints.

    They are of deterministic stages, and sealed with the run's private key or the public one of its configuration.
    """
    public_key = hashlib.sha256(manifest.configuration.encode()).digest()
    checked = 0
    for entry in manifest.stages.values():
        path = folder.path / entry.file
        if entry.purged is not None or path.suffix != ".ckpt" or not path.parent.exists():
            continue
        stage_key = key if path.is_relative_to(folder.private) else public_key
        address = ("stage", path.name.rpartition("-")[0], entry.address)
        if _checkpoint_digest(path, stage_key, address) != entry.digest:
            raise AuditError(f"{path} is missing, or is not the checkpoint that the manifest names")
        checked += 1
    return checked


def _checkpoint_digest(path: Path, key: bytes, address: tuple[str, ...]) -> str | None:
    """Return the keyed digest of a checkpoint, one payload or blocks, of which every byte was read.

    None if there is no such file, or it is damaged.
    """
    sealed = read_file(path)
    opened = None if sealed is None else open_seal(key, address, sealed)
    if opened is not None:
        return opened[1]
    try:
        blocks = open_blocks(path, key, address)
        for _ in blocks or ():
            pass  # each block is authenticated as it is read
    except StageError:
        return None
    return blocks.digest if blocks else None


@dataclass(frozen=True)
class StatementAudit:
    """Compares statements with the rows of an audited ledger, which are grouped by release and account once."""

    audited: AuditedLedger

    def check(self, content: bytes, record: ReleaseRecord) -> None:
        """Refuse a privacy.json, with this `content`, that differs from the rows of the release.

        Raises:
            AuditError: the first thing that differs.
        """
        try:
            account_rows = self._rows[None, record.dataset]
            release_rows = self._rows[record.release, None]
            check_statement(json.loads(content), [*account_rows, *release_rows], record.release)
        except Fault as fault:
            raise AuditError(f"run {record.run}: {fault}") from None
        except (ValueError, KeyError, IndexError, TypeError, ArithmeticError, AttributeError):
            raise AuditError(
                f"run {record.run}: privacy.json is not what the program writes"
            ) from None

    @cached_property
    def _rows(self) -> Mapping[tuple[str | None, str | None], list[dict[str, Any]]]:
        """Rows by (release, None), or by (None, account) if they belong to no release; bodies as objects."""
        rows: dict[tuple[str | None, str | None], list[dict[str, Any]]] = defaultdict(list)
        for row in self.audited.rows:
            release = row["release"]
            account = row["account"] if release is None else None
            rows[release, account].append({**row, "body": json.loads(row["body"])})
        return rows

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
        """Accounts by release, each at the moment when that release was published."""
        return published_accounts(self.audited.events)
