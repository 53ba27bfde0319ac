"""Flow runs that a killed process has left behind in Prefect, brought to their end when the run goes on."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from prefect.runtime import flow_run

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

_MESSAGE = "The process of this run ended without a word; a later attempt has taken its place."


def release_tag(release: str) -> str:
    """The tag of a release's flow runs; the id is drawn for one run folder, so no other home or machine has it."""
    return f"marginweave-release:{release}"


def end_dead_attempts(release: str) -> None:
    """Tag this flow run with its release and set every other one of the release that has no end to Crashed or Cancelled.

    To be called under the lock of the run: whoever else has the tag is dead. Scheduled flow runs and those of a deployment
    are left to whoever runs them. Prefect's pages are a mirror for people: a server that refuses changes nothing.
    """
    own = flow_run.id
    if own is None:
        return
    from prefect.client.orchestration import get_client

    with suppress(Exception), get_client(sync_client=True) as client:
        tag = release_tag(release)
        if tag not in flow_run.tags:
            client.update_flow_run(UUID(own), tags=[*flow_run.tags, tag])
        for dead in _unfinished(client, tag):
            if dead.id != UUID(own):
                _end(client, dead)


def _unfinished(client: SyncPrefectClient, tag: str) -> list[FlowRun]:
    from prefect.client.schemas import filters
    from prefect.client.schemas.objects import StateType

    alive = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
    return client.read_flow_runs(
        flow_run_filter=filters.FlowRunFilter(
            tags=filters.FlowRunFilterTags(all_=[tag]),
            deployment_id=filters.FlowRunFilterDeploymentId(is_null_=True),
            state=filters.FlowRunFilterState(type=filters.FlowRunFilterStateType(any_=alive)),
        )
    )


def _end(client: SyncPrefectClient, dead: FlowRun) -> None:
    """End the task runs first: a flow run that has ended is not looked at again."""
    from prefect.client.schemas import filters
    from prefect.client.schemas.objects import TERMINAL_STATES, StateType
    from prefect.states import Cancelled, Crashed

    cancelled = dead.state_type == StateType.CANCELLING
    end = Cancelled if cancelled else Crashed
    alive = [kind for kind in StateType if kind not in TERMINAL_STATES]  # a task that waits for its retry is SCHEDULED
    tasks = client.read_task_runs(
        flow_run_filter=filters.FlowRunFilter(id=filters.FlowRunFilterId(any_=[dead.id])),
        task_run_filter=filters.TaskRunFilter(
            state=filters.TaskRunFilterState(type=filters.TaskRunFilterStateType(any_=alive))
        ),
    )
    for task in tasks:
        client.set_task_run_state(task.id, end(message=_MESSAGE), force=True)
    client.set_flow_run_state(dead.id, end(message=_MESSAGE), force=True)
