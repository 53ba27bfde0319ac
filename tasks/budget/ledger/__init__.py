"""The budget ledger: what may be spent on an account, what was, and the proof that nothing was changed since."""

from marginweave.tasks.budget.ledger.ledger import Ledger
from marginweave.tasks.budget.ledger.location import (
    LedgerLocation,
    PostgresLocation,
    example_ledger_location,
    ledger_location,
    opening_command,
)
from marginweave.tasks.budget.ledger.openings import opening_for
from marginweave.tasks.budget.ledger.schema import is_older, upgrade
from marginweave.tasks.budget.ledger.witness import Witness

__all__ = [
    "Ledger",
    "LedgerLocation",
    "PostgresLocation",
    "Witness",
    "example_ledger_location",
    "is_older",
    "ledger_location",
    "opening_command",
    "opening_for",
    "upgrade",
]
