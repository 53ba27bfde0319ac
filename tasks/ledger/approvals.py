"""Approvals in the ledger: what awaits one, and the one decision that is ever made on it."""

from __future__ import annotations

from collections.abc import Mapping

from marginweave.schemas.errors import BudgetError, InputError
from marginweave.schemas.ledger.events import Event, EventKind
from marginweave.schemas.ledger.releases import Decision, ReleaseRecord
from marginweave.tasks.ledger.books import decision_of
from marginweave.tasks.ledger.checks import release_in
from marginweave.tasks.ledger.core import LedgerCore, now
from marginweave.tasks.ledger.moves import LEDGER_ACTOR, check_lease
from marginweave.tasks.ledger.publishing import check_settled, publication

_LONGEST = 1000


class Approvals(LedgerCore):
    """The methods of the ledger on releases that need an approval."""

    def submit(self, release_id: str, lease: str, outputs: Mapping[str, str]) -> None:
        """Book what awaits approval: `outputs` (released file → SHA-256), fixed from here on; the same again is booked once.

        Raises:
            BudgetError: no such release, one that needs no approval, a lease that is not the current one, a draw that is
                neither committed, returned nor lost, or other files than were submitted before.
        """
        with self._writing() as journal:
            record = release_in(journal, release_id)
            check_lease(record, lease)
            check_settled(record)
            if not record.needs_approval or (record.proposed and dict(outputs) != record.proposed):
                raise BudgetError(
                    f"release {release_id} cannot be submitted: it needs no approval, or has submitted other files"
                )
            if not record.proposed:
                journal.append(
                    Event(
                        kind=EventKind.SUBMITTED,
                        actor=LEDGER_ACTOR,
                        created=now(),
                        account=record.dataset,
                        release=release_id,
                        body={"outputs": dict(outputs)},
                    )
                )

    def decide(self, release_id: str, *, approved: bool, by: str, reason: str) -> Decision:
        """Write down the decision on a submitted release, and with an approval its publication, in one transaction.

        The first decision stands: a later one, of whoever it is, writes nothing and gets the first one back. What was
        charged stays charged either way.

        Raises:
            BudgetError: no such release, or one that was not submitted.
            InputError: no name, or no reason; or approved, a correction of what another one has corrected meanwhile.
        """
        check_words("by", by)
        check_words("reason", reason)
        with self._writing() as journal:
            record = release_in(journal, release_id)
            if not record.proposed:
                raise BudgetError(f"release {release_id} does not await approval")
            if record.decision is not None:
                return record.decision
            first = _decision(record, approved=approved, by=by, reason=reason)
            more = (
                publication(record, record.proposed, self._view(journal).releases, by, first.created)
                if approved
                else []
            )
            journal.append_all([first, *more])
            return decision_of(first)


def _decision(record: ReleaseRecord, *, approved: bool, by: str, reason: str) -> Event:
    return Event(
        kind=EventKind.APPROVED if approved else EventKind.REJECTED,
        actor=by,
        created=now(),
        account=record.dataset,
        release=record.release,
        body={"reason": reason},
    )


def check_words(what: str, text: str) -> None:
    """Refuse a name or reason that says nothing, or could not be printed in a line.

    Raises:
        InputError: it is blank, too long, or has characters that do not print.
    """
    if not text.strip():
        raise InputError(f"{what} must not be empty: it stays in the ledger")
    if len(text) > _LONGEST or not text.isprintable():
        raise InputError(f"{what} must be one line of at most {_LONGEST} characters")
