"""The budget ledger: what may be spent on an account, what was, and the proof that nothing was changed since."""

from marginweave.tasks.ledger.admission import ReleaseRequest
from marginweave.tasks.ledger.ledger import Ledger
from marginweave.tasks.ledger.location import (
    LedgerLocation,
    PostgresLocation,
    example_ledger_location,
    ledger_location,
    opening_command,
    opening_for,
)
from marginweave.tasks.ledger.schema import is_older, upgrade
from marginweave.tasks.ledger.witness import Witness

__all__ = [
    "Ledger",
    "LedgerLocation",
    "PostgresLocation",
    "ReleaseRequest",
    "Witness",
    "example_ledger_location",
    "is_older",
    "ledger_location",
    "opening_command",
    "opening_for",
    "upgrade",
]
