"""Rules for what a caller hands to the ledger, and look-ups that refuse what is not there."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from marginweave.schemas.budget import MOST_DELTA, BudgetPlan, Plain
from marginweave.schemas.errors import BudgetError, InputError
from marginweave.schemas.ledger.accounts import Account
from marginweave.schemas.ledger.policy import Policy
from marginweave.schemas.ledger.releases import ReleaseRecord
from marginweave.schemas.names import check_name
from marginweave.tasks.ledger.books import release_of, stated
from marginweave.tasks.ledger.journal import Journal
from marginweave.tasks.ledger.plans import draws_fault, stated_fault
from marginweave.tasks.ledger.policies import policy_fault


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
        InputError: epsilon is not positive and finite, or delta not inside [0, 1).
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise InputError(f"epsilon ({epsilon}) must be positive and finite")
    if not 0 <= delta < 1:
        raise InputError(f"delta ({delta}) must be at least 0 and below 1")


def as_stored(account: Account) -> Account:
    """`account` with the amounts that its row will hold: what is checked is what every reader finds.

    Raises:
        InputError: an amount that is too small for a double, and would be stored as 0.
    """
    policy = None if account.policy is None else policy_as_stored(account.policy)
    for name, value in (("epsilon", account.epsilon), ("delta", account.delta)):
        if value and not stated(value):
            raise InputError(f"{name} ({value}) is too small: it would be stored as 0")
    return replace(account, epsilon=stated(account.epsilon), delta=stated(account.delta), policy=policy)


def policy_as_stored(policy: Policy) -> Policy:
    """`policy` with the amounts that its row will hold."""
    return replace(policy, epsilon=stated(policy.epsilon), delta=stated(policy.delta))


def check_policy(policy: Policy | None, epsilon: Decimal, delta: Decimal) -> None:
    """Refuse a policy for a period that is no part of the cap (epsilon, delta); none at all is always possible.

    Raises:
        InputError: one of its amounts is not positive, or larger than the cap's.
    """
    fault = None if policy is None else policy_fault(policy, epsilon, delta)
    if fault is not None:
        raise InputError(fault)


def check_weak_delta(delta: float | Decimal, reason: str | None) -> None:
    """Refuse a cap whose delta is above .001 where nobody says why.

    Raises:
        InputError: it is, and there is no reason.
    """
    if stated(delta) > MOST_DELTA and not (reason or "").strip():
        raise InputError(
            f"delta ({float(delta):g}) is above {MOST_DELTA}: with that probability all may be disclosed; choose one far below "
            "1 / (number of people), or say why not with --weak-delta REASON"
        )


def check_plan(plan: BudgetPlan) -> None:
    """Refuse a plan whose statement and draws do not fit each other.

    Raises:
        InputError: what is wrong, by the rules that an auditor applies again.
    """
    check_cap(plan.epsilon, plan.delta)
    statement = Plain(epsilon=stated(plan.epsilon), delta=stated(plan.delta))
    fault = stated_fault(statement, [draw.name for draw in plan.draws])
    fault = fault or draws_fault(statement, plan.draws, plan.neighbors, plan.discovery)
    if fault is not None:
        raise InputError(f"plan: {fault}")


def account_in(accounts: Mapping[str, Account], dataset: str, command: str) -> Account:
    """The account of `dataset`.

    Raises:
        BudgetError: there is none; the message names the open account with nearly this name, and ends with `command`,
            which opens it.
    """
    if dataset not in accounts:
        close = difflib.get_close_matches(dataset, accounts, n=1)
        meant = f"did you mean {close[0]}? If not, open it" if close else "open it"
        raise BudgetError(f"the ledger has no account {dataset}; {meant}: {command}")
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
