"""Decides whether a release may be reserved, by public state of the ledger alone, and words a refusal with numbers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
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

_UP = Context(prec=4, rounding=ROUND_CEILING)
_DOWN = Context(prec=4, rounding=ROUND_FLOOR)
# A configuration whose noise fits an account without a budget for Gaussian noise.
LAPLACE = "aggregate: {method: marginals, noise: laplace}"
BY_STATEMENT = (
    f"releases charged in epsilon alone, as with Laplace noise ({LAPLACE}), "
    "or of an amplified resize (resize: {amplify: true})"
)
"""The releases that fit a box with a delta and no mu^2: those that are charged their (epsilon, delta)."""
_FACTORS_OF_DELTA = (1, 2, 4, 8, 16, 32, 64)
# Rows after which a refused release may be admitted, or refused for another reason.
_CHANGES = (ACCOUNT_ROWS - {EventKind.RECONCILED}) | {EventKind.RESERVED, EventKind.RETURNED}


@dataclass(frozen=True, kw_only=True)
class ReleaseRequest:
    """The request of a run to its account: a release of `plan`, from a source, by a program.

    Before a row of the table is read there is no `release` id, and there may be no `source`. A release that `needs_approval` is
    published only by a decision; `supersedes` is a published release of the same account that this one corrects. `largest`
    returns the epsilon with which the same configuration fits an account, 0 for none: for the words of a refusal.
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
        """Cost of all its draws."""
        return self.plan.cost


class Refusal(NamedTuple):
    """The reason why a release is not reserved: a word for the ledger and a sentence for the operator."""

    reason: str
    message: str


def check_identity(request: ReleaseRequest, record: ReleaseRecord) -> None:
    """Refuse a request whose release id was reserved for another dataset, plan or source.

    Raises:
        InputError: dataset, plan or source differ; the message says which.
    """
    same_source = request.source is None or request.source.matches(
        record.release, record.source_digest
    )
    for fact, same in (
        ("dataset", request.dataset == record.dataset),
        ("plan", request.plan_digest == record.plan_digest),
        ("source", same_source),
    ):
        if not same:
            raise InputError(
                f"release {record.release} was reserved with another {fact}; a new {fact} needs a new name"
            )


def refusal(
    request: ReleaseRequest, account: Account, sums: Sums, journal: Journal, moment: datetime
) -> Refusal | None:
    """Return why `request` is refused at `moment`, or None if it may be reserved in the transaction of `journal`."""
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
    """Return why a release of this unit and relation is refused, or None if they are those of the account."""
    advice = "; any other needs a separate account: ledger open NAME --for CONFIG"
    for field, requested, present in (
        ("unit", unit, account.unit),
        ("neighbors", neighbors, account.neighbors),
    ):
        if requested != present:
            message = f"{field} ({requested}) must be {present}, as account {account.dataset} was opened{advice}"
            return Refusal(field, message)
    return None


def noise_refusal(cost: Cost, account: Account, spent: Spent) -> Refusal | None:
    """Return why noise of the kind of `cost` fits the account under no epsilon, or None if the kind is not the reason.

    The account has no delta, or was opened for releases that are charged their (epsilon, delta). The first release may fit
    all the same, by its own statement.
    """
    name = f"account {account.dataset}"
    if not account.delta and (cost.mu2 or cost.delta or cost.plain.delta):
        return Refusal(
            "cap",
            f"{name} was opened with delta 0, and admits only releases with privacy: {{delta: 0}} and {LAPLACE}",
        )
    if not account.delta or account.box.mu2 or not cost.mu2 or spent.ever_reserved == 0:
        return None
    return Refusal(
        "cap",
        f"{name} was opened for {BY_STATEMENT}, and has no budget for any other, whatever its cap is; "
        "write one of these into the configuration",
    )


def record_refusal(
    journal: Journal, request: ReleaseRequest, refused: Refusal, moment: datetime
) -> None:
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
    refused_row = Event(
        kind=EventKind.REFUSED, actor=request.actor, account=request.dataset, body=body
    )
    journal.append(replace(refused_row, created=moment))


def reservation(request: ReleaseRequest, how: Admitted | None, moment: datetime) -> list[Event]:
    """Return the RESERVED rows of a release: the first has its public facts and its plan, and each draw has one."""
    assert request.source is not None
    plan = request.plan
    optional = {
        "tables": request.source.table_marks(request.release) or None,
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
    row = Event(
        kind=EventKind.RESERVED,
        actor=request.actor,
        created=moment,
        account=request.dataset,
        release=request.release,
    )
    draw_rows = [replace(row, draw=draw.name, cost=draw.cost) for draw in plan.charges]
    return [replace(row, body=body), *draw_rows]


def rounded_up(value: float | Decimal) -> str:
    """Return `value` as text with four digits, never below it."""
    return _rounded(value, _UP)


def rounded_down(value: float | Decimal) -> str:
    """Return `value` as text with four digits, never above it."""
    return _rounded(value, _DOWN)


def _source_refusal(
    source: SourceDigest | None, account: Account, sums: Sums, journal: Journal
) -> Refusal | None:
    """Return why a source is refused of which a table, or the only one, was released under another account, or None.

    The reservations of all other accounts are read, and none of them may be missing.
    """
    if source is None:
        return None
    datasets = sums.accounts.keys() - {account.dataset}
    rows = journal.account_rows(datasets, [EventKind.RESERVED])
    reservations = Counter(row["account"] for row in rows)
    if any(reservations[dataset] != sums.spent_of(dataset).ever_reserved for dataset in datasets):
        raise BudgetError("the ledger is broken: the row of a reservation is missing")
    for row in rows:
        body = json.loads(row["body"])
        found = source.tables_in(row["release"], body["source"], body.get("tables", ()))
        if found:
            dataset = row["account"]
            return Refusal(
                "source",
                f"{_named(found, source)} under account {dataset}. Releases about the same people share "
                "one account, also where their sources differ in order, format or a few rows, which nothing here can see. "
                f"Release it under that account: set `dataset: {dataset}` in the configuration",
            )
    return None


def _named(found: Sequence[str], source: SourceDigest) -> str:
    """Return the beginning of the sentence that these tables of a source were released."""
    if len(found) == len(source.tables):
        return "this source was released"
    tables = ", ".join(f"tables.{name}" if name else "source" for name in sorted(found))
    return f"{tables} was released" if len(found) == 1 else f"{tables} were released"


def _cap_refusal(request: ReleaseRequest, account: Account, spent: Spent) -> Refusal | None:
    """Return why the box of the account does not admit the release, and what would, or None."""
    if admitted(account, spent, request.cost, request.plan.statement) is not None:
        return None
    unheld_noise = noise_refusal(request.cost, account, spent)
    message = unheld_noise.message if unheld_noise else _overrun(request.cost, account, spent)
    if request.largest is not None and not (unheld_noise or is_closed(account, spent)):
        message += _smaller_release(request.largest(account, spent), request, account, spent)
    raised = _raised_cap(request, account, spent)
    if raised is not None:
        command = raising_command(account.dataset, raised)
        purpose = "To raise the cap instead, which weakens the promise to all in the table"
        if raised == account.cap:
            purpose = "To set it again"
        message += f". {purpose}: {command}"
    return Refusal("cap", message)


def _smaller_release(
    epsilon: float, request: ReleaseRequest, account: Account, spent: Spent
) -> str:
    """Return the sentence about the largest `epsilon` that fits the account, 0 for none."""
    if epsilon:
        return f". A release of the same configuration fits with privacy.epsilon: {rounded_down(epsilon)}"
    delta_left = account.box.delta_add - spent.cost.delta
    less_delta = "; a smaller privacy.delta may" if 0 < delta_left < request.cost.delta else ""
    return f". A smaller privacy.epsilon does not help{less_delta}"


def _overrun(cost: Cost, account: Account, spent: Spent) -> str:
    """Return words for each coordinate of the box that `cost` exceeds: how much is left, and how much is asked for."""
    box = account.box
    name = f"account {account.dataset}"
    cap = f"epsilon {account.epsilon:f} at delta {float(account.delta)!r}"
    if spent.cost_by_statement is not None and not box.holds(spent.cost_by_statement):
        return f"{name} admits nothing under its cap of {cap}: its first release was admitted by its own statement"
    if is_closed(account, spent):
        return f"{name} admits nothing before its cap of {cap} is set again: more is charged than its parts hold"
    names = (
        "noise, in percent of its budget:",
        "delta for thresholds",
        "allowance of epsilon",
        "allowance of delta",
    )
    percent_of_mu2 = (box.mu2 or cost.mu2 or 1, 100)  # few know mu^2
    scales = (percent_of_mu2, (1, 1), (1, 1), (1, 1))
    amounts = (
        box.amounts,
        coordinates(spent.cost),
        coordinates(cost),
        coordinates(spent.cost + cost),
    )
    overruns = []
    for amount_name, (unit, times), limit, used, requested, total in zip(
        names, scales, *amounts, strict=True
    ):
        if total > limit:
            remaining = _short(times * max(Decimal(0), limit - used) / unit, _DOWN)
            budget = _short(times * limit / unit, _DOWN)
            needed = _short(times * requested / unit, _UP)
            overruns.append(
                f"{amount_name} {remaining} of {budget} left, and {needed} is asked for"
            )
    return f"{name} ({cap}) does not hold this release: {'; '.join(overruns)}"


def _raised_cap(request: ReleaseRequest, account: Account, spent: Spent) -> BasicAmount | None:
    """Return the least cap, with four digits of epsilon and a multiple of delta, whose box holds the release, or None."""
    if spent.ever_reserved == 0:
        statement = request.plan.statement
        cap = account.cap
        return BasicAmount(
            epsilon=max(statement.epsilon, cap.epsilon), delta=max(statement.delta, cap.delta)
        )
    costs = [spent.cost + request.cost]
    if spent.cost_by_statement is not None:
        costs.append(spent.cost_by_statement)
    for factor in _FACTORS_OF_DELTA:
        delta = stated(account.delta * factor)
        if delta > MOST_DELTA and factor > 1:
            return None
        epsilon = _least_epsilon(account, delta, costs)
        if epsilon is not None:
            return BasicAmount(epsilon=epsilon, delta=delta)
    return None


def _least_epsilon(account: Account, delta: Decimal, costs: Iterable[Cost]) -> Decimal | None:
    """Return the least epsilon, with four digits, whose box at `delta` holds each of `costs`; None if none does.

    It is found by bisection between the account's epsilon and 2^10 times that.
    """

    def holds(epsilon: Decimal) -> bool:
        box = box_of_cap(account, BasicAmount(epsilon=epsilon, delta=delta))
        return all(map(box.holds, costs))

    low = account.epsilon
    high = account.epsilon * 2**10
    if holds(low):
        return low
    if not holds(high):
        return None
    while _UP.create_decimal(low) < _UP.create_decimal(high) and high - low > low / 10**5:
        middle = (low + high) / 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return _UP.create_decimal(high).normalize()


def _policy_refusal(
    request: ReleaseRequest, account: Account, spent: Spent, moment: datetime
) -> Refusal | None:
    """Return why the policy of the account's periods does not admit the release at `moment`, or None."""
    statement = request.plan.statement
    forecast = period_forecast(account, spent, request.plan, moment)
    if forecast is None or forecast.fits:
        return None
    policy = forecast.policy
    message = (
        f"account {account.dataset} has a policy of {policy}, of which epsilon {rounded_up(forecast.before)} is spent since "
        f"{forecast.start} (UTC); this release asks for epsilon {statement.epsilon:f} at delta {float(statement.delta)!r}"
    )
    if forecast.fits_from is not None:
        return Refusal("policy", f"{message}; it fits from {forecast.fits_from} (UTC) on")
    epsilon = max(_UP.create_decimal(statement.epsilon), policy.epsilon)
    delta = max(_UP.create_decimal(statement.delta), policy.delta)
    change = f"{raising_command(account.dataset, account.cap)} --per {policy.per}={epsilon:f},{float(delta)!r}"
    return Refusal(
        "policy",
        f"{message}, more than it allows in any {policy.per}; to change the policy: {change}",
    )


def _short(value: Decimal, context: Context) -> str:
    """Return `value` with the digits of `context`, in exponential notation where that is shorter."""
    return f"{float(context.create_decimal(value)):g}"


def _rounded(value: float | Decimal, context: Context) -> str:
    """Return `value` with the digits of `context`, without an exponent."""
    return f"{context.create_decimal(Decimal(str(value))).normalize():f}"
