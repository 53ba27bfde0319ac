"""The decision on a release that awaited approval, as Prefect shows it: the state of its flow run, and its artifacts."""

from __future__ import annotations

from httpx import HTTPError
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.states import Completed

from marginweave.accounting.records import Decision
from marginweave.base.errors import StageError
from marginweave.checkpoints.run_folder import RunFolder

from .artifacts import show_rejection, show_release
from .records import AWAITING_APPROVAL, flow_run_tags


def show_decision(folder: RunFolder, dataset: str, decision: Decision) -> bool:
    """Set the flow runs of a release that await approval to Approved or Rejected; return whether there was one.

    Of an approved release the artifacts are made that other releases have at their end. Neither the name nor the reason of the
    person is shown: both are in the ledger.

    Raises:
        StageError: Prefect's server does not answer.
    """
    state = Completed(name="Approved" if decision.approved else "Rejected")
    conditions = {
        "name": {"any_": [folder.run]},
        "tags": {"all_": list(flow_run_tags(dataset))},
        "state": {"name": {"any_": [AWAITING_APPROVAL]}},
    }
    try:
        with get_client(sync_client=True) as client:
            waiting = client.read_flow_runs(
                flow_run_filter=FlowRunFilter.model_validate(conditions)
            )
            for flow_run in waiting:
                client.set_flow_run_state(flow_run.id, state, force=True)
    except (HTTPError, RuntimeError):  # the latter where no server listens
        raise StageError("Prefect's server does not answer") from None
    if waiting:
        show = show_release if decision.approved else show_rejection
        show(folder, dataset)
    return bool(waiting)
