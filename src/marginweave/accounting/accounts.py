"""Defines accounts of the ledger: their limits in all and in a calendar period, and the sums of what they have spent."""

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
    """Return the first day of the calendar period that `day` is in; a week begins on Monday."""
    if period in _MONTHS:
        months_since_start = (day.month - 1) % _MONTHS[period]
        return day.replace(month=day.month - months_since_start, day=1)
    if period == "week":
        return day - timedelta(days=day.weekday())
    return day


def next_period(period: Period, day: date) -> date:
    """Return the first day of the period after the one that `day` is in."""
    longest = timedelta(days=_LONGEST[period])
    return period_start(period, period_start(period, day) + longest)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A limit (`epsilon`, `delta`) on the releases that are reserved in one calendar period `per`, in UTC: no guarantee.

    The releases of a period add up by the rule of the account. The account's cap, over all releases to date, holds as well,
    and the guarantee follows from it alone.
    """

    per: Period
    epsilon: Decimal
    delta: Decimal

    def start(self, moment: datetime) -> date:
        """Return the first day of the period that `moment` is in."""
        return period_start(self.per, moment.astimezone(UTC).date())

    def following(self, moment: datetime) -> date:
        """Return the first day of the period after the one that `moment` is in."""
        return next_period(self.per, moment.astimezone(UTC).date())

    def __str__(self) -> str:
        return f"epsilon {self.epsilon.normalize():f} at delta {float(self.delta)!r} per {self.per}"


@dataclass(frozen=True, kw_only=True)
class Box:
    """The limits of an account, one for each coordinate of a cost: constants that were fixed before its first release.

    `mu2` bounds the sum of mu^2, `delta_add` that of the additive deltas of thresholds, `allowance` that of charges in plain
    (epsilon, delta). No coordinate pays for another: that makes it a filter (docs/privacy.md, step 29).
    """

    mu2: Decimal = Decimal(0)
    delta_add: Decimal = Decimal(0)
    allowance: BasicAmount = NOTHING

    @property
    def amounts(self) -> tuple[Decimal, ...]:
        """Coordinates: mu^2, the delta of thresholds, epsilon and delta of the allowance."""
        return self.mu2, self.delta_add, self.allowance.epsilon, self.allowance.delta

    def holds(self, cost: Cost) -> bool:
        """Return whether `cost` is at most the box in every coordinate."""
        return (
            cost.mu2 <= self.mu2
            and cost.delta <= self.delta_add
            and cost.plain.within(self.allowance)
        )


@dataclass(frozen=True, kw_only=True)
class Account:
    """The account of all releases about the same people: its cap (epsilon, delta), its unit of privacy, and its neighbors.

    `box` has the limits that follow from the cap: nothing before the account is opened. `kind_of_plan` is the cost of the plan
    that the box was chosen for, if it was chosen for one.
    `reconciled` lists the reconciliations after its ledger was restored. The account is frozen while the last one states
    neither that there is no other home, nor what other homes may have released.
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
        """True if the ledger was restored, and the last reconciliation states nothing of other homes."""
        last = self.reconciled[-1] if self.reconciled else None
        return last is not None and last.no_other_home is None and last.unaccounted is None

    @property
    def unaccounted(self) -> BasicAmount:
        """Sum of what lost homes may have released, as stewards stated it in reconciliations."""
        total = NOTHING
        for entry in self.reconciled:
            if entry.unaccounted is not None:
                total += BasicAmount.as_stated(entry.unaccounted.epsilon, entry.unaccounted.delta)
        return total

    @property
    def cap(self) -> BasicAmount:
        """Cap (epsilon, delta) as an amount."""
        return BasicAmount(epsilon=self.epsilon, delta=self.delta)


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Exact sums over the charged releases of one account, updated release by release instead of added again.

    `releases` counts those that are charged for, whose statement is not zero (a release without a charged draw states zero),
    and `ever_reserved` all that were ever reserved. `cost_by_statement` is the cost
    reserved for the release that was admitted by its own statement, if there is one. Even if that cost is returned, the account
    is closed to other releases until the box holds `cost_by_statement`.
    """

    releases: int = 0
    ever_reserved: int = 0
    cost: Cost = field(default_factory=Cost)
    statement: BasicAmount = NOTHING
    cost_by_statement: Cost | None = None

    def with_release(self, record: ReleaseRecord, before: ReleaseRecord | None = None) -> Spent:
        """Return the sums with one more release, or with a new `record` of a release that was counted as `before`."""
        cost = self.cost + record.charged
        statement = self.statement + record.statement
        releases = self.releases + int(bool(record.statement))
        if before is not None:
            cost = cost - before.charged
            statement = statement - before.statement
            releases -= int(bool(before.statement))
        return Spent(
            releases=releases,
            ever_reserved=self.ever_reserved + (before is None),
            cost=cost,
            statement=statement,
            cost_by_statement=record.reserved if record.by_statement else self.cost_by_statement,
        )

    def with_charge(self, cost: Cost, statement: BasicAmount) -> Spent:
        """Return the sums with one more release that would cost `cost` and state `statement`."""
        return replace(
            self,
            releases=self.releases + 1,
            ever_reserved=self.ever_reserved + 1,
            cost=self.cost + cost,
            statement=self.statement + statement,
        )


@dataclass(frozen=True, kw_only=True)
class AccountTotal:
    """The total of an account: exact sums, and `epsilon` at the cap's delta by the tightest `composition`.

    The epsilon is only shown; releases are admitted by the `Box`.
    """

    account: Account
    epsilon: float
    composition: str
    spent: Spent
