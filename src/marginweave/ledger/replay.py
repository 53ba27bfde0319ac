"""Applies the rules of the ledger to its rows, one after the other, and refuses a row that the writer should have refused."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from marginweave.accounting.accounts import Account, Spent
from marginweave.accounting.records import (
    CHARGED,
    RECONCILING,
    TRANSITIONS,
    Event,
    EventKind,
    ReleaseRecord,
    State,
)
from marginweave.base.budget import BasicAmount
from marginweave.base.errors import AuditError
from marginweave.ledger.boxes import admitted
from marginweave.ledger.plans import draws_fault, stated_fault
from marginweave.ledger.records import (
    ACCOUNT_ROWS,
    MOVES,
    account_with,
    decision_of,
    release_of,
    release_with,
)
from marginweave.ledger.rules import account_fault, period_spent, policy_overrun
from marginweave.ledger.sums import Totals, totals_of

_DIGEST = re.compile(r"[0-9a-f]{64}")


class Standing(NamedTuple):
    """An account and its sums from row number `seq` on."""

    seq: int
    account: Account
    spent: Spent


@dataclass
class Replay:
    """Accounts and releases after the rows that were taken; `step` checks the next row and takes it.

    `opened` has the row that opened each account, `course` the states of each account and its sums.
    """

    accounts: dict[str, Account] = field(default_factory=dict)
    releases: dict[str, ReleaseRecord] = field(default_factory=dict)
    opened: dict[str, int] = field(default_factory=dict)
    course: dict[str, list[Standing]] = field(default_factory=dict)
    _spent: defaultdict[str, Spent] = field(default_factory=lambda: defaultdict(Spent))
    # about each account
    _rows: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    _leases: set[tuple[str, str]] = field(default_factory=set)
    # The release whose reservation has rows to come, and the names of its draws that they reserve.
    _reserving: str | None = None
    _expected: set[str] = field(default_factory=set)

    def step(self, seq: int, event: Event) -> None:
        """Take row number `seq`.

        Raises:
            AuditError: no ledger would have written the row.
        """
        try:
            self._take(seq, event)
        except AuditError as error:
            raise AuditError(f"row {seq} of the ledger: {error}") from None
        except (KeyError, ValueError, TypeError, ArithmeticError, AttributeError):
            raise AuditError(
                f"row {seq} of the ledger: {event.kind} with a body that no ledger writes"
            ) from None

    def finish(self) -> None:
        """Refuse an end in the middle of a reservation, or of the publication of a correction, by an AuditError."""
        if self._expected:
            names = ", ".join(sorted(self._expected))
            raise AuditError(
                f"the ledger ends before release {self._reserving} is completely reserved: {names}"
            )
        for record in self.releases.values():
            old = self.releases[record.supersedes] if record.supersedes and record.outputs else None
            if old is not None and old.superseded_by is None:
                raise AuditError(
                    f"release {record.release} corrects {old.release}, and no row says so of that one"
                )

    def _take(self, seq: int, event: Event) -> None:
        """Check the next row by its kind, and note its account's state if it changes."""
        _expect(
            (event.kind == EventKind.LEDGER_CREATED) == (seq == 1),
            "the first row, and no other, makes a ledger",
        )
        reserving = (
            event.kind == EventKind.RESERVED
            and event.draw is not None
            and event.release == self._reserving
        )
        _expect(reserving or not self._expected, "it is in the middle of a reservation")
        match event.kind:
            case EventKind.LEDGER_CREATED:
                pass
            case EventKind.CHECKPOINT:
                _expect(
                    totals_of(event.body) == self._totals(),
                    "its sums are not those of the rows before it",
                )
            case EventKind.REFUSED:
                self._account(event)
            case EventKind.RESERVED:
                self._reserve(event)
            case kind if kind in ACCOUNT_ROWS:
                self._change_account(seq, event)
            case _:
                self._change_release(event)
        name = event.account or ""
        if name in self.accounts:
            standing = Standing(seq, self.accounts[name], self._spent[name])
            course = self.course.setdefault(name, [])
            latest = course[-1] if course else None
            if (
                latest is None
                or latest.account is not standing.account
                or latest.spent is not standing.spent
            ):
                course.append(standing)

    def _totals(self) -> dict[str, Totals]:
        """Return the totals that a checkpoint must have here, with the sums of periods added up release by release."""
        totals = {}
        for name, account in self.accounts.items():
            policy = account.policy
            records = [
                record for record in self.releases.values() if policy and record.dataset == name
            ]
            latest = max((record.created for record in records), default=None)
            period: dict[str, Any] = {}
            if policy is not None and latest is not None:
                in_period = period_spent(policy, name, records, latest)
                period = {"start": policy.start(latest), "in_period": in_period}
            rows = tuple(self._rows[name])
            totals[name] = Totals(rows=rows, spent=self._spent[name], **period)
        return totals

    def _change_account(self, seq: int, event: Event) -> None:
        """Take a row about an account; its first row opens it."""
        name = event.account or ""
        opening = event.kind == EventKind.OPENED
        _expect(not opening or name not in self.accounts, f"account {name} is open already")
        before = None if opening else self._account(event)
        after = account_with(before, event)
        if event.kind != EventKind.RECONCILED:
            _expect_none(account_fault(after, before))
        self.accounts[name] = after
        self.opened.setdefault(name, seq)
        self._rows[name].append(seq)

    def _change_release(self, event: Event) -> None:
        """Take a row about a release, and update the sums of its account if the charge changes."""
        record = self._release(event)
        match event.kind:
            case EventKind.LEASED:
                self._check_lease(record, event)
            case EventKind.SUBMITTED | EventKind.PUBLISHED:
                _check_outputs(record, event)
            case EventKind.APPROVED | EventKind.REJECTED:
                decision = decision_of(event)
                _expect(
                    bool(record.proposed),
                    f"release {record.release} was never submitted for approval",
                )
                _expect(record.decision is None, f"release {record.release} is decided on twice")
                _expect(
                    bool(decision.by.strip() and decision.reason.strip()),
                    "a decision has no name or no reason",
                )
            case EventKind.SUPERSEDED:
                by = self.releases.get(event.body["by"])
                fits = by is not None and bool(by.outputs) and by.supersedes == record.release
                _expect(
                    fits,
                    f"release {record.release} is superseded by what is not its published correction",
                )
                _expect(
                    record.superseded_by is None, f"release {record.release} is superseded twice"
                )
            case kind if kind in MOVES:
                _check_move(record, event)
        after = self.releases[record.release] = release_with(record, event) or record
        draw_before = record.draw(event.draw or "")
        draw_after = after.draw(event.draw or "")
        if draw_before is None or draw_after is None:
            return
        if (draw_before.state in CHARGED) != (draw_after.state in CHARGED):
            self._spent[record.dataset] = self._spent[record.dataset].with_release(after, record)

    def _reserve(self, event: Event) -> None:
        """Take a RESERVED row, of a release or of one of its draws."""
        if event.draw is not None:
            self._reserve_draw(event, event.draw)
            return
        account = self._account(event)
        record = release_of([event])
        if record is None:
            raise AuditError("it reserves nothing")
        _expect(
            record.release not in self.releases, f"release {record.release} was reserved before"
        )
        same = (record.unit, record.neighbors) == (account.unit, account.neighbors)
        _expect(same, "unit or neighbors differ from the account's")
        if not _is_late(event):
            _expect(
                not account.frozen,
                f"account {account.dataset} is frozen since its ledger was restored",
            )
        self._check_correction(record)
        names = [draw["name"] for draw in event.body["draws"]]
        statement = BasicAmount(epsilon=record.epsilon, delta=record.delta)
        _expect_none(stated_fault(statement, names))
        self._reserving = record.release
        self._expected = set(record.planned)
        self.releases[record.release] = record

    def _check_correction(self, record: ReleaseRecord) -> None:
        """Refuse a correction of a release that is not published in the account, or is corrected already."""
        name = record.supersedes
        old = self.releases.get(name or "")
        is_published = old is not None and old.dataset == record.dataset and bool(old.outputs)
        fits = is_published and old is not None and old.superseded_by is None
        fault = (
            f"it supersedes {name}, which is no published release of its account, or is superseded"
        )
        _expect(fits or name is None, fault)

    def _reserve_draw(self, event: Event, name: str) -> None:
        """Take the RESERVED row of a draw; the last one of a release charges its account."""
        record = self._release(event)
        _expect(name in self._expected, f"draw {name} is not in the plan, or was reserved before")
        _expect(event.cost is not None, f"draw {name} has no cost")
        self._expected.remove(name)
        record = self.releases[record.release] = release_with(record, event) or record
        if self._expected:
            return
        self._reserving = None
        if not _is_late(event):  # else it may have been drawn already, and is charged in any case
            self._check_charge(record)
        self._spent[record.dataset] = self._spent[record.dataset].with_release(record)

    def _check_charge(self, record: ReleaseRecord) -> None:
        """Refuse a release that its account did not admit at this row."""
        statement = BasicAmount(epsilon=record.epsilon, delta=record.delta)
        reserved = {draw.name: draw for draw in record.draws}
        planned = [reserved[name] for name in record.planned if name in reserved]
        _expect_none(draws_fault(statement, planned))
        account = self.accounts[record.dataset]
        _expect_none(policy_overrun(account, record, self.releases.values()))
        spent = self._spent[account.dataset]
        how = "statement" if record.by_statement else "sums"
        fits = admitted(account, spent, record.reserved, statement) == how
        _expect(fits, f"with release {record.release}, account {account.dataset} is over its cap")

    def _check_lease(self, record: ReleaseRecord, event: Event) -> None:
        """Refuse a lease of an ended release, or one that was taken before."""
        lease = event.lease or ""
        _expect(not record.outputs, f"release {record.release} is published; it takes no lease")
        _expect(
            not record.proposed,
            f"release {record.release} was submitted for approval; it takes no lease",
        )
        _expect(
            lease != "" and (record.release, lease) not in self._leases, "a lease is taken twice"
        )
        self._leases.add((record.release, lease))

    def _account(self, event: Event) -> Account:
        """Return the account that a row is about, or refuse the row."""
        _expect(event.account in self.accounts, f"account {event.account} is not open")
        return self.accounts[event.account or ""]

    def _release(self, event: Event) -> ReleaseRecord:
        """Return the release that a row is about, or refuse the row."""
        _expect(event.release in self.releases, f"release {event.release} was never reserved")
        record = self.releases[event.release or ""]
        _expect(
            event.account == record.dataset,
            f"release {record.release} is of account {record.dataset}",
        )
        return record


def _expect(holds: bool, fault: str) -> None:
    """Refuse a row with the message `fault` unless `holds`."""
    if not holds:
        raise AuditError(fault)


def _expect_none(fault: str | None) -> None:
    """Refuse a row with the message `fault` if there is one."""
    _expect(fault is None, fault or "")


def _check_move(record: ReleaseRecord, event: Event) -> None:
    """Refuse a transition of a draw that does not exist, or that its lease does not permit."""
    target = event.kind
    draw = record.draw(event.draw or "")
    late = _is_late(event)
    if draw is None:
        raise AuditError(f"draw {event.draw} was never reserved")
    _expect(event.cost is None, f"draw {draw.name} is charged twice")
    possible = TRANSITIONS | RECONCILING if late else TRANSITIONS
    _expect(
        (draw.state, target) in possible,
        f"draw {draw.name} is {draw.state}; it cannot become {target}",
    )
    if target == State.DRAWN:
        _expect(bool(event.lease), f"draw {draw.name} is begun without a lease")
        moving_lease = event.lease
        verb = "begun"
    else:
        moving_lease = event.body.get("by", event.lease)
        verb = "ended"
        same_lease = target == State.RETURNED or event.lease == draw.lease
        _expect(same_lease, f"draw {draw.name} was begun under another lease")
    is_current = late or target == State.RETURNED or record.lease in {None, moving_lease}
    _expect(is_current, f"draw {draw.name} is {verb} by an attempt that was taken over")
    has_digest = target != State.COMMITTED or _DIGEST.fullmatch(event.digest or "") is not None
    _expect(has_digest, f"draw {draw.name} is committed without a digest")


def _check_outputs(record: ReleaseRecord, event: Event) -> None:
    """Refuse a submission or publication without digests, with pending draws, or against the rules of approval."""
    outputs = dict(event.body["outputs"])
    pending = ", ".join(record.pending)
    _expect(not pending, f"release {record.release} is published with draws unsettled: {pending}")
    _expect(
        all(_DIGEST.fullmatch(digest) for digest in outputs.values()),
        "a released file has no digest",
    )
    if event.kind == EventKind.SUBMITTED:
        _expect(
            record.needs_approval, f"release {record.release} is submitted, and needs no approval"
        )
        _expect(
            bool(outputs) and not record.proposed,
            f"release {record.release} is submitted twice, or with no files",
        )
        return
    approved = (
        record.decision is not None and record.decision.approved and outputs == record.proposed
    )
    _expect(
        approved or not record.needs_approval,
        f"release {record.release} is published without an approval",
    )


def _is_late(event: Event) -> bool:
    """Return whether a reconciliation wrote the row: the ledger signed it before, or it is charged for safety."""
    return bool(event.body.keys() & {"adopted", "reconciled"})
