"""Runs around Prefect: what a killed one leaves there, servers that start at once, and what a run that stopped shows."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings
from rich.console import Console

from marginweave.accounting.accounts import AccountTotal, Spent
from marginweave.flows.cli import run as run_command
from marginweave.flows.prefect import records
from marginweave.flows.prefect.records import end_dead_attempts
from marginweave.flows.prefect.servers import SERVER
from marginweave.ledger.boxes import account_sums
from tests.support.command_line import CommandLine
from tests.support.flow_runs import FlowRuns
from tests.support.people_table import people
from tests.support.prefect_api import ask
from tests.support.release_checks import opened
from tests.support.releases import ACCOUNT
from tests.support.samples import every

pytestmark = pytest.mark.system
ALIVE = {"RUNNING", "PENDING"}
START = """
import sys
from pathlib import Path
from marginweave.flows.prefect.environment import prepare_environment
from marginweave.flows.prefect.servers import prefect_server
prepare_environment(Path(sys.argv[1]))
with prefect_server(Path(sys.argv[1]) / f"{sys.argv[2]}.log"):
    pass
"""


def runs_of(server: str, name: str) -> dict[str, dict[str, Any]]:
    """Flow runs called `name`, by id."""
    found = ask(server, "/flow_runs/filter", {"flow_runs": {"name": {"any_": [name]}}})
    return {run["id"]: run for run in found}


def tasks_of(server: str, flow_run: str) -> list[str]:
    """States of the task runs of a flow run. None has a tag: for each one Prefect waits for a slot that its server grants."""
    found = ask(server, "/task_runs/filter", {"flow_runs": {"id": {"any_": [flow_run]}}})
    assert not [tag for task in found for tag in task["tags"]]
    return [task["state_type"] for task in found]


def release_of(cli: CommandLine, run: str) -> str:
    """The id of a run's release, which no other home has."""
    release: str = json.loads((cli.home / "runs" / run / "manifest.json").read_text())["release"]
    return release


def attempts_at(server: str, cli: CommandLine, run: str) -> dict[str, dict[str, Any]]:
    """Flow runs of a run of this home, by id."""
    release = release_of(cli, run)
    return {
        id_: attempt
        for id_, attempt in runs_of(server, run).items()
        if attempt["labels"].get("marginweave.release") == release
    }


def artifacts(server: str, cli: CommandLine, run: str, kind: str) -> list[Any]:
    """What the artifacts of one kind of a run of people hold, oldest first."""
    of_run = {"id": {"any_": list(attempts_at(server, cli, run))}}
    body = {
        "artifacts": {"key": {"any_": [f"people-{kind}"]}},
        "flow_runs": of_run,
        "sort": "UPDATED_DESC",
    }
    return [artifact["data"] for artifact in reversed(ask(server, "/artifacts/filter", body))]


def budget_tables(server: str, cli: CommandLine, run: str) -> list[list[dict[str, Any]]]:
    """The tables of a run's budget, oldest first."""
    return [json.loads(table) for table in artifacts(server, cli, run, "budget")]


def test_what_a_killed_run_left_in_prefect_is_ended_by_the_next_start(
    served: CommandLine, server: str, tmp_path: Path
) -> None:
    """Its flow run and task runs end as Crashed; those of strangers, of the same name too, and scheduled ones stay."""
    cli, path = opened(served), people(tmp_path)
    cli.kill_after(path, "left", "encode")
    (dead,) = runs_of(server, "left").values()
    assert dead["state_type"] == "RUNNING"
    ours = {"tags": dead["tags"], "labels": {"marginweave.release": release_of(cli, "left")}}
    assert dead["labels"].items() >= ours["labels"].items()
    # the same run on other machines, one of ours that waits for its time, and one of a deployment
    stranger = {"flow_id": dead["flow_id"], "name": "left", "parameters": dead["parameters"]}
    elsewhere = {"tags": dead["tags"], "labels": {"marginweave.release": "another"}}
    running, scheduled = {"type": "RUNNING"}, {"type": "SCHEDULED"}
    deployment = ask(server, "/deployments/", {"name": "nightly", "flow_id": dead["flow_id"]})["id"]
    left_alone = [
        ask(server, "/flow_runs/", {**stranger, **elsewhere, "state": running})["id"],
        ask(server, "/flow_runs/", {**stranger, **ours, "state": scheduled})["id"],
        ask(
            server,
            "/flow_runs/",
            {**stranger, **ours, "state": running, "deployment_id": deployment},
        )["id"],
    ]
    stopping = ask(server, "/flow_runs/", {**stranger, **ours, "state": {"type": "CANCELLING"}})[
        "id"
    ]
    unmarked = ask(server, "/flow_runs/", {**stranger, "tags": dead["tags"], "state": running})[
        "id"
    ]
    waiting = {"flow_run_id": dead["id"], "task_key": "wait", "dynamic_key": "0", "name": "wait"}
    ask(server, "/task_runs/", {**waiting, "state": {"type": "SCHEDULED", "name": "AwaitingRetry"}})

    result = cli("resume", "left")
    assert result.returncode == 0, result.stderr
    after = runs_of(server, "left")
    assert after[dead["id"]]["state_type"] == "CRASHED"
    assert after[stopping]["state_type"] == "CANCELLED"
    assert after[unmarked]["state_type"] == "CRASHED"  # killed before it had its label
    *of_people, deployed = [after[id_]["state_type"] for id_ in left_alone]
    assert of_people == ["RUNNING", "SCHEDULED"]
    # a supervisor of other tests may have found it by then
    assert deployed in {"RUNNING", "SCHEDULED"}
    tasks = tasks_of(server, dead["id"])
    assert "CRASHED" in tasks
    assert not ALIVE & set(tasks)
    assert "SCHEDULED" not in tasks
    (own,) = set(after) - {dead["id"], stopping, unmarked, *left_alone}
    assert after[own]["state_type"] == "COMPLETED"


def test_tasks_of_a_killed_attempt_end_with_the_next_one(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a deployed flow run, which stays the same one: what it left as running would be so for ever in a finished run."""
    flows = FlowRuns(server)
    attempt = flows.run("RUNNING")
    for number, state in enumerate(("RUNNING", "PENDING", "COMPLETED")):
        task = {
            "flow_run_id": attempt,
            "task_key": "encode",
            "dynamic_key": str(number),
            "state": {"type": state},
        }
        ask(server, "/task_runs/", task)
    monkeypatch.setattr(
        records, "flow_run", SimpleNamespace(id=attempt, tags=["nightly"], parameters={})
    )
    manifest: Any = SimpleNamespace(release="one", dataset="people")
    with temporary_settings({PREFECT_API_URL: server}):
        end_dead_attempts(manifest)
    assert sorted(tasks_of(server, attempt)) == ["COMPLETED", "CRASHED", "CRASHED"]
    # a supervisor of other tests may have found it by then
    assert flows.state(attempt)[0] in {"RUNNING", "SCHEDULED"}


def test_runs_of_a_dataset_share_tags_and_artifacts(
    served: CommandLine, server: str, tmp_path: Path
) -> None:
    """Two tags, and pages of which Prefect shows the history: a night adds neither a tag nor a key."""
    cli, path, keys = opened(served, 3.0), people(tmp_path), list[set[str]]()
    for run in ("first-night", "second-night"):
        result = cli("run", path, "--run", run)
        assert result.returncode == 0, result.stderr
        ((id_, attempt),) = attempts_at(server, cli, run).items()
        assert sorted(attempt["tags"]) == ["marginweave", "people"]
        shown = ask(server, "/artifacts/filter", {"flow_runs": {"id": {"any_": [id_]}}})
        keys.append({artifact["key"] for artifact in shown if artifact["key"]})
    assert keys == [{"people-budget", "people-evaluation", "people-release"}] * 2
    summaries = [artifacts(server, cli, run, "release") for run in ("first-night", "second-night")]
    assert [text.splitlines()[0] for (text,) in summaries] == ["# first-night", "# second-night"]


@pytest.mark.parametrize("servers", every(2, [2, 4]))
@pytest.mark.long  # of real servers
def test_servers_that_start_at_once_in_a_new_home_all_start(tmp_path: Path, servers: int) -> None:
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "MARGINWEAVE_"))
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-c", START, str(tmp_path), str(number)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(servers)
    ]
    ended = [(process.communicate(timeout=240)[1], process.returncode) for process in started]
    assert [code for _, code in ended] == [0] * servers, ended


@pytest.mark.long  # of real servers
def test_two_of_one_name_with_servers_of_their_own_are_one_run(
    settled: CommandLine, tmp_path: Path
) -> None:
    """The other says that the run is in progress, or finds it finished and charges nothing."""
    cli, path = opened(settled), people(tmp_path)
    both = []
    for _ in range(2):
        both.append(
            subprocess.Popen(
                cli.command("run", path),
                cwd=cli.home,
                env=cli.variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        time.sleep(1.0)
    ended = [(process.communicate(timeout=240), process.returncode) for process in both]
    for (_, err), code in ended:
        assert code == 0 or "in progress in another process" in err, ended
    charged = [
        json.loads(out.splitlines()[-1])["charged_now"] for (out, _), code in ended if code == 0
    ]
    assert sum(charged) == 1


def test_a_run_that_stopped_shows_what_it_spent_and_the_next_says_that_it_charged_nothing(
    served: CommandLine, server: str, tmp_path: Path
) -> None:
    cli = opened(served)
    expect = {
        "type": "expect_column_values_to_be_in_set",
        "kwargs": {"column": "sex", "value_set": ["neither"]},
    }
    suite = tmp_path / "out.json"
    suite.write_text(json.dumps({"name": "people", "expectations": [expect]}))
    path = people(tmp_path, 400, expectations__output="out.json")
    stopped = cli("run", path, "--run", "stops")
    assert stopped.returncode == 1, stopped.stderr
    (table,) = budget_tables(server, cli, "stops")
    assert {row["draw"] for row in table} >= {"count", "level-1"}
    assert {row["state"] for row in table} <= {"COMMITTED", "RETURNED"}

    refused = cli("run", path, "--run", "refused")
    assert refused.returncode == 3, refused.stderr
    assert not (cli.home / "runs" / "refused").exists()  # it was refused before it left a trace
    assert artifacts(server, cli, "stops", "evaluation") == []  # nothing is published yet

    expect["kwargs"]["value_set"] = ["f", "m"]
    suite.write_text(json.dumps({"name": "people", "expectations": [expect]}))
    finished = cli("run", path, "--run", "stops")
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout.splitlines()[-1])["charged_now"] is False
    assert budget_tables(server, cli, "stops")[-1]
    release = cli.home / "runs" / "stops" / "release"
    (table,) = artifacts(server, cli, "stops", "evaluation")
    published = json.loads((release / "evaluation.json").read_text())["lengths"]
    for shown, row in zip(json.loads(table), published, strict=True):
        kept = {key for key in row if not key.startswith("sds_") and not key.endswith("_missing")}
        assert shown == {
            key: row[key] if row[key] is None else pytest.approx(row[key], abs=1e-4) for key in kept
        }
    (summary,) = artifacts(server, cli, "stops", "release")
    assert "epsilon 1, delta 1e-06, for one row" in summary
    assert str(release) in summary
    charged, _, worst = (
        part.split("\n| --- ")[1].count("\n| ") for part in summary.split("\n## ")[1:]
    )
    assert charged == len(
        [row for row in budget_tables(server, cli, "stops")[-1] if row["state"] == "COMMITTED"]
    )
    assert worst == len(json.loads((release / "evaluation.json").read_text())["marginals"])
    finished_line = json.loads(finished.stdout.splitlines()[-1])
    assert finished_line["accuracy"]["mean_tvd"] == {
        str(row["length"]): round(row["tvd"], 4) for row in published
    }


@pytest.mark.parametrize(
    ("fresh", "charged", "said"),
    [
        (True, True, "Released: "),
        (True, False, "Released, nothing charged: "),
        (False, False, "Already released, nothing charged: "),
    ],
)
def test_a_terminal_is_told_whether_this_command_charged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fresh: bool, charged: bool, said: str
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(
        run_command,
        "out",
        Console(file=shown, force_terminal=True, color_system=None, markup=False),
    )
    privacy = SimpleNamespace(epsilon=1.0, delta=1e-6)
    configuration = SimpleNamespace(privacy=privacy, unit_words="row", counted_tables=())
    request: Any = SimpleNamespace(
        configuration=configuration, folder=SimpleNamespace(run="spring")
    )
    place = tmp_path / "release"
    spent = Spent(releases=2, ever_reserved=2)
    account = account_sums(
        AccountTotal(account=ACCOUNT, epsilon=1.5, composition="gdp", spent=spent)
    )
    run_command._summarize(
        request, account, place, is_waiting=False, was_unfinished=fresh, charged_now=charged
    )
    assert "no bound under adaptively chosen budgets; the cap is" in shown.getvalue()
    (line,) = [line for line in shown.getvalue().splitlines() if "eleased" in line]
    assert line.startswith(said)


@pytest.mark.long  # two servers, killed
@pytest.mark.parametrize(("deaths", "code"), every(2, [(1, 0), (2, 1)]))
def test_a_server_that_ends_is_started_once_more(
    settled: CommandLine, served: CommandLine, tmp_path: Path, deaths: int, code: int
) -> None:
    """The same process resumes its run with a new server; a second one that ends, ends the command, which can be resumed."""
    cli, path = opened(served, 3.0), people(tmp_path)
    command = settled.command("run", path, "--run", "r")
    process = subprocess.Popen(
        command,
        cwd=cli.home,
        env=settled.variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if deaths and json.loads(line).get("stage") == "validate":
            (server,) = (
                child
                for child in psutil.Process(process.pid).children()
                if SERVER in child.cmdline()
            )
            server.kill()
            deaths -= 1
    _, told = process.communicate(timeout=180)
    assert process.returncode == code, told
    assert ("ended twice" in told) == (code == 1)
    assert "Traceback" not in told
    assert cli("run", path, "--run", "r").returncode == 0
    assert "1 release(s)" in cli("ledger", "list").stdout


def test_a_decision_is_seen_where_the_proposal_is(
    served: CommandLine, server: str, tmp_path: Path
) -> None:
    """The state says that a release awaits approval, and then how it was decided: as the artifact does, without a name."""
    cli = opened(served, 3.0)
    path = people(tmp_path, 40, aggregate__reporting_length=1, publish__approval="required")

    def shown(run: str) -> tuple[str, str]:
        (attempt,) = attempts_at(server, cli, run).values()
        pages = ask(
            server,
            "/artifacts/filter",
            {"artifacts": {"key": {"any_": ["people-release"]}}, "sort": "UPDATED_DESC"},
        )
        about = [page["description"] for page in pages if run in page["description"]]
        return attempt["state"]["name"], about[0]

    for command, decided in (("approve", "Approved"), ("reject", "Rejected")):
        run = f"{command}-{tmp_path.name}"
        made = cli("run", path, "--run", run)
        assert made.returncode == 0, made.stderr
        assert shown(run) == ("AwaitingApproval", f"Run {run} awaits approval")
        done = cli(command, run, "--by", "A. Meier", "--reason", "checked")
        assert "Prefect's pages show the decision" in done.stdout, done.stderr
        state, page = shown(run)
        assert state == decided
        assert "awaits" not in page
        assert "A. Meier" not in json.dumps([attempts_at(server, cli, run), page])
