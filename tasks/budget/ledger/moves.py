"""The one place where a draw changes its state: compare state and lease, then append, inside one transaction."""

from __future__ import annotations

from datetime import datetime

from marginweave.schemas.errors import BudgetError
from marginweave.schemas.ledger import TRANSITIONS, Event, EventKind, State
from marginweave.tasks.budget.ledger.checks import release_in
from marginweave.tasks.budget.ledger.journal import Journal

LEDGER_ACTOR = "marginweave"


def move_draw(
    journal: Journal,
    release_id: str,
    name: str,
    target: State,
    *,
    now: datetime,
    lease: str | None = None,
    digest: str | None = None,
) -> None:
    """Append the row that brings draw `name` to `target`; a draw that was begun moves under its own lease only.

    Raises:
        BudgetError: no such release or draw, a transition that does not exist, or another lease.
    """
    record = release_in(journal, release_id)
    draw = record.draw(name)
    if draw is None:
        raise BudgetError(f"release {release_id} has no draw {name}")
    if (draw.state, target) not in TRANSITIONS:
        raise BudgetError(f"draw {name} of release {release_id} is {draw.state}; it cannot become {target}")
    if draw.state == State.DRAWN and draw.lease != lease:
        raise BudgetError(f"draw {name} of release {release_id} was begun under another lease")
    journal.append(
        Event(
            kind=EventKind(target.value),
            actor=LEDGER_ACTOR,
            created=now,
            account=record.dataset,
            release=release_id,
            draw=name,
            lease=lease,
            digest=digest,
        )
    )
