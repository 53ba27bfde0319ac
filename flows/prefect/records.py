"""What Prefect is told of a release: events, tags, and the end of flow runs that a killed process left behind.

An event names dataset and run, the class of an error (never its text) and the account's public totals; no value of the table
and no count of its rows. That a release is late, or that its process has vanished, is in Prefect's own events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

from prefect.events import emit_event
from prefect.runtime import flow_run

from marginweave.accounting.accounts import AccountTotal
from marginweave.base.errors import BudgetError, MachineError, UnreachableLedger
from marginweave.ledger.boxes import spent_share
from marginweave.released.manifest import Manifest

from .run_names import deployed_run

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun


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

    A deployed flow run that a full disk or an unreachable ledger stops ends as Crashed, so that it is resumed.

    DP: post-processing; whether a release fails may depend on the data, as privacy.json says of every stop.
    """
    try:
        yield
    except BaseException as error:  # a signal that ends the process too
        passing = isinstance(error, MachineError | UnreachableLedger)
        event = ReleaseEvent.REFUSED if isinstance(error, BudgetError) and not passing else ReleaseEvent.FAILED
        _emit(event, run, {"error": type(error).__name__})
        if passing and deployed_run() is not None:
            raise MachineFailed(str(error)) from None
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


_MESSAGE = "The process of this run ended without a word; a later attempt has taken its place."


def flow_run_tags(manifest: Manifest) -> tuple[str, ...]:
    """The tags of a release's flow runs. The first has an id that is drawn for one run folder: no other machine has it."""
    return f"marginweave-release:{manifest.release}", "marginweave", manifest.dataset


def end_dead_attempts(manifest: Manifest) -> None:
    """Tag this flow run, and set every other one of its release that has no end to Crashed or Cancelled.

    To be called under the lock of the run: whoever else has the tag is dead. Scheduled flow runs and those of a deployment
    are left to whoever runs them. Prefect's pages are a mirror for people: a server that refuses changes nothing.
    """
    own = flow_run.id
    if own is None:
        return
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter

    with suppress(Exception), get_client(sync_client=True) as client:
        tag, *others = flow_run_tags(manifest)
        if not {tag, *others} <= set(flow_run.tags):
            client.update_flow_run(UUID(own), tags=list(dict.fromkeys([*flow_run.tags, tag, *others])))
        alive = {"type": {"any_": ["PENDING", "RUNNING", "CANCELLING"]}}
        unfinished = {"tags": {"all_": [tag]}, "deployment_id": {"is_null_": True}, "state": alive}
        for dead in client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(unfinished)):
            if dead.id != UUID(own):
                _end(client, dead)


def _end(client: SyncPrefectClient, dead: FlowRun) -> None:
    """End the task runs first: a flow run that has ended is not looked at again."""
    from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
    from prefect.client.schemas.objects import TERMINAL_STATES, StateType
    from prefect.states import Cancelled, Crashed

    end = Cancelled if dead.state_type == StateType.CANCELLING else Crashed
    alive = [kind for kind in StateType if kind not in TERMINAL_STATES]  # a task that waits for its retry is SCHEDULED
    tasks = client.read_task_runs(
        flow_run_filter=FlowRunFilter.model_validate({"id": {"any_": [dead.id]}}),
        task_run_filter=TaskRunFilter.model_validate({"state": {"type": {"any_": alive}}}),
    )
    for task in tasks:
        client.set_task_run_state(task.id, end(message=_MESSAGE), force=True)
    client.set_flow_run_state(dead.id, end(message=_MESSAGE), force=True)
