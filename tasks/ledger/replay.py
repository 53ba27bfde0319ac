"""The rules of the ledger, applied to its rows again, one after the other: what the writer should have refused is found."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from marginweave.schemas.budget import Plain
from marginweave.schemas.errors import AuditError
from marginweave.schemas.ledger.accounts import Account, Spent
from marginweave.schemas.ledger.events import Event, EventKind
from marginweave.schemas.ledger.releases import DrawRecord, ReleaseRecord
from marginweave.schemas.ledger.states import CHARGED, RECONCILING, SPARE_PREFIX, TRANSITIONS, State
from marginweave.tasks.ledger.admission import admitted
from marginweave.tasks.ledger.books import accounts_of, beginning_facts, decision_of, release_of
from marginweave.tasks.ledger.plans import draws_fault, stated_fault
from marginweave.tasks.ledger.rules import account_fault, policy_overrun, within_old_cap

_DIGEST = re.compile(r"[0-9a-f]{64}")
_PENDING = frozenset({State.RESERVED, State.DRAWN})
_MOST_SPARES = 3  # of a release that 0.1.0 reserved with `redraws`


class Standing(NamedTuple):
    """An account and its sums, as they are from row number `seq` on."""

    seq: int
    account: Account
    spent: Spent


@dataclass
class Replay:
    """Accounts and releases as the rows up to now leave them; `step` takes the next row."""

    accounts: dict[str, Account] = field(default_factory=dict)
    releases: dict[str, ReleaseRecord] = field(default_factory=dict)
    opened: dict[str, int] = field(default_factory=dict)
    # What was planned for the draws of a reservation whose rows are still to come.
    _expected: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)
    # The places of its draws in the plan, which is the order in which they are drawn.
    _places: dict[str, dict[str, int]] = field(default_factory=dict)
    _leases: set[tuple[str, str]] = field(default_factory=set)
    _spent: dict[str, Spent] = field(default_factory=dict)
    # Each account and its sums, from a row on.
    course: dict[str, list[Standing]] = field(default_factory=dict)

    def step(self, seq: int, event: Event) -> None:
        """Take row number `seq`.

        Raises:
            AuditError: the row says what no ledger would have written.
        """
        try:
            self._take(seq, event)
        except AuditError as error:
            raise AuditError(f"row {seq} of the ledger: {error}") from None
        except (KeyError, ValueError, TypeError, ArithmeticError, AttributeError):
            raise AuditError(f"row {seq} of the ledger: {event.kind} with a body that no ledger writes") from None

    def finish(self) -> None:
        """Refuse an end in the middle of a reservation, or of the publication of a correction.

        Raises:
            AuditError: rows of the newest reservation or publication are missing.
        """
        for release, names in self._expected.items():
            raise AuditError(f"the ledger ends before release {release} is reserved whole: {', '.join(sorted(names))}")
        for record in self.releases.values():
            old = self.releases[record.supersedes] if record.supersedes and record.outputs else None
            if old is not None and old.superseded_by is None:
                raise AuditError(f"release {record.release} corrects {old.release}, and no row says so of that one")

    def _take(self, seq: int, event: Event) -> None:
        _expect((event.kind == EventKind.LEDGER_CREATED) == (seq == 1), "the first row, and no other, makes a ledger")
        reserving = event.kind == EventKind.RESERVED and event.draw is not None and event.release in self._expected
        _expect(reserving or not self._expected, "it stands in the middle of a reservation")
        if event.kind == EventKind.OPENED:
            self.opened[event.account or ""] = seq
        self._steps()[event.kind](event)
        name = event.account or ""
        if name in self.accounts:
            now = Standing(seq, self.accounts[name], self._spent.get(name, Spent()))
            before = self.course.setdefault(name, [])
            if not before or before[-1].account is not now.account or before[-1].spent is not now.spent:
                before.append(now)

    def _steps(self) -> Mapping[EventKind, Callable[[Event], None]]:
        return {
            EventKind.LEDGER_CREATED: self._nothing,
            EventKind.KEY_ROTATED: self._nothing,
            EventKind.OPENED: self._open,
            EventKind.ACCOUNT_BOXED: self._box,
            EventKind.CAP_CHANGED: self._cap,
            EventKind.ALIASED: self._alias,
            EventKind.REFUSED: self._refuse,
            EventKind.RESERVED: self._reserve,
            EventKind.DRAWN: self._move,
            EventKind.COMMITTED: self._move,
            EventKind.RETURNED: self._move,
            EventKind.CHARGED_LOST: self._move,
            EventKind.LEASED: self._lease,
            EventKind.PUBLISHED: self._publish,
            EventKind.SUBMITTED: self._submit,
            EventKind.APPROVED: self._decide,
            EventKind.REJECTED: self._decide,
            EventKind.SUPERSEDED: self._supersede,
            EventKind.EVALUATED_INTERNALLY: self._evaluate,
            EventKind.RECONCILED: self._reconcile,
        }

    def _nothing(self, event: Event) -> None:
        """Nothing to check but its place."""

    def _open(self, event: Event) -> None:
        _expect(event.account not in self.accounts, f"account {event.account} is open already")
        self.accounts.update(accounts_of([event]))
        _expect_none(account_fault(self._account(event)))

    def _box(self, event: Event) -> None:
        before = self._account(event)
        _expect(before.box is None, f"account {before.dataset} has a box already")
        account = accounts_of([event], {before.dataset: before})[before.dataset]
        spent = self._spent.get(account.dataset, Spent())
        _expect(
            account.box is not None and (account.history, account.releases_before) == (spent.cost, spent.ever),
            "its box does not follow from what was spent",
        )
        _expect_none(account_fault(account))
        self.accounts[account.dataset] = account

    def _cap(self, event: Event) -> None:
        before = self._account(event)
        account = accounts_of([event], {before.dataset: before})[before.dataset]
        _expect_none(account_fault(account, before))
        self.accounts[account.dataset] = account

    def _alias(self, event: Event) -> None:
        account, other = self._account(event), event.body["other"]
        _expect(other in self.accounts and other != account.dataset, f"account {other} is not open")
        self.accounts[account.dataset] = replace(account, aliases=account.aliases | {other})

    def _reconcile(self, event: Event) -> None:
        account = self._account(event)
        self.accounts[account.dataset] = accounts_of([event], {account.dataset: account})[account.dataset]

    def _refuse(self, event: Event) -> None:
        self._account(event)

    def _reserve(self, event: Event) -> None:
        if event.draw is not None:
            self._reserve_draw(event)
            return
        account, record = self._account(event), release_of([event])
        if record is None:
            raise AuditError("it reserves nothing")
        _expect(record.release not in self.releases, f"release {record.release} was reserved before")
        _expect(
            (record.unit, record.neighbors) == (account.unit, account.neighbors),
            "unit or neighbors differ from the account's",
        )
        late = _is_late(event)
        _expect(late or not account.frozen, f"account {account.dataset} is frozen since its ledger was restored")
        for other in () if late else self.releases.values():
            same = (
                other.source_digest == record.source_digest
            )  # of 0.1.0; later rows tell it to who has the source alone
            allowed = {account.dataset, *account.aliases}
            _expect(not same or other.dataset in allowed, f"its source was released under account {other.dataset}")
        if record.supersedes is not None:
            old = self.releases.get(record.supersedes)
            fits = (
                old is not None and old.dataset == account.dataset and bool(old.outputs) and old.superseded_by is None
            )
            _expect(
                fits,
                f"it supersedes {record.supersedes}, which is no published release of its account, or is superseded",
            )
        spares, planned = event.body.get("spares", 0), [draw["name"] for draw in event.body["draws"]]
        _expect(type(spares) is int and 0 <= spares <= _MOST_SPARES, "spares are no number that a ledger writes")
        _expect_none(stated_fault(Plain(epsilon=record.epsilon, delta=record.delta), planned))
        self._expected[record.release] = {draw["name"]: draw for draw in event.body["draws"]} | {
            f"{SPARE_PREFIX}{number}": {} for number in range(1, spares + 1)
        }
        self._places[record.release] = {name: place for place, name in enumerate(planned)}
        self.releases[record.release] = record

    def _reserve_draw(self, event: Event) -> None:
        record, name, cost = self._release(event), event.draw or "", event.cost
        expected = self._expected.get(record.release, {})
        _expect(name in expected, f"draw {name} is not in the plan, or was reserved before")
        if cost is None:
            raise AuditError(f"draw {name} has no cost")
        plan = expected.pop(name)
        draw = DrawRecord(
            release=record.release,
            name=name,
            state=State.RESERVED,
            cost=cost,
            mechanism=plan.get("mechanism", ""),
            length=plan.get("length", 0),
            parameter=plan.get("parameter"),
            terms=plan.get("terms", {}),
        )
        self.releases[record.release] = replace(record, draws=(*record.draws, draw))
        if expected:
            return
        del self._expected[record.release]
        if _is_late(event):  # it was drawn already, or may have been: a charge that nobody is asked about
            spent = self._spent.get(record.dataset, Spent())
            self._spent[record.dataset] = spent.with_release(self.releases[record.release])
        else:
            self._charge(self.releases[record.release])

    def _charge(self, record: ReleaseRecord) -> None:
        """The account's total with a new release in it, against its cap at this point in time."""
        statement = Plain(epsilon=record.epsilon, delta=record.delta)
        places = self._places.pop(record.release)
        planned = sorted((draw for draw in record.draws if not draw.is_spare), key=lambda draw: places[draw.name])
        _expect_none(draws_fault(statement, planned, record.neighbors, record.discovery))
        account = self.accounts[record.dataset]
        _expect_none(policy_overrun(account, record, self.releases.values()))
        spent = self._spent.get(account.dataset, Spent())
        over = f"with release {record.release}, account {account.dataset} is over its cap"
        if account.box is None:
            boxed = any(other.box is not None for other in self.accounts.values())
            _expect(not boxed, f"account {account.dataset} has no box, and others have")
            _expect(within_old_cap(account, spent.with_release(record)), over)
        else:
            how = "statement" if record.by_statement else "sums"
            _expect(admitted(account, spent, record.reserved, statement) == how, over)
        self._spent[account.dataset] = spent.with_release(record)

    def _move(self, event: Event) -> None:
        record, target = self._release(event), State(event.kind.value)
        draw = record.draw(event.draw or "")
        if draw is None:
            raise AuditError(f"draw {event.draw} was never reserved")
        _expect(event.cost is None, f"draw {draw.name} is charged twice")
        late = _is_late(event)
        possible = TRANSITIONS | RECONCILING if late else TRANSITIONS
        _expect((draw.state, target) in possible, f"draw {draw.name} is {draw.state}; it cannot become {target}")
        if target == State.DRAWN:
            _expect(bool(event.lease), f"draw {draw.name} is begun without a lease")
            _expect(
                late or record.lease in {None, event.lease},
                f"draw {draw.name} is begun by an attempt that was taken over",
            )
            lost = record.standing(event.body["replaces"]) if draw.is_spare else None
            _expect(
                not draw.is_spare or (lost is not None and lost.state == State.CHARGED_LOST),
                f"{draw.name} replaces no lost draw",
            )
        elif target != State.RETURNED:
            by = event.body.get("by", event.lease)
            _expect(event.lease == draw.lease, f"draw {draw.name} was begun under another lease")
            _expect(late or record.lease in {None, by}, f"draw {draw.name} is ended by an attempt that was taken over")
        if target == State.COMMITTED:
            _expect(
                _DIGEST.fullmatch(event.digest or "") is not None, f"draw {draw.name} is committed without a digest"
            )
        moved = replace(
            draw,
            state=target,
            lease=event.lease,
            digest=event.digest,
            replaces=event.body.get("replaces", draw.replaces),
            facts=beginning_facts(event) if target == State.DRAWN else draw.facts,
        )
        draws = tuple(moved if present.name == draw.name else present for present in record.draws)
        self.releases[record.release] = replace(record, draws=draws)
        if (draw.state in CHARGED) != (target in CHARGED):
            spent = self._spent[record.dataset]
            self._spent[record.dataset] = spent.with_release(self.releases[record.release], record)

    def _lease(self, event: Event) -> None:
        record, lease = self._release(event), event.lease or ""
        _expect(not record.outputs, f"release {record.release} is published; it takes no lease")
        _expect(not record.proposed, f"release {record.release} was submitted for approval; it takes no lease")
        _expect(lease != "" and (record.release, lease) not in self._leases, "a lease is taken twice")
        self._leases.add((record.release, lease))
        self.releases[record.release] = replace(record, lease=lease)

    def _publish(self, event: Event) -> None:
        record, outputs = self._settled(event)
        approved = record.decision is not None and record.decision.approved and outputs == record.proposed
        _expect(approved or not record.needs_approval, f"release {record.release} is published without an approval")
        self.releases[record.release] = replace(record, outputs=outputs, published=event.created)

    def _submit(self, event: Event) -> None:
        record, outputs = self._settled(event)
        _expect(record.needs_approval, f"release {record.release} is submitted, and needs no approval")
        _expect(bool(outputs) and not record.proposed, f"release {record.release} is submitted twice, or with no files")
        self.releases[record.release] = replace(record, proposed=outputs)

    def _settled(self, event: Event) -> tuple[ReleaseRecord, dict[str, str]]:
        """A release whose draws are settled, and the files that a row says it consists of."""
        record, outputs = self._release(event), dict(event.body["outputs"])
        pending = [draw.name for draw in record.draws if draw.state in _PENDING]
        _expect(not pending, f"release {record.release} is published with draws unsettled: {', '.join(pending)}")
        _expect(all(_DIGEST.fullmatch(digest) for digest in outputs.values()), "a released file has no digest")
        return record, outputs

    def _decide(self, event: Event) -> None:
        record, decision = self._release(event), decision_of(event)
        _expect(bool(record.proposed), f"release {record.release} was never submitted for approval")
        _expect(record.decision is None, f"release {record.release} is decided on twice")
        _expect(bool(decision.by.strip() and decision.reason.strip()), "a decision has no name or no reason")
        self.releases[record.release] = replace(record, decision=decision)

    def _supersede(self, event: Event) -> None:
        record, by = self._release(event), self.releases.get(event.body["by"])
        fits = by is not None and bool(by.outputs) and by.supersedes == record.release
        _expect(fits, f"release {record.release} is superseded by what is not its published correction")
        _expect(record.superseded_by is None, f"release {record.release} is superseded twice")
        self.releases[record.release] = replace(record, superseded_by=event.body["by"])

    def _evaluate(self, event: Event) -> None:
        self._release(event)

    def _account(self, event: Event) -> Account:
        _expect(event.account in self.accounts, f"account {event.account} is not open")
        return self.accounts[event.account or ""]

    def _release(self, event: Event) -> ReleaseRecord:
        _expect(event.release in self.releases, f"release {event.release} was never reserved")
        record = self.releases[event.release or ""]
        _expect(event.account == record.dataset, f"release {record.release} is of account {record.dataset}")
        return record


def _is_late(event: Event) -> bool:
    """Whether a reconciliation wrote the row: what it adds was signed by the ledger before, or is charged for safety."""
    return bool(event.body.keys() & {"adopted", "reconciled"})


def _expect(holds: bool, fault: str) -> None:
    if not holds:
        raise AuditError(fault)


def _expect_none(fault: str | None) -> None:
    if fault is not None:
        raise AuditError(fault)
