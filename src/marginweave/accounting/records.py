"""Defines rows of the ledger, and records of the draws and releases that they describe."""

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
    """Return the current time in UTC."""
    return datetime.now(UTC)


class EventKind(StrEnum):
    """The kind of a row of the ledger."""

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

Reconciling a restored ledger adds RESERVED → CHARGED_LOST, RETURNED → CHARGED_LOST and RETURNED → DRAWN: charges only.
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

# Transitions that only a reconciliation after a restore may add: none returns anything to the account.
RECONCILING = frozenset(
    {
        (State.RESERVED, State.CHARGED_LOST),
        (State.RETURNED, State.CHARGED_LOST),
        (State.RETURNED, State.DRAWN),
    }
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

    `lease` is the one that began it, which names its file; `facts` were recorded when it was begun: the bound digest of its
    inputs, and the program. `terms` are the public facts that were reserved with it.
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
    """The one decision on a release that had to be approved."""

    approved: bool
    by: str
    reason: str
    created: datetime


@dataclass(frozen=True, kw_only=True)
class ReleaseRecord:
    """One release as the rows of the ledger describe it.

    `outputs` are the digests of its newest publication, and empty before. `lease` names the one attempt that may draw, commit
    and publish; None before the first. If `needs_approval`, `proposed` are the digests of the files that await the `decision`,
    and no other files can become `outputs`. `supersedes` is the release that this one corrects, `superseded_by` the published
    one that corrects it. `delta_threshold` and `spent_epsilon` are those of its plan. `program` reserved it; None for a charge
    on behalf of homes that are lost. `by_statement`: the account's box does not hold it, and it was admitted as the first of
    its account by its own (epsilon, delta). `tables`: how many were read, the source and those linked to it. `planned` has the
    facts of each draw by name, in the order of the plan; `draws` lacks those whose RESERVED row is not yet read.
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
    tables: int = 1
    planned: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)

    @cached_property
    def reserved(self) -> Cost:
        """Cost of all draws that were reserved, including those that were returned since."""
        return sum((draw.cost for draw in self.draws), Cost())

    @cached_property
    def charged(self) -> Cost:
        """Cost that the account is charged: of all draws that were not returned."""
        return sum((draw.cost for draw in self.draws if draw.state in CHARGED), Cost())

    @cached_property
    def statement(self) -> BasicAmount:
        """Stated (epsilon, delta), which covers the release; nothing if none of its draws is charged."""
        if any(draw.state in CHARGED for draw in self.draws):
            return BasicAmount(epsilon=self.epsilon, delta=self.delta)
        return NOTHING

    @property
    def pending(self) -> list[str]:
        """Names of the draws that can still be made."""
        return [draw.name for draw in self.draws if draw.state in {State.RESERVED, State.DRAWN}]

    def draw(self, name: str) -> DrawRecord | None:
        """Return the draw called `name`, or None."""
        for draw in self.draws:
            if draw.name == name:
                return draw
        return None
