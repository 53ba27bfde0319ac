"""Writes the bundle that an auditor gets of a release: plan, privacy.json, its rows of the ledger, the anchor, a verifier."""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marginweave.accounting.records import EventKind, ReleaseRecord
from marginweave.base import formats
from marginweave.base.durable import PUBLIC_MODE, read_file, staged_file
from marginweave.base.errors import AuditError, InputError, StageError
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.configuration.release import Configuration
from marginweave.ledger.audit import AuditedLedger, audit_ledger
from marginweave.ledger.export import json_lines
from marginweave.ledger.keys import load_key
from marginweave.ledger.plans import reserved_plan
from marginweave.ledger.published_account import published_accounts
from marginweave.ledger.records import release_of
from marginweave.ledger.tables import content_digest
from marginweave.measurements.split import plan_budget
from marginweave.publish.statement import promise
from marginweave.publish.templates import render
from marginweave.released.account import ACCOUNT
from marginweave.released.manifest import Manifest
from marginweave.released.statement import RejectedStatement, Rejection
from marginweave.runs.bookkeeping import release_facts
from marginweave.runs.capabilities import RunReference
from marginweave.runs.continuity import check_outputs
from marginweave.runs.lookup import decided_run
from marginweave.runs.published import check_target, write_folder
from marginweave.runs.request import ledger_file_of, ledger_of
from marginweave.verify import bundle, bundle_accounting, bundle_statement
from marginweave.verify.account import check_account_file

_PLANNED = ("epsilon", "delta", "unit", "neighbors", "delta_threshold", "spent_epsilon")
_FUTURE = "from __future__ import annotations\n"
_OWN_IMPORTS = re.compile(r"^from marginweave\.\S+ import (?:\([^)]*\)|[^\n]*)\n", re.MULTILINE)
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the same bundle is the same bytes
# the first has the docstring, and runs last
_VERIFIER = (bundle, formats, bundle_accounting, bundle_statement)
# The row of the ledger's creation belongs to every account.
_COMMON = EventKind.LEDGER_CREATED.value


def hand_over(home: Path, run: str, to: Path) -> tuple[str, ...]:
    """Write the bundle of a published or rejected release and return its files' names.

    `to` is a new .zip or a new or empty folder.
    The whole ledger is audited first, and the released files are compared with it. Of a published run privacy.json and
    account.json are read into the bundle. Of a rejected run no file is read: its privacy.json is written from its plan and the
    ledger, and says what it would have promised.
    DP: what was published, and public facts of the ledger.

    Raises:
        InputError: a run that is neither, or a target that is taken or lies among the runs.
        AuditError: a fault in the ledger, or in account.json.
        BudgetError: no ledger or key.
        StageError: a released file was changed.
    """
    folder, manifest = decided_run(home, run)
    check_outputs(folder, manifest)
    location = ledger_of(folder, home)
    audited = audit_ledger(location, load_key(location, os.environ))
    # from its events, which have the plan, unlike `audited.releases`
    record = release_of([event for event in audited.events if event.release == manifest.release])
    if record is None or dict(record.outputs) != manifest.outputs:
        raise AuditError(f"the ledger does not know the release of run {run} as it is")
    if record.outputs:
        statement = _read_released(folder.release / "privacy.json")
    else:
        statement = _statement_of_rejected(folder, home, record)
    contents = _bundle_files(manifest, record, audited, statement)
    if record.outputs:
        account_file = folder.release / ACCOUNT
        account = _read_released(account_file)
        check_account_file(
            account_file, account, published_accounts(audited.events)[record.release]
        )
        contents[ACCOUNT] = account
    place = check_target(home, to)
    if to.suffix.lower() == ".zip":
        _write_archive(place, contents)
    else:
        write_folder(place, contents)
    return tuple(contents)


def _read_released(path: Path) -> bytes:
    """Return the bytes of a released file, or refuse one that is missing."""
    content = read_file(path)
    if content is None:
        raise StageError(f"{path} is missing")
    return content


def _statement_of_rejected(folder: RunFolder, home: Path, record: ReleaseRecord) -> bytes:
    """Return the privacy.json of a rejected run: its promise, who rejected it, and nothing that was computed from draws."""
    if record.decision is None or record.decision.approved:
        raise AuditError(f"the ledger does not know that run {folder.run} was rejected")
    ledger_file = ledger_file_of(folder, home)
    reference = RunReference(
        folder=folder, source="", ledger_file=ledger_file, lease=record.lease or ""
    )
    facts = release_facts(reference)
    promised = promise(reference.configuration, reference.plan, facts)
    rejected = Rejection(by=record.decision.by, reason=record.decision.reason)
    statement = RejectedStatement(
        format=3, **dict(facts.identity), **dict(promised), rejected=rejected
    )
    return statement.to_json()


def _bundle_files(
    manifest: Manifest, record: ReleaseRecord, audited: AuditedLedger, statement: bytes
) -> dict[str, bytes]:
    """Return the files of the bundle by name, all but account.json."""
    links = []
    for row in audited.rows:
        link = {"seq": row["seq"], "content": content_digest(row), "row_hash": row["row_hash"]}
        links.append(json.dumps(link) + "\n")
    rows = [row for row in audited.rows if _belongs(row, record)]
    readme = render(
        "handover.md", run=record.run, dataset=record.dataset, rejected=not record.outputs
    )
    return {
        "README.md": readme.encode(),
        "plan.json": _plan_file(manifest, record),
        "privacy.json": statement,
        "ledger.jsonl": json_lines(rows),
        "chain.jsonl": "".join(links).encode(),
        "anchor.json": audited.anchor.to_json().encode(),
        "verify.py": verifier(),
    }


def verifier() -> bytes:
    """Return verify.py: the program's modules of the verifier in one file, which needs only Python's standard library."""
    parts = []
    for module in _VERIFIER:
        source = read_file(Path(str(module.__file__)))
        if source is None:
            raise StageError("the program is not completely installed: its verifier is missing")
        parts.append(_OWN_IMPORTS.sub("", source.decode()))
    docstring, _, main_code = parts[0].partition(_FUTURE)
    imported_code = [part.partition(_FUTURE)[2] for part in parts[1:]]
    return "".join([docstring, _FUTURE, *imported_code, main_code]).encode()


def _belongs(row: Mapping[str, Any], record: ReleaseRecord) -> bool:
    """Return whether a row of the ledger belongs in the bundle of a release.

    These are the rows of the release, of its account and of the whole ledger, and the row by which it corrects another one.
    """
    if row["release"] is not None:
        is_correction = row["kind"] == EventKind.SUPERSEDED and row["release"] == record.supersedes
        if record.outputs and is_correction:
            return True
        return bool(row["release"] == record.release)
    return row["account"] == record.dataset or row["kind"] == _COMMON


def _plan_file(manifest: Manifest, record: ReleaseRecord) -> bytes:
    """Return plan.json: the written and the resolved configuration with their digests, and the plan as it was reserved."""
    prices = plan_budget(Configuration.from_canonical(manifest.configuration)).prices
    plan = reserved_plan(record, prices)
    content = {
        "written_sha256": manifest.plan_digest,
        "written": manifest.written,
        "configuration_sha256": manifest.configuration_digest,
        "configuration": manifest.configuration,
        **{name: getattr(plan, name) for name in _PLANNED},
        "draws": [{**draw.facts, **draw.cost.texts} for draw in plan.charges],
    }
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def _write_archive(place: Path, contents: Mapping[str, bytes]) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(f"{place.stem}/{name}", _LONG_AGO)
            entry.external_attr = PUBLIC_MODE << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    data = buffer.getvalue()
    with staged_file(place, len(data), PUBLIC_MODE) as staged:
        if not staged.keep(data):
            raise InputError(f"{place} exists already and is not overwritten")
