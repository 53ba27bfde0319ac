"""Releases whose process has vanished are scheduled once more; what finished, failed or was cancelled is left alone.

Prefect's own automations cannot do this: the heartbeat of a flow run may be told after its end, and then counts as the last
sign of a living one. Here the state decides, and Prefect's server decides on the state: it sets no flow run to Crashed that has
come to an end, so that who is declared dead is dead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

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

SILENCE = timedelta(seconds=75)  # a flow run gives a sign of life every 30 seconds (prefect.yaml)
ATTEMPTS = 5  # of one flow run; one that vanishes that often (for want of memory, say) wants a person
_HEARTBEAT = "prefect.flow-run.heartbeat"
_VANISHED = "No sign of life: another worker resumes the release."
_PAGE = 200


@dataclass
class Supervisor:
    """Looks at the flow runs of deployed releases, one `look` after the other.

    Args:
        silence: how long after its last sign of life a flow run counts as vanished.
        since: from when on the server has answered without a gap; signs of life before may have been lost.
    """

    silence: timedelta = SILENCE
    since: datetime = field(default_factory=lambda: datetime.now(UTC))

    def look(self, moment: datetime | None = None) -> list[str]:
        """Schedule once more what has vanished; the names of those flow runs. DP: none, Prefect's states alone.

        Raises:
            httpx.HTTPError: the server does not answer; whoever calls again calls `lost_contact` first.
        """
        now = moment or datetime.now(UTC)
        with get_client(sync_client=True) as client:
            crashed = [run for run in _flow_runs(client, StateType.CRASHED) if _may_resume(run)]
            alive = _flow_runs(client, StateType.RUNNING, StateType.PENDING, StateType.CANCELLING)
            heard = _last_heard(client, alive, now - self.silence)
            silent = [run for run in alive if self._is_silent(run, heard, now)]
            resumed = [run for run in silent if _ended(client, run) and _may_resume(run)] + crashed
            return [run.name for run in resumed if _resumed(client, run)]

    def lost_contact(self, moment: datetime | None = None) -> None:
        """Start waiting for signs of life anew: while the server was away, nobody could give one."""
        self.since = moment or datetime.now(UTC)

    def _is_silent(self, run: FlowRun, heard: Mapping[UUID, datetime], now: datetime) -> bool:
        state = run.state
        last = max(self.since, state.timestamp if state is not None else now, heard.get(run.id, self.since))
        return now - last > self.silence


def _flow_runs(client: SyncPrefectClient, *types: StateType) -> list[FlowRun]:
    """Flow runs of deployed releases in one of the states."""
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
            return found


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


def _ended(client: SyncPrefectClient, run: FlowRun) -> bool:
    """Set a vanished flow run to its end; False where it has come to another one meanwhile."""
    end = Cancelled if run.state_type == StateType.CANCELLING else Crashed
    return _is_now(client, run, end(message=_VANISHED)) and run.state_type != StateType.CANCELLING


def _resumed(client: SyncPrefectClient, run: FlowRun) -> bool:
    """Schedule a crashed flow run once more, unless its state is another one by now."""
    present = client.read_flow_run(run.id).state
    if present is None or present.type != StateType.CRASHED:
        return False
    return _is_now(client, run, AwaitingRetry(message=_VANISHED))


def _is_now(client: SyncPrefectClient, run: FlowRun, state: State) -> bool:
    """Propose a state, which the server may refuse; whether it took it."""
    try:
        answer = client.set_flow_run_state(run.id, state, force=False)
    except ObjectNotFound:  # it was deleted meanwhile
        return False
    return answer.state is not None and answer.state.type == state.type


def _may_resume(run: FlowRun) -> bool:
    return run.run_count < ATTEMPTS
