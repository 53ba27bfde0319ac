"""The sums of an account as privacy.json has them."""

from __future__ import annotations

from typing import Any

from marginweave.schemas.ledger import AccountTotal


def account_totals(total: AccountTotal) -> dict[str, Any]:
    """The part of privacy.json's `account` that follows from the sums of an account: an auditor finds them again in the rows."""
    return {
        "dataset": total.account.dataset,
        "epsilon": total.epsilon,
        "delta": float(total.account.delta),
        "cap_epsilon": float(total.account.epsilon),
        "composition": total.composition,
        "purse": {
            "epsilon": float(total.account.purse.epsilon),
            "delta": float(total.account.purse.delta),
            "spent_epsilon": float(total.purse.epsilon),
            "spent_delta": float(total.purse.delta),
        },
        "releases": total.releases,
    }
