"""Command line: `marginweave`. Exit codes: 0 done, 1 run failed, 2 bad input, 3 ledger or budget refuse or stop it."""

from __future__ import annotations

import importlib.util
import sys

# without locks of files, two processes could make the same draw
if importlib.util.find_spec("fcntl") is None:
    sys.stderr.write(
        "marginweave: Windows itself is not supported; install and run it inside WSL (wsl --install)\n"
    )
    sys.exit(2)

from .app import main

__all__ = ["main"]
