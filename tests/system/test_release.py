"""A release from end to end through the real command line."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import time
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from marginweave.flows.stages import run_in_process
from marginweave.runs.bookkeeping import is_charged, tell_of_other_bytes
from marginweave.runs.lookup import run_lock
from marginweave.runs.preparation import prepare_run
from marginweave.runs.progress import LineReporter, reporting
from marginweave.runs.request import read_request
from tests.support.command_line import CommandLine, ForkedCommandLine
from tests.support.people_table import people
from tests.support.places import EXAMPLES
from tests.support.release_checks import RELEASED, contents, only_run, opened, processes_of
from tests.support.samples import every

pytestmark = pytest.mark.system

BEFORE, AFTER = (
    ["validate", "preprocess", "encode", "budget", "aggregate count"],
    ["collect", "normalize", "fit", "synthesize", "decode", "evaluate", "publish"],
)


AUDIT = """
import sys
def hook(event, args):
    if event == "socket.connect":
        address = args[1]
        if isinstance(address, tuple) and not str(address[0]).startswith(("127.", "::1", "localhost")):
            open(%(log)r, "a").write(f"{event} {address}\\n"); raise OSError("blocked")
    if event == "socket.getaddrinfo" and args[0] not in ("127.0.0.1", "localhost", "::1", None, b"127.0.0.1", b"localhost"):
        open(%(log)r, "a").write(f"{event} {args[0]}\\n"); raise OSError("blocked")
sys.addaudithook(hook)
"""


def test_the_example_from_nothing(alone: CommandLine, tmp_path: Path) -> None:
    """make run: everything is there, only loopback is spoken to, a second time it is free, and no process is left."""
    log, hooks = tmp_path / "sockets.log", tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(AUDIT % {"log": str(log)})
    cli = CommandLine(alone.home, {"PYTHONPATH": str(hooks)})
    result = cli("run", EXAMPLES / "affairs.yaml")
    assert result.returncode == 0, result.stderr
    assert not log.exists(), log.read_text()
    first, *stages, last = [json.loads(line) for line in result.stdout.splitlines()]
    assert first["event"] == "note"  # what a new home waits for
    assert [line["stage"] for line in stages if line["event"] == "stage"] == [
        *BEFORE,
        *(f"aggregate level-{length}" for length in (1, 2, 3)),
        *AFTER,
    ]
    assert last["account"]["releases"] == 1
    run = only_run(cli)
    assert {p.name for p in (run / "release").iterdir()} == RELEASED
    assert not (run / "private").exists()
    assert processes_of(cli) == []

    before = contents(run / "release")
    again = alone("run", EXAMPLES / "affairs.yaml")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["charged_now"] is False
    assert json.loads(again.stdout)["account"] == last["account"]
    assert contents(run / "release") == before
    assert (
        f"Ledger: run {run.name} is finished: `run` finds it"
        in alone("plan", EXAMPLES / "affairs.yaml").stdout
    )

    statement = json.loads(before["privacy.json"])
    assert statement["guarantee"]["epsilon"] == 1
    assert statement["guarantee"]["epsilon_of_the_draws"] <= 1
    synthetic = pq.read_table(run / "release" / "synthetic.parquet")
    domains = {
        "children": {"0", "1", "2", "3", "4", "5.5", None},
        "religious": {"1", "2", "3", "4", None},
    }
    for name, domain in domains.items():
        assert set(synthetic.column(name).to_pylist()) <= domain
    with (run / "release" / "aggregates.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["length"] == "0"
    # 6366 women; |noise| > 8 sd has a probability below 1e-14
    assert abs(int(rows[0]["count"]) - 6366) < 8 * float(rows[0]["noise_sd"])
    assert {row["length"] for row in rows} == {"0", "1", "2", "3"}
    assert all(0 <= int(row["low"]) <= int(row["high"]) for row in rows)
    assert [bias["length"] for bias in statement["confidence"]["bounding"]] == [1, 2, 3]
    bounds = json.loads(before["evaluation.json"])["bounds"]["marginals"]
    assert all(bound["bound"] >= bound["distance"] for bound in bounds)


@pytest.mark.parametrize("rows", [0, 1])
def test_the_smallest_tables_are_released_like_any_other(
    marginweave: CommandLine, tmp_path: Path, rows: int
) -> None:
    """The same stages in the same order, the same files, and every column in its place, however little there is."""
    cli, path = opened(marginweave), people(tmp_path, rows)
    result = cli("run", path, "--yes")
    assert result.returncode == 0, result.stderr
    stages = [
        line["stage"]
        for line in map(json.loads, result.stdout.splitlines())
        if line.get("event") == "stage"
    ]
    draws = (
        f"aggregate {draw}-{length}" for length in (1, 2, 3) for draw in ("percentile", "level")
    )
    assert stages == [*BEFORE, *draws, *AFTER]
    synthetic = only_run(cli) / "release" / "synthetic.csv"
    assert synthetic.read_text().splitlines()[0].replace('"', "") == "sex,region,age,grade"
    assert {p.name for p in (only_run(cli) / "release").iterdir()} == RELEASED


def test_a_finished_name_stands_for_its_configuration_and_source(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    cli, path = opened(marginweave), people(tmp_path)
    assert cli("run", path, "--run", "first").returncode == 0
    other = cli("run", people(tmp_path, synthesize__seed=9), "--run", "first")
    assert other.returncode == 2
    assert "it differs in synthesize.seed" in other.stderr
    people(tmp_path)
    (tmp_path / "people.csv").write_text((tmp_path / "people.csv").read_text() + "f,north,3,3\n")
    changed = cli("run", path, "--run", "first")
    assert changed.returncode == 2
    assert "other source bytes" in changed.stderr
    people(tmp_path)
    (cli.home / "runs" / "first" / "release" / "synthetic.csv").write_text("tampered")
    tampered = cli("run", path, "--run", "first")
    assert tampered.returncode == 1
    assert "was changed since it was published" in tampered.stderr


def test_the_ledger_fails_closed_and_refuses_what_is_over_the_cap(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    cli, path = marginweave, people(tmp_path)
    none = cli("run", path)
    assert none.returncode == 3
    assert "marginweave ledger open people --for " in none.stderr
    opened(cli, 1.2)
    assert cli("run", path, "--run", "first").returncode == 0
    second = cli("run", path, "--run", "second")
    assert second.returncode == 3, second.stderr
    assert not (cli.home / "runs" / "second").exists()
    said = " ".join(second.stderr.split())
    assert said.index("fits with privacy.epsilon: 0.") < said.index("marginweave ledger cap people")
    assert cli("run", path, "--run", "second").returncode == 3
    assert cli("ledger", "export", "people", "--to", tmp_path / "exported").returncode == 0
    assert (tmp_path / "exported" / "events.jsonl").read_text().count('"REFUSED"') == 1
    command = (
        second.stderr[second.stderr.index("marginweave ledger cap") :]
        .strip()
        .split("marginweave ")[1]
    )
    assert cli(*command.replace('"…"', "test").split()).returncode == 0
    assert cli("run", path, "--run", "second").returncode == 0
    shown = cli("ledger", "show", "people", "--all").stdout
    # count, and percentile and level of three lengths, twice
    assert shown.count("COMMITTED") == 2 * 7


def test_a_source_that_is_replaced_while_the_run_begins_is_charged_as_it_is_then(
    alone: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look at the bytes and the first stage see two tables: what is said of the charge is of the second."""
    for name, value in alone.variables.items():
        monkeypatch.setenv(name, value)
    path = people(opened(alone, 3).home)
    request = read_request(path, run="r", source=None, home=alone.home)
    with (
        reporting(LineReporter(io.StringIO(), "r", "people")) as reporter,
        run_lock(request.folder),
    ):
        before, _ = prepare_run(request)
        table = path.with_name("people.csv")
        lines = table.read_text().splitlines(keepends=True)
        table.write_text("".join(lines[:-5]))
        said = list[str]()
        tell_of_other_bytes(before, said.append)
        assert said == []
        now, _ = prepare_run(request)
        run_in_process(request, now)
        tell_of_other_bytes(before, said.append)
        assert "replaced while the run began" in " ".join(said)
        assert is_charged(before, reporter.lease)


def test_the_commands_after_a_release(marginweave: CommandLine, tmp_path: Path) -> None:
    cli, path = opened(marginweave, 3), people(tmp_path)
    assert cli("run", path, "--run", "first").returncode == 0
    listed = cli("runs").stdout
    assert "first" in listed
    assert "finished" in listed
    assert "Furthest off: " in cli("evaluate", "first").stdout
    assert [
        row["length"] for row in json.loads(cli("evaluate", "first", "--json").stdout)["lengths"]
    ] == [1, 2, 3]
    made = cli("synthesize", "first", "--records", "17", "--seed", "8")
    assert made.returncode == 0, made.stderr
    folder = cli.home / "runs" / "first" / "release" / "synthesis-8"
    assert pq.read_table(folder / "synthetic.parquet").num_rows == 17
    assert (
        json.loads((folder / "privacy.json").read_text())["selected_after_internal_evaluation"]
        is False
    )
    assert cli("synthesize", "first", "--seed", "8").returncode == 2
    assert cli("report", "first").stdout.strip() == str(folder.parent / "report.html")
    assert cli("report", "first", "--to", tmp_path / "pages").returncode == 0
    assert contents(tmp_path / "pages") == {
        name: (folder.parent / name).read_bytes() for name in ("report.html", "explore.html")
    }
    assert cli("report", "first", "--to", tmp_path / "pages").returncode == 2
    # a folder that somebody else has made and handed over, without the run
    copy = shutil.copytree(folder.parent, tmp_path / "copy")
    assert cli("evaluate", copy).stdout == cli("evaluate", "first").stdout
    assert cli("report", copy).stdout.strip() == str(copy / "report.html")
    assert "is not the folder of a release" in cli("report", tmp_path).stderr

    assert cli("evaluate", "first", "--internal", "--json").returncode == 2
    internal = cli("evaluate", "first", "--internal")
    assert internal.returncode == 0, internal.stderr
    assert "Not for release" in internal.stdout
    result = cli.home / "runs" / "first" / "internal" / "evaluation.json"
    assert stat.S_IMODE(result.stat().st_mode) == 0o600
    twin = result.with_name("report.html")
    assert str(twin) in internal.stdout
    assert stat.S_IMODE(twin.stat().st_mode) == 0o600
    assert twin.read_text().count("NOT FOR RELEASE") == 3
    compared = json.loads(result.read_text())
    assert compared["reference_records"] == 400
    assert [row["length"] for row in compared["distances"]] == [1, 2, 3, 4]
    published = json.loads(
        (cli.home / "runs" / "first" / "release" / "evaluation.json").read_text()
    )
    assert "k_marginal_score" not in published
    assert 0 <= compared["score"] <= 100
    assert f"Quality of pairs by true distances: {compared['score']} of 100." in twin.read_text()
    released_report = cli.home / "runs" / "first" / "release" / "report.html"
    assert "true distances" not in released_report.read_text() + internal.stdout
    assert all(rule["records"] == 0 for rule in published["rules"] + compared["rules"])
    assert published["marginals"][0]["noise"] > 0
    assert cli("synthesize", "first", "--seed", "9").returncode == 0
    after = json.loads(
        (cli.home / "runs" / "first" / "release" / "synthesis-9" / "privacy.json").read_text()
    )
    assert after["selected_after_internal_evaluation"] is True
    assert cli("run", path, "--run", "second").returncode == 0
    second = json.loads((cli.home / "runs" / "second" / "release" / "privacy.json").read_text())
    assert second["selected_after_internal_evaluation"] is True
    assert (
        "compared an earlier one"
        in (cli.home / "runs" / "second" / "release" / "report.html").read_text()
    )
    assert cli("purge", "first").returncode == 0
    for absent in (
        ["evaluate", "nothing"],
        ["report", "nothing"],
        ["synthesize", "nothing"],
        ["purge", "nothing"],
        ["resume", "nothing"],
    ):
        missing = cli(*absent)
        assert missing.returncode == 2
        assert "run nothing does not exist" in missing.stderr


@pytest.mark.long  # a minute; tests/system/test_kills.py kills at every transition
def test_killed_in_the_middle_nothing_survives_and_resume_goes_on(
    settled: CommandLine, marginweave: CommandLine, tmp_path: Path
) -> None:
    """kill -9 before the first draw and between draws: the server dies too, one charge, and the run is finished."""
    cli, path = opened(marginweave), people(tmp_path)
    for stage in ("encode", "aggregate count"):
        settled.kill_after(path, "killed", stage)
        deadline = time.monotonic() + 60
        while processes_of(settled) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert processes_of(settled) == []
    resumed = cli("resume", "killed")
    assert resumed.returncode == 0, resumed.stderr
    assert {p.name for p in (cli.home / "runs" / "killed" / "release").iterdir()} == RELEASED
    shown = cli("ledger", "show", "people", "--all").stdout
    assert shown.count("level-1") == 1


@pytest.mark.parametrize(
    ("sent", "ignored"),
    every(3, [(signal.SIGINT, False), (signal.SIGINT, True), (signal.SIGTERM, True)], first=1),
)
def test_an_interrupted_terminal_stops_the_run_and_no_file_beside_it_is_run(
    settled: CommandLine,
    marginweave: CommandLine,
    tmp_path: Path,
    sent: signal.Signals,
    ignored: bool,
) -> None:
    """Ctrl-C reaches a terminal's group of processes, not the server; modules in the working directory are not ours.

    Also where the parent ignores SIGINT, as a shell does for what it starts in the background.
    """
    cli, path = opened(marginweave, 3.0), people(tmp_path)
    (cli.home / "uvicorn.py").write_text("raise SystemExit(3)")
    process = subprocess.Popen(
        settled.command("run", path, "--run", "r"),
        cwd=cli.home,
        env=settled.variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=partial(  # noqa: PLW1509
            signal.signal, signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL
        ),
    )
    assert process.stdout is not None
    assert any(json.loads(line).get("stage") == "validate" for line in process.stdout)
    os.killpg(process.pid, sent)
    _, told = process.communicate(timeout=120)
    words = f"marginweave: stopped by {sent.name}. Nothing is lost or charged twice: the same command resumes it\n"
    assert (told, process.returncode) == (words, 128 + sent)
    assert cli("run", path, "--run", "r").returncode == 0


def test_a_lost_account_is_written_again(marginweave: CommandLine, tmp_path: Path) -> None:
    """It follows from the rows of the ledger; until then nothing is published, and what to do is said."""
    cli, path = opened(marginweave), people(tmp_path)
    assert cli("run", path, "--run", "r").returncode == 0
    account = cli.home / "runs" / "r" / "release" / "account.json"
    before = account.read_bytes()
    account.unlink()
    refused = cli("publish", "r", "--to", tmp_path / "public", "--even-so")
    assert (refused.returncode, "the same run again writes it" in refused.stderr) == (1, True), (
        refused.stderr
    )
    assert cli("run", path, "--run", "r").returncode == 0
    assert account.read_bytes() == before
    assert cli("publish", "r", "--to", tmp_path / "public", "--even-so").returncode == 0


def test_two_at_once_make_one_release(marginweave: ForkedCommandLine, tmp_path: Path) -> None:
    cli, path = opened(marginweave), people(tmp_path)
    both = [marginweave.begin("run", path) for _ in range(2)]
    ended = [(run.wait(), run.err) for run in both]
    codes = sorted(code for code, _ in ended)
    # 3: one begins after the other has ended, and is a release more, which the account does not admit
    assert codes in ([0, 1], [0, 0], [0, 3]), ended
    if codes == [0, 1]:
        assert any("in progress in another process" in err for _, err in ended)
    assert "1 release(s)" in cli("ledger", "list").stdout


def test_suites_of_expectations_guard_input_and_output(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    cli = opened(marginweave)
    expect = {
        "type": "expect_column_values_to_be_in_set",
        "kwargs": {"column": "sex", "value_set": ["f", "m", ""]},
    }
    suite = {"name": "people", "expectations": [expect]}
    (tmp_path / "in.json").write_text(json.dumps(suite))
    expect["kwargs"]["value_set"] = ["neither"]
    (tmp_path / "out.json").write_text(json.dumps(suite))
    # At 400 rows both values survive the noise; a column without any value would meet every expectation.
    path = people(tmp_path, 400, expectations__input="in.json", expectations__output="out.json")
    failed = cli("run", path)
    assert failed.returncode == 1, failed.stderr
    assert (
        "the synthetic table does not meet the suite of expectations: column 'sex'" in failed.stderr
    )
    expect["kwargs"]["value_set"] = ["f", "m"]
    (tmp_path / "out.json").write_text(json.dumps(suite))
    assert cli("run", path).returncode == 0
    assert "1 release(s)" in cli("ledger", "list").stdout


def test_a_run_whose_parts_do_not_belong_together_goes_nowhere(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """Lost manifest, another release id, lost key, an older copy of the ledger: refused, and nothing is charged again."""
    cli = opened(marginweave, 3)
    expect = {
        "type": "expect_column_values_to_be_in_set",
        "kwargs": {"column": "sex", "value_set": ["neither"]},
    }
    (tmp_path / "out.json").write_text(json.dumps({"name": "people", "expectations": [expect]}))
    path = people(tmp_path, 400, expectations__output="out.json")
    older = contents(cli.home / "ledger")
    # everything is drawn, nothing is published
    assert cli("run", path, "--run", "torn").returncode == 1
    run = cli.home / "runs" / "torn"
    assert "unfinished" in cli("runs").stdout
    manifest, key = (run / "manifest.json").read_bytes(), (run / "private" / "key").read_bytes()
    (run / "manifest.json").unlink()
    lost = cli("resume", "torn")
    assert lost.returncode == 2
    assert f"{run / 'manifest.json'} is not here" in lost.stderr
    changed = json.loads(manifest) | {"release": "11111111-1111-4111-8111-111111111111"}
    (run / "manifest.json").write_text(json.dumps(changed))
    assert cli("resume", "torn").returncode == 3  # a release that the ledger does not know
    (run / "manifest.json").write_text("{")
    assert "damaged" in cli("runs").stdout
    (run / "manifest.json").write_bytes(manifest)
    (run / "private" / "key").unlink()
    assert "has lost private/key" in cli("resume", "torn").stderr
    (run / "private" / "key").write_bytes(key)
    expect["kwargs"]["value_set"] = ["f", "m"]
    (tmp_path / "out.json").write_text(json.dumps({"name": "people", "expectations": [expect]}))
    assert cli("resume", "torn").returncode == 0
    assert "1 release(s)" in cli("ledger", "list").stdout
    for file in (cli.home / "ledger").iterdir():
        file.unlink()
    for name, content in older.items():
        (cli.home / "ledger" / name).write_bytes(content)
        (cli.home / "ledger" / name).chmod(0o600)
    rolled = cli("run", path, "--run", "torn")
    assert rolled.returncode == 3
    assert "old" in rolled.stderr


def test_a_purged_run_never_goes_on(marginweave: CommandLine, tmp_path: Path) -> None:
    cli = opened(marginweave, 3)
    expect = {
        "type": "expect_column_values_to_be_in_set",
        "kwargs": {"column": "sex", "value_set": ["neither"]},
    }
    (tmp_path / "out.json").write_text(json.dumps({"name": "people", "expectations": [expect]}))
    path = people(tmp_path, 400, expectations__output="out.json")
    assert cli("run", path, "--run", "gone").returncode == 1
    assert "is not finished" in cli("purge", "gone").stderr
    assert cli("purge", "gone", "--unfinished").returncode == 0
    assert not (cli.home / "runs" / "gone" / "private").exists()
    assert "purged" in cli("runs").stdout
    again = cli("resume", "gone")
    assert again.returncode == 2
    assert "was purged before it was finished" in again.stderr
