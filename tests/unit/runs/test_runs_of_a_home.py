"""Runs as they lie in a home: what a purge by age takes and leaves, and a submission that the ledger does not know."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from marginweave.base.errors import BudgetError, InputError, OperatorError
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.flows.cli.run import runs
from marginweave.ledger import Ledger
from marginweave.released.manifest import Manifest, RunState
from marginweave.runs.home import home_directory
from marginweave.runs.lookup import decide, describe_progress, record_stop_reason
from marginweave.runs.published import rewrite_report
from marginweave.runs.request import ledger_file_of, ledger_of
from marginweave.runs.retention import list_runs, purge_older, purge_run
from tests.support.releases import ACCOUNT, DRAWS, reserve_release, small_plan


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(tmp_path / "ledger.sqlite"))
    Ledger.create(tmp_path / "ledger.sqlite")
    return tmp_path


def begun(home: Path, run: str, state: RunState, source: str = "people.csv") -> RunFolder:
    """A run that has ended no stage."""
    folder = RunFolder.at(home, run)
    folder.create()
    (folder.internal / "request.json").write_text(
        json.dumps({"configuration": "people.yaml", "below": ".", "source": source})
    )
    manifest = Manifest(
        run=run,
        dataset="people",
        release=f"release-of-{run}",
        written="{}",
        configuration="{}",
        configuration_digest=hashlib.sha256(b"{}").hexdigest(),
        source=source,
        source_digest="ab" * 32,
        created=datetime.now(UTC) - timedelta(days=9),
        state=state,
    )
    folder.write_manifest(manifest)
    return folder


def test_a_run_without_a_stage_is_as_old_as_it_is(home: Path) -> None:
    """It neither stops the purge of a whole home, nor is it taken too early."""
    folder = begun(home, "stageless", RunState.RUNNING)
    assert purge_older(home, timedelta(days=10))[0] == []
    assert folder.private.exists()
    assert purge_older(home, timedelta(days=8))[0] == ["stageless"]
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
def test_a_submission_that_the_ledger_does_not_know_is_decided_by_nobody(
    home: Path, approved: bool
) -> None:
    begun(home, "waiting", RunState.AWAITING)
    with pytest.raises(
        BudgetError, match="the ledger does not know it: is this an older copy of it"
    ):
        decide(home, "waiting", approved=approved, by="A. Meier", reason="checked")


def submitted(home: Path, run: str) -> tuple[RunFolder, Ledger]:
    """A run that awaits approval and holds nothing private any more, and the ledger that knows it."""
    folder = begun(home, run, RunState.AWAITING)
    folder.remove_private()
    folder.proposed.mkdir()
    (folder.proposed / "report.html").write_text("a report")
    ledger, release, lease = Ledger.open(home / "ledger.sqlite"), f"release-of-{run}", "one"
    ledger.accounts.open(ACCOUNT, actor="steward")
    reserve_release(ledger, small_plan(), release, run=run, needs_approval=True)
    ledger.draws.take_lease(release, lease)
    for name in DRAWS:
        ledger.draws.begin(release, name, lease)
        ledger.draws.commit(release, name, lease, "ab" * 32, tainted=False)
    ledger.approvals.submit(
        release, lease, {"release/report.html": hashlib.sha256(b"a report").hexdigest()}
    )
    return folder, ledger


@pytest.mark.parametrize("by_age", [True, False])
def test_a_purge_carries_out_a_rejection_that_was_killed_in_the_middle(
    home: Path, by_age: bool
) -> None:
    """The ledger has the decision, the manifest has not; before it, there is nothing to take."""
    folder, ledger = submitted(home, "refused")
    assert rewrite_report(home, "refused", None) == folder.proposed / "report.html"
    assert purge_older(home, timedelta(0))[0] == []
    ledger.approvals.decide(
        "release-of-refused", approved=False, by="A. Meier", reason="wrong date"
    )
    assert folder.present_manifest().state == RunState.AWAITING
    if by_age:
        assert purge_older(home, timedelta(0))[0] == ["refused"]
    else:
        purge_run(home, "refused", unfinished=False)
    assert not folder.proposed.exists()
    assert folder.present_manifest().state == RunState.REJECTED


@pytest.mark.parametrize(("approved", "state"), [(True, "finished"), (False, "rejected")])
def test_a_list_shows_a_decision_that_was_killed_in_the_middle(
    home: Path, capsys: pytest.CaptureFixture[str], approved: bool, state: str
) -> None:
    """The command carries it out first; where nobody can ask the ledger, the run is listed as its folder has it."""
    folder, ledger = submitted(home, "waiting")

    def states() -> list[str]:
        runs(as_json=True, home=home)
        return [run["state"] for run in json.loads(capsys.readouterr().out)]

    assert states() == ["awaiting approval"]
    ledger.approvals.decide("release-of-waiting", approved=approved, by="A. Meier", reason="right")
    (home / "ledger.sqlite").rename(home / "elsewhere.sqlite")
    assert states() == ["awaiting approval"]
    (home / "elsewhere.sqlite").rename(home / "ledger.sqlite")
    assert states() == [state]
    assert (folder.release / "report.html").exists() == approved


def test_the_report_of_a_rejected_release_is_not_shown(home: Path) -> None:
    """Also where the rejection was killed before the manifest said so."""
    _, ledger = submitted(home, "refused")
    ledger.approvals.decide(
        "release-of-refused", approved=False, by="A. Meier", reason="wrong date"
    )
    with pytest.raises(InputError, match="was rejected"):
        rewrite_report(home, "refused", None)


@pytest.mark.parametrize("source", ["people.csv", "example:affairs"])
def test_a_run_whose_internal_folder_was_removed_finds_its_ledger(home: Path, source: str) -> None:
    folder = begun(home, "handed", RunState.FINISHED, source)
    before = ledger_of(folder, home)
    assert (ledger_file_of(folder, home) is not None) == source.startswith("example:")
    shutil.rmtree(folder.internal)
    assert ledger_of(folder, home) == before
    with pytest.raises(InputError, match="run absent does not exist"):
        ledger_of(RunFolder.at(home, "absent"), home)


def test_the_reason_of_a_stop_before_the_first_folder_is_kept_for_the_operator(home: Path) -> None:
    """As where the table is missing: a run of a worker has no terminal."""
    folder = RunFolder.at(home, "tableless")

    def stop() -> None:
        with record_stop_reason(folder):
            raise OperatorError("source.file (people.csv) does not exist")

    with pytest.raises(OperatorError) as stopped:
        stop()
    told = folder.internal / "stopped.txt"
    assert str(stopped.value).endswith(f"only the operator sees the reason, in {told}")
    assert "does not exist" not in str(pickle.loads(pickle.dumps(stopped.value)))
    assert told.read_text() == "source.file (people.csv) does not exist\n"
    assert [place.stat().st_mode & 0o777 for place in (folder.internal, told)] == [0o700, 0o600]
    assert [run.state for run in list_runs(home)] == ["not begun"]


@pytest.mark.parametrize(
    ("state", "follows"),
    [
        (RunState.FINISHED, "finds its release and charges nothing"),
        (RunState.AWAITING, "finds it and charges nothing"),
        (RunState.REJECTED, "nothing of it is published"),
        (RunState.RUNNING, "only what is not charged yet will be charged"),
        (RunState.FAILED, "cannot be resumed"),
    ],
)
def test_how_far_a_run_is_and_what_the_same_command_does(
    home: Path, state: RunState, follows: str
) -> None:
    assert describe_progress(RunFolder.at(home, "r")) is None
    said = describe_progress(begun(home, "r", state))
    assert said is not None
    assert said.startswith(f"run r is {state.value}: ")
    assert follows in said


@pytest.mark.parametrize("below", ["", "deeper", "deeper/still"])
def test_a_home_is_a_folder(tmp_path: Path, below: str) -> None:
    (tmp_path / "here").write_text("")
    with pytest.raises(InputError, match=r"^home \(.*here.*\) must be a folder; .*here is a file$"):
        home_directory(tmp_path / "here" / below, {})
    assert home_directory(tmp_path / "there" / below, {}) == tmp_path / "there" / below
