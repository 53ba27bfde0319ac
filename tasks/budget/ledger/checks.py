"""Rules for what a caller hands to the ledger, and look-ups that refuse what is not there."""

from __future__ import annotations

import math
from collections.abc import Mapping

from marginweave.schemas.budget import BudgetPlan
from marginweave.schemas.configuration import check_name
from marginweave.schemas.errors import BudgetError, InputError
from marginweave.schemas.ledger import Account, ReleaseRecord
from marginweave.tasks.budget.ledger.books import release_of
from marginweave.tasks.budget.ledger.journal import Journal


def check_dataset(dataset: str) -> None:
    """Refuse a dataset that could not stand in a path or a command.

    Raises:
        InputError: it breaks the rule for names.
    """
    try:
        check_name(dataset)
    except ValueError as error:
        raise InputError(f"dataset ({dataset!r}) {error}") from None


def check_cap(epsilon: float, delta: float) -> None:
    """Refuse a cap that is no (epsilon, delta).

    Raises:
        InputError: epsilon is not positive and finite, or delta not inside (0, 1).
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise InputError(f"epsilon ({epsilon}) must be positive and finite")
    if not 0 < delta < 1:
        raise InputError(f"delta ({delta}) must lie strictly between 0 and 1")


def check_plan(plan: BudgetPlan) -> None:
    """Refuse a plan that states no (epsilon, delta) or whose draws could not be told apart.

    Raises:
        InputError: no draws, a name twice, or a statement out of range.
    """
    check_cap(plan.epsilon, plan.delta)
    names = [draw.name for draw in plan.draws]
    if not names or len(set(names)) != len(names):
        raise InputError("a plan must have draws, each with a name of its own")


def account_in(accounts: Mapping[str, Account], dataset: str, command: str) -> Account:
    """The account of `dataset`.

    Raises:
        BudgetError: there is none; the message ends with `command`, which opens it.
    """
    if dataset not in accounts:
        raise BudgetError(f"the ledger has no account {dataset}; open it: {command}")
    return accounts[dataset]


def release_in(journal: Journal, release_id: str) -> ReleaseRecord:
    """The release of this id.

    Raises:
        BudgetError: it was never reserved.
    """
    record = release_of(journal.release_events(release_id))
    if record is None:
        raise BudgetError(f"release {release_id} is not in the ledger")
    return record
