"""Checks invariants between the runs of a home and their ledger.

Runs and `ledger verify` check one table of invariants, and each has its own sentences on what to do if one does not hold.
Reconciliation and the witness use some of its helpers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from marginweave.accounting.records import BEGUN, ReleaseRecord, State
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.released.manifest import Manifest, RunState

_NOT_BEGUN = frozenset({State.RESERVED, State.RETURNED})


class HomeInvariant(StrEnum):
    """An invariant of a run and its release in the ledger, in the order in which they are checked."""

    KNOWN = "the ledger has the release of a run that was charged"
    SAME = "manifest and ledger have the same run, dataset, configuration and source"
    CHARGED = "the ledger has begun every draw that the run has made"
    PUBLISHED = "a finished run has the released files that the ledger has"
    SUBMITTED = "a run that waits for its decision, or was rejected, was submitted"


@dataclass(frozen=True, kw_only=True)
class RunAndRelease:
    """A run, by its folder and manifest, and the ledger's record of its release, or None if there is none."""

    folder: RunFolder
    manifest: Manifest
    record: ReleaseRecord | None


@dataclass(frozen=True, kw_only=True)
class Violation:
    """The first invariant that does not hold, and the part of the run that contradicts it: a field, a draw or a file."""

    invariant: HomeInvariant
    contradiction: str


def first_violation(run: RunAndRelease) -> Violation | None:
    """Return the first invariant that does not hold of a run; None if home and ledger agree."""
    for invariant, find_contradiction in _TABLE.items():
        contradiction = find_contradiction(run)
        if contradiction is not None:
            return Violation(invariant=invariant, contradiction=contradiction)
    return None


def was_charged(manifest: Manifest) -> bool:
    """Return whether a run was charged, by its manifest: it lists a charged draw or released files."""
    return bool(manifest.outputs or manifest.charged)


def draws_not_begun(manifest: Manifest, record: ReleaseRecord) -> tuple[str, ...]:
    """Return the draws that a run has made, by its manifest, and that were not begun by the ledger.

    If there are any, the ledger is an older copy of itself. A draw that `record` does not list at all is not among them.
    """
    not_begun = [draw.name for draw in record.draws if draw.state in _NOT_BEGUN]
    return tuple(name for name in not_begun if name in manifest.charged)


def file_not_begun(folder: RunFolder, record: ReleaseRecord) -> Path | None:
    """Return the file of a draw that the ledger has not begun, or None.

    A draw gets its name after its DRAWN row is durable, so there is one only under a ledger that has lost rows.
    """
    begun = {
        f"{draw.name}.{draw.lease}.draw"
        for draw in record.draws
        if draw.lease and draw.state in BEGUN
    }
    for path in draw_files(folder):
        if path.name not in begun:
            return path
    return None


def draw_files(folder: RunFolder) -> list[Path]:
    """Return the files of the draws that a run has made."""
    return sorted(folder.draws.glob("*.draw")) if folder.draws.is_dir() else []


def lacks_row(hashes: Mapping[int, str], head: Mapping[str, Any]) -> bool:
    """Return whether a ledger with rows of these `hashes`, by number, lacks the row `head` that a run has seen."""
    return hashes.get(head["seq"]) != head["row_hash"]


def _unknown(run: RunAndRelease) -> str | None:
    """Return the release id, if the run was charged and the ledger lacks it."""
    charged = was_charged(run.manifest) or bool(draw_files(run.folder))
    return run.manifest.release if run.record is None and charged else None


def _other_facts(run: RunAndRelease) -> str | None:
    """Return the first fact in which manifest and ledger differ."""
    manifest = run.manifest
    record = run.record
    if record is None:
        return None
    pairs = {
        "run": (manifest.run, record.run),
        "dataset": (manifest.dataset, record.dataset),
        "configuration": (manifest.plan_digest, record.plan_digest),
        "source": (manifest.source_digest, record.source_digest),
    }
    for name, (in_manifest, in_ledger) in pairs.items():
        if in_manifest != in_ledger:
            return name
    return None


def _uncharged(run: RunAndRelease) -> str | None:
    """Return the draws that the run has made and the ledger has not begun: their names, or the path of one."""
    if run.record is None:
        return None
    names = ", ".join(draws_not_begun(run.manifest, run.record))
    file = file_not_begun(run.folder, run.record)
    return names or (None if file is None else str(file))


def _unpublished(run: RunAndRelease) -> str | None:
    """Return "release" if the run is finished with other files than those in the ledger."""
    in_ledger = None if run.record is None else dict(run.record.outputs)
    differs = run.manifest.state == RunState.FINISHED and in_ledger != run.manifest.outputs
    return "release" if differs else None


def _unsubmitted(run: RunAndRelease) -> str | None:
    """Return "proposed" if the run awaits a decision, or was rejected, and the ledger has no submission."""
    needs_submission = run.manifest.state in {RunState.AWAITING, RunState.REJECTED}
    return (
        "proposed" if needs_submission and (run.record is None or not run.record.proposed) else None
    )


_TABLE: Mapping[HomeInvariant, Callable[[RunAndRelease], str | None]] = {
    HomeInvariant.KNOWN: _unknown,
    HomeInvariant.SAME: _other_facts,
    HomeInvariant.CHARGED: _uncharged,
    HomeInvariant.PUBLISHED: _unpublished,
    HomeInvariant.SUBMITTED: _unsubmitted,
}
