"""Approvals in the ledger, and internal evaluations, which whoever approves must not have seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from marginweave.schemas.errors import BudgetError, InputError
from marginweave.schemas.ledger.records import LEDGER_ACTOR, Decision, Event, EventKind, ReleaseRecord
from marginweave.tasks.ledger.draws import check_lease
from marginweave.tasks.ledger.records import decision_of
from marginweave.tasks.ledger.releases import check_draws_ended, publication
from marginweave.tasks.ledger.session import Session, View

_LONGEST = 1000


@dataclass(frozen=True)
class Approvals:
    """The releases of a ledger that need an approval: what was submitted, and the one decision that is ever made on it."""

    session: Session

    def submit(self, release_id: str, lease: str, outputs: Mapping[str, str]) -> None:
        """Write down what awaits approval: `outputs` (released file → SHA-256), fixed from here on; once, however often.

        Raises:
            BudgetError: no such release, one that needs no approval, a lease that is not the current one, a draw that is
                neither committed, returned nor lost, or other files than were submitted before.
        """
        with self.session.writing() as journal:
            record = journal.release(release_id)
            check_lease(record, lease)
            check_draws_ended(record)
            if not record.needs_approval or (record.proposed and dict(outputs) != record.proposed):
                raise BudgetError(
                    f"release {release_id} cannot be submitted: it needs no approval, or has submitted other files"
                )
            if not record.proposed:
                body = {"outputs": dict(outputs)}
                journal.append(Event(kind=EventKind.SUBMITTED, account=record.dataset, release=release_id, body=body))

    def decide(self, release_id: str, *, approved: bool, by: str, reason: str) -> Decision:
        """Write down the decision on a submitted release, and with an approval its publication, in one transaction.

        The first decision is final: a later one writes nothing and gets the first one back. What was charged stays charged
        either way.

        Raises:
            BudgetError: no such release, or one that was not submitted.
            InputError: no name, or no reason; or approved, a correction of what another one has corrected meanwhile.
        """
        check_words("by", by)
        check_words("reason", reason)
        with self.session.writing() as journal:
            record = journal.release(release_id)
            if not record.proposed:
                raise BudgetError(f"release {release_id} does not await approval")
            if record.decision is not None:
                return record.decision
            kind = EventKind.APPROVED if approved else EventKind.REJECTED
            first = Event(kind=kind, actor=by, account=record.dataset, release=release_id, body={"reason": reason})
            releases = self.session.view(journal).releases
            more = publication(record, record.proposed, releases, by, first.created) if approved else []
            journal.append(first, *more)
            return decision_of(first)

    def awaited(self, dataset: str) -> ReleaseRecord | None:
        """A release that awaits approval, of the account or of any that an alias ties to it; None where nothing does."""
        return _awaiting(self.session.view(), dataset)


@dataclass(frozen=True)
class Evaluations:
    """The internal evaluations in a ledger: who looks at the sensitive table is written down."""

    session: Session

    def record(self, dataset: str, release_id: str, *, actor: str = LEDGER_ACTOR) -> None:
        """Write down that somebody compared a release of this account with the sensitive table.

        Raises:
            BudgetError: no such release in this account; or one about the same people awaits approval, and whoever decides on
                it must have seen nothing that it was made from.
        """
        with self.session.writing() as journal:
            if journal.release(release_id).dataset != dataset:
                raise BudgetError(f"release {release_id} is not of account {dataset}")
            waiting = _awaiting(self.session.view(journal), dataset)
            if waiting is not None:
                raise BudgetError(
                    f"run {waiting.run} of account {waiting.dataset} awaits approval, and whoever decides must have seen "
                    "nothing that it was made from: approve or reject it before an internal evaluation"
                )
            journal.append(Event(kind=EventKind.EVALUATED_INTERNALLY, actor=actor, account=dataset, release=release_id))

    def precede(self, dataset: str, release: str | None) -> bool:
        """Whether an internal evaluation precedes the reservation of `release` (None: precedes now).

        One of the account, or of any that an alias ties to it, whichever of the two was named: they are the same people.

        Raises:
            BudgetError: no such release in this account.
        """
        evaluated: set[str] = set()
        pairs: list[set[str]] = []
        for event in self.session.events():
            if release is not None and event.release == release and event.kind == EventKind.RESERVED:
                if event.account == dataset:
                    break
            elif event.kind == EventKind.EVALUATED_INTERNALLY:
                evaluated.add(str(event.account))
            elif event.kind == EventKind.ALIASED:
                pairs.append({str(event.account), str(event.body["other"])})
        else:
            if release is not None:
                raise BudgetError(f"account {dataset} has no release {release}")
        return bool(evaluated & _tied(pairs, dataset))


def check_words(what: str, text: str) -> None:
    """Refuse a name or reason that says nothing, or could not be printed in a line.

    Raises:
        InputError: it is blank, too long, or has characters that do not print.
    """
    if not text.strip():
        raise InputError(f"{what} must not be empty: it stays in the ledger")
    if len(text) > _LONGEST or not text.isprintable():
        raise InputError(f"{what} must be one line of at most {_LONGEST} characters")


def _awaiting(view: View, dataset: str) -> ReleaseRecord | None:
    pairs = [{account.dataset, alias} for account in view.accounts.values() for alias in account.aliases]
    same = _tied(pairs, dataset)
    undecided = (record for record in view.releases.values() if record.proposed and record.decision is None)
    return next((record for record in undecided if record.dataset in same), None)


def _tied(pairs: list[set[str]], dataset: str) -> set[str]:
    """The account and all that aliases tie to it, whichever of two was named, also through a third one."""
    tied = {dataset}
    while found := [pair for pair in pairs if pair & tied and not pair <= tied]:
        tied.update(*found)
    return tied
