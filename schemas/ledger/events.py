"""Events of the ledger: what a row says, and how the states of a draw follow one another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from marginweave.schemas.budget import Cost

LEDGER_ACTOR = "marginweave"


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


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
