"""A release that has to be approved: killed anywhere, decided once, and published as it was submitted or not at all."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from marginweave.accounting.records import EventKind, State
from marginweave.ledger.audit import audit_ledger
from marginweave.ledger.keys import load_key
from marginweave.released.manifest import RunState
from marginweave.runs.retention import purge_older
from marginweave.verify.files import audit_files
from tests.support.command_line import CommandLine
from tests.support.forked_runs import ForkedRuns
from tests.support.kills import Victim
from tests.support.people_table import people
from tests.support.release_checks import RELEASED, contents, opened
from tests.support.samples import every

pytestmark = pytest.mark.system
YES: dict[str, Any] = {"approved": True, "by": "A. Meier", "reason": "checked"}
NO: dict[str, Any] = {"approved": False, "by": "B. Huber", "reason": "wrong date"}
DECIDED = {EventKind.APPROVED, EventKind.REJECTED}
# Where a run ends, and where a decision does: every step after the last draw, on either side.
ENDING = ["submit", "proposed", "manifest", "purge", "folder removed"]
SIDES = ["before", "after"]
DECIDING = ["decide", "published", "manifest", "file replaced"]


@pytest.fixture
def victim(tmp_path: Path) -> Victim:
    return Victim(
        home=tmp_path,
        config=people(tmp_path, 40, aggregate__reporting_length=2, publish__approval="required"),
    )


def _audit(victim: Victim) -> None:
    """`ledger verify` finds no fault, whatever was killed."""
    keys = load_key(victim.location, {}, "")
    audit_files(victim.home, audit_ledger(victim.location, keys), keys, example=False)


def _check_awaiting(victim: Victim) -> dict[str, bytes]:
    """Nothing is in `release/`; what was booked stands in `proposed/`, and nothing private is left."""
    victim.check()
    _audit(victim)
    record, manifest = victim.record(), victim.folder.read_manifest()
    assert record is not None
    assert manifest is not None
    assert manifest.state == RunState.AWAITING
    assert not manifest.outputs
    assert not record.outputs
    assert record.decision is None
    assert list(victim.folder.release.iterdir()) == []
    assert {file.name for file in victim.folder.proposed.iterdir()} == RELEASED - {"account.json"}
    assert not victim.folder.private.exists()
    assert victim.folder.staged_releases() == ()
    return contents(victim.folder.proposed)


def _submitted(victim: Victim) -> dict[str, bytes]:
    """What was published of what was submitted; account.json came with the publication."""
    found = contents(victim.folder.release)
    assert json.loads(found.pop("account.json"))["dataset"] == "people"
    return found


@pytest.mark.parametrize(("point", "side"), every(3, itertools.product(ENDING, SIDES)))
def test_a_run_killed_at_its_end_awaits_approval_in_the_end(
    forks: ForkedRuns, victim: Victim, point: str, side: str
) -> None:
    """Nothing gets into `release/`, no row is written twice, and resuming brings the run to where the ledger is."""
    number = {"manifest": forks.calls(None)["manifest"]}.get(point, 1)
    assert forks.ask(victim.order(point=[point, side, number])).code == -signal.SIGKILL
    victim.check()
    _audit(victim)
    assert list(victim.folder.release.iterdir()) == []
    for _ in range(2):
        assert forks.ask(victim.order()).code == 0
        _check_awaiting(victim)
    kinds = [event.kind for event in victim.events]
    assert kinds.count(EventKind.SUBMITTED) == 1
    assert EventKind.PUBLISHED not in kinds


@pytest.mark.parametrize(("point", "side"), every(3, itertools.product(DECIDING, SIDES)))
def test_an_approval_killed_anywhere_ends_in_one_publication(
    forks: ForkedRuns, victim: Victim, point: str, side: str
) -> None:
    """The same command again, or the run's, completes it: the submitted bytes, one APPROVED row, one PUBLISHED row."""
    assert forks.ask(victim.order()).code == 0
    before = _check_awaiting(victim)
    killed = forks.ask(victim.order(decision=YES, point=[point, side, 1]))
    assert killed.code == -signal.SIGKILL, killed
    victim.check()
    _audit(victim)
    again = victim.order(decision=YES) if side == "before" else victim.order()
    assert forks.ask(again).code == 0
    # the run's own command publishes what is approved already
    if point == "decide" and side == "after":
        assert victim.folder.present_manifest().state == RunState.FINISHED
    assert forks.ask(victim.order(decision=YES)).code == 0
    victim.check_finished()
    _audit(victim)
    assert _submitted(victim) == before
    assert not victim.folder.proposed.exists()
    kinds = [event.kind for event in victim.events]
    assert (kinds.count(EventKind.APPROVED), kinds.count(EventKind.PUBLISHED)) == (1, 1)


@pytest.mark.parametrize(
    ("command", "point", "side"),
    [
        ("publish", "decide", "after"),
        ("publish", "published", "after"),
        ("evaluate", "manifest", "before"),
        ("handover", "decide", "after"),
    ],
)
def test_whoever_wants_an_approved_release_completes_its_approval(
    forks: ForkedRuns,
    victim: Victim,
    marginweave: CommandLine,
    tmp_path: Path,
    command: str,
    point: str,
    side: str,
) -> None:
    """Killed when the ledger had the approval and the files were not in place, or the manifest did not say so."""
    assert forks.ask(victim.order()).code == 0
    before = _check_awaiting(victim)
    assert forks.ask(victim.order(decision=YES, point=[point, side, 1])).code == -signal.SIGKILL
    place = [] if command == "evaluate" else ["--to", tmp_path / "out"]
    done = replace(marginweave, home=victim.home)(
        command, victim.run, *place, *(["--even-so"] if command == "publish" else [])
    )
    assert done.returncode == 0, done.stderr
    if command == "publish":
        account = (victim.folder.release / "account.json").read_bytes()
        assert contents(tmp_path / "out") == before | {"account.json": account}
    victim.check_finished()
    _audit(victim)
    assert _submitted(victim) == before


@pytest.mark.long  # a run and two audits of its files
def test_a_handover_of_a_rejected_release_has_nothing_of_its_draws(
    forks: ForkedRuns, victim: Victim, marginweave: CommandLine, tmp_path: Path
) -> None:
    """Plan, promise, rows, anchor, which verify; not what was counted or discovered. The same once the files are purged."""
    people(
        tmp_path,
        600,
        aggregate__reporting_length=2,
        publish__approval="required",
        columns__region={"type": "category", "domain": "private"},
        columns__age={"type": "number", "bounds": "private", "within": [0, 128], "bins": 4},
    )
    assert forks.ask(victim.order()).code == 0
    assert (
        forks.ask(victim.order(decision=NO, point=["decide", "after", 1])).code == -signal.SIGKILL
    )
    full = json.loads((victim.folder.proposed / "privacy.json").read_text())
    cli = replace(marginweave, home=victim.home)
    for purged in (False, True):
        to = tmp_path / f"audit-{purged}"
        done = cli("handover", victim.run, "--to", to)
        assert done.returncode == 0, done.stderr
        told = json.loads((to / "privacy.json").read_text())
        assert told["rejected"] == {"by": NO["by"], "reason": NO["reason"]}
        assert full.keys() - told.keys() == {"bounds", "domain", "noise", "confidence", "verdict"}
        assert not any("sigma" in row for row in told["mechanisms"])
        assert told["$schema"] == "urn:marginweave:privacy-of-rejected:3"
        same = told.keys() - {"$schema", "rejected", "mechanisms", "preparation"}
        assert {name: told[name] for name in same} == {name: full[name] for name in same}
        assert "account" not in told
        found = [f'"{label}"'.encode() for label in full["domain"]["region"] if label]
        assert found  # 100 rows and more of each, where the threshold is near 30
        assert not any(label in content for label in found for content in contents(to).values())
        _check_verification(to, victim.folder.proposed)
        assert cli("publish", victim.run, "--to", tmp_path / "out", "--even-so").returncode == 2
        assert cli("purge", victim.run).returncode == 0
        assert not victim.folder.proposed.exists()


def _check_verification(bundle: Path, published: Path) -> None:
    """The bundle checks itself; a changed promise, a missing row and a folder of files are faults."""
    verify = [sys.executable, "-I", str(bundle / "verify.py")]

    def check(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*verify, *more], capture_output=True, text=True, check=False)

    done = check()
    assert done.returncode == 0, done.stderr
    assert "rejected it" in done.stdout
    assert check(str(published)).returncode == 1
    for name, old, new in (
        ("privacy.json", '"epsilon": 1.0', '"epsilon": 0.1'),
        ("privacy.json", NO["reason"], "another reason"),
        ("ledger.jsonl", NO["reason"], "another reason"),
    ):
        whole = (bundle / name).read_text()
        assert old in whole
        (bundle / name).write_text(whole.replace(old, new))
        assert check().returncode == 1, (name, old)
        (bundle / name).write_text(whole)
    rows = (bundle / "ledger.jsonl").read_text().splitlines(keepends=True)
    for kind in ("RESERVED", "DRAWN", "COMMITTED", "SUBMITTED", "REJECTED"):
        left = list(rows)
        left.remove(next(row for row in rows if f'"kind": "{kind}"' in row))
        (bundle / "ledger.jsonl").write_text("".join(left))
        assert check().returncode == 1, kind
    (bundle / "ledger.jsonl").write_text("".join(rows))


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_rejection_killed_anywhere_publishes_nothing(
    forks: ForkedRuns, victim: Victim, side: str
) -> None:
    """Its charge stays, the run goes nowhere, and no later approval changes that."""
    assert forks.ask(victim.order()).code == 0
    assert forks.ask(victim.order(decision=NO, point=["decide", side, 1])).code == -signal.SIGKILL
    assert forks.ask(victim.order(decision=NO)).code == 96
    assert forks.ask(victim.order(decision=YES)).code == 96  # the first decision stands
    victim.check()
    _audit(victim)
    assert list(victim.folder.release.iterdir()) == []
    record = victim.record()
    assert record is not None
    assert {draw.state for draw in record.draws} <= {State.COMMITTED, State.RETURNED}
    assert record.charged.mu2 > 0
    assert [event.kind for event in victim.events if event.kind in DECIDED] == [EventKind.REJECTED]
    resumed = forks.ask(victim.order())
    assert (resumed.code, "was rejected, and its charge stays" in resumed.message) == (2, True)


def test_a_purge_completes_a_rejection_that_was_killed(
    forks: ForkedRuns, victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger's row is there and the manifest does not know of it: what was proposed goes all the same."""
    assert forks.ask(victim.order()).code == 0
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(victim.location))
    assert purge_older(victim.home, timedelta(0))[0] == []  # it still awaits its decision
    assert (
        forks.ask(victim.order(decision=NO, point=["decide", "after", 1])).code == -signal.SIGKILL
    )
    assert victim.folder.present_manifest().state == RunState.AWAITING
    assert purge_older(victim.home, timedelta(0))[0] == [victim.folder.run]
    assert victim.folder.present_manifest().state == RunState.REJECTED
    assert not victim.folder.proposed.exists()
    _audit(victim)


@pytest.mark.parametrize("damage", ["changed", "missing", "added", "replaced by a link"])
def test_tampered_files_are_not_approved(forks: ForkedRuns, victim: Victim, damage: str) -> None:
    """The digests were booked before: nothing is published and nothing written; a rejection is still possible."""
    assert forks.ask(victim.order()).code == 0
    _check_awaiting(victim)
    file = victim.folder.proposed / "synthetic.csv"
    content = file.read_bytes()
    if damage == "added":
        (victim.folder.proposed / "more.csv").write_text("1\n")
    elif damage == "changed":
        file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    else:
        file.unlink()
    if damage == "replaced by a link":
        (victim.home / "elsewhere.csv").write_bytes(content)
        file.symlink_to(victim.home / "elsewhere.csv")
    answer = forks.ask(victim.order(decision=YES))
    assert answer.code == 1, answer
    assert str(victim.folder.proposed) in answer.message
    victim.check()
    assert DECIDED.isdisjoint(event.kind for event in victim.events)
    assert list(victim.folder.release.iterdir()) == []
    assert forks.ask(victim.order(decision=NO)).code == 96
    assert list(victim.folder.release.iterdir()) == []


def test_of_two_who_decide_at_once_one_wins(marginweave: CommandLine, tmp_path: Path) -> None:
    """However many approve and reject together: one row, and everybody else is told whose it is, or that the run is busy."""
    cli = opened(marginweave)
    path = people(tmp_path, 40, aggregate__reporting_length=2, publish__approval="required")
    first = cli("run", path, "--run", "r")
    assert first.returncode == 0, first.stderr
    said = json.loads(first.stdout.splitlines()[-1])
    assert (said["event"], said["charged_now"]) == ("awaiting approval", True)
    assert "marginweave approve r --by NAME" in said["next"]
    assert "awaiting approval" in cli("runs").stdout
    words = [("approve", "A. Meier"), ("reject", "B. Huber"), ("approve", "C. Kern")]
    with ThreadPoolExecutor() as pool:
        decide = lambda word: cli(word[0], "r", "--by", word[1], "--reason", "at once")  # noqa: E731
        ended = list(pool.map(decide, words))
    rows = _events(cli, tmp_path / "exported")
    decided = [row for row in rows if row["kind"] in {"APPROVED", "REJECTED"}]
    assert len(decided) == 1
    winner = decided[0]["actor"]
    for (_, name), end in zip(words, ended, strict=True):
        assert name != winner or end.returncode == 0
        assert (
            end.returncode == 0
            or "in progress in another process" in end.stderr
            or winner in end.stderr
        )
    published = decided[0]["kind"] == "APPROVED"
    assert (cli("publish", "r", "--to", tmp_path / "out", "--even-so").returncode == 0) == published


def _events(cli: CommandLine, to: Path) -> list[dict[str, Any]]:
    assert cli("ledger", "export", "--to", to).returncode == 0
    return [json.loads(line) for line in (to / "events.jsonl").read_text().splitlines()]


def test_whoever_approves_has_seen_nothing_but_what_may_leave(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """No internal evaluation before the decision, asked for or configured; after it the configured one is made."""
    cli = opened(marginweave)
    path = people(
        tmp_path,
        40,
        aggregate__reporting_length=2,
        publish__approval="required",
        evaluate__internal=True,
    )
    assert cli("run", path, "--run", "r").returncode == 0
    run = cli.home / "runs" / "r"
    assert not (run / "internal" / "evaluation.json").exists()
    for command in (
        ["evaluate", "r", "--internal"],
        ["evaluate", "r"],
        ["synthesize", "r"],
        ["publish", "r", "--to", "x"],
    ):
        refused = cli(*command)
        assert refused.returncode == 2, command
        assert "run r awaits approval: marginweave approve r" in refused.stderr
    assert cli("report", "r").stdout.strip() == str(run / "proposed" / "report.html")
    for bad in (
        ["--by", " ", "--reason", "x"],
        ["--by", "x", "--reason", ""],
        ["--by", "a\nb", "--reason", "x"],
    ):
        assert cli("approve", "r", *bad).returncode == 2
    assert cli("approve", "nothing", "--by", "x", "--reason", "y").returncode == 2
    approved = cli("approve", "r", "--by", "A. Meier", "--reason", "fine")
    assert approved.returncode == 0, approved.stderr
    statement = json.loads((run / "release" / "privacy.json").read_text())
    assert any("decided to publish it" in words for words in statement["assumptions"])
    assert cli("run", path, "--run", "r").returncode == 0
    assert (run / "internal" / "report.html").exists()
    assert cli("ledger", "verify").returncode == 0
