"""Checks accounts and policies, and applies them to a release that is reserved, forecast or audited.

Pure functions of the ledger's rows and a point in time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from marginweave.accounting.accounts import Account, Policy, Spent
from marginweave.accounting.charges import ChargedPlan
from marginweave.accounting.composition import account_epsilon
from marginweave.accounting.records import ReleaseRecord
from marginweave.base.budget import BasicAmount
from marginweave.ledger.boxes import box_fault

_LAST_DIGITS = Decimal("1e-9")


@dataclass(frozen=True, kw_only=True)
class PeriodForecast:
    """The forecast of a policy for one more release: epsilon of the period `before` and `after` it, and when it fits.

    `fits_from` is None if the release exceeds the policy even in an empty period.
    """

    policy: Policy
    start: date
    before: float
    after: float
    fits: bool
    fits_from: date | None


def policy_fault(policy: Policy | None, cap: BasicAmount) -> str | None:
    """Return why a policy does not fit a cap, or None: it must be a part of the cap, or missing."""
    if policy is None:
        return None
    amount = BasicAmount(epsilon=policy.epsilon, delta=policy.delta)
    is_finite = policy.epsilon.is_finite() and policy.delta.is_finite()
    is_part = is_finite and policy.epsilon > 0 and policy.delta >= 0 and amount.within(cap)
    if is_part and bool(policy.delta) == bool(cap.delta):
        return None
    return (
        f"per {policy.per} (epsilon {float(policy.epsilon):g}, delta {float(policy.delta):g}) must have a positive epsilon of "
        f"at most {float(cap.epsilon):g} and a positive delta of at most {float(cap.delta):g}: the cap over all releases"
    )


def account_fault(account: Account, before: Account | None = None) -> str | None:
    """Return why no ledger writes a row that turns the account `before` into `account`, or None."""
    cap = account.cap
    box = account.box
    if not (cap.epsilon.is_finite() and cap.epsilon > 0 and 0 <= cap.delta < 1):
        return "the cap is no (epsilon, delta)"
    fault = policy_fault(account.policy, cap) or box_fault(box, cap)
    if fault is not None or before is None or not before.delta:
        return fault
    available = cap
    if not account.unaccounted.within(before.box.allowance):
        # set aside by this row, so that releases cannot use it
        available = cap - account.unaccounted
    if not before.cap.within(available):
        return None
    for amount_before, amount in zip(before.box.amounts, box.amounts, strict=True):
        # last digits may differ on another machine
        if not amount_before <= amount * (1 + _LAST_DIGITS):
            return "a cap is raised and its box becomes smaller"
    return None


def period_spent(
    policy: Policy, dataset: str, releases: Iterable[ReleaseRecord], moment: datetime
) -> Spent:
    """Return the sums over the releases of an account that were reserved in the period that `moment` is in."""
    start = policy.start(moment)
    spent = Spent()
    for record in releases:
        if record.dataset == dataset and policy.start(record.created) == start:
            spent = spent.with_release(record)
    return spent


def period_epsilon(policy: Policy, spent: Spent) -> float:
    """Return epsilon at the policy's delta of what was spent in a period, by the tightest valid composition.

    No filter, as a policy is no guarantee. DP: arithmetic on public numbers.
    """
    return account_epsilon(spent.cost, spent.statement, policy.delta)[0]


def period_forecast(
    account: Account, spent: Spent, plan: ChargedPlan, moment: datetime
) -> PeriodForecast | None:
    """Return the forecast of the account's policy at `moment` for one more release of `plan`; None without a policy.

    `spent` has the sums over the releases of this period.

    The period's total with the release is compared with the policy by <=, as doubles, so that a release alone fits a policy
    equal to its own (epsilon, delta).
    """
    policy = account.policy
    if policy is None:
        return None
    bound = float(policy.epsilon)
    after = period_epsilon(policy, spent.with_charge(plan.cost, plan.statement))
    in_empty_period = period_epsilon(policy, Spent().with_charge(plan.cost, plan.statement))
    fits = after <= bound
    fits_from = None
    if fits:
        fits_from = policy.start(moment)
    elif in_empty_period <= bound:
        fits_from = policy.following(moment)
    return PeriodForecast(
        policy=policy,
        start=policy.start(moment),
        before=period_epsilon(policy, spent),
        after=after,
        fits=fits,
        fits_from=fits_from,
    )


def policy_overrun(
    account: Account, record: ReleaseRecord, releases: Iterable[ReleaseRecord]
) -> str | None:
    """Return why the account's releases in the period of `record` exceed its policy with `record` among them, or None."""
    policy = account.policy
    if policy is None:
        return None
    spent = period_spent(policy, account.dataset, releases, record.created)
    fits = period_epsilon(policy, spent) <= float(policy.epsilon)
    return (
        None
        if fits
        else f"with release {record.release}, account {account.dataset} is over its policy of {policy}"
    )


def runs_a_period(policy: Policy, spent: Spent, plan: ChargedPlan, most: int) -> int:
    """Return how many releases of `plan`, up to `most`, fit into a period in which `spent` was spent already.

    DP: arithmetic on public numbers.
    """
    for number in range(most):
        spent = spent.with_charge(plan.cost, plan.statement)
        if period_epsilon(policy, spent) > float(policy.epsilon):
            return number
    return most
