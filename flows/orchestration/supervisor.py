"""Releases whose process has vanished are scheduled once more; what finished, failed or was cancelled is left alone.

Prefect's automations cannot do this: a heartbeat may arrive after the end of its flow run, and then counts as the last sign of
a living one. Here the state decides, and Prefect's server decides on the state: it sets no flow run to Crashed that has come to
another end, so whatever is declared dead is dead, also where it finishes in the same moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from httpx import HTTPError
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import StateType
from prefect.events.filters import EventFilter
from prefect.exceptions import ObjectNotFound
from prefect.states import AwaitingRetry, Cancelled, Crashed

from marginweave.flows.run.run_names import FLOW

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun, State

LOOKS = 15.0  # seconds between two looks
SILENCE = timedelta(seconds=75)  # a running flow gives a sign of life every 30 seconds (prefect.yaml)
START = timedelta(minutes=5)  # that a process may take to start
ATTEMPTS = 5  # of one flow run; one that vanishes that often (for want of memory, say) wants a person
_RECENT = timedelta(days=1)  # crashes before that are history
_HEARTBEAT = "prefect.flow-run.heartbeat"
_VANISHED = "No sign of life: another process resumes the release."
_PAGE = 200
_ALIVE = (StateType.RUNNING, StateType.PENDING, StateType.CANCELLING)


@dataclass
class Supervisor:
    """Looks at the flow runs of deployed releases, one `look` after the other.

    `since` is the moment from which on the server has answered without a gap; signs of life before it may have been lost.
    """

    since: datetime = field(default_factory=lambda: datetime.now(UTC))

    def look(self, moment: datetime | None = None) -> list[str]:
        """Schedule what has vanished once more, and return the names of those flow runs. DP: none, Prefect's states alone.

        Raises:
            httpx.HTTPError: the server does not answer.
        """
        now = moment or datetime.now(UTC)
        with get_client(sync_client=True) as client:
            dead = _flow_runs(client, [StateType.CRASHED], after=now - _RECENT)
            alive = _flow_runs(client, _ALIVE)
            heard = _last_heard(client, alive, now - SILENCE)
            for run in alive:
                if self._is_silent(run, heard, now) and _is_ended(client, run):
                    dead.append(run)
            return [run.name for run in dead if run.run_count < ATTEMPTS and _is_resumed(client, run)]

    def lost_contact(self) -> None:
        """Wait for signs of life from now on: while the server was away, nobody could give one."""
        self.since = datetime.now(UTC)

    def _is_silent(self, run: FlowRun, heard: Mapping[UUID, datetime], now: datetime) -> bool:
        last = max(self.since, run.state.timestamp if run.state else now, heard.get(run.id, self.since))
        return now - last > (START if run.state_type == StateType.PENDING else SILENCE)


def supervise(stop: threading.Event, say: Callable[[str], None]) -> None:
    """Look every `LOOKS` seconds until `stop` is set; say which flow runs are resumed, and when the server is away."""
    supervisor, away = Supervisor(), False
    while not stop.wait(LOOKS):
        try:
            for name in supervisor.look():
                say(f"resumed {name}, whose process had vanished")
        except (HTTPError, RuntimeError):  # the latter: the client's own, where nobody listens
            supervisor.lost_contact()
            if not away:
                say("Prefect's server does not answer; trying on")
            away = True
        else:
            away = False


def _flow_runs(client: SyncPrefectClient, types: Sequence[StateType], after: datetime | None = None) -> list[FlowRun]:
    """Flow runs of deployed releases in one of the states, and in it since `after`."""
    wanted = {"state": {"type": {"any_": list(types)}}, "deployment_id": {"is_null_": False}}
    found: list[FlowRun] = []
    while True:
        page = client.read_flow_runs(
            flow_filter=FlowFilter.model_validate({"name": {"any_": [FLOW]}}),
            flow_run_filter=FlowRunFilter.model_validate(wanted),
            limit=_PAGE,
            offset=len(found),
        )
        found += page
        if len(page) < _PAGE:
            return [run for run in found if after is None or (run.state is not None and run.state.timestamp > after)]


def _last_heard(client: SyncPrefectClient, runs: Sequence[FlowRun], since: datetime) -> dict[UUID, datetime]:
    """When each flow run last gave a sign of life after `since`, if it did."""
    heard: dict[UUID, datetime] = {}
    for run in runs:
        resource = {"id": [f"prefect.flow-run.{run.id}"]}
        wanted = {"occurred": {"since": since}, "event": {"name": [_HEARTBEAT]}, "resource": resource}
        events = client.read_events(EventFilter.model_validate(wanted), limit=1).events
        if events:
            heard[run.id] = events[0].occurred
    return heard


def _is_ended(client: SyncPrefectClient, run: FlowRun) -> bool:
    """Set a flow run that has vanished to its end; whether it is one to be resumed, and has not ended meanwhile."""
    if run.state_type == StateType.CANCELLING:
        _is_now(client, run, Cancelled(message=_VANISHED))
        return False
    return _is_now(client, run, Crashed(message=_VANISHED))


def _is_resumed(client: SyncPrefectClient, run: FlowRun) -> bool:
    """Schedule a crashed flow run once more, unless its state is another one by now."""
    state = client.read_flow_run(run.id).state
    return (
        state is not None and state.type == StateType.CRASHED and _is_now(client, run, AwaitingRetry(message=_VANISHED))
    )


def _is_now(client: SyncPrefectClient, run: FlowRun, state: State) -> bool:
    """Propose a state to the server, which may refuse it; whether it took it."""
    try:
        answer = client.set_flow_run_state(run.id, state, force=False)
    except ObjectNotFound:  # it was deleted meanwhile
        return False
    return answer.state is not None and answer.state.type == state.type
