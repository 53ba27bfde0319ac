"""Whether a release may be reserved: decided by public state of the ledger alone, and said in numbers an operator can use."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from marginweave.schemas.budget import Cost, Plain
from marginweave.schemas.errors import InputError
from marginweave.schemas.ledger import Account, AccountTotal, ReleaseRecord, Spent
from marginweave.tasks.budget.composition import account_epsilon
from marginweave.tasks.budget.ledger.location import opening_command, raising_command
from marginweave.tasks.budget.ledger.openings import cap_around
from marginweave.tasks.budget.ledger.policies import period_forecast
from marginweave.tasks.budget.ledger.sources import SourceDigest

_UP = Context(prec=4, rounding=ROUND_CEILING)
_DOWN = Context(prec=4, rounding=ROUND_FLOOR)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a release asks for, from its plan and configuration."""

    release: str
    dataset: str
    cost: Cost
    statement: Plain
    unit: str
    neighbors: str
    plan_digest: str
    source: SourceDigest


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a release is not reserved: a word for the ledger and a sentence for the operator."""

    reason: str
    message: str


def account_total(account: Account, spent: Spent) -> AccountTotal:
    """The smallest valid epsilon, at the cap's delta, of everything the account is charged for.

    A release counts with the cost of its charged draws and, as plain statement, with its (epsilon, delta).
    """
    epsilon, composition = _epsilon(account, spent)
    return AccountTotal(
        account=account,
        epsilon=epsilon,
        delta=float(account.delta),
        composition=composition,
        releases=spent.releases,
        purse=spent.cost.plain,
        added_delta=spent.cost.delta,
    )


def check_identity(request: Request, known: ReleaseRecord) -> None:
    """Refuse a release id that stands for something else already.

    Raises:
        InputError: dataset, plan or source differ; the message says which.
    """
    for what, same in (
        ("dataset", request.dataset == known.dataset),
        ("plan", request.plan_digest == known.plan_digest),
        ("source", request.source.matches(known.release, known.source_digest)),
    ):
        if not same:
            raise InputError(f"release {known.release} was reserved with another {what}; a new {what} needs a new name")


def refusal(
    request: Request, account: Account, spent: Spent, releases: Collection[ReleaseRecord], moment: datetime
) -> Refusal | None:
    """Why `request` is refused at `moment`, or None where it may be reserved.

    `spent` is the account's, `releases` are all of the ledger.

    The total with the release added is compared with the cap by <=, as doubles, so that a release alone fits a cap equal
    to its own (epsilon, delta).
    """
    if (other_unit := unit_refusal(request.unit, request.neighbors, account)) is not None:
        return other_unit
    for other in releases:
        allowed = other.dataset in {account.dataset, *account.aliases}
        if not allowed and request.source.matches(other.release, other.source_digest):
            message = (
                f"this source was released under account {other.dataset}, byte for byte; releases about the same people share "
                "one account, also where their sources differ in order, format or a few rows, which nothing here can see; to "
                f'decide otherwise: marginweave ledger alias {account.dataset} {other.dataset} --reason "…"'
            )
            return Refusal(reason="source", message=message)
    return (
        _over_purse(request, account, spent)
        or _over_cap(request, account, spent)
        or _over_policy(request, account, releases, moment)
    )


def unit_refusal(unit: str, neighbors: str, account: Account) -> Refusal | None:
    """Why a release of this unit and relation is refused, or None where they are those of the account."""
    for what, asked, present in (("unit", unit, account.unit), ("neighbors", neighbors, account.neighbors)):
        if asked != present:
            message = f"{what} ({asked}) must be {present}, as account {account.dataset} was opened"
            return Refusal(reason=what, message=message)
    return None


def total_with(account: Account, spent: Spent, cost: Cost, statement: Plain) -> tuple[float, bool]:
    """Epsilon of the account at its cap's delta with one more release, and whether that is within the cap and the purse."""
    both = spent.with_charge(cost, statement)
    total, _ = _epsilon(account, both)
    return total, total <= float(account.epsilon) and both.cost.plain.within(account.purse)


def _over_purse(request: Request, account: Account, spent: Spent) -> Refusal | None:
    """Plain charges have a bound of their own, which no cap moves: the account's guarantee counts the purse whole."""
    asked, purse = request.cost.plain, account.purse
    if not asked:
        return None
    if not purse:
        message = (
            f"this release is charged in plain (epsilon, delta), and account {account.dataset} was opened without a purse for "
            "such charges (--purse-epsilon, --purse-delta), which cannot be changed; use a plan that needs none "
            "(aggregate.noise: gaussian, no resize.amplify)"
        )
        if not spent.releases:
            cap = cap_around(request.statement, asked)
            command = opening_command(
                f"{account.dataset}-2",
                float(cap.epsilon),
                float(cap.delta),
                unit=account.unit,
                neighbors=account.neighbors,
                purse=asked,
            )
            message += f", or, as nothing was released under it yet, an account that has one: {command}"
        return Refusal(reason="purse", message=message)
    used = spent.cost.plain
    if (used + asked).within(purse):
        return None
    message = (
        f"account {account.dataset} has spent epsilon {used.epsilon.normalize():f} and delta {float(used.delta)!r} of its "
        f"purse of epsilon {purse.epsilon:f} and delta {float(purse.delta)!r}; this release asks it for epsilon "
        f"{asked.epsilon.normalize():f} and delta {float(asked.delta)!r}. A purse is fixed when its account is opened"
    )
    return Refusal(reason="purse", message=message)


def _over_cap(request: Request, account: Account, spent: Spent) -> Refusal | None:
    total, fits = total_with(account, spent, request.cost, request.statement)
    if fits:
        return None
    both = spent.with_charge(request.cost, request.statement)
    used, cap = _epsilon(account, spent)[0], float(account.epsilon)
    message = (
        f"account {account.dataset} has spent epsilon {rounded_up(used)} of {account.epsilon:f} at delta "
        f"{float(account.delta)!r} ({rounded_down(max(0.0, cap - used))} left); this release asks for epsilon "
        f"{request.statement.epsilon:f} at delta {float(request.statement.delta)!r}, which makes the total "
        f"{'larger than any epsilon at that delta' if math.isinf(total) else rounded_up(total)}"
    )
    # Where no composition holds at the cap's delta, the plain sum holds at the sum of deltas.
    deltas = _UP.create_decimal(both.statement.delta)
    delta = deltas if math.isinf(total) else account.delta
    if delta < 1:
        epsilon = max(_epsilon(replace(account, delta=delta), both)[0], cap)
        command = raising_command(account.dataset, rounded_up(epsilon), repr(float(delta)))
        message += f"; to allow it: {command}"
    return Refusal(reason="cap", message=message)


def _over_policy(
    request: Request, account: Account, releases: Collection[ReleaseRecord], moment: datetime
) -> Refusal | None:
    asked = period_forecast(account, releases, request.cost, request.statement, moment)
    if asked is None or asked.fits:
        return None
    policy = asked.policy
    message = (
        f"account {account.dataset} has a policy of {policy}, of which epsilon {rounded_up(asked.before)} is spent since "
        f"{asked.start} (UTC); this release asks for epsilon {request.statement.epsilon:f} at delta "
        f"{float(request.statement.delta)!r}"
    )
    if asked.fits_from is not None:
        return Refusal(reason="policy", message=f"{message}; it fits from {asked.fits_from} (UTC) on")
    alone = _UP.create_decimal(request.statement.epsilon), _UP.create_decimal(request.statement.delta)
    command = raising_command(account.dataset, f"{account.epsilon:f}", repr(float(account.delta)))
    return Refusal(
        reason="policy",
        message=f"{message}, more than it allows in any {policy.per}; to change the policy: {command} "
        f"--per {policy.per}={max(alone[0], policy.epsilon):f},{float(max(alone[1], policy.delta))!r}",
    )


def _epsilon(account: Account, spent: Spent) -> tuple[float, str]:
    return account_epsilon([spent.cost], [spent.statement], account.delta, account.purse)


def rounded_up(epsilon: float) -> str:
    """`epsilon` with four digits, never below it."""
    return _rounded(epsilon, _UP)


def rounded_down(epsilon: float) -> str:
    """`epsilon` with four digits, never above it."""
    return _rounded(epsilon, _DOWN)


def _rounded(epsilon: float, context: Context) -> str:
    return f"{context.create_decimal(Decimal(repr(epsilon))).normalize():f}"
