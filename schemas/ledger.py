"""Records of the budget ledger: accounts and append-only events."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from marginweave.schemas.budget import Cost, Neighbors


class State(StrEnum):
    """States of a draw: RESERVED → DRAWN → COMMITTED, RESERVED → RETURNED, DRAWN → CHARGED_LOST; REFUSED is a release's."""

    RESERVED = "RESERVED"
    DRAWN = "DRAWN"
    COMMITTED = "COMMITTED"
    RETURNED = "RETURNED"
    REFUSED = "REFUSED"
    CHARGED_LOST = "CHARGED_LOST"


CHARGED = frozenset({State.RESERVED, State.DRAWN, State.COMMITTED, State.CHARGED_LOST})


@dataclass(frozen=True, kw_only=True)
class Account:
    """All releases about the same people: what may be spent, and what a person is."""

    dataset: str
    epsilon: Decimal
    delta: Decimal
    unit: str
    neighbors: Neighbors


@dataclass(frozen=True, kw_only=True)
class DrawRecord:
    """The present state of one draw of a release, read from its newest event."""

    release: str
    name: str
    state: State
    cost: Cost
    lease: str | None = None
    digest: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReleaseRecord:
    """One release as the ledger knows it."""

    release: str
    dataset: str
    run: str
    plan_digest: str
    source_digest: str
    epsilon: Decimal
    delta: Decimal
    draws: tuple[DrawRecord, ...]
    created: datetime

    @property
    def charged(self) -> Cost:
        """What the account has to answer for: everything that is not returned or refused."""
        return sum((draw.cost for draw in self.draws if draw.state in CHARGED), Cost())


@dataclass(frozen=True, kw_only=True)
class AccountTotal:
    """What an account has spent: epsilon at the cap's delta, by the tightest valid composition, and its name."""

    account: Account
    epsilon: float
    delta: float
    composition: str
    releases: int
