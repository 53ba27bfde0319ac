"""What an account's policy and box say of releases to come; pure functions of the ledger's rows and a point in time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import ROUND_FLOOR, Context, Decimal

from marginweave.schemas.budget import Cost, Plain
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.draws import BudgetPlan
from marginweave.schemas.errors import InputError
from marginweave.schemas.ledger.accounts import Account, Policy, Spent
from marginweave.schemas.ledger.releases import ReleaseRecord
from marginweave.tasks.accounting.composition import account_epsilon
from marginweave.tasks.accounting.plan.k_tuples import plan_budget
from marginweave.tasks.ledger.boxes import admitted

_DOWN = Context(prec=3, rounding=ROUND_FLOOR)
_PLANS = 14  # that are tried; one of many marginals takes a tenth of a second
_LEAST = 1e-3
NO_GUARANTEE = (
    "A policy of those who keep the account, not a guarantee: what somebody learns about these people does not begin anew with "
    "a period. The account's total to date, of all periods, is what counts."
)


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


def policy_fault(policy: Policy, epsilon: Decimal, delta: Decimal) -> str | None:
    """Why a policy cannot stand beside a cap of (epsilon, delta), or None: it is a part of it."""
    finite = policy.epsilon.is_finite() and policy.delta.is_finite()
    if finite and 0 < policy.epsilon <= epsilon and 0 <= policy.delta <= delta and bool(policy.delta) == bool(delta):
        return None
    return (
        f"per {policy.per} (epsilon {float(policy.epsilon):g}, delta {float(policy.delta):g}) must have a positive epsilon of "
        f"at most {float(epsilon):g} and a positive delta of at most {float(delta):g}: the cap over all releases"
    )


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


def period_forecast(
    account: Account, releases: Iterable[ReleaseRecord], cost: Cost, statement: Plain, moment: datetime
) -> PeriodForecast | None:
    """What the account's policy says at `moment` of a release that costs `cost` and states `statement`; None without policy.

    The period's total with the release is compared with the policy by <=, as doubles, so that a release alone fits a policy
    equal to its own (epsilon, delta).
    """
    policy = account.policy
    if policy is None:
        return None
    spent = period_spent(policy, account.dataset, releases, moment)
    after = period_epsilon(policy, spent.with_charge(cost, statement))
    fits, bound = after <= float(policy.epsilon), float(policy.epsilon)
    alone = period_epsilon(policy, Spent().with_charge(cost, statement)) <= bound
    return PeriodForecast(
        policy=policy,
        start=policy.start(moment),
        before=period_epsilon(policy, spent),
        after=after,
        fits=fits,
        fits_from=policy.start(moment) if fits else policy.following(moment) if alone else None,
    )


def runs_a_period(policy: Policy, spent: Spent, plan: BudgetPlan, most: int) -> int:
    """How many releases of `plan`, up to `most`, fit into a period that has `spent` so much already.

    DP: arithmetic on public numbers.
    """
    for number in range(most):
        spent = spent.with_charge(plan.cost, plan.statement)
        if period_epsilon(policy, spent) > float(policy.epsilon):
            return number
    return most


def largest_epsilon(configuration: Configuration, account: Account, spent: Spent) -> float:
    """The largest `privacy.epsilon`, with at most three digits, whose plan the account still admits; 0 for none.

    Everything else stays as it is, delta too. By halving; what is returned was tried, and is at most the configuration's own.
    DP: arithmetic on public numbers.
    """

    def fits(epsilon: float) -> bool:
        privacy = configuration.privacy.model_copy(update={"epsilon": epsilon})
        try:
            plan = plan_budget(configuration.model_copy(update={"privacy": privacy}))
        except InputError:  # too little, or too much beside the rest of the configuration
            return False
        return admitted(account, spent, plan.cost, plan.statement) is not None

    low, high = 0.0, configuration.privacy.epsilon
    for _ in range(_PLANS):
        middle = _three_digits((low + high) / 2)
        if middle <= max(low, _LEAST):
            break
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _three_digits(epsilon: float) -> float:
    return float(_DOWN.create_decimal(Decimal(repr(epsilon))))
