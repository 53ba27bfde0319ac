"""Supervisor of deployed releases: schedules those again whose process has vanished, but none that ended or was cancelled.

Prefect's automations cannot do this: they do not count or delay attempts, and they take an outage of the server for the silence
of a flow run (docs/decisions/0015-prefect-as-it-ships.md). Here the state decides, and Prefect's server decides on the state:
it never makes a flow run Crashed that has come to another end. So a flow run that is declared dead is dead, even if its process
finishes at the same moment.
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
START = timedelta(minutes=2)  # longest time in which a process may start
# A worker reports twice that a process was killed: at once, and when it has cleaned up, ten seconds later or on a
# busy machine a minute. A flow run that is scheduled in between would crash a second time, with a second alert.
# wait after a crash, where no worker has reported that it has cleaned up
SETTLED = timedelta(minutes=2)
# Waits before the second and later attempts. Somebody frees a full disk in minutes; a process that vanishes each time (such as
# for lack of memory) needs a person.
DELAYS = (timedelta(seconds=30), timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=15))
ATTEMPTS = 1 + len(DELAYS)
_RECENT = timedelta(days=1)  # older crashes are ignored
_HEARTBEAT = "prefect.flow-run.heartbeat"
_DONE = "prefect.worker.executed-flow-run"
_VANISHED = "No sign of life: another process resumes the release."
_PAGE = 200
# without CANCELLING: Prefect ends those itself, after five minutes
_ALIVE = (StateType.RUNNING, StateType.PENDING)


@dataclass
class Supervisor:
    """Watches the flow runs of deployed releases, by repeated calls of `look`.

    `since` is the moment since which the server has answered without a gap; signs of life before it may have been lost.
    """

    since: datetime = field(default_factory=lambda: datetime.now(UTC))

    def look(self, moment: datetime | None = None) -> list[str]:
        """Schedule vanished flow runs again, and return their names. DP: none, Prefect's states alone.

        Raises:
            httpx.HTTPError: the server does not answer.
        """
        moment = moment or datetime.now(UTC)
        with get_client(sync_client=True) as client:
            crashed = _flow_runs(client, [StateType.CRASHED], after=moment - _RECENT)
            dead = [run for run in crashed if _is_settled(client, run, moment)]
            alive = _flow_runs(client, _ALIVE)
            heartbeats = _last_heartbeats(client, alive, moment - SILENCE)
            silent = [run for run in alive if self._is_silent(run, heartbeats, moment)]
            dead += [run for run in silent if _set_state(client, run, Crashed(message=_VANISHED))]
            return [
                run.name
                for run in dead
                if run.run_count < ATTEMPTS and _resume(client, run, moment)
            ]

    def lost_contact(self) -> None:
        """Expect signs of life only from now on: while the server was away, no flow run could give one."""
        self.since = datetime.now(UTC)

    def _is_silent(
        self, run: FlowRun, heartbeats: Mapping[UUID, datetime], moment: datetime
    ) -> bool:
        state_began = run.state.timestamp if run.state else moment
        last_heartbeat = heartbeats.get(run.id, self.since)
        last_sign = max(self.since, state_began, last_heartbeat)
        longest_silence = START if run.state_type == StateType.PENDING else SILENCE
        return moment - last_sign > longest_silence


def supervise(
    stop: threading.Event, say: Callable[[str], None], is_well: Callable[[], bool] = lambda: True
) -> None:
    """Look every `LOOKS` seconds until `stop` is set; say which flow runs are resumed, and when the server is away.

    After every look that the server answered, while `is_well`, the file `supervisor.alive` in Prefect's home is touched.
    """
    supervisor = Supervisor()
    away = False
    while not stop.wait(LOOKS):
        try:
            for name in supervisor.look():
                say(f"will resume {name}, whose process had vanished")
        # Prefect's client raises RuntimeError where no server listens
        except (HTTPError, RuntimeError):
            supervisor.lost_contact()
            if not away:
                say("Prefect's server does not answer. Trying again.")
            away = True
        else:
            away = False
            if is_well():
                _give_sign_of_life(PREFECT_HOME.value() / SIGN_OF_LIFE)
        _tell_watchdog()


def _give_sign_of_life(place: Path) -> None:
    with suppress(OSError):  # a monitor that reads the age of the file sees that something is wrong
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.touch(PRIVATE_MODE)


def _tell_watchdog() -> None:
    """Tell systemd, if it started this process with a watchdog, that the process does not hang."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # an abstract socket
        address = f"\0{address[1:]}"
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.sendto(b"WATCHDOG=1", address)


def _flow_runs(
    client: SyncPrefectClient, types: Sequence[StateType], after: datetime | None = None
) -> list[FlowRun]:
    """Return the flow runs of deployed releases in one of the states; with `after`, only those that ended after it."""
    conditions: dict[str, Any] = {
        "state": {"type": {"any_": list(types)}},
        "deployment_id": {"is_null_": False},
    }
    if after is not None:
        conditions["end_time"] = {"after_": after}
    runs: list[FlowRun] = []
    while True:
        page = client.read_flow_runs(
            flow_filter=FlowFilter.model_validate({"name": {"any_": [FLOW]}}),
            flow_run_filter=FlowRunFilter.model_validate(conditions),
            limit=_PAGE,
            offset=len(runs),
        )
        runs += page
        if len(page) < _PAGE:
            return runs


def _last_heartbeats(
    client: SyncPrefectClient, runs: Sequence[FlowRun], since: datetime
) -> dict[UUID, datetime]:
    """Return the time of each flow run's last heartbeat after `since`, by id; without those that had none."""
    heartbeats: dict[UUID, datetime] = {}
    for run in runs:
        moment = _last_event(client, _HEARTBEAT, run, since)
        if moment is not None:
            heartbeats[run.id] = moment
    return heartbeats


def _last_event(
    client: SyncPrefectClient, name: str, run: FlowRun, since: datetime
) -> datetime | None:
    """Return the time of the newest event of this name about a flow run after `since`, or None."""
    about = {"id": [f"prefect.flow-run.{run.id}"]}
    conditions = {"occurred": {"since": since}, "event": {"name": [name]}, "any_resource": about}
    events = client.read_events(EventFilter.model_validate(conditions), limit=1).events
    return events[0].occurred if events else None


def _is_settled(client: SyncPrefectClient, run: FlowRun, moment: datetime) -> bool:
    """Return whether no worker will report the crash of a flow run again. A flow run below `serve` has no worker."""
    crashed = run.state.timestamp if run.state else moment
    if run.work_pool_name is None or moment - crashed > SETTLED:
        return True
    return _last_event(client, _DONE, run, crashed) is not None


def _resume(client: SyncPrefectClient, run: FlowRun, moment: datetime) -> bool:
    """Schedule a crashed flow run again, unless its state has changed; return whether it is scheduled."""
    state = client.read_flow_run(run.id).state
    delay = DELAYS[max(run.run_count - 1, 0)]
    retry: State = AwaitingRetry(message=_VANISHED, scheduled_time=moment + delay)
    return state is not None and state.type == StateType.CRASHED and _set_state(client, run, retry)


def _set_state(client: SyncPrefectClient, run: FlowRun, state: State) -> bool:
    """Propose a state to the server, which may refuse it; return whether the flow run has the state then."""
    try:
        answer = client.set_flow_run_state(run.id, state, force=False)
    except ObjectNotFound:  # the flow run was deleted in the meantime
        return False
    return answer.state is not None and answer.state.type == state.type
