"""The budget ledger: what may be spent on an account, what was, and the proof that nothing was changed since."""

from marginweave.tasks.budget.ledger.ledger import Ledger
from marginweave.tasks.budget.ledger.location import example_ledger_location, ledger_location, opening_command

__all__ = ["Ledger", "example_ledger_location", "ledger_location", "opening_command"]
