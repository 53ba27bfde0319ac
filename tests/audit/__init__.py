"""Measures the privacy loss of every mechanism, with the functions that a release calls, on made-up tables: `make audit`."""
