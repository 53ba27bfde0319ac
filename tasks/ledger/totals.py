"""The sums of an account as privacy.json has them."""

from __future__ import annotations

from typing import Any

from marginweave.schemas.ledger.accounts import AccountTotal
from marginweave.tasks.ledger.boxes import box_body

# What only some accounts have to say.
OPTIONAL = ("weak_delta", "reconciled")


def account_totals(total: AccountTotal) -> dict[str, Any]:
    """The part of privacy.json's `account` that follows from the account and its sums: an auditor finds it in the rows."""
    account = total.account
    return {
        "dataset": account.dataset,
        "epsilon": total.epsilon,
        "delta": float(account.delta),
        "cap_epsilon": float(account.epsilon),
        "composition": total.composition,
        "box": {} if account.box is None else box_body(account.box),
        "spent": total.spent.cost.texts,
        "releases": total.spent.releases,
        "releases_before_box": account.releases_before,
        **({} if account.weak_delta is None else {"weak_delta": account.weak_delta}),
        **({"reconciled": [each.facts for each in account.reconciled]} if account.reconciled else {}),
    }
