"""The numbers of formats, and what is said of a file that has an older one: a part of verify.py, in every handover."""

from __future__ import annotations

# 0.3.0 is the first version that promises to open what it wrote. What older ones made has smaller numbers, or none.
LEDGER_FORMAT = 6
MANIFEST_FORMAT = 3
STATEMENT_FORMAT = 3
LAST_READER = "marginweave 0.2.0 (commit b410c4f6)"


def older_fault(what: str, found: object, known: int) -> str | None:
    """Why `what`, whose format has the number `found` or none, is not read where `known` is the number of today; or None."""
    if isinstance(found, int) and found >= known:
        return None
    return f"{what} was made by an older version; {LAST_READER} is the last that reads it"
