"""States of a draw, and how one follows another."""

from __future__ import annotations

from enum import StrEnum


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
