"""Whether a release may be reserved: decided by public state of the ledger alone, and said in numbers an operator can use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from marginweave.schemas.budget import BudgetPlan, Cost
from marginweave.schemas.errors import InputError
from marginweave.schemas.ledger import Account, AccountTotal, ReleaseRecord
from marginweave.tasks.budget.composition import account_epsilon
from marginweave.tasks.budget.ledger.books import stated
from marginweave.tasks.budget.ledger.location import raising_command

Statement = tuple[Decimal, Decimal]

_UP = Context(prec=4, rounding=ROUND_CEILING)
_DOWN = Context(prec=4, rounding=ROUND_FLOOR)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a release asks for, from its plan and configuration."""

    release: str
    dataset: str
    cost: Cost
    statement: Statement
    unit: str
    neighbors: str
    plan_digest: str
    source_digest: str


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a release is not reserved: a word for the ledger and a sentence for the operator."""

    reason: str
    message: str


def reserved_statement(plan: BudgetPlan) -> Statement:
    """The plain (epsilon, delta) of what is reserved for a release: once for its draws and once for each spare.

    The draws together are (epsilon, delta)-DP, so each of them is, and a spare is one of them drawn again.
    """
    return stated(plan.epsilon) * (1 + plan.spares), stated(plan.delta) * (1 + plan.spares)


def account_total(account: Account, releases: Iterable[ReleaseRecord]) -> AccountTotal:
    """The smallest valid epsilon, at the cap's delta, of everything the account is charged for.

    A release counts with the cost of its charged draws and, as plain statement, with its (epsilon, delta).
    """
    costs, statements = _charges(account.dataset, releases)
    epsilon, composition = account_epsilon(costs, statements, account.delta)
    return AccountTotal(
        account=account, epsilon=epsilon, delta=float(account.delta), composition=composition, releases=len(costs)
    )


def check_identity(request: Request, known: ReleaseRecord) -> None:
    """Refuse a release id that stands for something else already.

    Raises:
        InputError: dataset, plan or source differ; the message says which.
    """
    for what, asked, present in (
        ("dataset", request.dataset, known.dataset),
        ("plan", request.plan_digest, known.plan_digest),
        ("source", request.source_digest, known.source_digest),
    ):
        if asked != present:
            raise InputError(f"release {known.release} was reserved with another {what}; a new {what} needs a new name")


def refusal(request: Request, account: Account, releases: Sequence[ReleaseRecord]) -> Refusal | None:
    """Why `request` is refused against all `releases` of the ledger, or None where it may be reserved.

    The total with the release added is compared with the cap by <=, as doubles, so that a release alone fits a cap equal
    to its own (epsilon, delta).
    """
    for what, asked, present in (
        ("unit", request.unit, account.unit),
        ("neighbors", request.neighbors, account.neighbors),
    ):
        if asked != present:
            message = f"{what} ({asked}) must be {present}, as account {account.dataset} was opened"
            return Refusal(reason=what, message=message)
    for other in releases:
        if other.source_digest == request.source_digest and other.dataset not in {account.dataset, *account.aliases}:
            message = (
                f"this source was released under account {other.dataset}; releases about the same people share one "
                f'account; to decide otherwise: marginweave ledger alias {account.dataset} {other.dataset} --reason "…"'
            )
            return Refusal(reason="source", message=message)
    return _over_cap(request, account, releases)


def total_with(
    account: Account, releases: Iterable[ReleaseRecord], cost: Cost, statement: Statement
) -> tuple[float, bool]:
    """Epsilon of the account at its cap's delta with one more release, and whether that is within the cap."""
    costs, statements = _charges(account.dataset, releases)
    total, _ = account_epsilon([*costs, cost], [*statements, statement], account.delta)
    return total, total <= float(account.epsilon)


def _over_cap(request: Request, account: Account, releases: Sequence[ReleaseRecord]) -> Refusal | None:
    total, fits = total_with(account, releases, request.cost, request.statement)
    if fits:
        return None
    costs, statements = _charges(account.dataset, releases)
    spent, _ = account_epsilon(costs, statements, account.delta)
    costs, statements = [*costs, request.cost], [*statements, request.statement]
    cap = float(account.epsilon)
    message = (
        f"account {account.dataset} has spent epsilon {rounded_up(spent)} of {account.epsilon:f} at delta "
        f"{float(account.delta)!r} ({rounded_down(max(0.0, cap - spent))} left); this release asks for epsilon "
        f"{request.statement[0]:f} at delta {float(request.statement[1])!r}, which makes the total "
        f"{'larger than any epsilon at that delta' if math.isinf(total) else rounded_up(total)}"
    )
    # Where no composition holds at the cap's delta, the plain sum holds at the sum of deltas.
    deltas = _UP.create_decimal(sum((stated for _, stated in statements), Decimal(0)))
    delta = deltas if math.isinf(total) else account.delta
    if delta < 1:
        epsilon = max(account_epsilon(costs, statements, delta)[0], cap)
        command = raising_command(account.dataset, rounded_up(epsilon), repr(float(delta)))
        message += f"; to allow it: {command}"
    return Refusal(reason="cap", message=message)


def _charges(dataset: str, releases: Iterable[ReleaseRecord]) -> tuple[list[Cost], list[Statement]]:
    charged = [record for record in releases if record.dataset == dataset and any(record.statement)]
    return [record.charged for record in charged], [record.statement for record in charged]


def rounded_up(epsilon: float) -> str:
    """`epsilon` with four digits, never below it."""
    return _rounded(epsilon, _UP)


def rounded_down(epsilon: float) -> str:
    """`epsilon` with four digits, never above it."""
    return _rounded(epsilon, _DOWN)


def _rounded(epsilon: float, context: Context) -> str:
    return f"{context.create_decimal(Decimal(repr(epsilon))).normalize():f}"
