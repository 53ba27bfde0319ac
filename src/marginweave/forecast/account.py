"""What the account of a release says to it before anything is charged: whether it fits, and how long it lasts on a schedule."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from itertools import accumulate, repeat, takewhile
from typing import Literal, NamedTuple, Protocol

from marginweave.accounting.accounts import Account, AccountTotal, Policy, Spent
from marginweave.accounting.charges import ChargedPlan
from marginweave.base.budget import BasicAmount, Cost
from marginweave.base.errors import BudgetError
from marginweave.configuration.release import Configuration
from marginweave.ledger.admission import noise_refusal, unit_refusal
from marginweave.ledger.boxes import total_with
from marginweave.ledger.rules import PeriodForecast, period_epsilon, runs_a_period
from marginweave.measurements.largest import largest_epsilon
from marginweave.measurements.split import plan_budget
from marginweave.runs.earlier import check_earlier
from marginweave.runs.lookup import describe_progress
from marginweave.runs.preparation import open_ledger
from marginweave.runs.request import Request

MOST_RUNS = 10_000
SEVERAL = 1000  # no steward counts further
_PATIENCE = 16  # runs that one period refuses in a row before the rest of it is skipped
_FORESIGHT = timedelta(days=100 * 366)  # nothing later is looked at

Amount = Literal["epsilon", "delta", "allowance"]
_TimesAfter = Callable[[datetime], Iterator[datetime]]


class Times(Protocol):
    """The times of a schedule. Prefect's own are in `flows`: a forecast needs no Prefect."""

    @property
    def timezone(self) -> str:
        """Name of the time zone."""
        ...

    def after(self, start: datetime) -> Iterator[datetime]:
        """The times from `start` on."""
        ...

    def run_name(self, dataset: str, moment: datetime) -> str:
        """The name of the run of `moment`."""
        ...


class AccountForecast(NamedTuple):
    """What an account says to a release, in `lines`; whether it `fits`, and how many `more` of its kind fit after it.

    None where the account is not asked: the run is there already, or its data is a public example.
    """

    lines: list[str]
    fits: bool | None = None
    more: int | None = None


def account_forecast(request: Request, schedule: Times | None = None) -> AccountForecast:
    """What the ledger will say to the release, the policy of this period too, and how long the account lasts on a schedule.

    Nothing is booked. Raises InputError as `check_earlier`.
    """
    configuration, progress = request.configuration, describe_progress(request.folder)
    dataset, plan, moment = configuration.dataset, plan_budget(configuration).prices, datetime.now(UTC)
    unchecked = "Earlier releases: whether their files are those in the ledger is checked when the run begins"
    later = [unchecked] if request.earlier else []
    if request.is_example:
        found = progress or f"{dataset} is public example data; `run` keeps an account for it in the home"
        lasts = ["Schedule: public example data keeps an account in the home, which no schedule needs"]
        return AccountForecast(lines=[f"Ledger: {found}", *later, *(lasts if schedule else ())])
    try:
        ledger = open_ledger(request)
    except BudgetError as refusal:
        lasts = ["Schedule: without an account no run fits"]
        lines = [f"Ledger: {progress or refusal}", *later, *(lasts if schedule else ())]
        return AccountForecast(lines=lines, fits=None if progress else False)
    check_earlier(configuration, ledger)
    total, (after, has_room) = ledger.accounts.total(dataset), ledger.accounts.forecast(dataset, plan)
    refused = account_refusal(configuration, total, has_room)
    room, _ = releases_that_fit(total.account, total.spent, (plan.cost, plan.statement), SEVERAL)
    verdict = refused or f"it fits, and {count_of(room - 1, room) if room > 1 else 'no'} more like it"
    lines = [f"Ledger: {progress or _verdict(total, after, verdict)}"]
    policy = ledger.accounts.period_forecast(dataset, plan, moment)
    if policy is not None and math.isfinite(policy.after):  # else an account without delta
        lines.append(f"Policy, not a guarantee: {_policy_verdict(dataset, policy)}")
    if schedule is not None:
        lines += schedule_forecast(total, ledger.accounts.period_spent(dataset, moment), plan, schedule, moment)
    if progress:
        return AccountForecast(lines)
    fits = not refused and (policy is None or policy.fits)
    return AccountForecast(lines, fits=fits, more=None if refused else room - 1)


def _verdict(total: AccountTotal, after: float, verdict: str) -> str:
    account = total.account
    reached = f"with this release {after:.4g}: " if math.isfinite(after) else ""
    spent = f"epsilon {total.epsilon:.4g} of {float(account.epsilon):g} at delta {float(account.delta):g}"
    return f"{account.dataset} has spent {spent}; {reached}{verdict}"


def account_refusal(configuration: Configuration, total: AccountTotal, fits: bool) -> str:
    """Why an account will refuse one more release of a configuration; empty where it will not. `fits`: its box has room."""
    account, plan = total.account, plan_budget(configuration).prices
    other = unit_refusal(plan.unit, plan.neighbors, account) or noise_refusal(plan.cost, account, total.spent)
    if other is not None:
        return f"it will be refused: {other.message}"
    if fits:
        return ""
    largest = largest_epsilon(configuration, account, total.spent)
    return "it will be refused" + (f"; with privacy.epsilon: {largest:g} it fits" if largest else "")


def _policy_verdict(dataset: str, found: PeriodForecast) -> str:
    verdict = "it fits"
    if not found.fits:
        later = f"; it fits from {found.fits_from} on"
        verdict = "it will be refused" + (
            later if found.fits_from else f", as it is too much for any {found.policy.per}"
        )
    spent = f"epsilon {found.before:.4g} of {float(found.policy.epsilon):g} at delta {float(found.policy.delta):g}"
    return f"{dataset} has spent {spent} since {found.start} (UTC); with this release {found.after:.4g}: {verdict}"


@dataclass(kw_only=True)
class Outlook:
    """What is to come on a schedule: how many runs fit, the `last` of them, the run that is `refused`, and why.

    `amount` is None where more than `MOST_RUNS` runs fit. `postponed` is the first run that the account's policy refuses,
    within the cap; what it refuses is charged nothing. `needed` is the epsilon of a run, at the policy's delta, that fits into
    no period: then nothing else is looked for. Nor is it later than in a hundred years.
    """

    next: datetime | None = None
    runs: int = 0
    last: datetime | None = None
    refused: datetime | None = None
    amount: Amount | None = None
    postponed: datetime | None = None
    needed: float | None = None


def schedule_forecast(
    total: AccountTotal, of_period: Spent, plan: ChargedPlan, schedule: Times, moment: datetime
) -> list[str]:
    """In words, how long the account lasts from `moment` on for releases of `plan` on a schedule.

    `of_period` is what was spent in the present period of its policy.
    """
    account = total.account
    return list(_words(outlook(account, total.spent, of_period, plan, schedule.after, moment), account, schedule))


def outlook(
    account: Account, spent: Spent, of_period: Spent, plan: ChargedPlan, after: _TimesAfter, moment: datetime
) -> Outlook:
    """The runs of `plan` at the times `after` `moment`, until the account, which has `spent` so much, admits no more.

    `of_period` is what of it was spent in the period of the account's policy that `moment` is in.
    DP: arithmetic on public numbers.
    """
    policy, charge = account.policy, (plan.cost, plan.statement)
    times: Iterator[tuple[datetime, bool]]
    if policy is None:
        times = ((time, True) for time in after(moment))
    elif most := runs_a_period(policy, Spent(), plan, MOST_RUNS):
        times = _under_policy(policy, runs_a_period(policy, of_period, plan, MOST_RUNS), most, after, moment)
    else:
        first = next(after(moment), None)
        return Outlook(next=first, postponed=first, needed=period_epsilon(policy, Spent().with_charge(*charge)))
    fitting, then = releases_that_fit(account, spent, charge, MOST_RUNS)
    found = Outlook()
    for time, has_room in takewhile(lambda asked: asked[0] <= moment + _FORESIGHT, times):
        found.next = found.next or time
        if not has_room:
            found.postponed = found.postponed or time
        elif found.runs < fitting:
            found.runs, found.last = found.runs + 1, time
        else:
            found.refused, found.amount = time, _missing(account, then.cost + plan.cost)
        if found.refused or found.runs == MOST_RUNS:
            break
    return found


def releases_that_fit(account: Account, spent: Spent, charge: tuple[Cost, BasicAmount], most: int) -> tuple[int, Spent]:
    """How many releases of that `charge` an account admits that has `spent` so much, `most` at most; and what is spent then."""
    sums = list(accumulate(repeat(charge, most), lambda sum_, each: sum_.with_charge(*each), initial=spent))
    found = bisect_left(sums, True, hi=most, key=lambda sum_: not total_with(account, sum_, *charge)[1])  # totals grow
    return found, sums[found]


def count_of(number: int, fitting: int) -> str:
    """A number of releases that follows from how many fit, which are counted to `SEVERAL`: then there may be more."""
    return f"at least {number:,}" if fitting == SEVERAL else f"{number:,}"


def _under_policy(
    policy: Policy, in_this: int, in_any: int, after: _TimesAfter, moment: datetime
) -> Iterator[tuple[datetime, bool]]:
    """The times after `moment`, and whether the period of each has room; most of a full one are left out: there may be many."""
    times, taken, refused = after(moment), Counter[date](), 0
    while (time := next(times, None)) is not None:
        start = policy.start(time)
        taken[start] += 1
        has_room = taken[start] <= (in_this if start == policy.start(moment) else in_any)
        yield time, has_room
        refused = 0 if has_room else refused + 1
        if refused == _PATIENCE:
            refused, times = 0, after(datetime.combine(policy.following(time), clock(), UTC))


def _missing(account: Account, needed: Cost) -> Amount:
    """What a run lacks where all together cost `needed`; epsilon is what mu^2 is converted to."""
    box = account.box
    if not needed.plain.within(box.allowance):
        return "allowance"
    return "epsilon" if needed.mu2 > box.mu2 else "delta"


def _words(found: Outlook, account: Account, schedule: Times) -> Iterator[str]:
    name = f", {schedule.run_name(account.dataset, found.next)}," if found.next is not None else ""
    yield f"Schedule {schedule}: the next run{name} is on {_time(found.next)}"
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
