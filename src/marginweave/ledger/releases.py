"""Reserves, refuses, approves and publishes releases in the ledger, and records internal evaluations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from marginweave.accounting.records import (
    LEDGER_ACTOR,
    Decision,
    Event,
    EventKind,
    ReleaseRecord,
    now,
)
from marginweave.base.errors import BudgetError, InputError
from marginweave.ledger.accounts import account_in
from marginweave.ledger.admission import (
    ReleaseRequest,
    check_identity,
    record_refusal,
    refusal,
    reservation,
)
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
        """Return the releases of one account, in order of reservation.

        Raises:
            BudgetError: no such account.
        """
        view = self.session.view()
        account_in(view.accounts, dataset)
        return tuple(record for record in view.releases.values() if record.dataset == dataset)

    def newest(self, dataset: str, most: int) -> tuple[ReleaseRecord, ...]:
        """Return the newest releases of one account, at most `most`, in order of reservation.

        Raises:
            BudgetError: no such account.
        """
        with self.session.reading() as journal:
            account_in(self.session.sums(journal).accounts, dataset)
            return tuple(journal.newest_releases(dataset, most))

    def find(self, release_id: str) -> ReleaseRecord | None:
        """Return the release of this id, or None if it was never reserved."""
        return self.session.find(release_id)

    def reserve(self, request: ReleaseRequest) -> ReleaseRecord:
        """Charge the whole plan before anything is drawn, or return the release that this id was reserved for before.

        The release and each draw get a RESERVED row. A refusal is recorded once, and depends only on the plan, the ledger, the
        clock and the keyed digest of the source (`SourceDigest`).

        Raises:
            BudgetError: no account, or a frozen one; another unit or neighbors; the source has another account; over the
                cap, or over the policy of this period.
            InputError: the id was reserved with another dataset, configuration, source or plan; a plan that does not fit its
                own statement; a release to correct that is not published in this account, or is corrected already.
        """
        check_plan(request.plan)
        dataset = request.dataset
        with self.session.writing(charging=True) as journal:
            sums = self.session.sums(journal)
            moment = now()
            account = account_in(sums.accounts, dataset, opening_for(dataset, request.plan))
            record = journal.find(request.release)
            if record is not None:
                journal.rows_since([request.release])  # checks that no row of a draw is missing
                check_identity(request, record)
                check_same_plan(record, request.plan, request.program)
                return record
            check_correction(dataset, request.supersedes, journal.find)
            refused = refusal(request, account, sums, journal, moment)
            if refused is None:
                admitted_by = admitted(
                    account, sums.spent_of(dataset), request.cost, request.plan.statement
                )
                journal.append(*reservation(request, admitted_by, moment))
                return journal.release(request.release)
            record_refusal(journal, request, refused, moment)
        # after the transaction, so that the row of the refusal is committed
        raise BudgetError(refused.message)

    def check_admission(self, request: ReleaseRequest) -> None:
        """Refuse a release that could not be reserved now, before a row of its table is read.

        Nothing is charged, but a refusal is recorded. It checks neither what the release
        corrects nor whether its id was reserved before.

        Raises:
            BudgetError: no account, or a frozen one; another unit or neighbors; the source has another account; over the
                cap, or over the policy of this period.
            InputError: a plan that does not fit its own statement.
        """
        check_plan(request.plan)
        with self.session.writing() as journal:
            sums = self.session.sums(journal)
            moment = now()
            account = account_in(
                sums.accounts, request.dataset, opening_for(request.dataset, request.plan)
            )
            refused = refusal(request, account, sums, journal, moment)
            if refused is None:
                return
            record_refusal(journal, request, refused, moment)
        raise BudgetError(refused.message)

    def publish(
        self, release_id: str, lease: str, outputs: Mapping[str, str], *, actor: str = LEDGER_ACTOR
    ) -> None:
        """Record the publication of `outputs` (released file → SHA-256): once for the same files; different files add a row.

        Raises:
            BudgetError: no such release, a lease that is not the current one, a draw that is neither committed, returned
                nor lost, or a release that needs an approval.
            InputError: a correction of what another one has corrected meanwhile.
        """
        with self.session.writing() as journal:
            record = journal.release(release_id)
            check_lease(record, lease)
            _check_draws_ended(record)
            if record.needs_approval:
                raise BudgetError(
                    f"release {release_id} is published by an approval, not by its run"
                )
            if dict(outputs) != record.outputs:
                journal.append(*publication(record, outputs, journal.find, actor, now()))


@dataclass(frozen=True)
class Approvals:
    """The releases of a ledger that need an approval: the submitted files, and the one decision that is ever made on them."""

    session: Session

    def submit(self, release_id: str, lease: str, outputs: Mapping[str, str]) -> None:
        """Record the files that await approval, `outputs` (released file → SHA-256): once, and no other files after that.

        Raises:
            BudgetError: no such release, one that needs no approval, a lease that is not the current one, a draw that is
                neither committed, returned nor lost, or other files than were submitted before.
        """
        with self.session.writing() as journal:
            record = journal.release(release_id)
            check_lease(record, lease)
            _check_draws_ended(record)
            if not record.needs_approval or (record.proposed and dict(outputs) != record.proposed):
                raise BudgetError(
                    f"release {release_id} cannot be submitted: it needs no approval, or has submitted other files"
                )
            if not record.proposed:
                body = {"outputs": dict(outputs)}
                journal.append(
                    Event(
                        kind=EventKind.SUBMITTED,
                        account=record.dataset,
                        release=release_id,
                        body=body,
                    )
                )

    def decide(self, release_id: str, *, approved: bool, by: str, reason: str) -> Decision:
        """Record the decision on a submitted release, and with an approval its publication, in one transaction.

        The first decision is final: a later call writes nothing and returns the first one. What was charged stays charged
        either way.

        Raises:
            BudgetError: no such release, or one that was not submitted.
            InputError: no name, or no reason; or approved, a correction of what another one has corrected meanwhile.
        """
        _check_words("by", by)
        _check_words("reason", reason)
        with self.session.writing() as journal:
            record = journal.release(release_id)
            if not record.proposed:
                raise BudgetError(f"release {release_id} does not await approval")
            if record.decision is not None:
                return record.decision
            kind = EventKind.APPROVED if approved else EventKind.REJECTED
            row = Event(
                kind=kind,
                actor=by,
                account=record.dataset,
                release=release_id,
                body={"reason": reason},
            )
            rows = [row]
            if approved:
                rows += publication(record, record.proposed, journal.find, by, row.created)
            journal.append(*rows)
            return decision_of(row)

    def awaited(self, dataset: str) -> ReleaseRecord | None:
        """Return a release of the account that awaits approval, or None."""
        return _awaiting(self.session.view(), dataset)


@dataclass(frozen=True)
class Evaluations:
    """The internal evaluations in a ledger, which records who looks at the sensitive table."""

    session: Session

    def record(self, dataset: str, release_id: str, *, actor: str = LEDGER_ACTOR) -> None:
        """Record that somebody compared a release of this account with the sensitive table.

        Raises:
            BudgetError: no such release in this account; or a release of this account awaits approval, and the person who
                decides must have seen nothing that it was made from.
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
            journal.append(
                Event(
                    kind=EventKind.EVALUATED_INTERNALLY,
                    actor=actor,
                    account=dataset,
                    release=release_id,
                )
            )

    def precede(self, dataset: str, release: str | None) -> bool:
        """Return whether an internal evaluation precedes the reservation of `release`; with None, whether there is any.

        Raises:
            BudgetError: no such release in this account.
        """
        with self.session.reading() as journal:
            self.session.view(journal)  # checks that every row is there and unchanged
            rows = journal.release_rows(release) if release is not None else []
            reserved = [row for row in rows if row["kind"] == EventKind.RESERVED]
            if release is not None and (not reserved or reserved[0]["account"] != dataset):
                raise BudgetError(f"account {dataset} has no release {release}")
            evaluations = journal.account_rows([dataset], {EventKind.EVALUATED_INTERNALLY})
        return any(not reserved or row["seq"] < reserved[0]["seq"] for row in evaluations)


def _check_words(field: str, text: str) -> None:
    """Refuse a `text` for a `field` (a name or reason) that is blank, or cannot be printed in a line.

    Raises:
        InputError: it is blank, too long, or has characters that do not print.
    """
    if not text.strip():
        raise InputError(f"{field} must not be empty: it stays in the ledger")
    if len(text) > _LONGEST or not text.isprintable():
        raise InputError(f"{field} must be one line of at most {_LONGEST} characters")


def _awaiting(view: View, dataset: str) -> ReleaseRecord | None:
    """Return the first release of the account that was submitted and is not decided on, or None."""
    for record in view.releases.values():
        if record.proposed and record.decision is None and record.dataset == dataset:
            return record
    return None


def _check_draws_ended(record: ReleaseRecord) -> None:
    """Refuse a release with draws that can still be made.

    Raises:
        BudgetError: a draw is neither committed, returned nor lost.
    """
    if record.pending:
        raise BudgetError(
            f"release {record.release} is not finished: {', '.join(record.pending)} must be committed or given back"
        )


def check_correction(dataset: str, supersedes: str | None, find: Find) -> None:
    """Refuse a correction of a release that `find` does not return as published and not corrected; None corrects nothing.

    It also passes where the release is marked as superseded by one that `find` does not return.

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
        raise InputError(
            f"run {old.run} is superseded already, by run {newer.run}: correct that one"
        )


def publication(
    record: ReleaseRecord, outputs: Mapping[str, str], find: Find, actor: str, moment: datetime
) -> list[Event]:
    """Return the PUBLISHED row of a release with `outputs`, and the row of the release that it supersedes, if it does.

    Two corrections of one release may be begun: `find`, which reads in this transaction, shows whether another was first.

    Raises:
        InputError: another correction was published before.
    """
    row = Event(
        kind=EventKind.PUBLISHED,
        actor=actor,
        created=moment,
        account=record.dataset,
        release=record.release,
        body={"outputs": dict(outputs)},
    )
    # A first publication has superseded the other release already: a later one, of different files, supersedes nothing again.
    if record.outputs or record.supersedes is None:
        return [row]
    check_correction(record.dataset, record.supersedes, find)
    body = {"by": record.release}
    return [row, replace(row, kind=EventKind.SUPERSEDED, release=record.supersedes, body=body)]
