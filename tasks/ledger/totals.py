"""The sums of an account as privacy.json has them."""

from __future__ import annotations

from marginweave.schemas.ledger.accounts import AccountTotal
from marginweave.schemas.released.statement import AccountBox, AccountSums, Amounts, ReconciledStatement
from marginweave.tasks.ledger.boxes import box_body


def account_sums(total: AccountTotal) -> AccountSums:
    """The part of privacy.json's `account` that follows from the account and its sums: an auditor finds it in the rows."""
    account = total.account
    box = AccountBox() if account.box is None else AccountBox(**box_body(account.box))
    return AccountSums(
        dataset=account.dataset,
        epsilon=total.epsilon,
        delta=float(account.delta),
        cap_epsilon=float(account.epsilon),
        composition=total.composition,
        box=box,
        spent=Amounts(**total.spent.cost.texts),
        releases=total.spent.releases,
        releases_before_box=account.releases_before,
        weak_delta=account.weak_delta,
        reconciled=tuple(ReconciledStatement(**each.facts) for each in account.reconciled) or None,
    )
