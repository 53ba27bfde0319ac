"""How long an account lasts for releases on a schedule: which of its amounts runs out first, and when. Reads no data."""

from __future__ import annotations

import asyncio
import math
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from typing import Literal, TypeVar
from zoneinfo import ZoneInfo

from marginweave.flows.run.request import Request
from marginweave.schemas.budget import BasicAmount, Cost
from marginweave.schemas.draws import BudgetPlan
from marginweave.schemas.errors import BudgetError, InputError
from marginweave.schemas.ledger.accounts import Account, Policy, Spent
from marginweave.tasks.accounting.plan.k_tuples import plan_budget
from marginweave.tasks.ledger import Ledger, opening_for
from marginweave.tasks.ledger.boxes import total_with
from marginweave.tasks.ledger.rules import period_epsilon, period_spent, runs_a_period

MOST_RUNS = 10_000
_CHUNK = 1000  # as many as Prefect computes at a time
_PATIENCE = 16  # runs that one period refuses in a row before the rest of it is skipped
_FORESIGHT = timedelta(days=100 * 366)  # nothing later is looked at

Amount = Literal["epsilon", "delta", "allowance"]
Summable = TypeVar("Summable", Cost, BasicAmount)
_TimesAfter = Callable[[datetime], Iterator[datetime]]


@dataclass(frozen=True)
class Schedule:
    """Times as Prefect has them for a deployment: a cron expression of five fields, and the name of a time zone.

    Raises:
        InputError: Prefect would not take it, or it never comes.
    """

    cron: str
    timezone: str

    def __post_init__(self) -> None:
        try:
            ZoneInfo(self.timezone)
        except (KeyError, ValueError, OSError):
            rule = "must be the name of a time zone, such as Europe/Berlin"
            raise InputError(f"timezone ({self.timezone}) {rule}") from None
        try:
            fitting = len(self.cron.split()) == 5 and next(self.after(datetime.now(UTC)), None) is not None
        except ValueError:
            fitting = False
        if not fitting:
            raise InputError(f"schedule ({self.cron}) must be a cron expression of five fields, such as '0 3 1 */3 *'")

    def after(self, start: datetime) -> Iterator[datetime]:
        """The times from `start` on at which a deployment would run; Prefect computes a chunk at a time."""
        with warnings.catch_warnings():  # Prefect's, of a home that is made only when something runs
            warnings.simplefilter("ignore")
            from prefect.server.schemas.schedules import CronSchedule

        schedule, zone = CronSchedule(cron=self.cron, timezone=self.timezone), ZoneInfo(self.timezone)
        size = 2
        while times := asyncio.run(schedule.get_dates(n=size, start=start)):
            yield from (time.astimezone(zone) for time in times)
            start, size = times[-1] + timedelta(seconds=1), min(8 * size, _CHUNK)

    def __str__(self) -> str:
        return f"{self.cron} ({self.timezone})"


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What is to come on a schedule: how many runs fit, the `last` of them, the run that is `refused`, and why.

    `amount` is None where more than `MOST_RUNS` runs fit. `held` is the first run that the account's policy refuses, within
    the cap; what it refuses is charged nothing. `needed` is the epsilon of a run, at the policy's delta, that fits into no
    period: then nothing else is looked for. Nor is it later than in a hundred years.
    """

    next: datetime | None
    runs: int = 0
    last: datetime | None = None
    refused: datetime | None = None
    amount: Amount | None = None
    postponed: datetime | None = None
    needed: float | None = None


def schedule_forecast(request: Request, schedule: Schedule) -> list[str]:
    """In words, how long the account lasts for the request's plan on a schedule, every run a release of its own."""
    dataset, plan = request.configuration.dataset, plan_budget(request.configuration)
    if request.is_example:
        return ["Schedule: public example data keeps an account in the home, which no schedule needs"]
    try:
        ledger = Ledger.open(request.ledger_location, command=opening_for(dataset, plan, request.path))
        account, releases = ledger.accounts.total(dataset).account, ledger.releases.of(dataset)
    except BudgetError:
        return ["Schedule: without an account no run fits"]
    spent, moment = Spent(), datetime.now(UTC)
    for record in releases:
        spent = spent.with_release(record)
    of_period = Spent() if account.policy is None else period_spent(account.policy, dataset, releases, moment)
    found = outlook(account, spent, of_period, plan, schedule.after, moment)
    return list(_words(found, account, schedule))


def outlook(
    account: Account, spent: Spent, of_period: Spent, plan: BudgetPlan, after: _TimesAfter, moment: datetime
) -> Outlook:
    """The runs of `plan` at the times `after` `moment`, until the account, which has `spent` so much, admits no more.

    `of_period` is what of it was spent in the period of the account's policy that `moment` is in.
    DP: arithmetic on public numbers.
    """
    fitting = _fitting(account, spent, plan)
    first = last = refused = postponed = None
    admitted, taken = 0, _Taken(account.policy, of_period, plan, moment)
    if taken.needed is not None:
        first = next(after(moment), None)
        return Outlook(next=first, postponed=first, needed=taken.needed)
    for time in taken.worth_asking(after, moment):
        first = first or time
        if not taken.admits(time):
            postponed = postponed or time
        elif admitted < fitting:
            admitted, last = admitted + 1, time
        else:
            refused = time
        if refused or admitted == MOST_RUNS:
            break
    amount = None if refused is None else _amount(account, spent, plan, fitting)
    return Outlook(next=first, runs=admitted, last=last, refused=refused, amount=amount, postponed=postponed)


class _Taken:
    """Counts the runs of each period of a policy."""

    def __init__(self, policy: Policy | None, of_period: Spent, plan: BudgetPlan, moment: datetime) -> None:
        self._policy, self._refused = policy, 0
        self.needed: float | None = None
        if policy is not None:
            self._now = policy.start(moment)
            self._in_this = runs_a_period(policy, of_period, plan, MOST_RUNS)
            self._in_any = runs_a_period(policy, Spent(), plan, MOST_RUNS)
            if self._in_any == 0:
                self.needed = period_epsilon(policy, Spent().with_charge(plan.cost, plan.statement))
        self._count: dict[date, int] = {}

    def admits(self, time: datetime) -> bool:
        """Whether the policy admits one run more at `time`, which then counts."""
        if self._policy is None:
            return True
        start = self._policy.start(time)
        taken, most = self._count.get(start, 0), self._in_this if start == self._now else self._in_any
        self._count[start] = taken + 1
        self._refused = 0 if taken < most else self._refused + 1
        return taken < most

    def worth_asking(self, after: _TimesAfter, moment: datetime) -> Iterator[datetime]:
        """The times after `moment`, but for most of those in periods that are full: a minutely schedule has many."""
        times, end = after(moment), moment + _FORESIGHT
        while (time := next(times, None)) is not None and time <= end:
            yield time
            if self._policy is not None and self._refused >= _PATIENCE:
                self._refused = 0
                times = after(datetime.combine(self._policy.following(time), clock(), UTC))


def _fitting(account: Account, spent: Spent, plan: BudgetPlan) -> int:
    """How many releases of `plan` the cap still admits one after the other, at most `MOST_RUNS`: totals grow, so by halving."""

    def is_refused_after(runs: int) -> bool:
        return not total_with(account, _after(spent, plan, runs), plan.cost, plan.statement)[1]

    return bisect_left(range(MOST_RUNS), True, key=is_refused_after)


def _after(spent: Spent, plan: BudgetPlan, runs: int) -> Spent:
    cost, statement = spent.cost + _times(plan.cost, runs), spent.statement + _times(plan.statement, runs)
    return replace(spent, releases=spent.releases + runs, ever=spent.ever + runs, cost=cost, statement=statement)


def _amount(account: Account, spent: Spent, plan: BudgetPlan, fitting: int) -> Amount:
    """What the first run that does not fit lacks; epsilon is what mu^2 is converted to."""
    needed, box = _after(spent, plan, fitting).cost + plan.cost, account.box
    if box is None or not needed.plain.within(box.allowance):
        return "allowance"
    return "epsilon" if needed.mu2 > box.mu2 else "delta"


def _times(amount: Summable, number: int) -> Summable:
    """`number` times `amount`, exactly."""
    total = type(amount)()
    while number:
        if number & 1:
            total = total + amount
        amount, number = amount + amount, number >> 1
    return total


def _words(found: Outlook, account: Account, schedule: Schedule) -> Iterator[str]:
    yield f"Schedule {schedule}: the next run is on {_time(found.next)}"
    if found.needed is not None and account.policy is not None:
        policy = account.policy
        needs = f"{found.needed:.4g}" if math.isfinite(found.needed) else "a delta"
        yield (
            f"No run fits: a {policy.per} holds epsilon {float(policy.epsilon):g} at delta {float(policy.delta):g}, and a run "
            f"needs {needs}"
        )
        return
    if found.postponed is not None:
        yield (
            f"The policy of {account.policy}, which is no guarantee, refuses the run of {_time(found.postponed)}, and others "
            "like it; they are left out here"
        )
    if found.amount is not None:
        name = "The allowance for plain charges" if found.amount == "allowance" else found.amount.capitalize()
        last = f"the last of {found.runs} run(s) that fit is on {_time(found.last)}" if found.runs else "no run fits"
        yield f"{name} runs out first: {last}; the one on {_time(found.refused)} will be refused"
    else:
        yield f"Neither epsilon nor delta runs out: {found.runs} run(s) fit, until {_time(found.last)} and beyond"
    yield "Every new snapshot of the same people is charged to this account: a schedule gives nobody a new budget"


def _time(time: datetime | None) -> str:
    return "no date" if time is None else f"{time:%Y-%m-%d %H:%M %Z}"
