"""What an auditor gets of a published or rejected release: plan, privacy.json, its rows of the ledger, the anchor, a check."""

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
_VERIFIER = (bundle, formats, bundle_accounting, bundle_statement)  # the first says what it is, and runs last
# The row that says how the ledger came to be belongs to every account.
_COMMON = EventKind.LEDGER_CREATED.value


def hand_over(home: Path, run: str, to: Path) -> tuple[str, ...]:
    """Write the bundle of a published or rejected release to `to`, a new .zip or a new or empty folder; its files' names.

    The whole ledger is audited first, and the released files are compared with it. Of a published run privacy.json and
    account.json are read into the bundle; of a rejected one no file: what it would have promised is written from its plan and
    the ledger.
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
    record = release_of([event for event in audited.events if event.release == manifest.release])  # its plan in it
    if record is None or dict(record.outputs) != manifest.outputs:
        raise AuditError(f"the ledger does not know the release of run {run} as it is")
    statement = read_file(folder.release / "privacy.json") if record.outputs else _rejected(folder, home, record)
    if statement is None:
        raise StageError(f"{folder.release / 'privacy.json'} is missing")
    contents = _contents(manifest, record, audited, statement)
    if record.outputs:
        account_file = folder.release / ACCOUNT
        account = read_file(account_file)
        if account is None:
            raise StageError(f"{account_file} is missing")
        check_account_file(account_file, account, published_accounts(audited.events)[record.release])
        contents[ACCOUNT] = account
    place = check_target(home, to)
    if to.suffix.lower() == ".zip":
        _write_archive(place, contents)
    else:
        write_folder(place, contents)
    return tuple(contents)


def _rejected(folder: RunFolder, home: Path, record: ReleaseRecord) -> bytes:
    """What privacy.json would have promised, without all that was computed from draws, and who rejected it."""
    if record.decision is None or record.decision.approved:
        raise AuditError(f"the ledger does not know that run {folder.run} was rejected")
    ledger_file, lease = ledger_file_of(folder, home), record.lease or ""
    reference = RunReference(folder=folder, source="", ledger_file=ledger_file, lease=lease)
    facts = release_facts(reference)
    promised = promise(reference.configuration, reference.plan, facts)
    rejected = Rejection(by=record.decision.by, reason=record.decision.reason)
    return RejectedStatement(format=3, **dict(facts.identity), **dict(promised), rejected=rejected).to_json()


def _contents(manifest: Manifest, record: ReleaseRecord, audited: AuditedLedger, statement: bytes) -> dict[str, bytes]:
    chain = "".join(
        json.dumps({"seq": row["seq"], "content": content_digest(row), "row_hash": row["row_hash"]}) + "\n"
        for row in audited.rows
    )
    own = [row for row in audited.rows if _belongs(row, record)]
    readme = render("handover.md", run=record.run, dataset=record.dataset, rejected=not record.outputs)
    return {
        "README.md": readme.encode(),
        "plan.json": _plan(manifest, record),
        "privacy.json": statement,
        "ledger.jsonl": json_lines(own),
        "chain.jsonl": chain.encode(),
        "anchor.json": audited.anchor.to_json().encode(),
        "verify.py": verifier(),
    }


def verifier() -> bytes:
    """verify.py: the program's own modules of the verifier in one file, which needs nothing but Python's own library."""
    parts = []
    for module in _VERIFIER:
        source = read_file(Path(str(module.__file__)))
        if source is None:
            raise StageError("the program is not installed whole: its verifier is missing")
        parts.append(_OWN_IMPORTS.sub("", source.decode()))
    first, *others = parts
    about, _, rest = first.partition(_FUTURE)
    return "".join([about, _FUTURE, *(part.partition(_FUTURE)[2] for part in others), rest]).encode()


def _belongs(row: Mapping[str, Any], record: ReleaseRecord) -> bool:
    """Rows of the release, that it corrects another, and those on its account or the whole ledger; no other release's."""
    if row["release"] is not None:
        corrects = bool(record.outputs) and row["kind"] == EventKind.SUPERSEDED and row["release"] == record.supersedes
        return corrects or bool(row["release"] == record.release)
    return row["account"] == record.dataset or row["kind"] == _COMMON


def _plan(manifest: Manifest, record: ReleaseRecord) -> bytes:
    """What was written with its digest as the ledger has it, the resolved configuration, and the plan as it was reserved."""
    plan = reserved_plan(record, plan_budget(Configuration.from_canonical(manifest.configuration)).prices)
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
