"""Internal evaluations in the ledger: who looks at the sensitive table is written down."""

from __future__ import annotations

from collections.abc import Mapping

from marginweave.schemas.errors import BudgetError
from marginweave.schemas.ledger.accounts import Account
from marginweave.schemas.ledger.events import Event, EventKind
from marginweave.schemas.ledger.releases import ReleaseRecord
from marginweave.tasks.ledger.checks import release_in
from marginweave.tasks.ledger.core import LedgerCore, now
from marginweave.tasks.ledger.moves import LEDGER_ACTOR
from marginweave.tasks.ledger.view import View


class Evaluations(LedgerCore):
    """The methods of the ledger on internal evaluations."""

    def record_internal_evaluation(self, dataset: str, release_id: str, *, actor: str = LEDGER_ACTOR) -> None:
        """Book that somebody compared a release of this account with the sensitive table.

        Raises:
            BudgetError: no such release in this account; or one about the same people awaits approval, and whoever decides on
                it must have seen nothing that it was made from.
        """
        with self._writing() as journal:
            record = release_in(journal, release_id)
            if record.dataset != dataset:
                raise BudgetError(f"release {release_id} is not of account {dataset}")
            waiting = _awaiting(self._view(journal), dataset)
            if waiting is not None:
                raise BudgetError(
                    f"run {waiting.run} of account {waiting.dataset} awaits approval, and whoever decides must have seen "
                    "nothing that it was made from: approve or reject it before an internal evaluation"
                )
            journal.append(
                Event(
                    kind=EventKind.EVALUATED_INTERNALLY,
                    actor=actor,
                    created=now(),
                    account=dataset,
                    release=release_id,
                )
            )

    def awaiting_approval(self, dataset: str) -> ReleaseRecord | None:
        """A release that awaits approval, of the account or of any that an alias ties to it; None where nothing does."""
        return _awaiting(self._now(), dataset)

    def internally_evaluated(self, dataset: str, before: str | None) -> bool:
        """Whether an internal evaluation precedes the reservation of release `before` (None: precedes now).

        One of the account, or of any that an alias ties to it, whichever of the two was named: they are the same people.

        Raises:
            BudgetError: no release `before` in this account.
        """
        evaluated: set[str] = set()
        same = {dataset: {dataset}}
        for event in self._all_events():
            if before is not None and event.release == before and event.kind == EventKind.RESERVED:
                if event.account == dataset:
                    return bool(evaluated & same[dataset])
            elif event.kind == EventKind.EVALUATED_INTERNALLY:
                evaluated.add(str(event.account))
            elif event.kind == EventKind.ALIASED:
                pair = (str(event.account), str(event.body["other"]))
                tied = {account for name in pair for account in same.get(name, {name})}
                same |= dict.fromkeys(tied, tied)
        if before is not None:
            raise BudgetError(f"account {dataset} has no release {before}")
        return bool(evaluated & same[dataset])


def _awaiting(view: View, dataset: str) -> ReleaseRecord | None:
    same = _tied(view.accounts, dataset)
    undecided = (record for record in view.releases.values() if record.proposed and record.decision is None)
    return next((record for record in undecided if record.dataset in same), None)


def _tied(accounts: Mapping[str, Account], dataset: str) -> set[str]:
    """The account and all that aliases tie to it, whichever of two was named, also through a third one."""
    pairs = [{account.dataset, alias} for account in accounts.values() for alias in account.aliases]
    tied = {dataset}
    while found := [pair for pair in pairs if pair & tied and not pair <= tied]:
        tied.update(*found)
    return tied
