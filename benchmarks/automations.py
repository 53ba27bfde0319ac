"""Measure what automations do with flow runs whose process has vanished: python -m benchmarks.automations [--supervisor].

Prefect's automations do what its documentation proposes: a flow run without a heartbeat becomes Crashed, and one that is
Crashed is scheduled again. With `--supervisor`, `marginweave supervise` looks after the same flow runs instead. Printed are the
states of the flow run of each case, with seconds. Ten minutes; docs/decisions/0015-prefect-as-it-ships.md has a result.
"""

from __future__ import annotations

import argparse
import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from prefect.automations import Automation, EventTrigger, Posture
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings
from sqlalchemy import make_url

from marginweave.flows.prefect.run_names import FLOW
from marginweave.flows.prefect.supervisor import SILENCE, supervise
from tests.support.flow_runs import FlowRuns
from tests.support.postgres import installed_postgres
from tests.support.production import documented_server, free_port

LASTS = 300.0  # seconds of each case
BEAT = 30.0
OUTAGE = 120.0
SHOWN = 12  # states of a case
_ENDS = ("Completed", "Failed", "Cancelled", "Crashed")
_ALIVE = ("Pending", "Running", "heartbeat")


def flow_run_events(*names: str) -> set[str]:
    """Prefect's names of events about a flow run."""
    return {f"prefect.flow-run.{name}" for name in names}


def automations() -> Iterator[Automation]:
    """Set what gives no sign of life to Crashed, and schedule what has crashed."""
    of_releases: dict[str, str | list[str]] = {
        "prefect.resource.role": "flow",
        "prefect.resource.name": FLOW,
    }
    yield Automation(
        name="vanished",
        trigger=EventTrigger(
            after=flow_run_events(*_ALIVE),
            expect=flow_run_events("heartbeat", *_ENDS),
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related=of_releases,
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=SILENCE,
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED, name="Crashed", message="no heartbeat", force=False
            )
        ],
    )
    yield Automation(
        name="crashed",
        trigger=EventTrigger(
            expect=flow_run_events("Crashed"),
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related=of_releases,
            posture=Posture.Reactive,
            threshold=1,
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.SCHEDULED, name="AwaitingRetry", message="again", force=False
            )
        ],
    )


def silent(flows: FlowRuns) -> str:
    """It gives one sign of life, and no other."""
    run = flows.run("RUNNING")
    flows.heartbeat(run)
    return run


def never_heard(flows: FlowRuns) -> str:
    """It vanishes before its first sign of life."""
    return flows.run("RUNNING")


def never_started(flows: FlowRuns) -> str:
    """A worker takes it, and vanishes."""
    return flows.run()


def finished(flows: FlowRuns) -> str:
    """Its last sign of life arrives after its end."""
    run = flows.run("RUNNING")
    flows.heartbeat(run)
    flows.set(run, "COMPLETED")
    time.sleep(1)
    flows.heartbeat(run)
    return run


def cancelled(flows: FlowRuns) -> str:
    """It was to be cancelled when its process vanished."""
    run = silent(flows)
    flows.set(run, "CANCELLING")
    return run


def killed_each_time(flows: FlowRuns) -> str:
    """Something ends each of its attempts, such as want of memory; begins whenever it is due."""
    run = flows.run("RUNNING", "CRASHED")
    end = time.monotonic() + LASTS
    while time.monotonic() < end:
        state = flows.ask(f"/flow_runs/{run}", method="GET")["state"]
        due = state["state_details"]["scheduled_time"]
        if due is not None and datetime.fromisoformat(due) <= datetime.now(UTC):
            flows.set(run, "RUNNING")
            flows.set(run, "CRASHED")
        time.sleep(1)
    return run


CASES: tuple[Callable[[FlowRuns], str], ...] = (
    silent,
    never_heard,
    never_started,
    finished,
    cancelled,
    killed_each_time,
)


def show(flows: FlowRuns, name: str, run: str) -> None:
    """Print the states of a flow run, each with the seconds after the first."""
    states = flows.ask(f"/flow_run_states/?flow_run_id={run}", method="GET")
    times = [datetime.fromisoformat(state["timestamp"]) for state in states]
    course = [
        f"{state['name']} {(moment - times[0]).total_seconds():.0f}"
        for state, moment in sorted(zip(states, times, strict=True), key=lambda pair: pair[1])
    ]
    attempts = flows.ask(f"/flow_runs/{run}", method="GET")["run_count"]
    print(f"{name} ({attempts} attempts): {', '.join(course[:SHOWN])}", flush=True)  # noqa: T201 - a benchmark prints


@dataclass(frozen=True)
class Server:
    """A place for Prefect's own server, with a database in PostgreSQL."""

    folder: Path
    port: int
    database: str

    def started(self) -> AbstractContextManager[str]:
        """Run it inside, and kill it at the end; the URL of its API."""
        settings = {"PREFECT_SERVER_DATABASE_CONNECTION_URL": self.database}
        return documented_server(self.folder, self.port, **settings)


def watch_all(url: str) -> None:
    """Go through all cases at once, and print what came of them."""
    flows = FlowRuns(url)
    with ThreadPoolExecutor(len(CASES)) as pool:
        runs = list(pool.map(lambda case: case(flows), CASES))
    for case, run in zip(CASES, runs, strict=True):
        show(flows, case.__name__, run)


def beat_through_an_outage(server: Server) -> None:
    """Show a flow run that lives while its server is away."""
    with server.started() as url:
        flows = FlowRuns(url)
        run = silent(flows)
        time.sleep(BEAT)
        flows.heartbeat(run)
        time.sleep(BEAT / 2)
    time.sleep(OUTAGE)
    with server.started():
        for _ in range(5):
            flows.heartbeat(run)
            time.sleep(BEAT)
        show(flows, "alive through an outage", run)


def look_after(supervised: bool) -> None:
    """Let the supervisor look after the flow runs from now on, or automations."""
    if supervised:
        # with the address of the server, which belongs to a context
        watching = contextvars.copy_context().run
        threading.Thread(
            target=watching, args=(supervise, threading.Event(), print), daemon=True
        ).start()
    else:
        for automation in automations():
            automation.create()


def main() -> None:
    """Go through all cases, and then through an outage of the server."""
    parser = argparse.ArgumentParser(prog="benchmarks.automations", description=__doc__)
    parser.add_argument("--supervisor", action="store_true")
    supervised = parser.parse_args().supervisor
    with TemporaryDirectory() as folder, installed_postgres() as databases:
        database = make_url(databases.database()).set(drivername="postgresql+asyncpg")
        server = Server(Path(folder), free_port(), database.render_as_string(hide_password=False))
        address = f"http://127.0.0.1:{server.port}/api"
        with temporary_settings({PREFECT_API_URL: address, PREFECT_HOME: server.folder}):
            with server.started() as url:
                look_after(supervised)
                watch_all(url)
            beat_through_an_outage(server)


if __name__ == "__main__":
    main()
