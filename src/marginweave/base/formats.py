"""Numbers of formats, the message about a file of an older format, the words of account.json and one of privacy.json.

This file is a part of verify.py, in every handover.
"""

from __future__ import annotations

# 0.3.0 is the first version that promises to open its files later. Files of older ones have smaller numbers, or none.
LEDGER_FORMAT = 7
MANIFEST_FORMAT = 3
STATEMENT_FORMAT = 3
LAST_READER = "marginweave 0.2.0 (commit b410c4f6)"

ACCOUNT_MEANING = (
    "As long as the cap is not raised it is the bound: everything that is released under this account is, all together, "
    "differentially private with the epsilon and delta of the cap, however the budgets of later releases were chosen. The "
    "ledger and the account.json of every later release show a cap that was changed. The total is no such bound where budgets "
    "were chosen in view of earlier results. It counts all that unpublished releases had reserved, whatever they gave "
    "back, so it can be more than the cap."
)
CAP_WAS_LOWERED = (
    "The cap was lowered after noise had been drawn, so that it is no bound of what was released before: largest_cap is. The "
    "total counts all that unpublished releases had reserved, whatever they gave back, so it can be more than the cap."
)
CAP_WAS_CHANGED = (
    "The cap was changed after noise had been drawn. If results had a part in that, the guarantee of the account is that of "
    "the largest cap that it could have been raised to in view of them. The numbers here are the largest cap so far: take "
    "epsilon and delta of the account to be at least these."
)
COMBINED_DRAWS = "one-way and marginals"
"""In privacy.json, in place of a draw: both draws measured single attributes, and their means are there."""


def older_fault(thing: str, number: object, present: int) -> str | None:
    """Return why a thing with this number of its format, or none, is not read; None where it is the `present` one."""
    if isinstance(number, int) and number >= present:
        return None
    return f"{thing} was made by an older version; {LAST_READER} is the last that reads it"
