"""Records of the budget ledger: accounts, append-only events, and what is read from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import Any, cast

from marginweave.schemas.budget import (
    NOTHING,
    AccountantName,
    BudgetPlan,
    Cost,
    Discovery,
    Mechanism,
    Neighbors,
    Plain,
    PlannedDraw,
)
from marginweave.schemas.policy import Policy
from marginweave.schemas.program import Program


class State(StrEnum):
    """States of a draw: RESERVED → DRAWN → COMMITTED, RESERVED → RETURNED, DRAWN → CHARGED_LOST; REFUSED is a release's.

    Reconciling a restored ledger adds RESERVED → CHARGED_LOST and RETURNED → DRAWN: charges only.
    """

    RESERVED = "RESERVED"
    DRAWN = "DRAWN"
    COMMITTED = "COMMITTED"
    RETURNED = "RETURNED"
    REFUSED = "REFUSED"
    CHARGED_LOST = "CHARGED_LOST"


CHARGED = frozenset({State.RESERVED, State.DRAWN, State.COMMITTED, State.CHARGED_LOST})
TRANSITIONS = frozenset(
    {
        (State.RESERVED, State.DRAWN),
        (State.RESERVED, State.RETURNED),
        (State.DRAWN, State.COMMITTED),
        (State.DRAWN, State.CHARGED_LOST),
    }
)
# What a reconciliation after a restore may do beside: nothing in it gives anything back.
RECONCILING = frozenset(
    {(State.RESERVED, State.CHARGED_LOST), (State.RETURNED, State.CHARGED_LOST), (State.RETURNED, State.DRAWN)}
)


SPARE_PREFIX = "spare-"


class EventKind(StrEnum):
    """What a row of the ledger says; the first six are the states of a draw or a release (`State`)."""

    RESERVED = "RESERVED"
    DRAWN = "DRAWN"
    COMMITTED = "COMMITTED"
    RETURNED = "RETURNED"
    REFUSED = "REFUSED"
    CHARGED_LOST = "CHARGED_LOST"
    LEDGER_CREATED = "LEDGER_CREATED"
    OPENED = "OPENED"
    ACCOUNT_BOXED = "ACCOUNT_BOXED"
    CAP_CHANGED = "CAP_CHANGED"
    PUBLISHED = "PUBLISHED"
    EVALUATED_INTERNALLY = "EVALUATED_INTERNALLY"
    KEY_ROTATED = "KEY_ROTATED"
    ALIASED = "ALIASED"
    LEASED = "LEASED"
    SUBMITTED = "SUBMITTED"
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    SUPERSEDED = "SUPERSEDED"
    RECONCILED = "RECONCILED"


@dataclass(frozen=True, kw_only=True)
class Event:
    """One row of the ledger without its seals. `cost` stands on the RESERVED row of a draw only: it is booked once.

    A release begins with a RESERVED row without `draw`, whose `body` has the public facts of the release.
    """

    kind: EventKind
    actor: str
    created: datetime
    account: str | None = None
    release: str | None = None
    draw: str | None = None
    cost: Cost | None = None
    lease: str | None = None
    digest: str | None = None
    body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Box:
    """What an account may spend, coordinate by coordinate: constants that were fixed before its first release.

    `mu2` bounds the sum of mu^2, `delta_add` that of the additive deltas of thresholds, `allowance` that of what is charged
    in plain (epsilon, delta). No coordinate pays for another: that makes it a filter (docs/privacy.md, step 30).
    """

    mu2: Decimal = Decimal(0)
    delta_add: Decimal = Decimal(0)
    allowance: Plain = NOTHING

    def holds(self, cost: Cost) -> bool:
        """Whether `cost` is at most the box in every coordinate."""
        return cost.mu2 <= self.mu2 and cost.delta <= self.delta_add and cost.plain.within(self.allowance)


@dataclass(frozen=True, kw_only=True)
class Reconciled:
    """What was added to an account after its ledger was restored, and what the steward said of homes not looked at.

    `adopted` and `lost` count the account's rows and draws. While `frozen`, nobody has said anything of other homes.
    """

    created: datetime
    adopted: int
    lost: int
    homes: int
    no_other_home: str | None = None
    unaccounted: Plain | None = None

    @property
    def frozen(self) -> bool:
        """Whether the account admits nothing."""
        return self.no_other_home is None and self.unaccounted is None

    @property
    def facts(self) -> dict[str, Any]:
        """The same for privacy.json."""
        charge = self.unaccounted
        return {
            "on": self.created.date().isoformat(),
            "rows_adopted": self.adopted,
            "draws_charged_as_lost": self.lost,
            "homes_looked_at": self.homes,
            "no_other_home": self.no_other_home,
            "unaccounted": charge and {"epsilon": float(charge.epsilon), "delta": float(charge.delta)},
        }


@dataclass(frozen=True, kw_only=True)
class Account:
    """All releases about the same people: what may be spent, and what a person is.

    `box` is what its cap (epsilon, delta) admits; None only where 0.1.0 opened the account and it was not upgraded since,
    with `old_allowance` as the part of the cap that was set aside then. `kind_of_plan` is what a release of the plan costs
    for which the box was chosen, if it was. `releases_before` counts those that were made before there was a box, `history`
    is what they had spent then: until the box holds it, nothing is admitted.
    `aliases` are the accounts whose sources may, by decision, be released under this one as well.
    """

    dataset: str
    epsilon: Decimal
    delta: Decimal
    unit: str
    neighbors: Neighbors
    box: Box | None = None
    kind_of_plan: Cost | None = None
    history: Cost | None = None
    releases_before: int = 0
    old_allowance: Plain = NOTHING
    weak_delta: str | None = None
    aliases: frozenset[str] = frozenset()
    policy: Policy | None = None
    reconciled: tuple[Reconciled, ...] = ()

    @property
    def frozen(self) -> bool:
        """Whether its ledger was restored, and homes that may have drawn under it were not looked at."""
        return bool(self.reconciled) and self.reconciled[-1].frozen

    @property
    def cap(self) -> Plain:
        """(epsilon, delta) as an amount."""
        return Plain(epsilon=self.epsilon, delta=self.delta)


@dataclass(frozen=True, kw_only=True)
class CapChange:
    """A cap, and since when an account has it."""

    epsilon: Decimal
    delta: Decimal
    since: datetime


@dataclass(frozen=True, kw_only=True)
class DrawRecord:
    """The present state of one draw of a release, read from its newest event, and what was planned for it.

    `lease` is the one that began it, which names its file; `facts` are those of its beginning: the bound digest of its inputs,
    and the program. `terms` are the public facts that were reserved with it; rows of 0.1.0 have none. `replaces` is the lost
    draw for which a spare was begun, by 0.1.0.
    """

    release: str
    name: str
    state: State
    cost: Cost
    lease: str | None = None
    digest: str | None = None
    replaces: str | None = None
    mechanism: str = ""
    length: int = 0
    parameter: float | None = None
    terms: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def planned(self) -> PlannedDraw:
        """The draw as it was reserved, which is as it is drawn; not of spares."""
        assert self.parameter is not None
        return PlannedDraw(
            name=self.name,
            mechanism=cast("Mechanism", self.mechanism),
            length=self.length,
            parameter=self.parameter,
            cost=self.cost,
            terms=self.terms,
        )

    @property
    def is_spare(self) -> bool:
        """Whether this is room for a lost draw, and none of the plan's own draws."""
        return self.name.startswith(SPARE_PREFIX)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What somebody decided, once, on a release that had to be approved."""

    approved: bool
    by: str
    reason: str
    created: datetime


@dataclass(frozen=True, kw_only=True)
class ReleaseRecord:
    """One release as the ledger knows it; `outputs` are the digests of its newest publication, empty before.

    `lease` names the one attempt that may draw, commit and publish now; None before the first. Where `needs_approval`,
    `proposed` are the digests of what awaits the `decision`, and nothing else can become `outputs`. `supersedes` is the
    release that this one corrects, `superseded_by` the published one that corrects it. `discovery` is what the statement
    of an `accountant: joint` rests on. `delta_threshold` and `spent_epsilon` are those of its plan; rows of
    0.1.0 have neither. `program` is the one that reserved it. `by_statement` says that the account's box does not hold it, and
    that it was admitted as the first of its account by its own (epsilon, delta).
    """

    release: str
    dataset: str
    run: str
    plan_digest: str
    source_digest: str
    epsilon: Decimal
    delta: Decimal
    draws: tuple[DrawRecord, ...]
    actor: str
    created: datetime
    outputs: Mapping[str, str] = field(default_factory=dict)
    lease: str | None = None
    unit: str = "row"
    neighbors: Neighbors = "add-remove"
    published: datetime | None = None
    needs_approval: bool = False
    proposed: Mapping[str, str] = field(default_factory=dict)
    decision: Decision | None = None
    supersedes: str | None = None
    superseded_by: str | None = None
    discovery: Discovery | None = None
    accountant: AccountantName = "gdp"
    delta_threshold: float | None = None
    spent_epsilon: float | None = None
    program: Program | None = None
    by_statement: bool = False

    @cached_property
    def plan(self) -> BudgetPlan | None:
        """The whole plan as it was reserved, which is what is drawn; None in rows of 0.1.0, which have a part of it."""
        if self.delta_threshold is None or self.spent_epsilon is None:
            return None
        return BudgetPlan(
            epsilon=float(self.epsilon),
            delta=float(self.delta),
            neighbors=self.neighbors,
            accountant=self.accountant,
            delta_threshold=self.delta_threshold,
            spent_epsilon=self.spent_epsilon,
            draws=tuple(draw.planned for draw in self.draws),
            unit=self.unit,
            discovery=self.discovery,
        )

    @cached_property
    def reserved(self) -> Cost:
        """What was asked for, whatever was given back since."""
        return sum((draw.cost for draw in self.draws), Cost())

    @cached_property
    def charged(self) -> Cost:
        """What the account has to answer for: everything that is not returned or refused."""
        return sum((draw.cost for draw in self.draws if draw.state in CHARGED), Cost())

    @cached_property
    def statement(self) -> Plain:
        """The plain (epsilon, delta) that covers the release; nothing when nothing of it is charged.

        The planned draws together are (epsilon, delta)-DP, so each of them is: a spare, which is one of them drawn again,
        adds as much once more.
        """
        charged = [draw for draw in self.draws if draw.state in CHARGED]
        spares = sum(draw.is_spare for draw in charged)
        times = spares + (len(charged) > spares)
        return Plain(epsilon=self.epsilon * times, delta=self.delta * times)

    def draw(self, name: str) -> DrawRecord | None:
        """The draw called `name`, or None."""
        return next((draw for draw in self.draws if draw.name == name), None)

    def standing(self, name: str) -> DrawRecord | None:
        """What answers for the planned draw `name`: itself, or after losses the newest spare that was begun for it."""
        return next((draw for draw in reversed(self.draws) if name in (draw.name, draw.replaces)), None)


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
    statement: Plain = NOTHING
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

    def with_charge(self, cost: Cost, statement: Plain) -> Spent:
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

    @property
    def releases(self) -> int:
        """How many releases are charged for."""
        return self.spent.releases
