"""What a release tells those who watch it: an event each for finished, awaiting approval, failed, refused, nearly exhausted.

An event names dataset and run, the class of an error (never its text) and the account's public totals; no value of the table
and no count of its rows. That a release is late, or that its process has vanished, is told by Prefect's own events.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from prefect.events import emit_event
from prefect.runtime import flow_run

from marginweave.schemas.errors import BudgetError
from marginweave.schemas.ledger.accounts import AccountTotal
from marginweave.tasks.ledger.admission import is_closed


class ReleaseEvent(StrEnum):
    """Names of the events."""

    FINISHED = "marginweave.release.finished"
    AWAITING = "marginweave.release.awaiting-approval"
    FAILED = "marginweave.release.failed"
    REFUSED = "marginweave.release.refused"
    NEARLY_EXHAUSTED = "marginweave.budget.nearly-exhausted"


@dataclass
class Ending:
    """How an attempt that nothing stops is told to have ended; the flow says so if that is not `finished`."""

    event: ReleaseEvent = ReleaseEvent.FINISHED


@contextmanager
def announced(run: str) -> Iterator[Ending]:
    """Tell how the attempt at `run` ends: finished (again, where it was), awaiting approval, refused by the ledger, or failed.

    DP: post-processing; whether a release fails may depend on the data, as privacy.json says of every stop.
    """
    ending = Ending()
    try:
        yield ending
    except BudgetError as error:
        _emit(ReleaseEvent.REFUSED, run, {"error": type(error).__name__})
        raise
    except BaseException as error:  # a signal that ends the process too
        _emit(ReleaseEvent.FAILED, run, {"error": type(error).__name__})
        raise
    _emit(ending.event, run, {})


def warn_of_exhaustion(run: str, total: AccountTotal, threshold: float) -> None:
    """Tell that the account has spent `threshold` of its box or more; threshold and totals are public."""
    share = spent_share(total)
    if share >= threshold:
        account = total.account
        payload: dict[str, str | float] = {
            "dataset": account.dataset,
            "share": round(share, 4),
            "threshold": threshold,
            "epsilon": float(total.epsilon),
            "cap_epsilon": float(account.epsilon),
        }
        _emit(ReleaseEvent.NEARLY_EXHAUSTED, run, payload)


def spent_share(total: AccountTotal) -> float:
    """The largest share of a coordinate of the account's box that is spent; 1 where it admits nothing more."""
    box, cost = total.account.box, total.spent.cost
    if box is None or is_closed(total.account, total.spent):
        return 1.0
    pairs = (
        (cost.mu2, box.mu2),
        (cost.delta, box.delta_add),
        (cost.plain.epsilon, box.allowance.epsilon),
        (cost.plain.delta, box.allowance.delta),
    )
    return max((float(spent / most) for spent, most in pairs if most > 0), default=0.0)


def _emit(event: ReleaseEvent, run: str, payload: dict[str, str | float]) -> None:
    """One event about this flow run, whose deployment and tags Prefect adds as related resources.

    Told by the process itself, it waits for nothing: Prefect's triggers see the event of a state only after those of the states
    before, and a schedule tells nothing of the first one.
    """
    resource = {"prefect.resource.id": f"prefect.flow-run.{flow_run.id}", "prefect.resource.name": run}
    emit_event(event.value, resource=resource, payload={"run": run, **payload})
