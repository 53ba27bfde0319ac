"""What a draw charges to the second purse of its account, in plain (epsilon, delta)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Two columns, empty in the rows that are there: their hashes stay what they are."""
    op.add_column("events", sa.Column("plain_epsilon", sa.Text))
    op.add_column("events", sa.Column("plain_delta", sa.Text))
