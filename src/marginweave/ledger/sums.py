"""Computes the accounts and sums that admission needs, from the newest checkpoint of the chain on.

A checkpoint is a row like every other, sealed and chained, with the sums over the rows before it. A reader that starts there
reads every row after it; `marginweave ledger verify` computes the sums themselves again from the first row.
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
    """The totals of one account in a checkpoint: numbers of the rows about it, its sums, and those of the newest period.

    `start` and `in_period` are of the newest period of the account's policy; `start` is None without a policy, or before the
    first release.
    """

    rows: tuple[int, ...] = ()
    spent: Spent = field(default_factory=Spent)
    start: date | None = None
    in_period: Spent = field(default_factory=Spent)

    def with_release(
        self, policy: Policy | None, record: ReleaseRecord, before: ReleaseRecord | None
    ) -> Totals:
        """Return the totals with one more release, or with a new `record` of a release that was counted as `before`."""
        spent = self.spent.with_release(record, before)
        if policy is None:
            return replace(self, spent=spent)
        start = self.start
        in_period = self.in_period
        release_start = policy.start(record.created)
        if start is None or release_start > start:
            start = release_start
            in_period = Spent()
        if release_start == start:
            in_period = in_period.with_release(record, before)
        return Totals(rows=self.rows, spent=spent, start=start, in_period=in_period)

    @property
    def body(self) -> dict[str, Any]:
        """Part of the body of a checkpoint."""
        body: dict[str, Any] = {"rows": list(self.rows), "spent": _spent_body(self.spent)}
        if self.start is not None:
            body["start"] = self.start.isoformat()
            body["period"] = _spent_body(self.in_period)
        return body

    @classmethod
    def of_body(cls, body: Mapping[str, Any]) -> Totals:
        """Return the totals that `body` wrote."""
        totals = cls(rows=tuple(body["rows"]), spent=_spent(body["spent"]))
        if "start" not in body:
            return totals
        start = date.fromisoformat(body["start"])
        return replace(totals, start=start, in_period=_spent(body["period"]))


@dataclass(frozen=True, kw_only=True)
class Sums:
    """Accounts and their totals as of the row at `position`, read from the first row or from a checkpoint on.

    Both ways give the same sums, as they are exact. Rows before the checkpoint are not read: if one of them is changed or
    removed, no sum changes, and `Ledger.verify` finds it.
    """

    position: Position = field(default_factory=Position)
    accounts: Mapping[str, Account] = field(default_factory=dict)
    totals: Mapping[str, Totals] = field(default_factory=dict)  # by dataset

    def spent_of(self, dataset: str) -> Spent:
        """Return the sums over the releases of one account."""
        return self.totals.get(dataset, Totals()).spent

    def period_spent(self, account: Account, moment: datetime, journal: Journal) -> Spent:
        """Return the sums over the releases of an account that were reserved in the period that `moment` is in.

        If that is an earlier period than that of the newest release, all rows of `journal` are read.
        """
        policy = account.policy
        totals = self.totals.get(account.dataset, Totals())
        if policy is None or totals.start is None or policy.start(moment) > totals.start:
            return Spent()
        if policy.start(moment) == totals.start:
            return totals.in_period
        releases = releases_of(journal.all_events())
        return period_spent(policy, account.dataset, releases.values(), moment)

    @property
    def row(self) -> Event:
        """Checkpoint with these sums."""
        body = {name: totals.body for name, totals in self.totals.items()}
        return Event(kind=EventKind.CHECKPOINT, body=body)

    def of(self, journal: Journal) -> Sums:
        """Return the sums in the transaction of `journal`; only rows after these, or after the newest checkpoint, are read.

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
            start = Sums()
            rows = journal.rows_from(0)
        position = check_chain(rows, journal.key, start.position)
        events = [(row["seq"], event_of(row)) for row in rows]
        earlier = _earlier_releases(journal, start.position.seq, [event for _, event in events])
        accounts, totals = _with_events(start.accounts, start.totals, events, earlier)
        return Sums(position=position, accounts=accounts, totals=totals)


def _earlier_releases(
    journal: Journal, seq: int, events: Iterable[Event]
) -> dict[str, ReleaseRecord]:
    """Return, as of row `seq`, the releases of which `events` after it return draws; all of their history is checked."""
    reserved = set()
    returned = set()
    for event in events:
        if event.kind == EventKind.RESERVED:
            reserved.add(event.release)
        elif event.kind == EventKind.RETURNED and event.release is not None:
            returned.add(event.release)
    names = returned - reserved
    history = journal.rows_since(names) if names and seq else []
    rows = [row for row in history if row["release"] in names and row["seq"] <= seq]
    return releases_of(map(event_of, rows))


def _with_events(
    accounts: Mapping[str, Account],
    totals: Mapping[str, Totals],
    numbered_events: Sequence[tuple[int, Event]],
    earlier: Mapping[str, ReleaseRecord],
) -> tuple[dict[str, Account], dict[str, Totals]]:
    """Return accounts and totals after `numbered_events`.

    The charges of releases change that are reserved by these events, or are in `earlier`; all other charges stay.
    """
    events = [event for _, event in numbered_events]
    accounts = accounts_of(events, accounts)
    changed = dict(totals)
    for seq, event in numbered_events:
        if event.account is not None and event.kind in ACCOUNT_ROWS:
            before = changed.get(event.account, Totals())
            changed[event.account] = replace(before, rows=(*before.rows, seq))
    releases = releases_of(events, earlier)
    for name in dict.fromkeys(event.release for event in events if event.release in releases):
        record = releases[name or ""]
        policy = accounts[record.dataset].policy
        before = changed[record.dataset]
        changed[record.dataset] = before.with_release(policy, record, earlier.get(record.release))
    return accounts, changed


def needs_all(event: Event) -> bool:
    """Return whether sums with this row need all rows: a new policy has other periods, and a reconciliation adds rows."""
    return event.kind == EventKind.RECONCILED or (
        event.kind == EventKind.CAP_CHANGED and "policy" in event.body
    )


def totals_of(body: Mapping[str, Any]) -> dict[str, Totals]:
    """Return the totals of all accounts in the body of a checkpoint."""
    return {name: Totals.of_body(totals) for name, totals in body.items()}


def is_due(journal: Journal) -> bool:
    """Return whether the transaction of `journal`, which ends, must add a checkpoint.

    There are `EVERY` rows after the last one, or the transaction wrote rows for which sums from there on need older rows.
    """
    written = journal.written_events
    if not written:
        return False
    last = journal.checkpoint_number()
    if written[-1]["seq"] - last >= EVERY:
        return True
    needs_older = any(
        row["kind"] == EventKind.RETURNED or needs_all(event_of(row)) for row in written
    )
    return bool(needs_older and last)


def _at_checkpoint(journal: Journal) -> Sums:
    """Return the sums of the newest checkpoint, or those of no row if there is none."""
    row = journal.checkpoint()
    if row is None:
        return Sums()
    totals = totals_of(json.loads(row["body"]))
    numbers: list[int] = []
    for account_totals in totals.values():
        numbers += account_totals.rows
    rows = journal.rows_of(sorted(numbers))
    position = Position(row["seq"], row["row_hash"])
    return Sums(position=position, accounts=accounts_of(map(event_of, rows)), totals=totals)


def _spent_body(spent: Spent) -> dict[str, Any]:
    """Return sums as part of the body of a checkpoint."""
    statement = spent.statement
    body: dict[str, Any] = {
        "releases": spent.releases,
        "ever": spent.ever_reserved,
        "cost": spent.cost.texts,
        "statement": [format(statement.epsilon, "f"), format(statement.delta, "f")],
    }
    if spent.cost_by_statement is not None:
        body["alone"] = spent.cost_by_statement.texts
    return body


def _spent(body: Mapping[str, Any]) -> Spent:
    """Return the sums that `_spent_body` wrote."""
    epsilon, delta = map(Decimal, body["statement"])
    return Spent(
        releases=body["releases"],
        ever_reserved=body["ever"],
        cost=cost_of(body["cost"]),
        statement=BasicAmount(epsilon=epsilon, delta=delta),
        cost_by_statement=cost_of(body["alone"]) if "alone" in body else None,
    )
