"""Computes the joint cost of draws, and defines the ledger's records of draws and releases."""
