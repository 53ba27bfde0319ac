"""Releases over the years: a policy, new snapshots, a correction, copies, an audit, and the end of what is private."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.people_table import people
from tests.support.release_checks import RELEASED, contents

pytestmark = pytest.mark.system
MARKER = "QZXMARKERVALUE"
BUNDLE = {
    "README.md",
    "plan.json",
    "privacy.json",
    "account.json",
    "ledger.jsonl",
    "chain.jsonl",
    "anchor.json",
    "verify.py",
}
SMALL: dict[str, object] = {"aggregate__reporting_length": 1}


def _told(statement: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads(statement.read_text())
    return content


def _plant(place: Path) -> None:
    """A value that is in the data alone: outside a declared domain, and in a column that nobody declares."""
    lines = (place / "people.csv").read_text().splitlines()
    rows = [
        f"{lines[0]},note",
        f"f,{MARKER},30,3,{MARKER}",
        *(f"{line},{MARKER}-{i}" for i, line in enumerate(lines[1:])),
    ]
    (place / "people.csv").write_text("\n".join(rows) + "\n")


@pytest.mark.long  # fifty commands: every step has a shorter test of its own
def test_a_release_from_its_approval_to_the_auditor(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """Opened with a policy, approved, corrected, copied, handed over and purged; a marker in the data is in nothing of it."""
    cli, said = marginweave, []

    def call(*arguments: str | Path, code: int = 0) -> str:
        ended = cli(*arguments)
        said.append(ended.stdout + ended.stderr)
        assert ended.returncode == code, (arguments, ended.stderr)
        return said[-1]

    path = people(tmp_path, 60, publish__approval="required", **SMALL)
    path.write_text(path.read_text() + "rows: 60\n")
    _plant(tmp_path)
    call("ledger", "open", "people", "--epsilon", "5", "--delta", "1e-5", "--per", "year=1.6,1e-6")
    call("plan", path, "--schedule", "0 3 1 1 *")
    call("run", path, "--run", "first")
    call("approve", "first", "--by", "A. Meier", "--reason", "checked")
    runs = cli.home / "runs"
    assert "account" not in _told(runs / "first" / "release" / "privacy.json")
    account = _told(runs / "first" / "release" / "account.json")
    assert (account["dataset"], account["cap"], account["releases"]) == (
        "people",
        {"epsilon": 5.0, "delta": 1e-5},
        1,
    )
    assert "policy" not in account  # a rule of the house
    assert "its cap is the bound" in (runs / "first" / "release" / "report.html").read_text()

    # a new snapshot of the same people shares the account, and corrects the first release
    (tmp_path / "people.csv").write_text(
        (tmp_path / "people.csv").read_text() + f"m,west,44,2,{MARKER}\n"
    )
    call("run", path, "--run", "second", "--supersedes", "nothing", code=2)
    assert not (runs / "second").exists()
    call("run", path, "--run", "second", "--supersedes", "first")
    # the first one: a correction that nobody has approved corrects nothing
    assert "finished" in call("runs")
    call("approve", "second", "--by", "A. Meier", "--reason", "the missing row")
    assert "superseded by second" in call("runs")
    statement = _told(runs / "second" / "release" / "privacy.json")
    old = json.loads((runs / "first" / "manifest.json").read_text())["release"]
    assert statement["supersedes"] == {"run": "first", "release": old}
    assert _told(runs / "second" / "release" / "account.json")["releases"] == 2
    assert (
        "It corrects and replaces run first"
        in (runs / "second" / "release" / "report.html").read_text()
    )
    call("run", path, "--run", "second", "--supersedes", "other", code=2)
    call("run", path, "--run", "second", "--supersedes", "first")
    call("run", path, "--run", "third", "--supersedes", "first", code=2)
    assert not (runs / "third").exists()
    refused = call("run", path, "--run", "fourth", code=3)
    assert re.search(r"it fits from \d{4}-01-01 \(UTC\) on", refused)

    _check_copies(cli, call, tmp_path, runs)
    _check_handover(call, tmp_path, runs)
    call("purge", "--older-than", "0d")
    assert not any((run / "private").exists() for run in runs.iterdir())
    call("ledger", "verify")
    call("ledger", "export", "--to", tmp_path / "export")
    outputs = [
        *contents(tmp_path / "export").values(),
        *contents(cli.home).values(),
        *contents(tmp_path / "audit").values(),
    ]
    assert not any(MARKER.encode() in content for content in outputs)
    assert MARKER not in "".join(said)
    with zipfile.ZipFile(tmp_path / "audit.zip") as archive:
        assert not any(MARKER.encode() in archive.read(name) for name in archive.namelist())


def _check_copies(cli: CommandLine, call, place: Path, runs: Path) -> None:
    """A copy has the booked files alone; nothing goes into the runs, around them, or over what is there."""
    assert cli("synthesize", "second", "--seed", "9").returncode == 0
    told = call("publish", "second", "--to", place / "public", "--even-so")
    assert "Skipped synthesis-9" in told
    assert {file.name for file in (place / "public").iterdir()} == RELEASED
    copied = {name: (runs / "second" / "release" / name).read_bytes() for name in RELEASED}
    assert contents(place / "public") == copied
    assert "superseded by run second" in call(
        "publish", "first", "--to", place / "old", "--even-so"
    )
    (place / "link").symlink_to(runs)
    for to in ("public", "link", "link/second/x", "missing/x"):
        call("publish", "second", "--to", place / to, "--even-so", code=2)
    for to in (runs / "second" / "out", runs, cli.home, cli.home.parent):
        call("publish", "second", "--to", to, "--even-so", code=2)
    file = runs / "second" / "release" / "synthetic.csv"
    whole = file.read_bytes()
    file.write_bytes(whole + b"\n")
    for command in (("publish", "second", "--even-so", "--to"), ("handover", "second", "--to")):
        assert "synthetic.csv is missing or was changed" in call(*command, place / "never", code=1)
        assert not (place / "never").exists()
    file.write_bytes(whole)


def _check_handover(call, place: Path, runs: Path) -> None:
    """What an auditor gets has no private file and verifies without marginweave; what is changed in it is found."""
    call("handover", "second", "--to", place / "audit.zip")
    call("handover", "second", "--to", place / "audit.zip", code=2)
    call("handover", "second", "--to", place / "audit")
    assert {file.name for file in (place / "audit").iterdir()} == BUNDLE
    with zipfile.ZipFile(place / "audit.zip") as archive:
        assert {name: archive.read(f"audit/{name}") for name in BUNDLE} == contents(place / "audit")
    rows = [
        json.loads(line) for line in (place / "audit" / "ledger.jsonl").read_text().splitlines()
    ]
    release = json.loads((runs / "second" / "manifest.json").read_text())["release"]
    of_others = [row for row in rows if row["release"] not in {None, release}]
    assert [row["kind"] for row in of_others] == ["SUPERSEDED"]
    assert [row["kind"] for row in rows][-3:] == ["APPROVED", "PUBLISHED", "SUPERSEDED"]
    verify = [sys.executable, "-I", str(place / "audit" / "verify.py")]
    published = str(runs / "second" / "release")
    for arguments in ([], [published]):
        checked = subprocess.run([*verify, *arguments], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
    assert f"{len(RELEASED) - 1} of {len(RELEASED) - 1} released file(s)" in checked.stdout
    assert "other file(s)" not in checked.stdout
    beside = shutil.copytree(published, place / "beside")
    (beside / "more").symlink_to(place)
    (beside / "extra.csv").write_text("a\n")
    checked = subprocess.run([*verify, str(beside)], capture_output=True, text=True, check=False)
    assert f"2 other file(s) in {beside}: 'extra.csv', 'more'\n" in checked.stdout
    for name, old, new in (
        ("ledger.jsonl", '"actor": "A. Meier"', '"actor": "B. Meier"'),
        ("privacy.json", '"epsilon": 1.0', '"epsilon": 0.1'),
        ("account.json", '"epsilon": 5.0', '"epsilon": 0.5'),
        ("plan.json", '"epsilon": 1.0', '"epsilon": 0.1'),
        ("plan.json", '"mu2": "0.', '"mu2": "1.'),
        ("plan.json", '"name": "count"', '"name": "other"'),
        ("plan.json", '\\"seed\\"', '\\"soil\\"'),
        ("plan.json", '"written_sha256": "', '"written_sha256": "0'),
        ("account.json", '"rho": "', '"rho": "-'),
        ("anchor.json", '"seq": ', '"seq": 1'),
        ("chain.jsonl", '"row_hash": "', '"row_hash": "0'),
    ):
        file = place / "audit" / name
        whole = file.read_text()
        assert old in whole
        file.write_text(whole.replace(old, new))
        assert subprocess.run(verify, capture_output=True, check=False).returncode == 1, name
        file.write_text(whole)
    _check_missing_rows(place / "audit" / "ledger.jsonl", verify)


def _check_missing_rows(file: Path, verify: list[str]) -> None:
    """A row of the release that is left out, its hash still in the chain, is missed."""
    whole = file.read_text()
    for kind in (
        "RESERVED",
        "DRAWN",
        "COMMITTED",
        "SUBMITTED",
        "APPROVED",
        "PUBLISHED",
        "SUPERSEDED",
    ):
        lines = whole.splitlines(keepends=True)
        lines.remove(next(line for line in lines if f'"kind": "{kind}"' in line))
        file.write_text("".join(lines))
        ended = subprocess.run(verify, capture_output=True, text=True, check=False)
        assert ended.returncode == 1, kind
        assert ended.stderr.startswith("does not fit: "), ended.stderr
    file.write_text(whole)


@pytest.mark.long  # thirty commands: tests/unit/runs/test_runs_of_a_home.py looks at the same runs
def test_retention_takes_failed_runs_and_leaves_those_in_progress(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """By age: runs that stopped, never began, are damaged or have kept their files; not one that is held."""
    cli = marginweave
    assert cli("ledger", "open", "people", "--epsilon", "5", "--delta", "1e-5").returncode == 0
    suite = {
        "type": "expect_column_values_to_be_in_set",
        "kwargs": {"column": "sex", "value_set": ["neither"]},
    }
    (tmp_path / "out.json").write_text(json.dumps({"name": "people", "expectations": [suite]}))
    failing = people(tmp_path, 400, expectations__output="out.json", **SMALL)
    assert cli("run", failing, "--run", "failed").returncode == 1
    assert cli("run", failing, "--run", "busy").returncode == 1
    (tmp_path / "other").mkdir()
    keeping = people(tmp_path / "other", 300, publish__keep_private=True, **SMALL)
    assert cli("run", keeping, "--run", "kept").returncode == 0
    runs = cli.home / "runs"
    _begin_without_a_stage(runs / "failed", runs / "stageless")
    for name in ("never", "damaged"):
        (runs / name / "private").mkdir(parents=True)
        (runs / name / "private" / "frame.parquet").write_text("rows")
    (runs / "damaged" / "manifest.json").write_text("{")
    assert [line.split()[-1] for line in cli("runs").stdout.splitlines()[1:]] == ["yes"] * 6
    assert cli("purge").returncode == cli("purge", "kept", "--older-than", "1d").returncode == 2
    assert cli("purge", "--older-than", "soon").returncode == 2
    assert "Nothing that old" in cli("purge", "--older-than", "1d").stdout
    lock = os.open(runs / "busy" / ".lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        purged = cli("purge", "--older-than", "0d")
        assert cli("purge", "busy", "--unfinished").returncode == 1
    finally:
        os.close(lock)
    assert purged.returncode == 0, purged.stderr
    assert "Run busy is in progress, and was left alone" in purged.stdout
    left = {line.split()[0]: line.split()[-1] for line in cli("runs").stdout.splitlines()[1:]}
    assert left == {
        "busy": "yes",
        "damaged": "no",
        "failed": "no",
        "kept": "no",
        "never": "no",
        "stageless": "no",
    }
    assert "purged before it was finished" in cli("resume", "failed").stderr
    assert cli("resume", "busy").returncode == 1  # it can still go on
    assert cli("report", "kept").returncode == 0
    (runs / "damaged" / "manifest.json").unlink()
    assert cli("ledger", "verify").returncode == 0


def _begin_without_a_stage(run: Path, to: Path) -> None:
    """A copy of `run` as one that was begun and has ended no stage."""
    shutil.copytree(run, to)
    manifest = json.loads((run / "manifest.json").read_text())
    changed = {
        **manifest,
        "run": to.name,
        "release": "11111111-1111-1111-1111-111111111111",
        "stages": {},
    }
    (to / "manifest.json").write_text(json.dumps(changed))


@pytest.mark.long  # half a minute
def test_two_plans_and_a_schedule(alone: CommandLine, tmp_path: Path) -> None:
    """Side by side with the keys in which they differ; relative errors; bad input in one line and without a table."""
    cli = alone
    assert cli("ledger", "open", "people", "--epsilon", "5", "--delta", "1e-5").returncode == 0
    one = people(tmp_path, 10, aggregate__method="k-tuples")
    one.write_text(one.read_text() + "rows: 5000\n")
    other = tmp_path / "other.yaml"
    other.write_text(one.read_text().replace("epsilon: 1.0", "epsilon: 0.5"))
    both = cli("plan", one, other, "--schedule", "0 3 * * 1", "--timezone", "Europe/Berlin")
    # and nothing of Prefect's about a home that is not there yet
    assert (both.returncode, both.stderr) == (0, "")
    assert "They differ in privacy.epsilon" in both.stdout
    lines = [line.split()[:2] for line in both.stdout.splitlines() if line.startswith("level-2")]
    assert lines == [["level-2", "A"], ["level-2", "B"]]
    assert "Next:" not in both.stdout
    assert both.stdout.count("Epsilon runs out first: the last of") == 2
    assert (
        "people.yaml: Every new snapshot of the same people is charged to this account"
        in both.stdout
    )
    for bad in (
        ["--schedule", "soon"],
        ["--schedule", "0 3 * * *", "--timezone", "Mars"],
        ["--timezone", "UTC"],
        [one, one],
        ["--target", "pears within 5 %"],
        ["--target", "pairs within 5 %"],  # k-tuples have no forecast
    ):
        refused = cli("plan", one, *bad)
        assert (refused.returncode, refused.stdout) == (2, ""), bad
    one.write_text(one.read_text().replace("method: k-tuples", "method: marginals"))
    found = cli("plan", one, "--target", "groups of 100 within 20")
    assert found.returncode == 0
    first, observer, own, following = found.stdout.splitlines()[-4:]
    assert following == f"Next: marginweave run {one}"
    assert first.startswith("Target groups of 100 within 20: epsilon ")
    assert observer.startswith("At epsilon ")
    assert own.startswith("This configuration: at epsilon 1 its count is off by at most ")
    assert not (cli.home / "runs").exists()
