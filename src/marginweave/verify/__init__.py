"""Checks files against the ledger; the verifier that comes with a handover."""
