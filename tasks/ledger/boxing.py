"""Accounts that 0.1.0 opened get their boxes: what `ledger upgrade` appends, and what it says of them and of begun draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from marginweave.schemas.ledger.accounts import Account, Spent
from marginweave.schemas.ledger.events import Event, EventKind
from marginweave.schemas.ledger.states import State
from marginweave.tasks.ledger.admission import is_closed
from marginweave.tasks.ledger.books import boxed_body
from marginweave.tasks.ledger.boxes import box_of_history
from marginweave.tasks.ledger.core import now
from marginweave.tasks.ledger.journal import Journal
from marginweave.tasks.ledger.moves import LEDGER_ACTOR
from marginweave.tasks.ledger.view import View


def box_accounts(journal: Journal, tell: Callable[[str], None]) -> None:
    """Append a row for each account without a box, after `tell` was given a line on each, and on each run in a draw.

    Raises:
        BudgetError: a row was changed, or the key is wrong.
    """
    view = journal.view(View())
    rows = []
    for account in view.accounts.values():
        if account.box is None:
            spent = view.spent_of(account.dataset)
            boxed = replace(account, box=box_of_history(account, spent), history=spent.cost)
            tell(_line(boxed, spent))
            rows.append(
                Event(
                    kind=EventKind.ACCOUNT_BOXED,
                    actor=LEDGER_ACTOR,
                    created=now(),
                    account=account.dataset,
                    body=boxed_body(box_of_history(account, spent), spent),
                )
            )
    for record in view.releases.values():
        begun = [draw.name for draw in record.draws if draw.state == State.DRAWN]
        if begun:
            tell(
                f"Run {record.run} of account {record.dataset}: 0.1.0 was stopped inside draw {', '.join(begun)}, and if its "
                "file is not whole only 0.1.0 can finish the run, with a spare draw. For that, restore the backup of the "
                "ledger from before this upgrade now, before anything else is booked"
            )
    if rows:
        journal.append_all(rows)


def _line(account: Account, spent: Spent) -> str:
    held = (
        "what it has spent is more than its cap holds under the new sum: it admits nothing until `marginweave ledger cap`"
        if is_closed(account, spent)
        else "what it has spent fits its cap under the new sum"
    )
    return f"Account {account.dataset}, {spent.ever} release(s): {held}"
