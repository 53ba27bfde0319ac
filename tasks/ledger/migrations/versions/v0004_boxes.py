"""Caps that are filters: rows of a new kind, which `creation.upgrade` appends, as they are sealed with the ledger's key."""

from __future__ import annotations

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Nothing but the version: an older program would admit what an account's box does not hold."""
