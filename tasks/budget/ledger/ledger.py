"""The budget ledger: the only authority on what may be drawn. Append-only, sealed, and closed where anything is missing."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from marginweave.schemas.budget import BudgetPlan
from marginweave.schemas.errors import BudgetError, InputError
from marginweave.schemas.ledger import Account, AccountTotal, Event, EventKind, ReleaseRecord, State
from marginweave.tasks.budget.ledger.admission import Request, account_total, check_identity, refusal, total_with
from marginweave.tasks.budget.ledger.books import (
    account_body,
    accounts_of,
    cap_body,
    release_body,
    release_of,
    releases_of,
    stated,
)
from marginweave.tasks.budget.ledger.checks import account_in, check_cap, check_dataset, check_plan, release_in
from marginweave.tasks.budget.ledger.creation import create_files
from marginweave.tasks.budget.ledger.journal import Journal, sqlite_engine, transaction
from marginweave.tasks.budget.ledger.key import load_key, subkey
from marginweave.tasks.budget.ledger.location import opening_command
from marginweave.tasks.budget.ledger.moves import LEDGER_ACTOR, move_draw

_FORMAT = 1


class Ledger:
    """The ledger at `location`, sealed with `key`; made by `open` or `create`. Every method is one transaction."""

    def __init__(self, *, location: Path, engine: Engine, key: bytes) -> None:
        self.location = location
        self._engine = engine
        self._key = key

    @classmethod
    def open(cls, location: Path, *, environment: Mapping[str, str] = os.environ, command: str | None = None) -> Ledger:
        """The ledger that exists at `location`; nothing is created.

        Args:
            location: the database file.
            environment: where MARGINWEAVE_LEDGER_KEY may stand.
            command: the command that would open what is missing (`opening_command`), for the end of a refusal.

        Raises:
            BudgetError: no database, no key, or a key that does not verify the newest row.
            InputError: MARGINWEAVE_LEDGER_KEY is malformed.
        """
        command = command or opening_command()
        try:
            exists = location.is_file()
        except OSError as error:
            raise BudgetError(f"the ledger at {location} cannot be read: {error.strerror}") from None
        if not exists:
            raise BudgetError(f"there is no ledger at {location}; open an account: {command}")
        key = load_key(location, environment, command)
        ledger = cls(location=location, engine=sqlite_engine(location), key=key)
        with ledger._reading() as journal:
            journal.check_newest()
        return ledger

    @classmethod
    def create(cls, location: Path, *, environment: Mapping[str, str] = os.environ) -> Ledger:
        """The ledger at `location`, made (database 0600, a new folder 0700, key) if it does not exist.

        Raises:
            BudgetError: the database was lost while its key is there, or as `open`.
            InputError: MARGINWEAVE_LEDGER_KEY is malformed.
        """
        first = Event(kind=EventKind.LEDGER_CREATED, actor=LEDGER_ACTOR, created=_now(), body={"format": _FORMAT})
        create_files(location, environment, first)
        return cls.open(location, environment=environment)

    @property
    def checkpoint_key(self) -> bytes:
        """The key for checkpoints and draws of runs under this ledger; 32 bytes derived from the ledger's key."""
        return subkey(self._key, "checkpoint")

    def source_digest(self, chunks: Iterable[bytes]) -> str:
        """HMAC-SHA256 of the concatenated chunks under a key derived from the ledger's, hex: equal for equal bytes only."""
        digest = hmac.new(subkey(self._key, "source"), digestmod=hashlib.sha256)
        for chunk in chunks:
            digest.update(chunk)
        return digest.hexdigest()

    def verify(self) -> int:
        """Check every row and its place in the chain; the number of rows.

        Raises:
            BudgetError: names the first row that does not fit.
        """
        with self._reading() as journal:
            return len(journal.all_events())

    # accounts

    def open_account(self, account: Account, *, actor: str) -> None:
        """Open `account`; again with the same facts does nothing.

        Raises:
            BudgetError: it is open with other facts.
            InputError: a name or number that breaks a rule.
        """
        check_dataset(account.dataset)
        check_cap(float(account.epsilon), float(account.delta))
        with self._writing() as journal:
            present = accounts_of(journal.all_events()).get(account.dataset)
            if present is None:
                body = account_body(account)
                journal.add_account(
                    Event(kind=EventKind.OPENED, actor=actor, created=_now(), account=account.dataset, body=body)
                )
            elif account_body(present) != account_body(account):
                raise BudgetError(
                    f"account {account.dataset} is open with epsilon {present.epsilon:f}, delta {float(present.delta)!r}, "
                    f"unit {present.unit}, neighbors {present.neighbors}; "
                    "`marginweave ledger cap` changes a cap, the rest stays"
                )

    def change_cap(self, dataset: str, epsilon: float, delta: float, reason: str, actor: str) -> None:
        """Set the cap of an account to (epsilon, delta); what was spent stays spent.

        Raises:
            BudgetError: no such account.
            InputError: epsilon, delta or reason break a rule.
        """
        check_cap(float(epsilon), float(delta))
        if not reason.strip():
            raise InputError("reason must say why the cap is changed")
        with self._writing() as journal:
            account_in(accounts_of(journal.all_events()), dataset, opening_command(dataset))
            body = {**cap_body(epsilon, delta), "reason": reason}
            journal.append(Event(kind=EventKind.CAP_CHANGED, actor=actor, created=_now(), account=dataset, body=body))

    def accounts(self) -> tuple[AccountTotal, ...]:
        """All accounts with what they have spent, in order of opening."""
        events = self._all_events()
        releases = releases_of(events).values()
        return tuple(account_total(account, releases) for account in accounts_of(events).values())

    def account_total(self, dataset: str) -> AccountTotal:
        """What one account has spent.

        Raises:
            BudgetError: no such account.
        """
        events = self._all_events()
        account = account_in(accounts_of(events), dataset, opening_command(dataset))
        return account_total(account, releases_of(events).values())

    def forecast(self, dataset: str, plan: BudgetPlan) -> tuple[float, bool]:
        """Epsilon of the account with one more release of `plan`, and whether it fits; nothing is booked.

        Raises:
            BudgetError: no such account.
        """
        events = self._all_events()
        account = account_in(accounts_of(events), dataset, opening_command(dataset, plan.epsilon, plan.delta))
        statement = (stated(plan.epsilon), stated(plan.delta))
        return total_with(account, releases_of(events).values(), plan.cost, statement)

    # releases

    def releases(self, dataset: str) -> tuple[ReleaseRecord, ...]:
        """The releases of one account, in order of reservation.

        Raises:
            BudgetError: no such account.
        """
        events = self._all_events()
        account_in(accounts_of(events), dataset, opening_command(dataset))
        return tuple(record for record in releases_of(events).values() if record.dataset == dataset)

    def release(self, release_id: str) -> ReleaseRecord | None:
        """The release of this id, or None if it was never reserved."""
        with self._reading() as journal:
            return release_of(journal.release_events(release_id))

    def reserve(
        self,
        *,
        dataset: str,
        release_id: str,
        run: str,
        plan: BudgetPlan,
        plan_digest: str,
        source_digest: str,
        unit: str,
        actor: str,
    ) -> ReleaseRecord:
        """Charge the whole plan before anything is drawn, or return the release that this id already stands for.

        One RESERVED row for the release and one for each draw. A refusal is written down, too, and depends on the plan,
        the ledger and the keyed digest of the source only.

        Raises:
            BudgetError: no account; another unit or neighbors; the source has another account; over the cap.
            InputError: the id was reserved with another dataset, plan or source; a plan without draws.
        """
        check_plan(plan)
        request = Request(
            release=release_id,
            dataset=dataset,
            cost=plan.cost,
            statement=(stated(plan.epsilon), stated(plan.delta)),
            unit=unit,
            neighbors=plan.neighbors,
            plan_digest=plan_digest,
            source_digest=source_digest,
        )
        body = release_body(plan, run=run, plan_digest=plan_digest, source_digest=source_digest, unit=unit)
        with self._writing() as journal:
            events = journal.all_events()
            account = account_in(accounts_of(events), dataset, opening_command(dataset, plan.epsilon, plan.delta))
            releases = releases_of(events)
            if release_id in releases:
                check_identity(request, releases[release_id])
                return releases[release_id]
            refused = refusal(request, account, tuple(releases.values()))
            if refused is None:
                self._book(journal, request, plan, body, actor)
            else:
                body = {**body, "reason": refused.reason}
                journal.append(
                    Event(
                        kind=EventKind.REFUSED,
                        actor=actor,
                        created=_now(),
                        account=dataset,
                        release=release_id,
                        body=body,
                    )
                )
        if refused is not None:  # outside the transaction, which keeps the refusal
            raise BudgetError(refused.message)
        return self._known(release_id)

    def finish(self, release_id: str, outputs: Mapping[str, str], *, actor: str = LEDGER_ACTOR) -> None:
        """Book the publication of `outputs` (released file → SHA-256); the same outputs again are booked once.

        Raises:
            BudgetError: no such release, or a draw that is neither committed, returned nor lost.
        """
        with self._writing() as journal:
            record = release_in(journal, release_id)
            pending = [draw.name for draw in record.draws if draw.state in {State.RESERVED, State.DRAWN}]
            if pending:
                raise BudgetError(
                    f"release {release_id} is not finished: {', '.join(pending)} must be committed or given back"
                )
            if dict(outputs) != record.outputs:
                body = {"outputs": dict(outputs)}
                journal.append(
                    Event(
                        kind=EventKind.PUBLISHED,
                        actor=actor,
                        created=_now(),
                        account=record.dataset,
                        release=release_id,
                        body=body,
                    )
                )

    # draws

    def begin_draw(self, release_id: str, name: str, lease: str) -> None:
        """RESERVED → DRAWN: the intent to draw, before the first random byte is taken. One caller succeeds, ever.

        Raises:
            BudgetError: the draw is in any other state.
        """
        self._move(release_id, name, State.DRAWN, lease=lease)

    def commit_draw(self, release_id: str, name: str, lease: str, digest: str, *, tainted: bool) -> None:
        """DRAWN → COMMITTED, by the lease that drew; `digest` is the keyed digest of the stored draw.

        Raises:
            BudgetError: another state or lease, or a tainted draw (from a test's generator).
        """
        if tainted:
            raise BudgetError(
                f"draw {name} of release {release_id} is tainted: its noise is not from the operating system"
            )
        self._move(release_id, name, State.COMMITTED, lease=lease, digest=digest)

    def lose_draw(self, release_id: str, name: str, lease: str) -> None:
        """DRAWN → CHARGED_LOST: the draw of this lease is gone and its charge stays.

        Raises:
            BudgetError: another state or lease.
        """
        self._move(release_id, name, State.CHARGED_LOST, lease=lease)

    def give_back(self, release_id: str, names: Sequence[str]) -> None:
        """RESERVED → RETURNED for draws that were never begun; all of them or none.

        Raises:
            BudgetError: one of them is in another state.
        """
        with self._writing() as journal:
            for name in names:
                move_draw(journal, release_id, name, State.RETURNED, now=_now())

    # internal evaluation

    def record_internal_evaluation(self, dataset: str, release_id: str, *, actor: str = LEDGER_ACTOR) -> None:
        """Book that somebody compared a release of this account with the sensitive table.

        Raises:
            BudgetError: no such release in this account.
        """
        with self._writing() as journal:
            record = release_in(journal, release_id)
            if record.dataset != dataset:
                raise BudgetError(f"release {release_id} is not of account {dataset}")
            journal.append(
                Event(
                    kind=EventKind.EVALUATED_INTERNALLY,
                    actor=actor,
                    created=_now(),
                    account=dataset,
                    release=release_id,
                )
            )

    def internally_evaluated(self, dataset: str, before: str | None) -> bool:
        """Whether an internal evaluation of the account precedes the reservation of release `before` (None: precedes now).

        Raises:
            BudgetError: no release `before` in this account.
        """
        evaluated = False
        for event in self._all_events():
            if event.account != dataset:
                continue
            if before is not None and event.release == before and event.kind == EventKind.RESERVED:
                return evaluated
            evaluated = evaluated or event.kind == EventKind.EVALUATED_INTERNALLY
        if before is not None:
            raise BudgetError(f"account {dataset} has no release {before}")
        return evaluated

    # inside

    def _reading(self) -> AbstractContextManager[Journal]:
        return transaction(self._engine, self.location, self._key, writing=False)

    def _writing(self) -> AbstractContextManager[Journal]:
        return transaction(self._engine, self.location, self._key, writing=True)

    def _all_events(self) -> tuple[Event, ...]:
        with self._reading() as journal:
            return journal.all_events()

    def _known(self, release_id: str) -> ReleaseRecord:
        with self._reading() as journal:
            return release_in(journal, release_id)

    @staticmethod
    def _book(journal: Journal, request: Request, plan: BudgetPlan, body: Mapping[str, Any], actor: str) -> None:
        dataset, release = request.dataset, request.release
        journal.append(
            Event(kind=EventKind.RESERVED, actor=actor, created=_now(), account=dataset, release=release, body=body)
        )
        for draw in plan.draws:
            journal.append(
                Event(
                    kind=EventKind.RESERVED,
                    actor=actor,
                    created=_now(),
                    account=dataset,
                    release=release,
                    draw=draw.name,
                    cost=draw.cost,
                )
            )

    def _move(self, release_id: str, name: str, target: State, *, lease: str, digest: str | None = None) -> None:
        with self._writing() as journal:
            move_draw(journal, release_id, name, target, now=_now(), lease=lease, digest=digest)


def _now() -> datetime:
    return datetime.now(UTC)
