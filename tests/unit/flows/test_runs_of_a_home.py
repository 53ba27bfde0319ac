"""Runs as they lie in a home: what a purge by age takes and leaves, and a submission that the ledger does not know."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from marginweave.flows.approval import decide
from marginweave.flows.retention import list_runs, purge_older
from marginweave.schemas.errors import BudgetError
from marginweave.schemas.manifest import Manifest, RunState
from marginweave.tasks.budget.ledger import Ledger
from marginweave.tasks.checkpoint.run_folder import RunFolder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(tmp_path / "ledger.sqlite"))
    Ledger.create(tmp_path / "ledger.sqlite")
    return tmp_path


def begun(home: Path, run: str, state: RunState) -> RunFolder:
    """A run that has ended no stage."""
    folder = RunFolder.at(home, run)
    folder.create()
    (folder.internal / "request.json").write_text(json.dumps({"configuration": "people.yaml", "source": "people.csv"}))
    manifest = Manifest(
        run=run,
        dataset="people",
        release=f"release-of-{run}",
        configuration="{}",
        configuration_digest=hashlib.sha256(b"{}").hexdigest(),
        source="people.csv",
        source_digest="ab" * 32,
        code_version="1",
        created=datetime.now(UTC) - timedelta(days=9),
        state=state,
    )
    folder.write_manifest(manifest)
    return folder


def test_a_run_without_a_stage_is_as_old_as_it_is(home: Path) -> None:
    """It neither stops the purge of a whole home, nor is it taken too early."""
    folder = begun(home, "stageless", RunState.RUNNING)
    assert purge_older(home, timedelta(days=10)).runs == ()
    assert folder.private.exists()
    assert purge_older(home, timedelta(days=8)).runs == ("stageless",)
    assert not folder.private.exists()


def test_an_exact_evaluation_stays_and_is_listed(home: Path) -> None:
    folder = begun(home, "compared", RunState.RUNNING)
    folder.internal_evaluation.write_text("{}")
    assert [(run.holds_private, run.holds_exact) for run in list_runs(home)] == [(True, True)]
    purge_older(home, timedelta(0))
    assert [(run.holds_private, run.holds_exact) for run in list_runs(home)] == [(False, True)]
    folder.internal_evaluation.unlink()
    assert not list_runs(home)[0].holds_exact


@pytest.mark.parametrize("approved", [True, False])
def test_a_submission_that_the_ledger_does_not_know_is_decided_by_nobody(home: Path, approved: bool) -> None:
    begun(home, "waiting", RunState.AWAITING)
    with pytest.raises(BudgetError, match="the ledger does not know it: is this an older copy of it"):
        decide(home, "waiting", approved=approved, by="A. Meier", reason="checked")
