"""Verification of ledgers, runs and bundles against each other."""
