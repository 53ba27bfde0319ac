"""What Alembic runs for every command: migrations inside the transaction that `creation.migrate` is in."""

from __future__ import annotations

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    transactional_ddl=True,  # SQLite can, too: the engine begins transactions itself
)
with context.begin_transaction():
    context.run_migrations()
