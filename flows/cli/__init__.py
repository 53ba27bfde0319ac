"""The command line: `marginweave`. Exit codes: 0 done, 1 run failed, 2 bad input, 3 ledger or budget refuse or stop it."""

from __future__ import annotations

from marginweave.flows.cli.app import main

__all__ = ["main"]
