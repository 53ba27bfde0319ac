"""Rules for accounts that an auditor applies to rows again: caps, boxes, policies, and what 0.1.0 held for a cap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal

from marginweave.schemas.errors import AuditError
from marginweave.schemas.ledger.accounts import Account, Spent
from marginweave.schemas.ledger.releases import ReleaseRecord
from marginweave.tasks.accounting.composition import account_epsilon
from marginweave.tasks.ledger.boxes import box_fault
from marginweave.tasks.ledger.forecast import period_epsilon, period_spent, policy_fault

_LAST_DIGITS = Decimal("1e-9")


def expect(holds: bool, fault: str) -> None:
    """Refuse a row with the words of `fault` where something does not hold."""
    if not holds:
        raise AuditError(fault)


def expect_none(fault: str | None) -> None:
    """Refuse a row that has a `fault`."""
    if fault is not None:
        raise AuditError(fault)


def account_fault(account: Account, before: Account | None = None) -> str | None:
    """Why an account, as a row leaves it that it had `before`, is none that a ledger writes; None for nothing."""
    epsilon, delta, policy = account.epsilon, account.delta, account.policy
    if not (epsilon.is_finite() and epsilon > 0 and 0 <= delta < 1):
        return "the cap is no (epsilon, delta)"
    fault = None if policy is None else policy_fault(policy, epsilon, delta)
    fault = fault or (None if account.box is None else box_fault(account.box, account.cap))
    if fault is not None or before is None:
        return fault or (
            None if account.old_allowance.within(account.cap) else "what is set aside is no part of the cap"
        )
    if (account.box is None) != (before.box is None):
        return "a cap is changed without its box"
    shrinks = before.cap.within(account.cap) and not _grows(before, account)
    return "a cap is raised and its box becomes smaller" if shrinks else None


def policy_overrun(account: Account, record: ReleaseRecord, releases: Iterable[ReleaseRecord]) -> str | None:
    """What the account's releases of one period cost together, the new one among them, against its policy then."""
    policy = account.policy
    if policy is None:
        return None
    spent = period_spent(policy, account.dataset, releases, record.created)
    fits = period_epsilon(policy, spent) <= float(policy.epsilon)
    return None if fits else f"with release {record.release}, account {account.dataset} is over its policy of {policy}"


def within_old_cap(account: Account, spent: Spent) -> bool:
    """The rule of 0.1.0, which was no filter, for rows from before an account had a box.

    The smallest of several sums; what was set aside for plain charges counts whole in those that convert.
    """
    cost = replace(spent.cost, plain=account.old_allowance)
    total, _ = account_epsilon(cost, spent.statement, account.delta)
    return spent.cost.plain.within(account.old_allowance) and total <= float(account.epsilon)


def _grows(before: Account, after: Account) -> bool:
    """Whether no coordinate of the box became smaller; a last digit may, on another machine."""
    if before.box is None or after.box is None or not before.delta:
        return True
    pairs = zip(before.box.amounts, after.box.amounts, strict=True)
    return all(less <= more * (1 + _LAST_DIGITS) for less, more in pairs)
