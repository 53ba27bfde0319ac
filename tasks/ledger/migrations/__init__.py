"""Migrations of the ledger's tables, run by `creation.migrate` through Alembic."""
