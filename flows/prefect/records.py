"""What Prefect is told of a release: events, tags, and the end of flow runs that a killed process left behind.

An event names dataset and run, the class of an error (never its text) and the account's public totals; no value of the table
and no count of its rows. That a release is late, or that its process has vanished, is in Prefect's own events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from prefect.client.schemas.objects import TERMINAL_STATES, StateType
from prefect.events import emit_event
from prefect.runtime import flow_run
from prefect.states import Cancelled, Crashed

from marginweave.accounting.accounts import AccountTotal
from marginweave.base.errors import BudgetError, MachineError, UnreachableLedger
from marginweave.ledger.boxes import spent_share
from marginweave.released.manifest import Manifest

from .run_names import deployed_run

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun, State


class ReleaseEvent(StrEnum):
    """Names of the events."""

    FINISHED = "marginweave.release.finished"
    AWAITING = "marginweave.release.awaiting-approval"
    FAILED = "marginweave.release.failed"
    REFUSED = "marginweave.release.refused"
    NEARLY_EXHAUSTED = "marginweave.budget.nearly-exhausted"


class MachineFailed(BaseException):
    """A fault of the machine, as Prefect's engine takes a crash: the supervisor resumes the flow run, and no failed one."""


@contextmanager
def announced(run: str) -> Iterator[None]:
    """Emit how the attempt at `run` ends where something stops it: refused by the ledger, or failed.

    A deployed flow run that a full disk or an unreachable ledger stops ends as Crashed, so that it is resumed. Prefect itself
    emits the event of that, and of a process that a signal ends.

    DP: post-processing; whether a release fails may depend on the data, as privacy.json says of every stop.
    """
    try:
        yield
    except Exception as error:
        passing = isinstance(error, MachineError | UnreachableLedger)
        if passing and deployed_run() is not None:
            raise MachineFailed(str(error)) from None
        event = ReleaseEvent.REFUSED if isinstance(error, BudgetError) and not passing else ReleaseEvent.FAILED
        _emit(event, run, {"error": type(error).__name__})
        raise


def announce(run: str, *, awaiting: bool) -> None:
    """Emit that the attempt at `run` has ended well: awaiting approval, or finished (again, where it was)."""
    _emit(ReleaseEvent.AWAITING if awaiting else ReleaseEvent.FINISHED, run, {})


def warn_of_exhaustion(run: str, total: AccountTotal, threshold: float) -> None:
    """Tell that the account has spent `threshold` of its box or more; threshold and totals are public."""
    account, share = total.account, spent_share(total)
    if share >= threshold:
        spent = {"share": round(share, 4), "epsilon": float(total.epsilon), "cap_epsilon": float(account.epsilon)}
        _emit(ReleaseEvent.NEARLY_EXHAUSTED, run, {"dataset": account.dataset, "threshold": threshold, **spent})


def _emit(event: ReleaseEvent, run: str, payload: Mapping[str, str | float]) -> None:
    """One event about this flow run, whose deployment and tags Prefect adds as related resources.

    Sent by the process itself, it waits for nothing: Prefect's triggers see the event of a state only after those of the states
    before, and a schedule tells nothing of the first one.
    """
    resource = {"prefect.resource.id": f"prefect.flow-run.{flow_run.id}", "prefect.resource.name": run}
    emit_event(event.value, resource=resource, payload={"run": run, **payload})


_MESSAGE = "The process of this attempt ended without a word; a later attempt has taken its place."
# Label of a flow run: an id that is drawn for one run folder, so no other machine has it.
_RELEASE = "marginweave.release"


def flow_run_tags(dataset: str) -> tuple[str, str]:
    """The tags of the flow runs of a dataset: the same for each run, so that Prefect's pages can be filtered by them."""
    return "marginweave", dataset


def end_dead_attempts(manifest: Manifest) -> None:
    """Mark this flow run as one of its release, and set what earlier attempts have left without an end to Crashed or Cancelled.

    That is the task runs of this flow run, and other flow runs of the release with their task runs. To be called under the
    lock of the run, before the first stage: any other attempt is dead. Scheduled flow runs and those of a
    deployment are left to their runner. Prefect's pages are a mirror for people: a server that refuses changes nothing.
    """
    if flow_run.id is None:
        return
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter

    with suppress(Exception), get_client(sync_client=True) as client:
        this = UUID(flow_run.id)
        tags = flow_run_tags(manifest.dataset)
        client.update_flow_run_labels(this, {_RELEASE: manifest.release})
        if not set(tags) <= set(flow_run.tags):
            client.update_flow_run(this, tags=list(dict.fromkeys([*flow_run.tags, *tags])))
        _end_tasks(client, this, Crashed(message=_MESSAGE))
        alive = {"type": {"any_": ["PENDING", "RUNNING", "CANCELLING"]}}
        unfinished = {"tags": {"all_": list(tags)}, "deployment_id": {"is_null_": True}, "state": alive}
        for attempt in client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(unfinished)):
            if attempt.id != this and _is_of_release(attempt, manifest.release):
                _end(client, attempt)


def _is_of_release(attempt: FlowRun, release: str) -> bool:
    """Whether a flow run is an attempt at the release; by home and run, if it was killed before it was marked."""
    if _RELEASE in attempt.labels:
        return attempt.labels[_RELEASE] == release
    return all(attempt.parameters.get(name) == flow_run.parameters.get(name) for name in ("home", "run"))


def _end(client: SyncPrefectClient, dead: FlowRun) -> None:
    """End the task runs first: a flow run that has ended is not looked at again."""
    end = Cancelled if dead.state_type == StateType.CANCELLING else Crashed
    _end_tasks(client, dead.id, end(message=_MESSAGE))
    client.set_flow_run_state(dead.id, end(message=_MESSAGE), force=True)


def _end_tasks(client: SyncPrefectClient, attempt: UUID, end: State[Any]) -> None:
    """End what the dead attempts at a flow run have left as running, or as waiting for another try."""
    from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter

    alive = [kind for kind in StateType if kind not in TERMINAL_STATES]  # a task that waits for its retry is SCHEDULED
    tasks = client.read_task_runs(
        flow_run_filter=FlowRunFilter.model_validate({"id": {"any_": [attempt]}}),
        task_run_filter=TaskRunFilter.model_validate({"state": {"type": {"any_": alive}}}),
    )
    for task in tasks:
        client.set_task_run_state(task.id, end, force=True)
