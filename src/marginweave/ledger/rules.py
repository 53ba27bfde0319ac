"""What an account and its policy must be, and what they say of releases: when one is reserved, forecast, or audited.

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
    """What a policy says of one more release: what the period has spent without it and with it, and from when it fits.

    `fits_from` is None where the release alone is more than the policy allows in any period.
    """

    policy: Policy
    start: date
    before: float
    after: float
    fits: bool
    fits_from: date | None


def policy_fault(policy: Policy | None, cap: BasicAmount) -> str | None:
    """Why a policy cannot stand beside a cap, or None: it is a part of it, or there is none."""
    if policy is None:
        return None
    amount = BasicAmount(epsilon=policy.epsilon, delta=policy.delta)
    finite = policy.epsilon.is_finite() and policy.delta.is_finite()
    part = finite and policy.epsilon > 0 and policy.delta >= 0 and amount.within(cap)
    if part and bool(policy.delta) == bool(cap.delta):
        return None
    return (
        f"per {policy.per} (epsilon {float(policy.epsilon):g}, delta {float(policy.delta):g}) must have a positive epsilon of "
        f"at most {float(cap.epsilon):g} and a positive delta of at most {float(cap.delta):g}: the cap over all releases"
    )


def account_fault(account: Account, before: Account | None = None) -> str | None:
    """Why an account, as a row leaves it that it had `before`, is none that a ledger writes; None for nothing."""
    cap, box = account.cap, account.box
    if not (cap.epsilon.is_finite() and cap.epsilon > 0 and 0 <= cap.delta < 1):
        return "the cap is no (epsilon, delta)"
    fault = policy_fault(account.policy, cap) or box_fault(box, cap)
    if fault is not None or before is None or not before.delta:
        return fault
    is_aside = account.unaccounted.within(before.box.allowance)
    rest = cap if is_aside else cap - account.unaccounted  # of what is set aside now nothing is left for releases
    if not before.cap.within(rest):
        return None
    pairs = zip(before.box.amounts, box.amounts, strict=True)  # a last digit may differ, on another machine
    grows = all(less <= more * (1 + _LAST_DIGITS) for less, more in pairs)
    return None if grows else "a cap is raised and its box becomes smaller"


def period_spent(policy: Policy, dataset: str, releases: Iterable[ReleaseRecord], moment: datetime) -> Spent:
    """What the releases of an account have spent that were reserved in the period that `moment` is in."""
    start, spent = policy.start(moment), Spent()
    for record in releases:
        if record.dataset == dataset and policy.start(record.created) == start:
            spent = spent.with_release(record)
    return spent


def period_epsilon(policy: Policy, spent: Spent) -> float:
    """Epsilon at the policy's delta of what was spent in a period, by the tightest valid composition.

    No filter, as a policy is no guarantee. DP: arithmetic on public numbers.
    """
    return account_epsilon(spent.cost, spent.statement, policy.delta)[0]


def period_forecast(account: Account, spent: Spent, plan: ChargedPlan, moment: datetime) -> PeriodForecast | None:
    """What the account's policy says at `moment` of one more release of `plan`; None without policy.

    `spent` is what the releases of this period have.

    The period's total with the release is compared with the policy by <=, as doubles, so that a release alone fits a policy
    equal to its own (epsilon, delta).
    """
    policy = account.policy
    if policy is None:
        return None
    cost, statement = plan.cost, plan.statement
    after = period_epsilon(policy, spent.with_charge(cost, statement))
    bound = float(policy.epsilon)
    fits, alone = after <= bound, period_epsilon(policy, Spent().with_charge(cost, statement)) <= bound
    return PeriodForecast(
        policy=policy,
        start=policy.start(moment),
        before=period_epsilon(policy, spent),
        after=after,
        fits=fits,
        fits_from=policy.start(moment) if fits else policy.following(moment) if alone else None,
    )


def policy_overrun(account: Account, record: ReleaseRecord, releases: Iterable[ReleaseRecord]) -> str | None:
    """What the account's releases of one period cost together, the new one among them, against its policy then."""
    policy = account.policy
    if policy is None:
        return None
    spent = period_spent(policy, account.dataset, releases, record.created)
    fits = period_epsilon(policy, spent) <= float(policy.epsilon)
    return None if fits else f"with release {record.release}, account {account.dataset} is over its policy of {policy}"


def runs_a_period(policy: Policy, spent: Spent, plan: ChargedPlan, most: int) -> int:
    """How many releases of `plan`, up to `most`, fit into a period that has `spent` so much already.

    DP: arithmetic on public numbers.
    """
    for number in range(most):
        spent = spent.with_charge(plan.cost, plan.statement)
        if period_epsilon(policy, spent) > float(policy.epsilon):
            return number
    return most
