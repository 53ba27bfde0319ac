"""What holds between the runs of a home and their ledger.

Runs and `ledger verify` go through one table of invariants, each with its own sentence on what to do where one does not hold.
Reconciliation and the witness use the conditions behind it.
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
    """What holds of a run and of what the ledger has of its release, in the order in which it is looked at."""

    KNOWN = "the ledger has the release of a run that was charged"
    SAME = "manifest and ledger have the same run, dataset, configuration and source"
    CHARGED = "the ledger has begun every draw that the run has made"
    PUBLISHED = "a finished run has the released files that the ledger has"
    SUBMITTED = "a run that waits for its decision, or was rejected, was submitted"


@dataclass(frozen=True, kw_only=True)
class RunAndRelease:
    """A run, by its folder and manifest, and what the ledger has of its release; None where it has nothing."""

    folder: RunFolder
    manifest: Manifest
    record: ReleaseRecord | None


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """The first invariant that does not hold, and what of the run contradicts it: a field, a draw or a file."""

    invariant: HomeInvariant
    what: str


def first_misfit(run: RunAndRelease) -> Misfit | None:
    """Return the first invariant that does not hold of a run; None where home and ledger fit each other."""
    for invariant, contradiction in _TABLE.items():
        what = contradiction(run)
        if what is not None:
            return Misfit(invariant=invariant, what=what)
    return None


def was_charged(manifest: Manifest) -> bool:
    """Whether a run has drawn something, by its manifest."""
    return bool(manifest.outputs or manifest.charged)


def uncharged_draws(manifest: Manifest, record: ReleaseRecord) -> tuple[str, ...]:
    """The draws that a run has made, by its manifest, and that the ledger has as not begun: it is an older copy of itself."""
    return tuple(draw.name for draw in record.draws if draw.state in _NOT_BEGUN and draw.name in manifest.charged)


def uncharged_file(folder: RunFolder, record: ReleaseRecord) -> Path | None:
    """A draw on disk that the ledger never charged, or None.

    A draw gets its name after its DRAWN row is durable, so there is one only under a ledger that has lost rows.
    """
    begun = {f"{draw.name}.{draw.lease}.draw" for draw in record.draws if draw.lease and draw.state in BEGUN}
    return next((path for path in draw_files(folder) if path.name not in begun), None)


def draw_files(folder: RunFolder) -> list[Path]:
    """The draws that a run has on disk."""
    return sorted(folder.draws.glob("*.draw")) if folder.draws.is_dir() else []


def is_missing(head: Mapping[str, Any], hashes: Mapping[int, str]) -> bool:
    """Whether a ledger with rows of these `hashes`, by number, lacks the row `head` that a run has seen."""
    return hashes.get(head["seq"]) != head["row_hash"]


def _unknown(run: RunAndRelease) -> str | None:
    charged = was_charged(run.manifest) or bool(draw_files(run.folder))
    return run.manifest.release if run.record is None and charged else None


def _other_facts(run: RunAndRelease) -> str | None:
    manifest, record = run.manifest, run.record
    if record is None:
        return None
    pairs = {
        "run": (manifest.run, record.run),
        "dataset": (manifest.dataset, record.dataset),
        "configuration": (manifest.plan_digest, record.plan_digest),
        "source": (manifest.source_digest, record.source_digest),
    }
    return next((name for name, (written, booked) in pairs.items() if written != booked), None)


def _uncharged(run: RunAndRelease) -> str | None:
    if run.record is None:
        return None
    names = ", ".join(uncharged_draws(run.manifest, run.record))
    file = uncharged_file(run.folder, run.record)
    return names or (None if file is None else str(file))


def _unpublished(run: RunAndRelease) -> str | None:
    booked = None if run.record is None else dict(run.record.outputs)
    return "release" if run.manifest.state == RunState.FINISHED and booked != run.manifest.outputs else None


def _unsubmitted(run: RunAndRelease) -> str | None:
    decided = run.manifest.state in {RunState.AWAITING, RunState.REJECTED}
    return "proposed" if decided and (run.record is None or not run.record.proposed) else None


_TABLE: Mapping[HomeInvariant, Callable[[RunAndRelease], str | None]] = {
    HomeInvariant.KNOWN: _unknown,
    HomeInvariant.SAME: _other_facts,
    HomeInvariant.CHARGED: _uncharged,
    HomeInvariant.PUBLISHED: _unpublished,
    HomeInvariant.SUBMITTED: _unsubmitted,
}
