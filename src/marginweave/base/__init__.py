"""Errors, exact amounts, arrays, digests, durable files: what every room may use."""
