"""Whether a release may be reserved: decided by public state of the ledger alone, and said in numbers an operator can use."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import cached_property
from typing import NamedTuple

from marginweave.accounting.accounts import Account, Spent
from marginweave.accounting.charges import ChargedPlan
from marginweave.accounting.records import Event, EventKind, ReleaseRecord
from marginweave.base.budget import MOST_DELTA, BasicAmount, Cost, stated
from marginweave.base.errors import BudgetError, InputError
from marginweave.ledger.boxes import Admitted, admitted, box_of_cap, coordinates, is_closed
from marginweave.ledger.journal import Journal
from marginweave.ledger.keys import SourceDigest
from marginweave.ledger.location import raising_command
from marginweave.ledger.records import ACCOUNT_ROWS, cap_body
from marginweave.ledger.rules import period_forecast
from marginweave.ledger.sums import Sums
from marginweave.released.program import Program

_UP, _DOWN = (Context(prec=4, rounding=way) for way in (ROUND_CEILING, ROUND_FLOOR))
# What a configuration has whose noise an account without a budget for Gaussian noise holds.
LAPLACE = "aggregate: {method: marginals, noise: laplace}"
BY_STATEMENT = f"releases with Laplace noise alone ({LAPLACE}), or of an amplified resize (resize: {{amplify: true}})"
"""What an account whose box has no mu^2, and a delta, holds: releases that are charged their (epsilon, delta)."""
_FACTORS_OF_DELTA = (1, 2, 4, 8, 16, 32, 64)
# What may make of a refusal an admission, or of its reason another one.
_CHANGES = (ACCOUNT_ROWS - {EventKind.RECONCILED}) | {EventKind.RESERVED, EventKind.RETURNED}


@dataclass(frozen=True, kw_only=True)
class ReleaseRequest:
    """What a run asks of its account: a release of `plan`, from a source, by a program.

    Before a row is read there is no `release` id yet, and there may be no `source`. A release that `needs_approval` is
    published by a decision alone; `supersedes` is a published release of the same account that this one corrects. `largest`
    says with which epsilon the same configuration fits an account, 0 for none: for the words of a refusal.
    """

    dataset: str
    run: str
    plan: ChargedPlan
    plan_digest: str
    unit: str
    actor: str
    release: str = ""
    source: SourceDigest | None = None
    program: Program | None = None
    needs_approval: bool = False
    supersedes: str | None = None
    largest: Callable[[Account, Spent], float] | None = None

    @cached_property
    def cost(self) -> Cost:
        """What all its draws cost."""
        return self.plan.cost


class Refusal(NamedTuple):
    """Why a release is not reserved: a word for the ledger and a sentence for the operator."""

    reason: str
    message: str


def check_identity(request: ReleaseRequest, known: ReleaseRecord) -> None:
    """Refuse a release id that is in use for something else.

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
    request: ReleaseRequest, account: Account, sums: Sums, journal: Journal, moment: datetime
) -> Refusal | None:
    """Why `request` is refused at `moment`, or None where it may be reserved in the transaction of `journal`."""
    if account.frozen:
        message = (
            f"account {account.dataset} admits nothing: its ledger was restored, and what other homes drew under it is not "
            'known; look at each (marginweave ledger reconcile --home HOME), and then say --no-other-home "reason", or '
            "--unaccounted EPSILON,DELTA for those that are gone"
        )
        return Refusal("reconciled", message)
    return (
        unit_refusal(request.unit, request.plan.neighbors, account)
        or _source_refusal(request.source, account, sums, journal)
        or _cap_refusal(request, account, sums.spent_of(account.dataset))
        or _policy_refusal(request, account, sums.period_spent(account, moment, journal), moment)
    )


def unit_refusal(unit: str, neighbors: str, account: Account) -> Refusal | None:
    """Why a release of this unit and relation is refused, or None where they are those of the account."""
    for what, asked, present in (("unit", unit, account.unit), ("neighbors", neighbors, account.neighbors)):
        if asked != present:
            own = "; any other needs a separate account: ledger open NAME --for CONFIG"
            return Refusal(what, f"{what} ({asked}) must be {present}, as account {account.dataset} was opened{own}")
    return None


def noise_refusal(cost: Cost, account: Account, spent: Spent) -> Refusal | None:
    """Why an account does not hold noise of the kind of `cost` under any epsilon, or None where the kind is not the reason.

    Without delta, or opened for releases that are charged their (epsilon, delta); the first may still fit by its own statement.
    """
    name = f"account {account.dataset}"
    if not account.delta and (cost.mu2 or cost.delta or cost.plain.delta):
        return Refusal(
            "cap", f"{name} was opened with delta 0, and admits only releases with privacy: {{delta: 0}} and {LAPLACE}"
        )
    if not account.delta or account.box.mu2 or not cost.mu2 or spent.ever_reserved == 0:
        return None
    return Refusal(
        "cap",
        f"{name} was opened for {BY_STATEMENT}, and has no budget for any other, whatever its cap is; "
        "write one of these into the configuration",
    )


def record_refusal(journal: Journal, request: ReleaseRequest, refused: Refusal, moment: datetime) -> None:
    """Append the REFUSED row of a release, unless the same was refused before and nothing has changed since."""
    body = {
        **cap_body(request.plan.epsilon, request.plan.delta),
        "run": request.run,
        "plan_digest": request.plan_digest,
        "unit": request.unit,
        "neighbors": request.plan.neighbors,
        "reason": refused.reason,
    }
    since = journal.newest_of(request.dataset, _CHANGES)
    before = journal.account_rows([request.dataset], [EventKind.REFUSED], after=since)
    if any(json.loads(row["body"]) == body for row in before):
        return
    refused_row = Event(kind=EventKind.REFUSED, actor=request.actor, account=request.dataset, body=body)
    journal.append(replace(refused_row, created=moment))


def reservation(request: ReleaseRequest, how: Admitted | None, moment: datetime) -> list[Event]:
    """The RESERVED rows of a release: its own, with its public facts and its whole plan, and one for each draw."""
    assert request.source is not None
    plan = request.plan
    optional = {
        "approval": "required" if request.needs_approval else None,
        "supersedes": request.supersedes,
        "program": request.program and request.program.model_dump(),
        "admitted": how if how == "statement" else None,
    }
    body = {
        **{name: value for name, value in optional.items() if value is not None},
        **cap_body(plan.epsilon, plan.delta),
        "run": request.run,
        "plan_digest": request.plan_digest,
        "source": request.source.mark(request.release),
        "unit": request.unit,
        "neighbors": plan.neighbors,
        "delta_threshold": plan.delta_threshold,
        "spent_epsilon": plan.spent_epsilon,
        "draws": [draw.facts for draw in plan.charges],
    }
    about = Event(
        kind=EventKind.RESERVED, actor=request.actor, created=moment, account=request.dataset, release=request.release
    )
    return [replace(about, body=body), *(replace(about, draw=draw.name, cost=draw.cost) for draw in plan.charges)]


def rounded_up(value: float | Decimal) -> str:
    """`value` with four digits, never below it."""
    return _rounded(value, _UP)


def rounded_down(value: float | Decimal) -> str:
    """`value` with four digits, never above it."""
    return _rounded(value, _DOWN)


def _source_refusal(source: SourceDigest | None, account: Account, sums: Sums, journal: Journal) -> Refusal | None:
    """Why a source of another account is refused; the reservations of all others are read, and each has to be there."""
    if source is None:
        return None
    others = sums.accounts.keys() - {account.dataset}
    rows = journal.account_rows(others, [EventKind.RESERVED])
    found = Counter(row["account"] for row in rows)
    if any(found[other] != sums.spent_of(other).ever_reserved for other in others):
        raise BudgetError("the ledger is broken: the row of a reservation is missing")
    for row in rows:
        if source.matches(row["release"], json.loads(row["body"])["source"]):
            other = row["account"]
            return Refusal(
                "source",
                f"this source was released under account {other}. Releases about the same people share "
                "one account, also where their sources differ in order, format or a few rows, which nothing here can see. "
                f"Release it under that account: set `dataset: {other}` in the configuration",
            )
    return None


def _cap_refusal(request: ReleaseRequest, account: Account, spent: Spent) -> Refusal | None:
    if admitted(account, spent, request.cost, request.plan.statement) is not None:
        return None
    unheld_noise = noise_refusal(request.cost, account, spent)
    message = unheld_noise.message if unheld_noise else _why(request.cost, account, spent)
    if request.largest is not None and not (unheld_noise or is_closed(account, spent)):
        epsilon, left = request.largest(account, spent), account.box.delta_add - spent.cost.delta
        less_delta = "; a smaller privacy.delta may" if 0 < left < request.cost.delta else ""
        message += (
            f". A release of the same configuration fits with privacy.epsilon: {rounded_down(epsilon)}"
            if epsilon
            else f". A smaller privacy.epsilon does not help{less_delta}"
        )
    if (raised := _raised_cap(request, account, spent)) is not None:
        command = raising_command(account.dataset, raised)
        weaker = "To raise the cap instead, which weakens the promise to all in the table"
        message += f". {weaker if raised != account.cap else 'To set it again'}: {command}"
    return Refusal("cap", message)


def _why(asked: Cost, account: Account, spent: Spent) -> str:
    """What is left of the box, and what is asked of it, where that is more."""
    box, name = account.box, f"account {account.dataset}"
    cap = f"epsilon {account.epsilon:f} at delta {float(account.delta)!r}"
    if spent.cost_by_statement is not None and not box.holds(spent.cost_by_statement):
        return f"{name} admits nothing under its cap of {cap}: its first release was admitted by its own statement"
    if is_closed(account, spent):
        return f"{name} admits nothing before its cap of {cap} is set again: more is charged than its parts hold"
    names = ("noise, in percent of its budget:", "delta for thresholds", "allowance of epsilon", "allowance of delta")
    scales = (box.mu2 or asked.mu2 or 1, 100), *3 * [(1, 1)]  # few know mu^2
    amounts = zip(names, scales, box.amounts, *map(coordinates, (spent.cost, asked, spent.cost + asked)), strict=True)
    over = "; ".join(
        f"{what} {_short(times * max(Decimal(0), limit - used) / by, _DOWN)} of {_short(times * limit / by, _DOWN)} left, and "
        f"{_short(times * more / by, _UP)} is asked for"
        for what, (by, times), limit, used, more, total in amounts
        if total > limit
    )
    return f"{name} ({cap}) does not hold this release: {over}"


def _raised_cap(request: ReleaseRequest, account: Account, spent: Spent) -> BasicAmount | None:
    """The least cap, with four digits of epsilon and a multiple of delta, whose box holds the release; None for none."""
    if spent.ever_reserved == 0:
        statement, cap = request.plan.statement, account.cap
        return BasicAmount(epsilon=max(statement.epsilon, cap.epsilon), delta=max(statement.delta, cap.delta))
    needed = [cost for cost in (spent.cost + request.cost, spent.cost_by_statement) if cost is not None]
    for factor in _FACTORS_OF_DELTA:
        delta = stated(account.delta * factor)
        if delta > MOST_DELTA and factor > 1:
            return None
        epsilon = _least_epsilon(account, delta, needed)
        if epsilon is not None:
            return BasicAmount(epsilon=epsilon, delta=delta)
    return None


def _least_epsilon(account: Account, delta: Decimal, needed: Iterable[Cost]) -> Decimal | None:
    """The least epsilon from the account's on, with four digits, whose box at `delta` holds all of `needed`; by halving."""

    def holds(epsilon: Decimal) -> bool:
        box = box_of_cap(account, BasicAmount(epsilon=epsilon, delta=delta))
        return all(map(box.holds, needed))

    low, high = account.epsilon, account.epsilon * 2**10
    if holds(low):
        return low
    if not holds(high):
        return None
    while _UP.create_decimal(low) < _UP.create_decimal(high) and high - low > low / 10**5:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return _UP.create_decimal(high).normalize()


def _policy_refusal(request: ReleaseRequest, account: Account, spent: Spent, moment: datetime) -> Refusal | None:
    statement = request.plan.statement
    asked = period_forecast(account, spent, request.plan, moment)
    if asked is None or asked.fits:
        return None
    policy = asked.policy
    message = (
        f"account {account.dataset} has a policy of {policy}, of which epsilon {rounded_up(asked.before)} is spent since "
        f"{asked.start} (UTC); this release asks for epsilon {statement.epsilon:f} at delta {float(statement.delta)!r}"
    )
    if asked.fits_from is not None:
        return Refusal("policy", f"{message}; it fits from {asked.fits_from} (UTC) on")
    epsilon = max(_UP.create_decimal(statement.epsilon), policy.epsilon)
    delta = max(_UP.create_decimal(statement.delta), policy.delta)
    change = f"{raising_command(account.dataset, account.cap)} --per {policy.per}={epsilon:f},{float(delta)!r}"
    return Refusal("policy", f"{message}, more than it allows in any {policy.per}; to change the policy: {change}")


def _short(value: Decimal, context: Context) -> str:
    return f"{float(context.create_decimal(value)):g}"


def _rounded(value: float | Decimal, context: Context) -> str:
    return f"{context.create_decimal(Decimal(str(value))).normalize():f}"
