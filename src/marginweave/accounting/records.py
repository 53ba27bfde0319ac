"""Rows of the ledger, and the draws and releases that they describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import Any

from marginweave.base.budget import NOTHING, BasicAmount, Cost, Neighbors
from marginweave.released.program import Program

LEDGER_ACTOR = "marginweave"


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


class EventKind(StrEnum):
    """What a row of the ledger says."""

    RESERVED = "RESERVED"
    DRAWN = "DRAWN"
    COMMITTED = "COMMITTED"
    RETURNED = "RETURNED"
    REFUSED = "REFUSED"
    CHARGED_LOST = "CHARGED_LOST"
    LEDGER_CREATED = "LEDGER_CREATED"
    OPENED = "OPENED"
    CAP_CHANGED = "CAP_CHANGED"
    PUBLISHED = "PUBLISHED"
    EVALUATED_INTERNALLY = "EVALUATED_INTERNALLY"
    LEASED = "LEASED"
    SUBMITTED = "SUBMITTED"
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    SUPERSEDED = "SUPERSEDED"
    RECONCILED = "RECONCILED"
    CHECKPOINT = "CHECKPOINT"


State = EventKind
"""The state of a draw is the kind of its newest row: RESERVED → DRAWN → COMMITTED, RESERVED → RETURNED, DRAWN → CHARGED_LOST.

Reconciling a restored ledger adds RESERVED → CHARGED_LOST and RETURNED → DRAWN: charges only.
"""

CHARGED = frozenset({State.RESERVED, State.DRAWN, State.COMMITTED, State.CHARGED_LOST})
BEGUN = CHARGED - {State.RESERVED}

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


@dataclass(frozen=True, kw_only=True)
class Event:
    """One row of the ledger without its seals. Only the RESERVED row of a draw has a `cost`: it is charged once.

    A release begins with a RESERVED row without `draw`, whose `body` has the public facts of the release.
    """

    kind: EventKind
    actor: str = LEDGER_ACTOR
    created: datetime = field(default_factory=lambda: now())  # noqa: PLW0108 - tests set the clock back
    account: str | None = None
    release: str | None = None
    draw: str | None = None
    cost: Cost | None = None
    lease: str | None = None
    digest: str | None = None
    body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DrawRecord:
    """The present state of one draw of a release, read from its newest event, and what was planned for it.

    `lease` is the one that began it, which names its file; `facts` are those of its beginning: the bound digest of its inputs,
    and the program. `terms` are the public facts that were reserved with it.
    """

    release: str
    name: str
    state: State
    cost: Cost
    lease: str | None = None
    digest: str | None = None
    mechanism: str = ""
    length: int = 0
    parameter: float | None = None
    terms: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


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
    `proposed` are the digests of what awaits the `decision`, and nothing else can become `outputs`. `supersedes` is the release
    that this one corrects, `superseded_by` the published one that corrects it. `delta_threshold` and `spent_epsilon` are those
    of its plan. `program` is the one that reserved it; None of what was charged for homes that are lost. `by_statement` says
    that the account's box does not hold it, and that it was admitted as the first of its account by its own (epsilon, delta).
    `planned` has the facts of each draw by name, in the order of the plan; `draws` is complete when it has all of them.
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
    unit: str
    neighbors: Neighbors
    published: datetime | None = None
    needs_approval: bool = False
    proposed: Mapping[str, str] = field(default_factory=dict)
    decision: Decision | None = None
    supersedes: str | None = None
    superseded_by: str | None = None
    delta_threshold: float
    spent_epsilon: float
    program: Program | None = None
    by_statement: bool = False
    planned: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)

    @cached_property
    def reserved(self) -> Cost:
        """What was asked for, whatever was given back since."""
        return sum((draw.cost for draw in self.draws), Cost())

    @cached_property
    def charged(self) -> Cost:
        """What the account has to answer for: everything that is not returned or refused."""
        return sum((draw.cost for draw in self.draws if draw.state in CHARGED), Cost())

    @cached_property
    def statement(self) -> BasicAmount:
        """The plain (epsilon, delta) that covers the release; nothing when nothing of it is charged."""
        if any(draw.state in CHARGED for draw in self.draws):
            return BasicAmount(epsilon=self.epsilon, delta=self.delta)
        return NOTHING

    @property
    def pending(self) -> list[str]:
        """The names of the draws that may still be made."""
        return [draw.name for draw in self.draws if draw.state in {State.RESERVED, State.DRAWN}]

    def draw(self, name: str) -> DrawRecord | None:
        """The draw called `name`, or None."""
        return next((draw for draw in self.draws if draw.name == name), None)
