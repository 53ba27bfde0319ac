"""What Prefect is given to show of a release: events, artifacts, and the end of flow runs that a killed process left behind.

An event names dataset and run, the class of an error (never its text) and the account's public totals; no value of the table
and no count of its rows. That a release is late, or that its process has vanished, is in Prefect's own events. Artifacts are a
copy for people, never read by anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

from prefect import artifacts
from prefect.events import emit_event
from prefect.runtime import flow_run

from marginweave.schemas.errors import BudgetError, MarginweaveError
from marginweave.schemas.ledger.accounts import AccountTotal
from marginweave.schemas.ledger.records import CHARGED
from marginweave.schemas.released.evaluation import Evaluation, MarginalDistance
from marginweave.schemas.released.statement import PrivacyStatement
from marginweave.tasks.ledger.boxes import is_closed
from marginweave.tasks.references import RunReference

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


@contextmanager
def announced(run: str) -> Iterator[None]:
    """Emit how the attempt at `run` ends where something stops it: refused by the ledger, or failed.

    DP: post-processing; whether a release fails may depend on the data, as privacy.json says of every stop.
    """
    try:
        yield
    except BaseException as error:  # a signal that ends the process too
        event = ReleaseEvent.REFUSED if isinstance(error, BudgetError) else ReleaseEvent.FAILED
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


def spent_share(total: AccountTotal) -> float:
    """The largest share of a coordinate of the account's box that is spent; 1 where it admits nothing more."""
    box, cost = total.account.box, total.spent.cost
    if box is None or is_closed(total.account, total.spent):
        return 1.0
    amounts = cost.mu2, cost.delta, cost.plain.epsilon, cost.plain.delta
    pairs = zip(amounts, box.amounts, strict=True)
    return max((float(spent / most) for spent, most in pairs if most > 0), default=0.0)


def _emit(event: ReleaseEvent, run: str, payload: Mapping[str, str | float]) -> None:
    """One event about this flow run, whose deployment and tags Prefect adds as related resources.

    Sent by the process itself, it waits for nothing: Prefect's triggers see the event of a state only after those of the states
    before, and a schedule tells nothing of the first one.
    """
    resource = {"prefect.resource.id": f"prefect.flow-run.{flow_run.id}", "prefect.resource.name": run}
    emit_event(event.value, resource=resource, payload={"run": run, **payload})


@contextmanager
def shown_in_prefect(reference: RunReference) -> Iterator[None]:
    """Make artifacts at the end of a release: its draws, also where it stops after something was charged, and its numbers.

    They have public facts of the plan, the states in the ledger, and what was published. The release is complete without
    them: a server that cannot take them changes nothing.
    """
    try:
        yield
    except MarginweaveError:
        _show_budget(reference)
        raise
    _show_budget(reference)
    _show_release(reference)


def _show_budget(reference: RunReference) -> None:
    with suppress(Exception):  # the ledger's disk may be what stopped the run
        record = reference.ledger.releases.find(reference.manifest.release)
        if record is None or not any(draw.state in CHARGED for draw in record.draws):
            return
        rows = [{"draw": draw.name, "state": draw.state.value, **draw.cost.texts} for draw in record.draws]
        artifacts.create_table_artifact(
            key=f"budget-of-{record.release}",
            table=rows,
            description=f"Budget of run {record.run}, account {record.dataset}: a copy, the ledger is what counts",
        )


def _show_release(reference: RunReference) -> None:
    """Table of the releasable evaluation, a summary, and a link to the report; from the published files alone.

    Of a release that awaits approval there are none yet, and nothing is shown; nor later, as no flow run approves it.
    """
    place = reference.folder.release
    with suppress(Exception):
        statement = PrivacyStatement.from_json((place / "privacy.json").read_bytes())
        evaluation = Evaluation.from_json((place / "evaluation.json").read_bytes())
        release, run, guarantee, account = statement.release, statement.run, statement.guarantee, statement.account
        artifacts.create_table_artifact(
            key=f"evaluation-of-{release}",
            # never against counts
            table=[row.model_dump(exclude={"tvd_missing", "l1_missing"}) for row in evaluation.lengths],
            description=f"Synthetic records of run {run} against its released counts",
        )
        artifacts.create_markdown_artifact(
            key=f"release-{release}",
            markdown=(
                f"**{statement.dataset}**, run {run}: epsilon {guarantee.epsilon:g}, delta {guarantee.delta:g} "
                f"for one {guarantee.unit}.\n\nThe account has spent epsilon {account.epsilon:.4g} of "
                f"{account.cap_epsilon:g} at delta {account.delta:g}, in {account.releases} release(s).\n\n"
                f"{_marginals_table(evaluation.marginals)}"
            ),
            description=f"What run {run} guarantees, and which marginals its records keep worst",
        )
        artifacts.create_link_artifact(
            key=f"report-of-{release}",
            link=(place / "report.html").resolve().as_uri(),
            link_text="report.html",
            description=f"Report of run {run}",
        )


def _marginals_table(marginals: Sequence[MarginalDistance]) -> str:
    """The worst marginals as a table in Markdown."""
    lines = ["| marginal | TVD | implied by noise |", "| --- | --- | --- |"]
    for row in marginals:
        names = ", ".join(row.attributes).replace("|", "\\|")
        noise = "" if row.noise is None else f"{row.noise:.3f}"
        lines.append(f"| {names} | {row.tvd:.3f} | {noise} |")
    return "\n".join(lines) + "\n"


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
    from prefect.client.schemas.filters import FlowRunFilter

    with suppress(Exception), get_client(sync_client=True) as client:
        tag = release_tag(release)
        if tag not in flow_run.tags:
            client.update_flow_run(UUID(own), tags=[*flow_run.tags, tag])
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
