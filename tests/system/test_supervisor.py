"""The supervisor against a real Prefect server: what vanished is resumed once, and what has ended never is."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Crashed

from marginweave.flows.prefect import supervisor as module
from marginweave.flows.prefect.supervisor import ATTEMPTS, SETTLED, SILENCE, START, Supervisor
from tests.support.flow_runs import FlowRuns

pytestmark = pytest.mark.system
ENDS = ("COMPLETED", "FAILED", "CANCELLED")


@pytest.fixture
def site(server: str) -> Iterator[FlowRuns]:
    with temporary_settings({PREFECT_API_URL: server}):
        yield FlowRuns(server)


def after(seconds: float) -> datetime.datetime:
    """A time from now. Looks that are too early count from before the flow runs are made, as a busy machine is late."""
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)


LATER = SILENCE.total_seconds() + 1


def test_what_has_vanished_is_resumed_once(site: FlowRuns) -> None:
    """Running without a sign of life, or crashed under a worker that lives: scheduled, and left alone from then on."""
    supervisor, silent, crashed = Supervisor(), site.run("RUNNING"), site.run("RUNNING", "CRASHED")
    supervisor.look(after(1))
    assert site.state(silent) == ("RUNNING", "Running")  # it may still give a sign of life
    assert site.state(crashed) == ("SCHEDULED", "AwaitingRetry")
    supervisor.look(after(LATER))
    assert site.state(silent) == ("SCHEDULED", "AwaitingRetry")
    resumed = [site.ask(f"/flow_runs/{run}", method="GET")["state_id"] for run in (silent, crashed)]
    supervisor.look(after(2 * LATER))
    assert [
        site.ask(f"/flow_runs/{run}", method="GET")["state_id"] for run in (silent, crashed)
    ] == resumed


def test_a_crash_waits_until_its_worker_is_done(site: FlowRuns) -> None:
    """It reports each crash twice, the second time of whatever attempt there is then. A worker that is gone says nothing."""
    flows, begun = FlowRuns(site.server, pool=True), after(0)
    reported, abandoned = flows.run("RUNNING", "CRASHED"), flows.run("RUNNING", "CRASHED")
    supervisor = Supervisor()
    supervisor.look(begun + SETTLED)
    assert [flows.state(run)[0] for run in (reported, abandoned)] == ["CRASHED", "CRASHED"]
    flows.done(reported)
    flows.await_event(reported)
    supervisor.look(begun + SETTLED)
    assert [flows.state(run)[0] for run in (reported, abandoned)] == ["SCHEDULED", "CRASHED"]
    supervisor.look(after(SETTLED.total_seconds() + 5))
    assert flows.state(abandoned)[0] == "SCHEDULED"


def test_what_is_alive_is_left_alone(site: FlowRuns) -> None:
    """A sign of life within the silence; a process that is starting; and nothing is known right after an outage."""
    begun, alive, starting = after(0), site.run("RUNNING"), site.run()
    supervisor = Supervisor()
    site.heartbeat(alive)
    site.await_event(alive)
    supervisor.look(begun + SILENCE)
    assert site.state(alive)[0] == "RUNNING"
    supervisor.look(after(LATER))
    assert site.state(starting)[0] == "PENDING"
    running = site.run("RUNNING")
    supervisor.since = after(LATER)  # the server came back just now
    supervisor.look(supervisor.since + SILENCE)
    assert site.state(running)[0] == "RUNNING"
    supervisor.look(after(START.total_seconds() + 2 * LATER))
    assert site.state(starting) == ("SCHEDULED", "AwaitingRetry")


@pytest.mark.parametrize("end", ENDS)
def test_what_has_ended_is_never_resumed(site: FlowRuns, end: str) -> None:
    """Also where its last heartbeat is told after its end, and where it ends while the supervisor looks."""
    supervisor, ended = Supervisor(), site.run("RUNNING", end)
    site.heartbeat(ended)
    supervisor.look(after(LATER))
    assert site.state(ended)[0] == end

    ending = site.run("RUNNING")
    with get_client(sync_client=True) as client:
        seen = client.read_flow_run(uuid.UUID(ending))
        site.set(ending, end)  # between the look and the decision
        assert not module._set_state(client, seen, Crashed())
        assert not module._resume(client, seen, after(1))
    assert site.state(ending)[0] == end


def test_what_is_to_be_cancelled_is_left_to_prefect(site: FlowRuns) -> None:
    """Its server ends it after five minutes (`python -m benchmarks.automations`)."""
    supervisor, run = Supervisor(), site.run("RUNNING", "CANCELLING")
    supervisor.look(after(LATER))
    supervisor.look(after(2 * LATER))
    assert site.state(run)[0] == "CANCELLING"


def test_others_and_hopeless_ones_are_left_alone(site: FlowRuns) -> None:
    """Flow runs of no deployment, crashes of yesterday, and one that has vanished too often."""
    own, old = site.run("RUNNING", deployed=False), site.run("RUNNING", "CRASHED")
    Supervisor().look(after(25 * 3600))
    assert site.state(own)[0] == "RUNNING"
    assert site.state(old)[0] == "CRASHED"
    often = site.run(*["RUNNING", "SCHEDULED"] * (ATTEMPTS - 1), "RUNNING", "CRASHED")
    Supervisor().look(after(1))
    assert site.state(often)[0] == "CRASHED"


@pytest.mark.parametrize("attempt", range(1, ATTEMPTS))
def test_later_attempts_wait_longer(site: FlowRuns, attempt: int) -> None:
    """A process that was killed is resumed soon; what ends it each time, such as a full disk, is given time."""
    run, now = site.run(*["RUNNING", "SCHEDULED"] * (attempt - 1), "RUNNING", "CRASHED"), after(1)
    Supervisor().look(now)
    state = site.ask(f"/flow_runs/{run}", method="GET")["state"]
    assert state["name"] == "AwaitingRetry"
    due = datetime.datetime.fromisoformat(state["state_details"]["scheduled_time"])
    assert (due - now).total_seconds() == pytest.approx([30, 60, 300, 900][attempt - 1], abs=0.01)
