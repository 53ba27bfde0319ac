"""The sums of an account as privacy.json has them."""

from __future__ import annotations

from typing import Any

from marginweave.schemas.ledger import AccountTotal
from marginweave.tasks.budget.ledger.boxes import box_body


def account_totals(total: AccountTotal) -> dict[str, Any]:
    """The part of privacy.json's `account` that follows from its sums: an auditor finds them again in the rows."""
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
    }
