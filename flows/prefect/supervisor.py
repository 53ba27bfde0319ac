"""Releases whose process has vanished are scheduled once more; what finished, failed or was cancelled is left alone.

Prefect's automations cannot do this: they count no attempts, wait for none, and take an outage of the server for the silence of
a flow run (docs/decisions/0015-prefect-as-it-ships.md). Here the state decides, and Prefect's server decides on the state: no
flow run becomes Crashed that has come to another end, so whatever is declared dead is dead, also where it finishes in the same
moment.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from httpx import HTTPError
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import StateType
from prefect.events.filters import EventFilter
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_HOME
from prefect.states import AwaitingRetry, Crashed

from marginweave.base.durable import PRIVATE_MODE

from .run_names import FLOW

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun, State

SIGN_OF_LIFE = "supervisor.alive"
LOOKS = 15.0  # seconds between two looks
HEARTBEAT_SECONDS = 30  # between signs of life, as in prefect.yaml; Prefect's default is 180
SILENCE = timedelta(seconds=75)
START = timedelta(minutes=2)  # that a process may take to start
# A worker reports twice that a process was killed: at once, and when it is done with it, ten seconds later or on a
# busy machine a minute. A flow run that is scheduled in between would crash a second time, with a second alert.
SETTLED = timedelta(minutes=2)  # after a crash, where no worker has said that it is done
# Before the attempts after the first. Somebody frees a full disk in minutes; what vanishes each time (for want of memory, say)
# needs a person.
DELAYS = (timedelta(seconds=30), timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=15))
ATTEMPTS = 1 + len(DELAYS)
_RECENT = timedelta(days=1)  # crashes before that are history
_HEARTBEAT = "prefect.flow-run.heartbeat"
_DONE = "prefect.worker.executed-flow-run"
_VANISHED = "No sign of life: another process resumes the release."
_PAGE = 200
_ALIVE = (StateType.RUNNING, StateType.PENDING)  # what is to be cancelled is ended by Prefect, after five minutes


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
            crashed = _flow_runs(client, [StateType.CRASHED], after=now - _RECENT)
            dead = [run for run in crashed if _is_settled(client, run, now)]
            alive = _flow_runs(client, _ALIVE)
            heard = _last_heard(client, alive, now - SILENCE)
            silent = [run for run in alive if self._is_silent(run, heard, now)]
            dead += [run for run in silent if _is_now(client, run, Crashed(message=_VANISHED))]
            return [run.name for run in dead if run.run_count < ATTEMPTS and _is_resumed(client, run, now)]

    def lost_contact(self) -> None:
        """Wait for signs of life from now on: while the server was away, nobody could give one."""
        self.since = datetime.now(UTC)

    def _is_silent(self, run: FlowRun, heard: Mapping[UUID, datetime], now: datetime) -> bool:
        last = max(self.since, run.state.timestamp if run.state else now, heard.get(run.id, self.since))
        return now - last > (START if run.state_type == StateType.PENDING else SILENCE)


def supervise(stop: threading.Event, say: Callable[[str], None], is_well: Callable[[], bool] = lambda: True) -> None:
    """Look every `LOOKS` seconds until `stop` is set; say which flow runs are resumed, and when the server is away.

    Every look that the server answered, while `is_well`, is a sign of life: the time of `supervisor.alive` in Prefect's home.
    """
    supervisor, away = Supervisor(), False
    while not stop.wait(LOOKS):
        try:
            for name in supervisor.look():
                say(f"will resume {name}, whose process had vanished")
        except (HTTPError, RuntimeError):  # the latter: the client's own, where nobody listens
            supervisor.lost_contact()
            if not away:
                say("Prefect's server does not answer; trying on")
            away = True
        else:
            away = False
            if is_well():
                _give_sign_of_life(PREFECT_HOME.value() / SIGN_OF_LIFE)
        _tell_watchdog()


def _give_sign_of_life(place: Path) -> None:
    with suppress(OSError):  # without it, whoever looks at its age will see that something is wrong here
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.touch(PRIVATE_MODE)


def _tell_watchdog() -> None:
    """Tell systemd, where it started this process with a watchdog, that it does not hang."""
    if place := os.environ.get("NOTIFY_SOCKET"):
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            systemd.sendto(b"WATCHDOG=1", f"\0{place[1:]}" if place.startswith("@") else place)


def _flow_runs(client: SyncPrefectClient, types: Sequence[StateType], after: datetime | None = None) -> list[FlowRun]:
    """Flow runs of deployed releases in one of the states, which ended after `after` where that is given."""
    wanted: dict[str, Any] = {"state": {"type": {"any_": list(types)}}, "deployment_id": {"is_null_": False}}
    if after is not None:
        wanted["end_time"] = {"after_": after}
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
            return found


def _last_heard(client: SyncPrefectClient, runs: Sequence[FlowRun], since: datetime) -> dict[UUID, datetime]:
    """When each flow run last gave a sign of life after `since`, if it did."""
    heard: dict[UUID, datetime] = {}
    for run in runs:
        if moment := _last_event(client, _HEARTBEAT, run, since):
            heard[run.id] = moment
    return heard


def _last_event(client: SyncPrefectClient, name: str, run: FlowRun, since: datetime) -> datetime | None:
    """When the newest event of this name about a flow run occurred, if there is one after `since`."""
    about = {"id": [f"prefect.flow-run.{run.id}"]}
    wanted = {"occurred": {"since": since}, "event": {"name": [name]}, "any_resource": about}
    events = client.read_events(EventFilter.model_validate(wanted), limit=1).events
    return events[0].occurred if events else None


def _is_settled(client: SyncPrefectClient, run: FlowRun, now: datetime) -> bool:
    """Whether nobody will report the crash of a flow run again. Below `serve` nobody does: it has no worker."""
    crashed = run.state.timestamp if run.state else now
    if run.work_pool_name is None or now - crashed > SETTLED:
        return True
    return _last_event(client, _DONE, run, crashed) is not None


def _is_resumed(client: SyncPrefectClient, run: FlowRun, now: datetime) -> bool:
    """Schedule a crashed flow run once more, unless its state is another one by now."""
    state = client.read_flow_run(run.id).state
    again: State = AwaitingRetry(message=_VANISHED, scheduled_time=now + DELAYS[max(run.run_count - 1, 0)])
    return state is not None and state.type == StateType.CRASHED and _is_now(client, run, again)


def _is_now(client: SyncPrefectClient, run: FlowRun, state: State) -> bool:
    """Propose a state to the server, which may refuse it; whether it took it."""
    try:
        answer = client.set_flow_run_state(run.id, state, force=False)
    except ObjectNotFound:  # it was deleted meanwhile
        return False
    return answer.state is not None and answer.state.type == state.type
