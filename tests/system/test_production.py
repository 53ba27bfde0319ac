"""A site in production: real Prefect server and workers, PostgreSQL for both databases, and everything that can go wrong."""

from __future__ import annotations

import datetime
import json
import os
import signal
import time
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml

from marginweave.accounting.accounts import Account
from marginweave.accounting.records import ReleaseRecord, State
from marginweave.ledger import Ledger, ledger_location
from tests.support.people_table import people
from tests.support.places import REPOSITORY
from tests.support.postgres import installed_postgres
from tests.support.production import Site, documented, site, until
from tests.support.release_checks import RELEASED, contents

pytestmark = pytest.mark.system
DEPLOY = "prefect --no-prompt deploy"
SHIPPED = REPOSITORY / "deployments" / "prefect.yaml"
ZONE = "Pacific/Kiritimati"  # UTC+14: the date there is not that of UTC for most of the day


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with (
        installed_postgres() as databases,
        site(tmp_path_factory.mktemp("site"), databases) as made,
    ):
        yield made


def deploy(
    place: Site, file: str, datasets: dict[str, Path], zone: str = ZONE, pool: str = "marginweave"
) -> None:
    """Deploy the shipped nightly release for each dataset, its schedule in `zone`, for the workers of `pool`."""
    shipped = yaml.safe_load(SHIPPED.read_text())
    nightly = shipped["deployments"][0]
    deployments = []
    for dataset, configuration in datasets.items():
        parameters = {
            **nightly["parameters"],
            "configuration": str(configuration.relative_to(place.home)),
        }
        parameters["source"] = str(configuration.with_suffix(".csv").relative_to(place.home))
        schedule = {**nightly["schedules"][0], "timezone": zone}
        changes = {
            "name": dataset,
            "tags": ["marginweave", dataset],
            "parameters": parameters,
            "schedules": [schedule],
        }
        deployments.append(
            {**nightly, **changes, "work_pool": {**nightly["work_pool"], "name": pool}}
        )
    (place.home / file).write_text(yaml.safe_dump({**shipped, "deployments": deployments}))
    place.run(
        *[file if word == "deployments/prefect.yaml" else word for word in documented(DEPLOY)]
    )


def due_soon(place: Site, datasets: Iterable[str], zone: str = ZONE) -> datetime.datetime:
    """Change the schedules of the deployments to a day's interval from some seconds on; when that is.

    A server that is so busy that it plans no run before it is due would plan the next day's: it is given more time.
    """
    named = {"deployments": {"name": {"any_": list(datasets)}}}
    deployments = place.ask("/deployments/filter", named)
    for seconds in (20, 60, 180):
        due = soon(seconds)
        for deployment in deployments:
            (schedule,) = deployment["schedules"]
            interval = {"interval": 86400, "anchor_date": due.isoformat(), "timezone": zone}
            path = f"/deployments/{deployment['id']}/schedules/{schedule['id']}"
            place.ask(path, {"schedule": interval}, method="PATCH")
        at = {"after_": due.isoformat(), "before_": due.isoformat()}
        planned = {**named, "flow_runs": {"expected_start_time": at}}
        while datetime.datetime.now(datetime.UTC) < due + datetime.timedelta(seconds=2):
            if len(place.ask("/flow_runs/filter", planned)) == len(deployments):
                return due
            time.sleep(0.5)
    raise AssertionError("no run was planned in time")


def dataset(place: Site, name: str, rows: int = 400, epsilon: float = 1.0) -> Path:
    """A configuration, its table and an account."""
    folder = place.home / "tables" / name
    folder.mkdir(parents=True)
    path = people(folder, rows, dataset=name)
    Ledger.create(ledger_location(place.environment), environment=place.environment).accounts.open(
        Account(
            dataset=name,
            epsilon=Decimal(str(epsilon)),
            delta=Decimal("1e-6"),
            unit="row",
            neighbors="add-remove",
        ),
        actor="test",
    )
    return path


def soon(seconds: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0) + datetime.timedelta(
        seconds=seconds
    )


def dated(name: str, due: datetime.datetime, zone: str = ZONE) -> str:
    return f"{name}-{due.astimezone(ZoneInfo(zone)).date()}"


def ledger_of(place: Site) -> Ledger:
    return Ledger.open(ledger_location(place.environment), environment=place.environment)


def releases(place: Site, name: str) -> list[ReleaseRecord]:
    return list(ledger_of(place).releases.of(name))


def kill_in_the_middle(place: Site, name: str, run: str, *others: int) -> None:
    """Send SIGKILL to the flow of `name` and others when something is charged, and nothing is between charge and commit."""
    manifest = place.home / "runs" / run / "manifest.json"
    until(lambda: place.flow_runs(name), pause=0.1)
    flow_run = place.flow_runs(name)[0]["id"]
    until(lambda: place.flow_processes(flow_run), pause=0.1)
    until(
        lambda: (
            manifest.exists() and "aggregate count" in json.loads(manifest.read_text())["stages"]
        ),
        pause=0.002,
    )
    while True:
        stopped = place.flow_processes(flow_run)
        for process in stopped:
            os.kill(process, signal.SIGSTOP)
        (record,) = releases(place, name)
        if all(draw.state != State.DRAWN for draw in record.draws):
            break
        for process in stopped:
            os.kill(process, signal.SIGCONT)
        time.sleep(0.02)
    states = {draw.state for draw in record.draws}
    assert states == {State.COMMITTED, State.RESERVED}, states  # in the middle
    assert stopped
    for process in (*others, *stopped):
        os.kill(process, signal.SIGKILL)


def start(place: Site, name: str) -> None:
    """Start a flow run of the deployment `name` by hand."""
    (deployment,) = place.ask("/deployments/filter", {"deployments": {"name": {"any_": [name]}}})
    place.ask(f"/deployments/{deployment['id']}/create_flow_run", {"state": {"type": "SCHEDULED"}})


@pytest.fixture(scope="module")
def orphan(place: Site) -> dict[str, Any]:
    """A flow run that was started by hand, and whose worker was killed when the run had begun."""
    deploy(place, "orphan.yaml", {"orphan": dataset(place, "orphan", 450)})
    with place.process("prefect worker start") as worker:
        start(place, "orphan")
        until(lambda: list((place.home / "runs").glob("orphan-*/manifest.json")), pause=0.1)
        worker.kill()
        worker.wait()
        flow_run: dict[str, Any] = until(lambda: place.ended("orphan"))
    until(lambda: not place.flow_processes(), pause=0.1)
    return flow_run


def test_a_worker_killed_alone_takes_no_release_with_it(
    place: Site, orphan: dict[str, Any]
) -> None:
    """Its flow process, which has lost the reader of its output alone, ends the release in one attempt and without a worker."""
    assert (orphan["state_type"], orphan["run_count"]) == ("COMPLETED", 1), orphan["state"]
    assert orphan["name"].startswith("orphan-")  # started by hand: the configuration's own run
    made = place.ask("/artifacts/filter", {"flow_runs": {"id": {"any_": [orphan["id"]]}}})
    keys = {artifact["key"] for artifact in made if artifact["key"]}
    assert keys == {"orphan-budget", "orphan-evaluation", "orphan-release"}
    assert sorted(orphan["tags"]) == ["marginweave", "orphan"]
    (record,) = releases(place, "orphan")
    assert {draw.state for draw in record.draws} == {State.COMMITTED}


def test_the_shipped_deployments(place: Site) -> None:
    """Deployed from the root of the repository, as they are: schedules in their zones, one at a time, a described form."""
    place.run(*documented(DEPLOY), folder=REPOSITORY)
    found = place.ask(
        "/deployments/filter",
        {"deployments": {"name": {"any_": ["affairs-nightly", "ma2019-quarterly"]}}},
    )
    nightly, quarterly = sorted(found, key=lambda one: str(one["name"]))
    for one, zone in ((nightly, "Europe/Oslo"), (quarterly, "America/New_York")):
        (schedule,) = one["schedules"]
        assert schedule["schedule"]["timezone"] == zone
        assert one["global_concurrency_limit"]["limit"] == 1
        assert one["pull_steps"] == []
        assert one["entrypoint"] == "marginweave.flows.release.release"
        form = one["parameter_openapi_schema"]["properties"]
        assert all(field["description"] and field["examples"] for field in form.values())


@pytest.mark.long  # another release; the one above differs in dataset and ledger only
def test_a_shipped_deployment_releases(place: Site) -> None:
    """The example survey, from the root of the repository, through a worker."""
    place.run(*documented(DEPLOY), folder=REPOSITORY)
    with place.worker():
        start(place, "affairs-nightly")
        flow_run = until(lambda: place.ended("affairs-nightly"))
    assert flow_run["state_type"] == "COMPLETED", flow_run["state"]
    assert flow_run["name"].startswith("affairs-")


@pytest.fixture(scope="module")
def killed(place: Site) -> Iterator[str]:
    """A run begun by its schedule and killed with its worker; the worker that resumes it is there until the end.

    It does so after more than a minute of silence, and the tests that need nothing of it come first.
    """
    deploy(place, "people.yaml", {"people": dataset(place, "people")})
    with place.process("prefect worker start") as first:
        run = dated("people", due_soon(place, ["people"]))
        kill_in_the_middle(place, "people", run, first.pid)
        first.wait()
        until(lambda: not place.flow_processes(), pause=0.1)
    with place.worker():
        yield run


@pytest.fixture(scope="module")
def resumed(place: Site, killed: str) -> tuple[str, dict[str, Any]]:
    """The same run when another worker has ended it: run and flow run."""
    return killed, until(lambda: place.ended("people"))


@pytest.mark.long  # waits a minute and a half for the server to call it late
def test_a_late_release_is_told(place: Site, killed: str) -> None:
    """Nobody is there to run it when its time comes; and that somebody has cancelled it is another event."""
    create = [
        "nobody" if word == "marginweave" else word
        for word in documented("prefect work-pool create")
    ]
    place.run(*create)
    deploy(place, "waiting.yaml", {"waiting": dataset(place, "waiting")}, pool="nobody")
    (deployment,) = place.ask(
        "/deployments/filter", {"deployments": {"name": {"any_": ["waiting"]}}}
    )
    # Made through the API: of the first state of a run that a schedule makes, Prefect tells nothing, and its triggers wait for
    # that for a quarter of an hour where the run was made less than five minutes before its time.
    state = {"type": "SCHEDULED", "state_details": {"scheduled_time": soon(0).isoformat()}}
    made = place.ask(f"/deployments/{deployment['id']}/create_flow_run", {"state": state})
    (late,) = until(
        lambda: [body for body in place.heard if body["event"] == "prefect.flow-run.Late"]
    )
    assert late["deployment"] == "waiting"
    place.ask(
        f"/flow_runs/{made['id']}/set_state",
        {"state": {"type": "CANCELLED", "name": "Cancelled"}, "force": True},
    )
    until(lambda: place.told("prefect.flow-run.Cancelled", late["run"]))


@pytest.fixture(scope="module")
def crashed(place: Site, killed: str) -> dict[str, Any]:
    """A flow run whose process was killed under a worker that lives, when its second attempt has ended."""
    deploy(place, "alone.yaml", {"alone": dataset(place, "alone", 500)})
    (deployment,) = place.ask("/deployments/filter", {"deployments": {"name": {"any_": ["alone"]}}})
    # Not by the schedule: of the first state of such a run Prefect tells nothing, and its triggers wait for that.
    started = {
        "parameters": {**deployment["parameters"], "run": "alone"},
        "state": {"type": "SCHEDULED"},
    }
    place.ask(f"/deployments/{deployment['id']}/create_flow_run", started)
    kill_in_the_middle(place, "alone", "alone")
    flow_run: dict[str, Any] = until(lambda: place.ended("alone"))
    assert (flow_run["state_type"], flow_run["run_count"]) == ("COMPLETED", 2), flow_run["state"]
    return flow_run


@pytest.mark.long  # waits for the second attempt
def test_one_kill_is_one_alert(place: Site, crashed: dict[str, Any]) -> None:
    """The worker tells Prefect twice that the process has crashed; the second time is no other crash of the flow run."""
    until(lambda: place.told("marginweave.release.finished", "alone"))
    until(lambda: place.told("prefect.flow-run.Crashed", crashed["name"]))
    until(lambda: [mail for mail in place.mails if "prefect.flow-run.Crashed" in mail])
    states = place.ask(f"/flow_run_states/?flow_run_id={crashed['id']}", {}, method="GET")
    assert [state["type"] for state in states].count("CRASHED") == 1
    assert len(place.told("prefect.flow-run.Crashed", crashed["name"])) == 1
    assert not place.told("marginweave.release.failed", "alone")


@pytest.mark.long  # waits for the second attempt
def test_no_task_of_a_killed_attempt_stays_running(place: Site, crashed: dict[str, Any]) -> None:
    """Where the kill met one, which Prefect may not know: `test_sessions.py` has the law."""
    tasks = place.ask("/task_runs/filter", {"flow_runs": {"id": {"any_": [crashed["id"]]}}})
    assert {task["state_type"] for task in tasks} <= {"COMPLETED", "CRASHED"}


@pytest.mark.long  # waits for another worker
def test_a_killed_worker_costs_nothing(place: Site, resumed: tuple[str, dict[str, Any]]) -> None:
    """One complete release with one charge, by the same flow run in its second attempt, named by the schedule's own date."""
    run, flow_run = resumed
    assert flow_run["state_type"] == "COMPLETED", flow_run["state"]
    assert (flow_run["name"], flow_run["run_count"]) == (run, 2)
    assert [folder.name for folder in (place.home / "runs").glob("people-*")] == [run]
    assert {file.name for file in (place.home / "runs" / run / "release").iterdir()} == RELEASED
    assert not (place.home / "runs" / run / "private").exists()
    (record,) = releases(place, "people")
    assert record.run == run
    assert {draw.state for draw in record.draws} == {State.COMMITTED}
    assert len({draw.name for draw in record.draws}) == len(record.draws)
    assert "people" in place.run("marginweave", "ledger", "show", "people")
    place.run("marginweave", "ledger", "verify")


@pytest.mark.long  # waits for another worker
def test_what_happened_was_told_to_the_listener(
    place: Site, resumed: tuple[str, dict[str, Any]]
) -> None:
    """Finished and nearly exhausted, each by an event of its own, with dataset, run and public totals."""
    run, _ = resumed
    (finished,) = until(lambda: place.told("marginweave.release.finished", run))
    assert finished["details"] == {"run": run}
    (nearly,) = until(lambda: place.told("marginweave.budget.nearly-exhausted", run))
    assert nearly["details"]["cap_epsilon"] == 1.0
    assert set(nearly["details"]) == {
        "run",
        "dataset",
        "share",
        "threshold",
        "epsilon",
        "cap_epsilon",
    }


@pytest.mark.long  # half a minute of a real worker
def test_retry_of_a_finished_release_is_free(
    place: Site, resumed: tuple[str, dict[str, Any]]
) -> None:
    """What the button of Prefect's pages does: the same flow run again, the same release, no event in the ledger."""
    run, flow_run = resumed
    before = contents(place.home / "runs" / run / "release"), releases(place, "people")
    state = {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "Retry from the UI"}
    place.ask(f"/flow_runs/{flow_run['id']}/set_state", {"state": state, "force": True})
    until(lambda: (again := place.ended("people")) and again["run_count"] == 3)
    again = place.ended("people")
    assert again is not None
    assert (again["state_type"], again["name"]) == ("COMPLETED", run)
    assert (contents(place.home / "runs" / run / "release"), releases(place, "people")) == before


@pytest.mark.long  # a site with its server
def test_a_test_alert_takes_the_way_of_real_ones(place: Site) -> None:
    said = place.run(*documented("marginweave alert"))
    assert sorted(said.splitlines()) == [
        "marginweave: mail, releases: delivered",
        "marginweave: webhook, releases: delivered",
    ]
    until(lambda: place.told("marginweave.alert.test", "test"))
    until(lambda: [mail for mail in place.mails if "marginweave.alert.test: test" in mail])


@pytest.mark.long  # two minutes of retries
def test_refusals_and_failures_are_told_apart(
    place: Site, resumed: tuple[str, dict[str, Any]]
) -> None:
    """Started by hand under a name of its own: a second release exceeds the cap; a configuration that is not there fails."""
    (deployment,) = place.ask(
        "/deployments/filter", {"deployments": {"name": {"any_": ["people"]}}}
    )
    started = {
        "second": {"run": "second"},
        "broken": {"run": "broken", "configuration": "absent.yaml", "source": None},
    }
    for changes in started.values():
        place.ask(
            f"/deployments/{deployment['id']}/create_flow_run",
            {"parameters": {**deployment["parameters"], **changes}, "state": {"type": "SCHEDULED"}},
        )
    (refused,) = until(lambda: place.told("marginweave.release.refused", "second"))
    (failed,) = until(lambda: place.told("marginweave.release.failed", "broken"))
    assert refused["details"] == {"run": "second", "error": "BudgetError"}
    assert failed["details"] == {"run": "broken", "error": "InputError"}
    for subject in ("marginweave.release.refused: second", "marginweave.release.failed: broken"):
        until(lambda subject=subject: [mail for mail in place.mails if subject in mail])
    place.run("marginweave", "ledger", "verify")


@pytest.mark.long  # more than a minute of both cores: ten processes of everything at once
def test_ten_at_once(place: Site, resumed: tuple[str, dict[str, Any]]) -> None:
    """Ten datasets due in the same second, one worker: all complete, and the ledger is exact."""
    names = [f"d{number}" for number in range(10)]
    datasets = {
        name: dataset(place, name, 210 + 40 * number, 2.0) for number, name in enumerate(names)
    }
    deploy(place, "ten.yaml", datasets, "UTC")
    due = due_soon(place, names, "UTC")
    for name in names:
        flow_run = until(lambda name=name: place.ended(name))
        assert (flow_run["state_type"], flow_run["name"]) == (
            "COMPLETED",
            dated(name, due, "UTC"),
        ), flow_run["state"]
    ledger = ledger_of(place)
    for name in names:
        (record,) = ledger.releases.of(name)
        assert {draw.state for draw in record.draws} == {State.COMMITTED}
        assert ledger.accounts.total(name).epsilon == pytest.approx(1.0, abs=1e-3)
        assert {
            file.name for file in (place.home / "runs" / record.run / "release").iterdir()
        } == RELEASED
    place.run("marginweave", "ledger", "verify")
