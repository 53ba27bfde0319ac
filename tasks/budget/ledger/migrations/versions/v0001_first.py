"""Accounts, events, and the triggers that make both append-only."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# The insert triggers stop INSERT OR REPLACE, which deletes without firing a delete trigger.
_SQLITE_GUARDS = {
    "accounts": "EXISTS (SELECT 1 FROM accounts WHERE dataset = NEW.dataset)",
    "events": "NEW.seq <> (SELECT coalesce(max(seq), 0) + 1 FROM events)",
}


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
    if op.get_bind().dialect.name == "sqlite":
        _forbid_changes_in_sqlite()
    else:
        _forbid_changes_in_postgresql()


def _forbid_changes_in_sqlite() -> None:
    for table, guard in _SQLITE_GUARDS.items():
        for name, clause in (("update", "UPDATE"), ("delete", "DELETE"), ("replace", "INSERT")):
            when = f"WHEN {guard} " if clause == "INSERT" else ""
            op.execute(
                f"CREATE TRIGGER {table}_no_{name} BEFORE {clause} ON {table} {when}"
                "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
            )


def _forbid_changes_in_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION ledger_is_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$"
    )
    for table in _SQLITE_GUARDS:
        op.execute(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION ledger_is_append_only()"
        )
        # A session that replays replication skips the triggers that are not ALWAYS.
        op.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {table}_append_only")
