"""Refusals in the ledger: one row, however often the same release is tried while nothing has changed."""

from __future__ import annotations

from datetime import datetime

from marginweave.schemas.ledger.events import Event, EventKind
from marginweave.tasks.ledger.admission import Refusal, Request
from marginweave.tasks.ledger.journal import Journal

# What may make of a refusal an admission, or of its reason another one.
_CHANGES = frozenset(
    {
        EventKind.OPENED,
        EventKind.ACCOUNT_BOXED,
        EventKind.CAP_CHANGED,
        EventKind.ALIASED,
        EventKind.RESERVED,
        EventKind.RETURNED,
    }
)


def note_refusal(journal: Journal, request: Request, refused: Refusal, run: str, actor: str, moment: datetime) -> None:
    """Append the REFUSED row of a release, unless the newest that is said of its run, plan and reason still stands."""
    body = {
        "epsilon": str(request.statement.epsilon),
        "delta": str(request.statement.delta),
        "run": run,
        "plan_digest": request.plan_digest,
        "unit": request.unit,
        "neighbors": request.neighbors,
        "reason": refused.reason,
    }
    for event in reversed(journal.all_events()):
        if event.account != request.dataset:
            continue
        if event.kind in _CHANGES:
            break
        if event.kind == EventKind.REFUSED and dict(event.body) == body:
            return
    journal.append(Event(kind=EventKind.REFUSED, actor=actor, created=moment, account=request.dataset, body=body))
