"""What admission needs of the ledger: accounts and sums, continued from the newest checkpoint of the chain.

A checkpoint is a row like every other, sealed and chained, with the sums as the rows before it leave them. Whoever reads from
one on sees every row behind it; the sums themselves are computed again from the first row by `marginweave ledger verify`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from marginweave.accounting.accounts import Account, Policy, Spent
from marginweave.accounting.records import Event, EventKind, ReleaseRecord
from marginweave.base.budget import BasicAmount
from marginweave.ledger.journal import Journal
from marginweave.ledger.records import ACCOUNT_ROWS, accounts_of, releases_of
from marginweave.ledger.rules import period_spent
from marginweave.ledger.tables import Position, check_chain, cost_of, event_of
from marginweave.ledger.view import check_known_row

EVERY = 128
"""Rows after which the next transaction adds a checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Totals:
    """What a checkpoint says of one account: the numbers of the rows about it, what is spent, and of the newest period.

    `start` and `in_period` are of the account's policy; there is none without a policy, or before the first release.
    """

    rows: tuple[int, ...] = ()
    spent: Spent = field(default_factory=Spent)
    start: date | None = None
    in_period: Spent = field(default_factory=Spent)

    def with_release(self, policy: Policy | None, record: ReleaseRecord, before: ReleaseRecord | None) -> Totals:
        """The totals with one more release, or with one that was counted as `before` until now."""
        spent, start, in_period = self.spent.with_release(record, before), self.start, self.in_period
        own = None if policy is None else policy.start(record.created)
        if own is not None and (start is None or own > start):
            start, in_period = own, Spent()
        if own is not None and own == start:
            in_period = in_period.with_release(record, before)
        return Totals(rows=self.rows, spent=spent, start=start, in_period=in_period)

    @property
    def body(self) -> dict[str, Any]:
        """As (part of) the body of a row."""
        period = {} if self.start is None else {"start": self.start.isoformat(), "period": _spent_body(self.in_period)}
        return {"rows": list(self.rows), "spent": _spent_body(self.spent), **period}

    @classmethod
    def of_body(cls, body: Mapping[str, Any]) -> Totals:
        """The totals that `body` wrote."""
        totals = cls(rows=tuple(body["rows"]), spent=_spent(body["spent"]))
        if "start" not in body:
            return totals
        start, period = date.fromisoformat(body["start"]), _spent(body["period"])
        return cls(rows=totals.rows, spent=totals.spent, start=start, in_period=period)


@dataclass(frozen=True, kw_only=True)
class Sums:
    """Accounts and their totals as of the row at `position`, read from the first row or from a checkpoint on.

    Both ways give the same sums, as they are exact. Rows from before the checkpoint are not read: one of them that is changed
    or removed changes no sum, and is found by `Ledger.verify`.
    """

    position: Position = field(default_factory=Position)
    accounts: Mapping[str, Account] = field(default_factory=dict)
    totals: Mapping[str, Totals] = field(default_factory=dict)  # by dataset

    def spent_of(self, dataset: str) -> Spent:
        """The sums over the releases of one account."""
        return self.totals.get(dataset, Totals()).spent

    def period_spent(self, account: Account, moment: datetime, journal: Journal) -> Spent:
        """What the releases of an account have spent that were reserved in the period that `moment` is in.

        All rows of `journal` are read where that is an earlier period than the newest release is in.
        """
        policy, totals = account.policy, self.totals.get(account.dataset, Totals())
        if policy is None or totals.start is None or policy.start(moment) > totals.start:
            return Spent()
        if policy.start(moment) == totals.start:
            return totals.in_period
        return period_spent(policy, account.dataset, releases_of(journal.all_events()).values(), moment)

    @property
    def row(self) -> Event:
        """The checkpoint that says so."""
        return Event(kind=EventKind.CHECKPOINT, body={name: totals.body for name, totals in self.totals.items()})

    def of(self, journal: Journal) -> Sums:
        """The sums inside the transaction of `journal`; only rows behind these, or behind the newest checkpoint, are read.

        Raises:
            BudgetError: one of these rows was changed, removed, inserted or moved, the key is wrong, or the newest row of
                these sums is gone.
        """
        start = self
        if journal.length() >= self.position.seq + EVERY:  # there may be a newer checkpoint
            newest = _at_checkpoint(journal)
            if newest.position.seq > self.position.seq:
                check_known_row(journal.rows_at(self.position), self.position, journal)
                start = newest
        rows = check_known_row(journal.rows_from(start.position.seq), start.position, journal)
        if start.position.seq and any(needs_all(event_of(row)) for row in rows):
            start, rows = Sums(), journal.rows_from(0)
        position = check_chain(rows, journal.key, start.position)
        events = [(row["seq"], event_of(row)) for row in rows]
        known = _known(journal, start.position.seq, [event for _, event in events])
        accounts, totals = _with(start.accounts, start.totals, events, known)
        return Sums(position=position, accounts=accounts, totals=totals)


def _known(journal: Journal, seq: int, events: Iterable[Event]) -> dict[str, ReleaseRecord]:
    """The releases, as of row `seq`, of which `events` behind it give something back: their history is checked whole."""
    own = [event for event in events if event.kind in {EventKind.RESERVED, EventKind.RETURNED}]
    reserved = {event.release for event in own if event.kind == EventKind.RESERVED}
    names = {event.release for event in own if event.release is not None} - reserved
    history = journal.rows_since(names) if names and seq else []
    return releases_of(event_of(row) for row in history if row["release"] in names and row["seq"] <= seq)


def _with(
    accounts: Mapping[str, Account],
    totals: Mapping[str, Totals],
    events: Sequence[tuple[int, Event]],
    known: Mapping[str, ReleaseRecord],
) -> tuple[dict[str, Account], dict[str, Totals]]:
    """Accounts and totals with `events`, by their numbers; other releases than these and `known` are charged as they were."""
    accounts, changed = accounts_of((event for _, event in events), accounts), dict(totals)
    for seq, event in events:
        if event.account is not None and event.kind in ACCOUNT_ROWS:
            before = changed.get(event.account, Totals())
            changed[event.account] = replace(before, rows=(*before.rows, seq))
    releases = releases_of((event for _, event in events), known)
    for name in dict.fromkeys(event.release for _, event in events if event.release in releases):
        record = releases[name or ""]
        policy, before = accounts[record.dataset].policy, changed[record.dataset]
        changed[record.dataset] = before.with_release(policy, record, known.get(record.release))
    return accounts, changed


def needs_all(event: Event) -> bool:
    """Whether sums with this row take all rows to compute: of other periods, or of a reconciliation."""
    return event.kind == EventKind.RECONCILED or (event.kind == EventKind.CAP_CHANGED and "policy" in event.body)


def totals_of(body: Mapping[str, Any]) -> dict[str, Totals]:
    """The totals of all accounts, as the body of a checkpoint has them."""
    return {name: Totals.of_body(each) for name, each in body.items()}


def is_due(journal: Journal) -> bool:
    """Whether the transaction of `journal`, which ends, has to add a checkpoint.

    It has so many rows behind the last one, or rows that nobody can add up from there on.
    """
    written = journal.written_events
    if not written:
        return False
    last = journal.checkpoint_number()
    late = any(row["kind"] == EventKind.RETURNED or needs_all(event_of(row)) for row in written)
    return bool((late and last) or written[-1]["seq"] - last >= EVERY)


def _at_checkpoint(journal: Journal) -> Sums:
    """The sums of the newest checkpoint; of no row where there is none."""
    row = journal.checkpoint()
    if row is None:
        return Sums()
    totals = totals_of(json.loads(row["body"]))
    rows = journal.rows_of(sorted(number for each in totals.values() for number in each.rows))
    position = Position(row["seq"], row["row_hash"])
    return Sums(position=position, accounts=accounts_of(map(event_of, rows)), totals=totals)


def _spent_body(spent: Spent) -> dict[str, Any]:
    body = {
        "releases": spent.releases,
        "ever": spent.ever_reserved,
        "cost": spent.cost.texts,
        "statement": [format(spent.statement.epsilon, "f"), format(spent.statement.delta, "f")],
    }
    return body if spent.cost_by_statement is None else {**body, "alone": spent.cost_by_statement.texts}


def _spent(body: Mapping[str, Any]) -> Spent:
    epsilon, delta = map(Decimal, body["statement"])
    return Spent(
        releases=body["releases"],
        ever_reserved=body["ever"],
        cost=cost_of(body["cost"]),
        statement=BasicAmount(epsilon=epsilon, delta=delta),
        cost_by_statement=cost_of(body["alone"]) if "alone" in body else None,
    )
