"""Accounts, events, and the triggers that make both append-only."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from marginweave.tasks.ledger.tables import statements

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "accounts",
        sa.Column("dataset", sa.Text, primary_key=True),
        sa.Column("opened", sa.Integer, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("account", sa.Text, sa.ForeignKey("accounts.dataset")),
        sa.Column("release", sa.Text),
        sa.Column("draw", sa.Text),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("mu2", sa.Text),
        sa.Column("rho", sa.Text),
        sa.Column("delta", sa.Text),
        sa.Column("lease", sa.Text),
        sa.Column("digest", sa.Text),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("created", sa.Text, nullable=False),
        sa.Column("prev_hash", sa.Text, nullable=False, unique=True),
        sa.Column("row_hash", sa.Text, nullable=False, unique=True),
        sa.Column("mac", sa.Text, nullable=False),
    )
    op.create_index("events_by_release", "events", ["release"])
    for statement in statements(op.get_bind().dialect.name):
        op.execute(statement)
