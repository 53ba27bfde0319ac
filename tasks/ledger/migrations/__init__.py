"""Migrations of the ledger's tables, run by `schema.migrate` through Alembic."""
