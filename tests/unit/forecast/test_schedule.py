"""How long an account lasts on a schedule: the same runs as are admitted one after the other, and the right amount to blame."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.accounting.accounts import Account, Box, Policy, Spent
from marginweave.accounting.charges import ChargedPlan
from marginweave.base.budget import BasicAmount, Cost
from marginweave.base.errors import InputError
from marginweave.flows.prefect.schedules import Schedule
from marginweave.forecast.account import MOST_RUNS, Outlook, outlook, schedule_sentences
from marginweave.ledger.boxes import box_for, total_with
from marginweave.ledger.rules import period_epsilon
from tests.support.releases import gaussian, small_plan

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def boxed(account: Account) -> Account:
    """The account with the box of its cap."""
    return replace(account, box=box_for(account.cap))


ACCOUNT = boxed(
    Account(
        dataset="affairs",
        epsilon=Decimal(4),
        delta=Decimal("1e-5"),
        unit="row",
        neighbors="add-remove",
    )
)


DAY = timedelta(days=1)


def daily(start: datetime = NOW):
    """Noon of every day after NOW, from `start` on."""
    first = max(1, math.ceil((start - NOW) / DAY))
    return (NOW + number * DAY for number in itertools.count(first))


def for_3000_days(start: datetime = NOW):
    return itertools.takewhile(lambda time: time <= NOW + 3000 * DAY, daily(start))


def asked(plan: ChargedPlan) -> tuple[Cost, BasicAmount]:
    """What a release of the plan costs and states."""
    return plan.cost, plan.statement


def one_by_one(account: Account, plan: ChargedPlan, times) -> tuple[list[datetime], datetime]:
    """The runs that a ledger would admit, reserved and settled one after the other, and the first over the cap."""
    spent, admitted, periods = Spent(), [], {}
    reserved = asked(plan)
    for time in times:
        policy = account.policy
        if policy is not None:
            in_period = periods.get(policy.start(time), Spent())
            if period_epsilon(policy, in_period.with_charge(*reserved)) > float(policy.epsilon):
                continue
            periods[policy.start(time)] = in_period.with_charge(*reserved)
        if not total_with(account, spent, *reserved)[1]:
            return admitted, time
        spent = spent.with_charge(*reserved)
        admitted.append(time)
    raise AssertionError


@settings(max_examples=12, deadline=None)
@given(
    epsilon=st.floats(0.5, 3),
    mu2=st.floats(0.001, 0.02),
    additive=st.sampled_from([0.0, 3e-7]),
    per=st.sampled_from([None, "week", "month"]),
)
def test_the_outlook_is_what_a_ledger_would_admit(epsilon, mu2, additive, per) -> None:
    """Galloping over totals and counting in periods give the runs that admission by admission gives."""
    policy = None if per is None else Policy(per=per, epsilon=Decimal("1.5"), delta=Decimal("2e-6"))
    account = boxed(replace(ACCOUNT, epsilon=Decimal(repr(epsilon)), policy=policy))
    plan = small_plan(cost=gaussian(mu2, additive))
    found = outlook(account, Spent(), Spent(), plan, for_3000_days, NOW)
    try:
        admitted, refused = one_by_one(account, plan, for_3000_days())
    except AssertionError:
        assert found.refused is None
        return
    assert (found.runs, found.refused) == (len(admitted), refused)
    assert found.last == (admitted[-1] if admitted else None)


def _amount(account: Account, plan: ChargedPlan, spent: Spent = Spent()) -> Outlook:  # noqa: B008 - frozen
    return outlook(account, spent, Spent(), plan, daily, NOW)


def test_delta_is_blamed_where_the_deltas_that_add_up_are_what_is_missing() -> None:
    """Where mu^2 would have had room; epsilon where it has not; an allowance that is too small is named first."""
    assert _amount(ACCOUNT, small_plan(cost=gaussian(0.001, 3e-7))).amount == "delta"
    assert _amount(ACCOUNT, small_plan(cost=gaussian(0.05))).amount == "epsilon"
    plain = replace(gaussian(0), plain=BasicAmount(epsilon=Decimal("0.1")))
    box = Box(allowance=BasicAmount(epsilon=Decimal("0.5")))
    in_plain = replace(
        small_plan(("one-way",), cost=gaussian(0.01)),
        charges=(replace(small_plan(("one-way",)).charges[0], cost=plain),),
    )
    found = _amount(replace(ACCOUNT, box=box), in_plain)
    assert (found.amount, found.runs) == ("allowance", 5)


def test_an_account_that_lasts_and_one_that_takes_nothing() -> None:
    large = _amount(
        boxed(replace(ACCOUNT, epsilon=Decimal(10**6))), small_plan(cost=gaussian(1e-6))
    )
    assert (large.runs, large.amount, large.refused) == (MOST_RUNS, None, None)
    nothing = _amount(boxed(replace(ACCOUNT, epsilon=Decimal("0.1"))), small_plan())
    assert (nothing.runs, nothing.last, nothing.refused, nothing.amount) == (
        0,
        None,
        nothing.next,
        "epsilon",
    )


def test_a_policy_holds_runs_back_without_charging_them() -> None:
    """Two runs a month of thirty: the account lasts fifteen times as long, and the first that is held back is named."""
    plan = small_plan(cost=gaussian(0.01))
    two = Policy(per="month", epsilon=Decimal(2), delta=Decimal("2e-6"))
    pair = Spent().with_charge(*asked(plan)).with_charge(*asked(plan))
    two = replace(two, epsilon=Decimal(repr(period_epsilon(two, pair))))
    free, postponed = (
        _amount(ACCOUNT, plan),
        outlook(replace(ACCOUNT, policy=two), Spent(), Spent(), plan, daily, NOW),
    )
    assert free.runs == postponed.runs > 10
    assert free.postponed is None
    assert postponed.postponed == NOW + timedelta(days=3)
    assert postponed.last is not None
    assert free.last is not None
    assert (postponed.last - NOW).days > 10 * (free.last - NOW).days


@pytest.mark.parametrize(
    ("cron", "timezone", "times"),
    [
        (
            "0 3 1 */3 *",
            "UTC",
            ["2027-01-01 03:00 UTC", "2027-04-01 03:00 UTC", "2027-07-01 03:00 UTC"],
        ),
        (
            "0 3 1 */3 *",
            "Europe/Berlin",
            ["2027-01-01 03:00 CET", "2027-04-01 03:00 CEST", "2027-07-01 03:00 CEST"],
        ),
        (
            "30 23 * * 5",
            "America/New_York",
            ["2026-11-27 23:30 EST", "2026-12-04 23:30 EST", "2026-12-11 23:30 EST"],
        ),
    ],
)
def test_times_are_those_of_the_wall_clock(cron, timezone, times) -> None:
    """Local time stays what it is when the clock is changed, as in a Prefect deployment."""
    found = itertools.islice(Schedule(cron, timezone).after(NOW), 3)
    assert [f"{time:%Y-%m-%d %H:%M %Z}" for time in found] == times


def test_times_go_on_where_prefect_stops_to_compute() -> None:
    """Its thousand dates a call are no end."""
    times = list(itertools.islice(Schedule("0 3 * * *", "UTC").after(NOW), 2500))
    assert times == [NOW.replace(hour=3) + timedelta(days=number) for number in range(1, 2501)]


@pytest.mark.parametrize(
    "cron", ["", "daily", "0 3 * *", "0 3 * * * *", "61 3 * * *", "0 3 31 2 *", "@hourly"]
)
def test_what_never_comes_is_no_schedule(cron) -> None:
    with pytest.raises(InputError, match=r"must be a cron expression of five fields"):
        Schedule(cron, "UTC")


@pytest.mark.parametrize("timezone", ["", "Mars", "../etc/passwd", "Europe/Berlin "])
def test_a_time_zone_is_one_that_the_system_knows(timezone) -> None:
    with pytest.raises(InputError, match="must be the name of a time zone"):
        Schedule("0 3 * * *", timezone)


def test_a_run_that_fits_no_period_ends_the_search_at_once() -> None:
    """And is said so; nothing is looked for but the next run."""
    account = replace(
        ACCOUNT, policy=Policy(per="day", epsilon=Decimal("0.1"), delta=Decimal("1e-6"))
    )
    asked: list[datetime] = []

    def after(start: datetime):
        for time in daily(start):
            asked.append(time)
            yield time

    found = outlook(account, Spent(), Spent(), small_plan(), after, NOW)
    assert (found.runs, found.next, len(asked)) == (0, asked[0], 1)
    sentences = schedule_sentences(found, account, Schedule("0 12 * * *", "UTC"))
    text = " ".join(map(str, sentences))
    assert (
        f"No run fits: a day holds epsilon 0.1 at delta 1e-06, and a run needs {found.needed:.4g}"
        in text
    )
    assert found.needed is not None
    assert found.needed > 0.1


def test_what_a_full_period_refuses_is_skipped() -> None:
    """Every minute under a policy of a quarter, 130,000 times: a few dozen are looked at, and the first of the next counts."""
    plan = small_plan(cost=gaussian(0.01))
    one = Policy(per="quarter", epsilon=Decimal(2), delta=Decimal("2e-6"))
    reserved = Spent().with_charge(plan.cost, plan.statement)
    account = replace(
        ACCOUNT, policy=replace(one, epsilon=Decimal(repr(period_epsilon(one, reserved))))
    )
    schedule, asked = Schedule("* * * * *", "UTC"), []

    def after(start: datetime):
        asked.append(start)
        return schedule.after(start)

    found = outlook(account, Spent(), Spent(), plan, after, NOW)
    assert found.amount == "epsilon"
    assert len(asked) == found.runs + 1
    quarters = found.runs - 1
    assert found.last == datetime(
        2026 + (3 + quarters) // 4, 3 * ((3 + quarters) % 4) + 1, 1, tzinfo=UTC
    )
