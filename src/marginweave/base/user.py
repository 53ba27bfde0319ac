"""Names who runs a command, for the ledger."""

from __future__ import annotations

import getpass
import os


def user_name() -> str:
    """Return the name of the user, from the environment or the machine's list; "uid 12345" for one that has none.

    In a container whose user is set from outside there may be neither.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
