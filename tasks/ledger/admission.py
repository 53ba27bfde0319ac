"""Whether a release may be reserved: decided by public state of the ledger alone, and said in numbers an operator can use."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Literal, TypeAlias

from marginweave.schemas.budget import MOST_DELTA, Cost, Plain
from marginweave.schemas.errors import InputError
from marginweave.schemas.ledger.accounts import Account, AccountTotal, Spent
from marginweave.schemas.ledger.releases import ReleaseRecord
from marginweave.tasks.accounting.composition import account_epsilon
from marginweave.tasks.ledger.books import stated
from marginweave.tasks.ledger.boxes import box_of_cap
from marginweave.tasks.ledger.location import raising_command
from marginweave.tasks.ledger.policies import period_forecast
from marginweave.tasks.ledger.sources import SourceDigest

Admitted = Literal["sums", "statement"]
Largest: TypeAlias = Callable[[Account, Spent], float]
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
    source: SourceDigest | None


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a release is not reserved: a word for the ledger and a sentence for the operator."""

    reason: str
    message: str


def account_total(account: Account, spent: Spent) -> AccountTotal:
    """What the account is charged for, and the smallest epsilon of it at the cap's delta.

    A release counts with the cost of its charged draws and, as plain statement, with its (epsilon, delta).
    """
    epsilon, composition = account_epsilon(spent.cost, spent.statement, account.delta)
    return AccountTotal(account=account, epsilon=epsilon, composition=composition, spent=spent)


def is_closed(account: Account, spent: Spent) -> bool:
    """Whether nothing more is admitted, however little it asks for and whatever is given back.

    The box does not hold what was reserved for a release that its own statement admitted, or what 0.1.0 had spent; or there
    is no box. What is given back does not count: where it does not come back, the box would be exceeded.
    """
    box = account.box
    return box is None or any(cost is not None and not box.holds(cost) for cost in (spent.alone, account.history))


def admitted(account: Account, spent: Spent, cost: Cost, statement: Plain) -> Admitted | None:
    """How a release of `cost` that states `statement` is admitted, or None.

    `sums`: the box holds it and everything charged. `statement`: the first release that an account ever has may be as dear as
    its cap by its own (epsilon, delta), which can be less than its sums cost. That was fixed before any noise; nothing is
    admitted behind it (`is_closed`).
    """
    if account.box is None or is_closed(account, spent):
        return None
    if account.box.holds(spent.cost + cost):
        return "sums"
    return "statement" if spent.ever == 0 and statement.within(account.cap) else None


def check_identity(request: Request, known: ReleaseRecord) -> None:
    """Refuse a release id that stands for something else already.

    Raises:
        InputError: dataset, plan or source differ; the message says which.
    """
    for what, same in (
        ("dataset", request.dataset == known.dataset),
        ("plan", request.plan_digest == known.plan_digest),
        ("source", request.source is None or request.source.matches(known.release, known.source_digest)),
    ):
        if not same:
            raise InputError(f"release {known.release} was reserved with another {what}; a new {what} needs a new name")


def refusal(
    request: Request,
    account: Account,
    spent: Spent,
    releases: Collection[ReleaseRecord],
    moment: datetime,
    largest: Largest | None = None,
) -> Refusal | None:
    """Why `request` is refused at `moment`, or None where it may be reserved.

    `spent` is the account's, `releases` are all of the ledger; `largest` says with which epsilon the same configuration
    would fit, 0 for none.
    """
    if account.frozen:
        return Refusal(reason="reconciled", message=frozen_words(account))
    if (other_unit := unit_refusal(request.unit, request.neighbors, account)) is not None:
        return other_unit
    source = request.source
    for other in releases if source is not None else ():
        allowed = other.dataset in {account.dataset, *account.aliases}
        if not allowed and source is not None and source.matches(other.release, other.source_digest):
            message = (
                f"this source was released under account {other.dataset}, byte for byte; releases about the same people share "
                "one account, also where their sources differ in order, format or a few rows, which nothing here can see; to "
                f'decide otherwise: marginweave ledger alias {account.dataset} {other.dataset} --reason "…"'
            )
            return Refusal(reason="source", message=message)
    over = _over_box(request, account, spent, largest)
    return over or _over_policy(request, account, releases, moment)


def frozen_words(account: Account) -> str:
    """Why an account admits nothing after a reconciliation, and what ends that."""
    return (
        f"account {account.dataset} admits nothing: its ledger was restored, and what other homes drew under it is not known; "
        'look at each (marginweave ledger reconcile --home HOME), and then say --no-other-home "reason", or '
        "--unaccounted EPSILON,DELTA for those that are gone"
    )


def unit_refusal(unit: str, neighbors: str, account: Account) -> Refusal | None:
    """Why a release of this unit and relation is refused, or None where they are those of the account."""
    for what, asked, present in (("unit", unit, account.unit), ("neighbors", neighbors, account.neighbors)):
        if asked != present:
            message = f"{what} ({asked}) must be {present}, as account {account.dataset} was opened"
            return Refusal(reason=what, message=message)
    return None


def delta_refusal(cost: Cost, account: Account) -> Refusal | None:
    """Why an account without delta does not hold `cost` under any epsilon, or None where delta is not the reason."""
    if account.delta or not (cost.mu2 or cost.delta or cost.plain.delta):
        return None
    message = (
        f"account {account.dataset} was opened with delta 0, and admits only releases with privacy: {{delta: 0}} and "
        "aggregate: {method: marginals, noise: laplace}"
    )
    return Refusal(reason="cap", message=message)


def total_with(account: Account, spent: Spent, cost: Cost, statement: Plain) -> tuple[float, bool]:
    """Epsilon of the account at its cap's delta with one more release, and whether that is admitted."""
    fits = admitted(account, spent, cost, statement) is not None
    return account_total(account, spent.with_charge(cost, statement)).epsilon, fits


def _over_box(request: Request, account: Account, spent: Spent, largest: Largest | None) -> Refusal | None:
    if admitted(account, spent, request.cost, request.statement) is not None:
        return None
    without_delta = delta_refusal(request.cost, account)
    message = without_delta.message if without_delta else _why(request.cost, account, spent)
    if without_delta or is_closed(account, spent):
        largest = None
    epsilon = 0.0 if largest is None else largest(account, spent)
    if epsilon:
        message += f". A release of the same configuration fits with privacy.epsilon: {rounded_down(epsilon)}"
    elif largest is not None:
        message += ". With no epsilon does a release of the same configuration fit; a smaller privacy.delta may"
    raised = _raised(account, spent, request)
    if raised is not None:
        command = raising_command(account.dataset, f"{raised.epsilon:f}", repr(float(raised.delta)))
        message += f". To raise the cap instead: {command}"
    return Refusal(reason="cap", message=message)


def _why(asked: Cost, account: Account, spent: Spent) -> str:
    """What is left of the box, and what is asked of it, where that is more."""
    box, name = account.box, f"account {account.dataset}"
    if box is None:
        return f"{name} was opened by 0.1.0 and admits nothing before `marginweave ledger upgrade`"
    if is_closed(account, spent):
        why = (
            "its first release was admitted by its own statement"
            if spent.alone
            else "0.1.0 spent more than its box holds"
        )
        return f"{name} admits nothing under its cap of epsilon {account.epsilon:f} at delta {float(account.delta)!r}: {why}"
    whole = spent.cost + asked
    coordinates = (
        ("mu^2", box.mu2, spent.cost.mu2, asked.mu2, whole.mu2),
        ("delta for thresholds", box.delta_add, spent.cost.delta, asked.delta, whole.delta),
        ("plain epsilon", box.allowance.epsilon, spent.cost.plain.epsilon, asked.plain.epsilon, whole.plain.epsilon),
        ("plain delta", box.allowance.delta, spent.cost.plain.delta, asked.plain.delta, whole.plain.delta),
    )
    over = "; ".join(
        f"{what} {_down(max(Decimal(0), limit - used))} of {_down(limit)} left, and {_up(more)} is asked for"
        for what, limit, used, more, total in coordinates
        if total > limit
    )
    return f"{name} (epsilon {account.epsilon:f} at delta {float(account.delta)!r}) does not hold this release: {over}"


def _raised(account: Account, spent: Spent, request: Request) -> Plain | None:
    """The least cap, with four digits of epsilon and a multiple of delta, whose box holds the release; None for none."""
    if account.box is None:
        return None
    needed = spent.cost + request.cost
    if spent.ever == 0:
        statement, cap = request.statement, account.cap
        return Plain(epsilon=max(statement.epsilon, cap.epsilon), delta=max(statement.delta, cap.delta))

    def holds(cap: Plain) -> bool:
        box = box_of_cap(account, cap)
        return all(box.holds(cost) for cost in (needed, spent.alone, account.history) if cost is not None)

    for times in (1, 2, 4, 8, 16, 32, 64):
        delta = stated(account.delta * times)
        if delta > MOST_DELTA and times > 1:
            return None
        low, high = account.epsilon, account.epsilon * 2**10
        if holds(Plain(epsilon=low, delta=delta)):
            return Plain(epsilon=low, delta=delta)
        if not holds(Plain(epsilon=high, delta=delta)):
            continue
        while _UP.create_decimal(low) < _UP.create_decimal(high) and high - low > low / 10**5:
            middle = (low + high) / 2
            low, high = (low, middle) if holds(Plain(epsilon=middle, delta=delta)) else (middle, high)
        return Plain(epsilon=_UP.create_decimal(high).normalize(), delta=delta)
    return None


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


def _up(value: Decimal) -> str:
    return f"{float(_UP.create_decimal(value)):g}"


def _down(value: Decimal) -> str:
    return f"{float(_DOWN.create_decimal(value)):g}"


def rounded_up(epsilon: float) -> str:
    """`epsilon` with four digits, never below it."""
    return _rounded(epsilon, _UP)


def rounded_down(epsilon: float) -> str:
    """`epsilon` with four digits, never above it."""
    return _rounded(epsilon, _DOWN)


def _rounded(epsilon: float, context: Context) -> str:
    return f"{context.create_decimal(Decimal(repr(epsilon))).normalize():f}"
