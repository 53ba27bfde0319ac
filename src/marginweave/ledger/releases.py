"""Releases in the ledger: reserved, refused, approved, published; and internal evaluations, which no decision follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from marginweave.accounting.records import LEDGER_ACTOR, Decision, Event, EventKind, ReleaseRecord, now
from marginweave.base.errors import BudgetError, InputError
from marginweave.ledger.accounts import account_in
from marginweave.ledger.admission import ReleaseRequest, check_identity, record_refusal, refusal, reservation
from marginweave.ledger.boxes import admitted
from marginweave.ledger.draws import check_lease
from marginweave.ledger.location import opening_for
from marginweave.ledger.plans import check_plan, check_same_plan
from marginweave.ledger.records import decision_of
from marginweave.ledger.session import Session
from marginweave.ledger.view import View

_LONGEST = 1000
Find = Callable[[str], ReleaseRecord | None]


@dataclass(frozen=True)
class Releases:
    """The releases of a ledger."""

    session: Session

    def of(self, dataset: str) -> tuple[ReleaseRecord, ...]:
        """The releases of one account, in order of reservation.

        Raises:
            BudgetError: no such account.
        """
        view = self.session.view()
        account_in(view.accounts, dataset)
        return tuple(record for record in view.releases.values() if record.dataset == dataset)

    def newest(self, dataset: str, most: int) -> tuple[ReleaseRecord, ...]:
        """The newest releases of one account, at most so many, in order of reservation.

        Raises:
            BudgetError: no such account.
        """
        with self.session.reading() as journal:
            account_in(self.session.sums(journal).accounts, dataset)
            return tuple(journal.newest_releases(dataset, most))

    def find(self, release_id: str) -> ReleaseRecord | None:
        """The release of this id, or None if it was never reserved."""
        return self.session.find(release_id)

    def reserve(self, request: ReleaseRequest) -> ReleaseRecord:
        """Charge the whole plan before anything is drawn, or return the release that this id was reserved for before.

        One RESERVED row for the release and one for each draw. A refusal is a row, too, once, and depends on the plan, the
        ledger, the clock and the keyed digest of the source (`SourceDigest`) only.

        Raises:
            BudgetError: no account; another unit or neighbors; the source has another account; over the cap, or over the
                policy of this period.
            InputError: the id was reserved with another dataset, configuration, source or plan; a plan that does not fit its
                own statement; a release to correct that is not published in this account, or is corrected already.
        """
        check_plan(request.plan)
        dataset = request.dataset
        with self.session.writing(charging=True) as journal:
            sums, moment = self.session.sums(journal), now()
            account = account_in(sums.accounts, dataset, opening_for(dataset, request.plan))
            if (known := journal.find(request.release)) is not None:
                journal.rows_since([request.release])  # nothing that it has drawn is missing
                check_identity(request, known)
                check_same_plan(known, request.plan, request.program)
                return known
            check_correction(dataset, request.supersedes, journal.find)
            refused = refusal(request, account, sums, journal, moment)
            if refused is None:
                how = admitted(account, sums.spent_of(dataset), request.cost, request.plan.statement)
                journal.append(*reservation(request, how, moment))
                return journal.release(request.release)
            record_refusal(journal, request, refused, moment)
        raise BudgetError(refused.message)  # outside the transaction, which keeps the refusal

    def check_admission(self, request: ReleaseRequest) -> None:
        """Refuse a release that could not be reserved now, before a row of its table is read; nothing is charged.

        Raises:
            BudgetError, InputError: as `reserve`.
        """
        check_plan(request.plan)
        with self.session.writing() as journal:
            sums, moment = self.session.sums(journal), now()
            account = account_in(sums.accounts, request.dataset, opening_for(request.dataset, request.plan))
            refused = refusal(request, account, sums, journal, moment)
            if refused is None:
                return
            record_refusal(journal, request, refused, moment)
        raise BudgetError(refused.message)

    def publish(self, release_id: str, lease: str, outputs: Mapping[str, str], *, actor: str = LEDGER_ACTOR) -> None:
        """Write down the publication of `outputs` (released file → SHA-256), once, however often they are published.

        Raises:
            BudgetError: no such release, a lease that is not the current one, a draw that is neither committed, returned
                nor lost, or a release that needs an approval.
            InputError: a correction of what another one has corrected meanwhile.
        """
        with self.session.writing() as journal:
            record = journal.release(release_id)
            check_lease(record, lease)
            check_draws_ended(record)
            if record.needs_approval:
                raise BudgetError(f"release {release_id} is published by an approval, not by its run")
            if dict(outputs) != record.outputs:
                journal.append(*publication(record, outputs, journal.find, actor, now()))


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
            more = publication(record, record.proposed, journal.find, by, first.created) if approved else []
            journal.append(first, *more)
            return decision_of(first)

    def awaited(self, dataset: str) -> ReleaseRecord | None:
        """A release that awaits approval, of the account; None where nothing does."""
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
                    f"run {waiting.run} of account {waiting.dataset} awaits approval, and the person who decides must have "
                    "seen nothing that it was made from: approve or reject it before an internal evaluation"
                )
            journal.append(Event(kind=EventKind.EVALUATED_INTERNALLY, actor=actor, account=dataset, release=release_id))

    def precede(self, dataset: str, release: str | None) -> bool:
        """Whether an internal evaluation precedes the reservation of `release` (None: precedes now).

        Raises:
            BudgetError: no such release in this account.
        """
        with self.session.reading() as journal:
            self.session.view(journal)  # every row is there, and fits
            rows = journal.release_rows(release) if release is not None else []
            own = [row for row in rows if row["kind"] == EventKind.RESERVED]
            if release is not None and (not own or own[0]["account"] != dataset):
                raise BudgetError(f"account {dataset} has no release {release}")
            looks = journal.account_rows([dataset], {EventKind.EVALUATED_INTERNALLY})
        return any(not own or look["seq"] < own[0]["seq"] for look in looks)


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
    undecided = (record for record in view.releases.values() if record.proposed and record.decision is None)
    return next((record for record in undecided if record.dataset == dataset), None)


def check_draws_ended(record: ReleaseRecord) -> None:
    """Refuse a release with draws that may still be made.

    Raises:
        BudgetError: a draw is neither committed, returned nor lost.
    """
    if record.pending:
        raise BudgetError(
            f"release {record.release} is not finished: {', '.join(record.pending)} must be committed or given back"
        )


def check_correction(dataset: str, supersedes: str | None, find: Find) -> None:
    """Refuse a correction of what is not there to be corrected, as far as `find` finds it; None corrects nothing.

    Raises:
        InputError: no such published release in the account, or one that is corrected already.
    """
    if supersedes is None:
        return
    old = find(supersedes)
    if old is None or old.dataset != dataset or not old.outputs:
        raise InputError(f"release {supersedes} is not a published release of account {dataset}")
    newer = find(old.superseded_by) if old.superseded_by is not None else None
    if newer is not None:
        raise InputError(f"run {old.run} is superseded already, by run {newer.run}: correct that one")


def publication(
    record: ReleaseRecord, outputs: Mapping[str, str], find: Find, actor: str, moment: datetime
) -> list[Event]:
    """The PUBLISHED row of a release with `outputs`, and that of the release that it supersedes, if there is one.

    Two corrections of one release may be begun: what `find` finds in this transaction says which one was first.

    Raises:
        InputError: another correction was published before.
    """
    about = Event(kind=EventKind.PUBLISHED, actor=actor, created=moment, account=record.dataset, release=record.release)
    row = replace(about, body={"outputs": dict(outputs)})
    if record.outputs or record.supersedes is None:
        return [row]
    check_correction(record.dataset, record.supersedes, find)
    return [row, replace(row, kind=EventKind.SUPERSEDED, release=record.supersedes, body={"by": record.release})]
