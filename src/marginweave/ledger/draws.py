"""Begins, commits, loses and returns draws in the ledger; each row is appended after a check of state and lease."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from marginweave.accounting.records import TRANSITIONS, Event, EventKind, ReleaseRecord, State, now
from marginweave.base.errors import BudgetError, InputError
from marginweave.ledger.journal import Journal
from marginweave.ledger.session import Session


@dataclass(frozen=True, kw_only=True)
class Expired:
    """Releases of which draws were returned, and those that were skipped because their runs are not below the home."""

    returned: tuple[str, ...]
    elsewhere: tuple[str, ...]


@dataclass(frozen=True)
class Draws:
    """The draws of a ledger's releases. A move that is repeated under the same lease finds its row and does nothing."""

    session: Session

    def release(self, release_id: str) -> ReleaseRecord | None:
        """Return the release of this id with its draws, or None if it was never reserved."""
        return self.session.find(release_id)

    def take_lease(self, release_id: str, lease: str) -> None:
        """Make `lease`, a new name, the lease of the only valid attempt at the release: every earlier attempt is refused.

        Raises:
            BudgetError: no such release, one that is published or was submitted for approval, or a lease that was used before.
        """
        with self.session.writing() as journal:
            record = journal.release(release_id)
            if record.outputs or record.proposed:
                state = "is published" if record.outputs else "was submitted for approval"
                raise BudgetError(
                    f"release {release_id} {state}; there is nothing left to draw or to finish"
                )
            if record.lease == lease:
                return
            leases = {
                row.lease
                for row in journal.release_events(release_id)
                if row.kind == EventKind.LEASED
            }
            if lease in leases:
                raise BudgetError(f"the lease of an attempt at release {release_id} must be new")
            journal.append(
                Event(
                    kind=EventKind.LEASED, account=record.dataset, release=release_id, lease=lease
                )
            )

    def check_lease(self, release_id: str, lease: str) -> None:
        """Refuse an attempt whose lease another attempt has taken over.

        Raises:
            BudgetError: no such release, or another lease is the current one.
        """
        with self.session.reading() as journal:
            check_lease(journal.release(release_id), lease)

    def begin(
        self, release_id: str, name: str, lease: str, facts: Mapping[str, str] | None = None
    ) -> None:
        """Record RESERVED → DRAWN, before any noise is made. Only one lease ever succeeds; its row has the `facts`.

        Raises:
            BudgetError: the draw is in any other state, was begun by this lease with other facts, or the lease is not the
                current one.
        """
        with self.session.writing(charging=True) as journal:
            _move(journal, release_id, name, State.DRAWN, lease=lease, facts=facts)

    def commit(self, release_id: str, name: str, lease: str, digest: str, *, tainted: bool) -> None:
        """Record DRAWN → COMMITTED, by the current lease, which has drawn or adopts; `digest` is keyed, of the stored draw.

        Raises:
            BudgetError: another state, a lease that is not the current one, or a tainted draw (from a test's generator).
        """
        if tainted:
            raise BudgetError(
                f"draw {name} of release {release_id} is tainted: its noise is not from the operating system"
            )
        with self.session.writing() as journal:
            _move(journal, release_id, name, State.COMMITTED, lease=lease, digest=digest)

    def lose(self, release_id: str, name: str, lease: str) -> None:
        """Record DRAWN → CHARGED_LOST, by the current lease: the draw is gone and its charge stays.

        Raises:
            BudgetError: another state, or a lease that is not the current one.
        """
        with self.session.writing() as journal:
            _move(journal, release_id, name, State.CHARGED_LOST, lease=lease)

    def return_unused(self, release_id: str, names: Sequence[str]) -> None:
        """Record RESERVED → RETURNED for draws that were never begun; all of them or none.

        Raises:
            BudgetError: one of them is in another state.
        """
        with self.session.writing() as journal:
            for name in names:
                _move(journal, release_id, name, State.RETURNED)

    def expire(self, older_than: timedelta, release: str | None = None) -> Expired:
        """Return the RESERVED draws of releases whose newest row is older than `older_than` to their accounts.

        Draws that were begun stay charged: only RESERVED draws expire, of which it is certain that no noise was drawn. Only
        releases without a begun draw expire, as their runs can reserve them again. A release with a begun draw could never be
        finished afterwards: it must be named as `release`, and then no other release expires. The same holds for a release
        whose run is not below the home that is the witness: the run may have seen more than this ledger has.

        Raises:
            InputError: a negative age.
            BudgetError: no such release.
        """
        if older_than < timedelta(0):
            raise InputError("older-than must not be negative")
        home = self.session.witness
        with self.session.writing() as journal:
            view = self.session.view(journal)
            newest_row_time = {event.release: event.created for event in journal.all_events()}
            chosen = view.releases.values() if release is None else [journal.release(release)]
            returned = []
            elsewhere = []
            for record in chosen:
                reserved = [draw.name for draw in record.draws if draw.state == State.RESERVED]
                if not reserved or (release is None and _has_begun(record)):
                    continue
                if newest_row_time[record.release] >= now() - older_than:
                    continue
                if release is None and home is not None and not home.has(record.run):
                    elsewhere.append(record.release)
                    continue
                for name in reserved:
                    _move(journal, record.release, name, State.RETURNED)
                returned.append(record.release)
        return Expired(returned=tuple(returned), elsewhere=tuple(elsewhere))


def _has_begun(record: ReleaseRecord) -> bool:
    """Return whether a draw of the release was begun."""
    return any(draw.state not in {State.RESERVED, State.RETURNED} for draw in record.draws)


def check_lease(record: ReleaseRecord, lease: str | None) -> None:
    """Refuse every attempt but the newest.

    Raises:
        BudgetError: no lease was taken, or another one since.
    """
    if record.lease is None:
        raise BudgetError(
            f"release {record.release} has no lease; an attempt takes one before it draws"
        )
    if record.lease != lease:
        raise BudgetError(
            f"another attempt has taken over release {record.release}; this one must not continue"
        )


def _move(
    journal: Journal,
    release_id: str,
    name: str,
    target: State,
    *,
    lease: str | None = None,
    digest: str | None = None,
    facts: Mapping[str, str] | None = None,
) -> None:
    """Append the row that brings draw `name` to the state `target`; only RETURNED needs no lease.

    The row keeps the lease under which the draw was begun, which names its file; `by` in its body is the lease that adopts
    the draw. A repetition of the draw's newest row appends nothing.

    Raises:
        BudgetError: no such release or draw, a transition that does not exist, or a lease that is not the current one.
    """
    record = journal.release(release_id)
    draw = record.draw(name)
    if draw is None:
        raise BudgetError(f"release {release_id} has no draw {name}")
    if target != State.RETURNED:
        check_lease(record, lease)
    body: dict[str, str | None] = dict(facts or {})
    if lease is not None and target != State.DRAWN and draw.lease != lease:
        body["by"] = lease
    entry = Event(
        kind=target,
        account=record.dataset,
        release=release_id,
        draw=name,
        lease=lease if target == State.DRAWN else draw.lease,
        digest=digest,
        body=body,
    )
    newest = [event for event in journal.release_events(release_id) if event.draw == name][-1]
    if newest == replace(entry, created=newest.created):
        return
    if (draw.state, target) not in TRANSITIONS:
        raise BudgetError(
            f"draw {name} of release {release_id} is {draw.state}; it cannot become {target}"
        )
    journal.append(entry)
