"""Policies, approvals and corrections: rows of new kinds in the same tables, which an older program must not pass over."""

from __future__ import annotations

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Nothing but the version: an older program would not hold a policy, or would publish what nobody has approved."""
