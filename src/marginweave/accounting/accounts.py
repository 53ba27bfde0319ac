"""Accounts of the ledger: what may be spent, in all and in one calendar period, and what is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Literal, get_args

from marginweave.accounting.records import ReleaseRecord
from marginweave.base.budget import NOTHING, BasicAmount, Cost, Neighbors
from marginweave.released.account import ReconciledStatement

Period = Literal["day", "week", "month", "quarter", "year"]
PERIODS: tuple[Period, ...] = get_args(Period)
_MONTHS: dict[Period, int] = {"month": 1, "quarter": 3, "year": 12}
_LONGEST: dict[Period, int] = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}


def period_start(period: Period, day: date) -> date:
    """First day of the calendar period that `day` is in; a week begins on Monday."""
    if period in _MONTHS:
        return day.replace(month=day.month - (day.month - 1) % _MONTHS[period], day=1)
    return day - timedelta(days=day.weekday()) if period == "week" else day


def next_period(period: Period, day: date) -> date:
    """First day of the period after the one that `day` is in."""
    return period_start(period, period_start(period, day) + timedelta(days=_LONGEST[period]))


@dataclass(frozen=True, kw_only=True)
class Policy:
    """At most (`epsilon`, `delta`) of releases that are reserved in one period `per`, a calendar period in UTC: no guarantee.

    How the releases of a period add up is the rule of the account; the account's cap, over all releases to date, holds
    beside it and is what the guarantee rests on.
    """

    per: Period
    epsilon: Decimal
    delta: Decimal

    def start(self, moment: datetime) -> date:
        """First day of the period that `moment` is in."""
        return period_start(self.per, moment.astimezone(UTC).date())

    def following(self, moment: datetime) -> date:
        """First day of the period after that."""
        return next_period(self.per, moment.astimezone(UTC).date())

    def __str__(self) -> str:
        return f"epsilon {self.epsilon.normalize():f} at delta {float(self.delta)!r} per {self.per}"


@dataclass(frozen=True, kw_only=True)
class Box:
    """What an account may spend, coordinate by coordinate: constants that were fixed before its first release.

    `mu2` bounds the sum of mu^2, `delta_add` that of the additive deltas of thresholds, `allowance` that of what is charged
    in plain (epsilon, delta). No coordinate pays for another: that makes it a filter (docs/privacy.md, step 29).
    """

    mu2: Decimal = Decimal(0)
    delta_add: Decimal = Decimal(0)
    allowance: BasicAmount = NOTHING

    @property
    def amounts(self) -> tuple[Decimal, ...]:
        """Its coordinates: mu^2, the delta of thresholds, epsilon and delta of the allowance."""
        return self.mu2, self.delta_add, self.allowance.epsilon, self.allowance.delta

    def holds(self, cost: Cost) -> bool:
        """Whether `cost` is at most the box in every coordinate."""
        return cost.mu2 <= self.mu2 and cost.delta <= self.delta_add and cost.plain.within(self.allowance)


@dataclass(frozen=True, kw_only=True)
class Account:
    """All releases about the same people: what may be spent, and what a person is.

    `box` is what its cap (epsilon, delta) admits: nothing before the account is opened. `kind_of_plan` is what a release of
    the plan costs for which the box was chosen, if it was.
    `reconciled` says what was added after its ledger was restored; while nobody has said anything of other homes, it is frozen.
    """

    dataset: str
    epsilon: Decimal
    delta: Decimal
    unit: str
    neighbors: Neighbors
    box: Box = Box()
    kind_of_plan: Cost | None = None
    weak_delta: str | None = None
    policy: Policy | None = None
    reconciled: tuple[ReconciledStatement, ...] = ()

    @property
    def frozen(self) -> bool:
        """Whether its ledger was restored, and homes that may have drawn under it were not looked at."""
        last = self.reconciled[-1] if self.reconciled else None
        return last is not None and last.no_other_home is None and last.unaccounted is None

    @property
    def unaccounted(self) -> BasicAmount:
        """What homes that are gone may have released, as their steward has said, together."""
        stated = (entry.unaccounted for entry in self.reconciled if entry.unaccounted is not None)
        return sum((BasicAmount.stated(amount.epsilon, amount.delta) for amount in stated), NOTHING)

    @property
    def cap(self) -> BasicAmount:
        """(epsilon, delta) as an amount."""
        return BasicAmount(epsilon=self.epsilon, delta=self.delta)


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Exact sums over the charged releases of one account, kept up to date release by release instead of added again.

    `releases` counts those that are charged for, `ever` all that were reserved. `alone` is what was reserved for the one that
    was admitted by its own statement, if there is one: given back or not, the account is closed to others until its box
    holds it.
    """

    releases: int = 0
    ever: int = 0
    cost: Cost = field(default_factory=Cost)
    statement: BasicAmount = NOTHING
    alone: Cost | None = None

    def with_release(self, now: ReleaseRecord, before: ReleaseRecord | None = None) -> Spent:
        """The sums with one more release, or with one that was counted as `before` until now."""
        cost, statement, releases = self.cost + now.charged, self.statement + now.statement, int(bool(now.statement))
        if before is not None:
            cost, statement = cost - before.charged, statement - before.statement
            releases -= int(bool(before.statement))
        return Spent(
            releases=self.releases + releases,
            ever=self.ever + (before is None),
            cost=cost,
            statement=statement,
            alone=now.reserved if now.by_statement else self.alone,
        )

    def with_charge(self, cost: Cost, statement: BasicAmount) -> Spent:
        """The sums with a release more that would cost `cost` and state `statement`."""
        return replace(
            self,
            releases=self.releases + 1,
            ever=self.ever + 1,
            cost=self.cost + cost,
            statement=self.statement + statement,
        )


@dataclass(frozen=True, kw_only=True)
class AccountTotal:
    """What an account has spent: exact sums, and `epsilon` at the cap's delta by the tightest composition, which is named.

    The epsilon is shown, and admits nothing: that is what `Box` is for.
    """

    account: Account
    epsilon: float
    composition: str
    spent: Spent
