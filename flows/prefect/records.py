"""Records of a release in Prefect: events, tags, and the end of flow runs that a killed process left behind.

An event names dataset and run, the class of an error (never its text) and the account's public totals; no value of the table
and no count of its rows. That a release is late, or that its process has vanished, is in Prefect's own events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from prefect.client.schemas.objects import TERMINAL_STATES, State, StateType
from prefect.events import emit_event
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Crashed

from marginweave.accounting.accounts import AccountTotal
from marginweave.base.errors import BudgetError, MachineError, UnreachableLedger
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.ledger.boxes import spent_share
from marginweave.released.manifest import Manifest
from marginweave.runs.lookup import what_to_do

from .run_names import deployed_run

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun


class ReleaseEvent(StrEnum):
    """Names of the events."""

    FINISHED = "marginweave.release.finished"
    AWAITING = "marginweave.release.awaiting-approval"
    SKIPPED = "marginweave.release.skipped"
    FAILED = "marginweave.release.failed"
    REFUSED = "marginweave.release.refused"
    NEARLY_EXHAUSTED = "marginweave.budget.nearly-exhausted"
    TEST = "marginweave.alert.test"


AWAITING_APPROVAL = "AwaitingApproval"
"""Name of the state of a flow run whose release nobody has decided on."""


class MachineFailed(BaseException):
    """A fault of the machine, in a form that Prefect's engine takes for a crash: the supervisor resumes crashed flow runs."""


@contextmanager
def announced(run: str) -> Iterator[None]:
    """Emit an event if the attempt at `run` inside is stopped: refused by the ledger, or failed.

    A deployed flow run that is stopped by a full disk or an unreachable ledger ends as Crashed, so that it is resumed. Prefect
    itself emits the event of that, and of a process that a signal ends.

    DP: post-processing; whether a release fails may depend on the data, as privacy.json says of every stop.
    """
    try:
        yield
    except Exception as error:
        is_temporary = isinstance(error, MachineError | UnreachableLedger)
        if is_temporary and deployed_run() is not None:
            raise MachineFailed(str(error)) from None
        is_refused = isinstance(error, BudgetError) and not is_temporary
        event = ReleaseEvent.REFUSED if is_refused else ReleaseEvent.FAILED
        _emit(event, run, {"error": type(error).__name__})
        raise


def ended(run: str, folder: RunFolder, place: Path) -> State[str]:
    """Emit that the attempt at `run` has ended well, and return its state: Completed, or AwaitingApproval, with the place.

    A release that was finished before is finished again.
    """
    if place == folder.release:
        _emit(ReleaseEvent.FINISHED, run, {})
        return Completed(data=str(place))
    _emit(ReleaseEvent.AWAITING, run, {})
    message = f"{place / 'report.html'} has what may leave. Then {what_to_do(folder.run)}"
    return Completed(name=AWAITING_APPROVAL, message=message, data=str(place))


def skipped(run: str, reason: Path) -> State[str]:
    """Emit that `run` was skipped, and return the state Skipped, which names the file that says why to its operator."""
    _emit(ReleaseEvent.SKIPPED, run, {})
    message = f"Nothing was drawn or charged; only the operator sees the reason, in {reason}"
    return Completed(name="Skipped", message=message, data=str(reason))


def warn_of_exhaustion(run: str, total: AccountTotal, threshold: float) -> None:
    """Emit an event if the account has spent `threshold` of its box or more; threshold and totals are public."""
    share = spent_share(total)
    if share < threshold:
        return
    payload = {
        "dataset": total.account.dataset,
        "threshold": threshold,
        "share": round(share, 4),
        "epsilon": float(total.epsilon),
        "cap_epsilon": float(total.account.epsilon),
    }
    _emit(ReleaseEvent.NEARLY_EXHAUSTED, run, payload)


def _emit(event: ReleaseEvent, run: str, payload: Mapping[str, str | float]) -> None:
    """Emit an event about this flow run, whose deployment and tags Prefect adds as related resources.

    An event that the process itself sends waits for nothing. The event of a state reaches Prefect's triggers only after those
    of the states before it, and a schedule emits none for the first state.
    """
    resource = {
        "prefect.resource.id": f"prefect.flow-run.{flow_run.id}",
        "prefect.resource.name": run,
    }
    emit_event(event.value, resource=resource, payload={"run": run, **payload})


_MESSAGE = "The process of this attempt ended without a word; a later attempt has taken its place."
# Label of a flow run: an id that is drawn for one run folder, so no other machine has it.
_RELEASE = "marginweave.release"


def flow_run_tags(dataset: str) -> tuple[str, str]:
    """Return the tags of the flow runs of a dataset: the same for each run, as filters for Prefect's pages."""
    return "marginweave", dataset


def end_dead_attempts(manifest: Manifest) -> None:
    """Label this flow run with its release, and set unfinished runs of earlier attempts to Crashed or Cancelled.

    These are the task runs of this flow run, and other flow runs of the release with their task runs. Call it under the lock of
    the run, before the first stage: then any other attempt is dead. Scheduled flow runs and those of a deployment are left to
    their runner. Prefect's pages are a copy for people: a server that refuses changes nothing.
    """
    if flow_run.id is None:
        return
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter

    with suppress(Exception), get_client(sync_client=True) as client:
        this_id = UUID(flow_run.id)
        tags = flow_run_tags(manifest.dataset)
        client.update_flow_run_labels(this_id, {_RELEASE: manifest.release})
        if not set(tags) <= set(flow_run.tags):
            all_tags = list(dict.fromkeys([*flow_run.tags, *tags]))
            client.update_flow_run(this_id, tags=all_tags)
        _end_tasks(client, this_id, Crashed(message=_MESSAGE))
        alive = {"type": {"any_": ["PENDING", "RUNNING", "CANCELLING"]}}
        unfinished = {
            "tags": {"all_": list(tags)},
            "deployment_id": {"is_null_": True},
            "state": alive,
        }
        for attempt in client.read_flow_runs(
            flow_run_filter=FlowRunFilter.model_validate(unfinished)
        ):
            if attempt.id != this_id and _is_of_release(attempt, manifest.release):
                _end(client, attempt)


def _is_of_release(attempt: FlowRun, release: str) -> bool:
    """Return whether a flow run is an attempt at the release; by home and run, if it was killed before it had a label."""
    if _RELEASE in attempt.labels:
        return attempt.labels[_RELEASE] == release
    parameters = flow_run.parameters
    return all(attempt.parameters.get(name) == parameters.get(name) for name in ("home", "run"))


def _end(client: SyncPrefectClient, dead: FlowRun) -> None:
    """End a flow run, after its task runs: a flow run that has ended is not found again."""
    end_state = Cancelled if dead.state_type == StateType.CANCELLING else Crashed
    _end_tasks(client, dead.id, end_state(message=_MESSAGE))
    client.set_flow_run_state(dead.id, end_state(message=_MESSAGE), force=True)


def _end_tasks(client: SyncPrefectClient, attempt: UUID, end: State[Any]) -> None:
    """End the task runs that dead attempts at a flow run have left as running, or as waiting for a retry."""
    from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter

    # a task that waits for its retry is SCHEDULED
    alive = [kind for kind in StateType if kind not in TERMINAL_STATES]
    tasks = client.read_task_runs(
        flow_run_filter=FlowRunFilter.model_validate({"id": {"any_": [attempt]}}),
        task_run_filter=TaskRunFilter.model_validate({"state": {"type": {"any_": alive}}}),
    )
    for task in tasks:
        client.set_task_run_state(task.id, end, force=True)
