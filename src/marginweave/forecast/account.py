"""Forecast what the account of a release says before anything is charged: does it fit, and how long does it last?"""

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
from marginweave.forecast.plan_sentence import plan_sentence
from marginweave.ledger import Ledger
from marginweave.ledger.admission import noise_refusal, unit_refusal
from marginweave.ledger.boxes import total_with
from marginweave.ledger.rules import PeriodForecast, period_epsilon, runs_a_period
from marginweave.measurements.largest import largest_epsilon
from marginweave.measurements.split import plan_budget
from marginweave.runs.earlier import check_earlier
from marginweave.runs.lookup import describe_progress
from marginweave.runs.preparation import open_ledger
from marginweave.runs.request import Request
from marginweave.texts.sentences import Sentence

MOST_RUNS = 10_000
SEVERAL = 1000  # releases that fit are counted up to this number
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
        """Yield the times from `start` on."""
        ...

    def run_name(self, dataset: str, moment: datetime) -> str:
        """Return the name of the run of `moment`."""
        ...


class AccountForecast(NamedTuple):
    """The answer of an account to a release; whether it `fits`, and how many `more_that_fit` of its kind fit after it.

    None where the account is not asked: the run is there already, or its data is a public example.
    """

    sentences: list[Sentence]
    fits: bool | None = None
    more_that_fit: int | None = None


def account_forecast(request: Request, schedule: Times | None = None) -> AccountForecast:
    """Return what the ledger, and the policy of this period, will say, and how long the account lasts on a schedule.

    Nothing is charged. Raises InputError as `check_earlier`.
    """
    configuration = request.configuration
    progress = describe_progress(request.folder)
    if request.is_example:
        answer = progress or plan_sentence("ledger.example", dataset=configuration.dataset)
        return AccountForecast(_unasked(request, answer, schedule, "schedule.example"))
    try:
        ledger = open_ledger(request)
    except BudgetError as refusal:
        sentences = _unasked(request, progress or str(refusal), schedule, "schedule.no-account")
        return AccountForecast(sentences, fits=None if progress else False)
    check_earlier(configuration, ledger)
    return _asked(configuration, ledger, progress, schedule)


def _unasked(
    request: Request, answer: str | Sentence, schedule: Times | None, key: str
) -> list[Sentence]:
    """Return the answer where there is no account to ask; `key` is that of the sentence on a schedule."""
    sentences = [plan_sentence("ledger.line", answer=answer)]
    if request.earlier:
        sentences.append(plan_sentence("ledger.earlier"))
    if schedule is not None:
        sentences.append(plan_sentence(key))
    return sentences


def _asked(
    configuration: Configuration, ledger: Ledger, progress: str | None, schedule: Times | None
) -> AccountForecast:
    """Return the answer of the account of a configuration; `progress` is that of a run that is there already."""
    accounts = ledger.accounts
    dataset = configuration.dataset
    plan = plan_budget(configuration).prices
    moment = datetime.now(UTC)
    total = accounts.total(dataset)
    after, has_room = accounts.forecast(dataset, plan)
    refusal = account_refusal(configuration, total, has_room)
    fitting, _ = releases_that_fit(total.account, total.spent, (plan.cost, plan.statement), SEVERAL)
    answer = progress or _answer(total, after, refusal or _fits(fitting))
    sentences = [plan_sentence("ledger.line", answer=answer)]
    policy = accounts.period_forecast(dataset, plan, moment)
    if policy is not None and math.isfinite(policy.after):  # else an account without delta
        sentences.append(_policy_answer(dataset, policy))
    if schedule is not None:
        sentences += schedule_forecast(
            total, accounts.period_spent(dataset, moment), plan, schedule, moment
        )
        if configuration.unchanged == "skip":
            sentences.append(plan_sentence("schedule.skipped"))
    if progress:
        return AccountForecast(sentences)
    fits = refusal is None and (policy is None or policy.fits)
    return AccountForecast(
        sentences, fits=fits, more_that_fit=fitting - 1 if refusal is None else None
    )


def _answer(total: AccountTotal, after: float, verdict: Sentence) -> Sentence:
    """Return what an account has spent, without and with the release, and its verdict."""
    account = total.account
    return plan_sentence(
        "ledger.spent-after" if math.isfinite(after) else "ledger.spent",
        dataset=account.dataset,
        spent=total.epsilon,
        epsilon=float(account.epsilon),
        delta=float(account.delta),
        after=after,
        verdict=verdict,
    )


def _fits(fitting: int) -> Sentence:
    """Return that a release fits, and how many more do, where `fitting` fit in all."""
    if fitting > 1:
        return plan_sentence("ledger.fits", more=count_of(fitting - 1, fitting))
    return plan_sentence("ledger.fits-alone")


def account_refusal(
    configuration: Configuration, total: AccountTotal, fits: bool
) -> Sentence | None:
    """Return why an account will refuse one more release of a configuration; None where it will not.

    `fits`: its box has room.
    """
    account = total.account
    plan = plan_budget(configuration).prices
    refusal = unit_refusal(plan.unit, plan.neighbors, account) or noise_refusal(
        plan.cost, account, total.spent
    )
    if refusal is not None:
        return plan_sentence("ledger.refused-why", why=refusal.message)
    if fits:
        return None
    largest = largest_epsilon(configuration, account, total.spent)
    return (
        plan_sentence("ledger.refused-epsilon", epsilon=largest)
        if largest
        else plan_sentence("ledger.refused")
    )


def _policy_answer(dataset: str, forecast: PeriodForecast) -> Sentence:
    """Return what the policy of an account says to a release in this period."""
    policy = forecast.policy
    if forecast.fits:
        verdict = plan_sentence("policy.fits")
    elif forecast.fits_from:
        verdict = plan_sentence("policy.later", start=str(forecast.fits_from))
    else:
        verdict = plan_sentence("policy.never", period=policy.per)
    return plan_sentence(
        "policy.line",
        dataset=dataset,
        before=forecast.before,
        epsilon=float(policy.epsilon),
        delta=float(policy.delta),
        start=str(forecast.start),
        after=forecast.after,
        verdict=verdict,
    )


@dataclass(kw_only=True)
class Outlook:
    """The future of an account on a schedule: how many runs fit, the `last` of them, the run that is `refused`, and why.

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
) -> list[Sentence]:
    """Return how long the account lasts from `moment` on for releases of `plan` on a schedule.

    `of_period` is what was spent in the present period of its policy.
    """
    account = total.account
    future = outlook(account, total.spent, of_period, plan, schedule.after, moment)
    return list(schedule_sentences(future, account, schedule))


def outlook(
    account: Account,
    spent: Spent,
    of_period: Spent,
    plan: ChargedPlan,
    after: _TimesAfter,
    moment: datetime,
) -> Outlook:
    """Return the runs of `plan` at the times `after` `moment`, until the account admits no more; it has `spent` already.

    `of_period` is what of it was spent in the period of the account's policy that `moment` is in.
    DP: arithmetic on public numbers.
    """
    policy = account.policy
    charge = (plan.cost, plan.statement)
    times: Iterator[tuple[datetime, bool]]
    if policy is None:
        times = ((time, True) for time in after(moment))
    else:
        most = runs_a_period(policy, Spent(), plan, MOST_RUNS)
        if not most:
            first = next(after(moment), None)
            return Outlook(
                next=first,
                postponed=first,
                needed=period_epsilon(policy, Spent().with_charge(*charge)),
            )
        times = _under_policy(
            policy, runs_a_period(policy, of_period, plan, MOST_RUNS), most, after, moment
        )
    fitting, spent_then = releases_that_fit(account, spent, charge, MOST_RUNS)
    future = Outlook()
    for time, has_room in takewhile(lambda run: run[0] <= moment + _FORESIGHT, times):
        future.next = future.next or time
        if not has_room:
            future.postponed = future.postponed or time
        elif future.runs < fitting:
            future.runs += 1
            future.last = time
        else:
            future.refused = time
            future.amount = _missing(account, spent_then.cost + plan.cost)
        if future.refused or future.runs == MOST_RUNS:
            break
    return future


def releases_that_fit(
    account: Account, spent: Spent, charge: tuple[Cost, BasicAmount], most: int
) -> tuple[int, Spent]:
    """Return how many releases of `charge` an account that has `spent` admits, `most` at most; and what is spent then."""
    sums = list(
        accumulate(
            repeat(charge, most), lambda total, charged: total.with_charge(*charged), initial=spent
        )
    )
    # totals grow
    number = bisect_left(
        sums, True, hi=most, key=lambda total: not total_with(account, total, *charge)[1]
    )
    return number, sums[number]


def count_of(number: int, fitting: int) -> Sentence:
    """Return a number of releases that follows from how many fit, which are counted to `SEVERAL`: then there may be more."""
    return plan_sentence(
        "ledger.at-least" if fitting == SEVERAL else "ledger.number", number=number
    )


def _under_policy(
    policy: Policy, in_this: int, in_any: int, after: _TimesAfter, moment: datetime
) -> Iterator[tuple[datetime, bool]]:
    """Yield the times after `moment`, and whether the period of each has room.

    Most times of a full period are left out: there may be many.
    """
    times = after(moment)
    taken = Counter[date]()
    refused = 0
    while True:
        time = next(times, None)
        if time is None:
            return
        start = policy.start(time)
        taken[start] += 1
        has_room = taken[start] <= (in_this if start == policy.start(moment) else in_any)
        yield time, has_room
        refused = 0 if has_room else refused + 1
        if refused == _PATIENCE:
            refused = 0
            times = after(datetime.combine(policy.following(time), clock(), UTC))


def _missing(account: Account, needed: Cost) -> Amount:
    """Return what a run lacks where all together cost `needed`; epsilon is what mu^2 is converted to."""
    box = account.box
    if not needed.plain.within(box.allowance):
        return "allowance"
    return "epsilon" if needed.mu2 > box.mu2 else "delta"


def schedule_sentences(future: Outlook, account: Account, schedule: Times) -> Iterator[Sentence]:
    """Yield what is to come for an account on a schedule."""
    time = _time(future.next)
    if future.next is None:
        yield plan_sentence("schedule.no-next", schedule=str(schedule), time=time)
    else:
        run = schedule.run_name(account.dataset, future.next)
        yield plan_sentence("schedule.next", schedule=str(schedule), run=run, time=time)
    policy = account.policy
    if future.needed is not None and policy is not None:
        yield plan_sentence(
            "schedule.period" if math.isfinite(future.needed) else "schedule.period-delta",
            period=policy.per,
            epsilon=float(policy.epsilon),
            delta=float(policy.delta),
            needed=future.needed,
        )
        return
    if future.postponed is not None:
        yield plan_sentence("schedule.postponed", policy=str(policy), time=_time(future.postponed))
    if future.amount is not None:
        runs = plan_sentence("schedule.none")
        if future.runs:
            runs = plan_sentence("schedule.last", runs=future.runs, time=_time(future.last))
        yield plan_sentence(f"schedule.{future.amount}", runs=runs, time=_time(future.refused))
    else:
        yield plan_sentence("schedule.lasts", runs=future.runs, time=_time(future.last))
    yield plan_sentence("schedule.same-people")


def _time(time: datetime | None) -> str | Sentence:
    """Return a date and time with its zone, for a reader."""
    return plan_sentence("schedule.no-date") if time is None else f"{time:%Y-%m-%d %H:%M %Z}"
