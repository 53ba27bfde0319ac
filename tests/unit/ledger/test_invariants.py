"""One table says whether a run and its ledger fit, and everyone who asks has words for each line of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from marginweave.accounting.records import ReleaseRecord, State
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.ledger.invariants import HomeInvariant, RunAndRelease, Violation, first_violation
from marginweave.released.manifest import Manifest, RunState, StageEntry
from marginweave.runs import continuity
from marginweave.verify import files as verified_files

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DIGEST = "ab" * 32
CONFIGURATION = '{"dataset":"affairs"}'
OUTPUTS = {"release/privacy.json": DIGEST}


@pytest.fixture
def fitting(ledger, reserve, tmp_path: Path) -> RunAndRelease:
    """A run whose first draw is committed, with a file of it, and the ledger's record of its release."""
    reserve()
    ledger.draws.take_lease("first", "lease")
    ledger.draws.begin("first", "count", "lease")
    ledger.draws.commit("first", "count", "lease", DIGEST, tainted=False)
    record = ledger.releases.find("first")
    folder = RunFolder.at(tmp_path / "home", record.run)
    folder.create()
    (folder.draws / "count.lease.draw").write_bytes(b"drawn")
    stage = StageEntry(
        file="private/draws/count.lease.draw",
        digest=DIGEST,
        address="count",
        charged=("count",),
        finished=NOW,
    )
    manifest = Manifest(
        run=record.run,
        dataset="affairs",
        release="first",
        written=CONFIGURATION,
        configuration=CONFIGURATION,
        configuration_digest=hashlib.sha256(CONFIGURATION.encode()).hexdigest(),
        source="people.csv",
        source_digest=DIGEST,
        created=NOW,
        stages={"aggregate count": stage},
    )
    booked = replace(record, plan_digest=manifest.plan_digest, source_digest=DIGEST)
    return RunAndRelease(folder=folder, manifest=manifest, record=booked)


def _record(run: RunAndRelease) -> ReleaseRecord:
    assert run.record is not None
    return run.record


def _in_state(run: RunAndRelease, state: State) -> RunAndRelease:
    record = _record(run)
    draws = tuple(
        replace(draw, state=state) if draw.name == "count" else draw for draw in record.draws
    )
    return replace(run, record=replace(record, draws=draws))


def _with_stranger(run: RunAndRelease) -> RunAndRelease:
    (run.folder.draws / "level-1.other.draw").write_bytes(b"drawn")
    return run


def _with_state(run: RunAndRelease, state: RunState) -> RunAndRelease:
    return replace(run, manifest=run.manifest.with_state(state))


CASES: dict[str, tuple[Callable[[RunAndRelease], RunAndRelease], HomeInvariant, str]] = {
    "no release": (lambda run: replace(run, record=None), HomeInvariant.KNOWN, "first"),
    "another run": (
        lambda run: replace(run, record=replace(_record(run), run="other")),
        HomeInvariant.SAME,
        "run",
    ),
    "another dataset": (
        lambda run: replace(run, record=replace(_record(run), dataset="other")),
        HomeInvariant.SAME,
        "dataset",
    ),
    "another configuration": (
        lambda run: replace(run, record=replace(_record(run), plan_digest="0" * 64)),
        HomeInvariant.SAME,
        "configuration",
    ),
    "another source": (
        lambda run: replace(run, record=replace(_record(run), source_digest="0" * 64)),
        HomeInvariant.SAME,
        "source",
    ),
    "reserved": (lambda run: _in_state(run, State.RESERVED), HomeInvariant.CHARGED, "count"),
    "given back": (lambda run: _in_state(run, State.RETURNED), HomeInvariant.CHARGED, "count"),
    "a stranger's file": (_with_stranger, HomeInvariant.CHARGED, "level-1.other.draw"),
    "other files": (
        lambda run: replace(
            run, manifest=run.manifest.with_outputs(OUTPUTS).with_state(RunState.FINISHED)
        ),
        HomeInvariant.PUBLISHED,
        "release",
    ),
    "never submitted": (
        lambda run: _with_state(run, RunState.AWAITING),
        HomeInvariant.SUBMITTED,
        "proposed",
    ),
    "never rejected": (
        lambda run: _with_state(run, RunState.REJECTED),
        HomeInvariant.SUBMITTED,
        "proposed",
    ),
}


def test_a_run_fits_its_ledger(fitting: RunAndRelease) -> None:
    """Nothing is said of a run that was charged as its ledger says; or of one that was not charged, and is in no ledger."""
    assert first_violation(fitting) is None
    (fitting.folder.draws / "count.lease.draw").unlink()
    begun = fitting.manifest.model_copy(update={"stages": {}})
    assert first_violation(replace(fitting, manifest=begun, record=None)) is None


@pytest.mark.parametrize("case", CASES)
def test_what_does_not_fit_is_named(fitting: RunAndRelease, case: str) -> None:
    """Each contradiction breaks one invariant, and what contradicts it is named."""
    change, invariant, what = CASES[case]
    violation = first_violation(change(fitting))
    assert isinstance(violation, Violation)
    assert violation.invariant == invariant
    assert violation.contradiction.endswith(what)


def test_every_invariant_is_broken_by_a_case_and_has_words() -> None:
    """Who runs a release and who verifies a home refuse what breaks any of them."""
    everything = set(HomeInvariant)
    assert {invariant for _, invariant, _ in CASES.values()} == everything
    assert set(continuity._REFUSALS) == everything
    assert set(verified_files._FAULTS) == everything
