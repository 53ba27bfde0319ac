"""What is left of an account: how much the next release may ask for."""

from __future__ import annotations

import math

from marginweave.schemas.ledger.accounts import AccountTotal
from marginweave.tasks.accounting.accountants import gdp_epsilon
from marginweave.tasks.accounting.composition import rounded
from marginweave.tasks.ledger.admission import is_closed


def room(total: AccountTotal) -> float:
    """The largest epsilon, at the cap's delta, of one more release of Gaussian draws alone that still fits; 0 for none.

    There is none under a cap without any delta. It is more than the difference between cap and total, because several
    releases together cost less than the sum of their epsilons. DP: arithmetic on public numbers.
    """
    account, spent = total.account, total.spent
    if not account.delta or account.box is None or is_closed(account, spent):
        return 0.0
    if spent.ever == 0:
        return float(account.epsilon)
    left = rounded(account.box.mu2 - spent.cost.mu2, up=False)
    return gdp_epsilon(math.sqrt(left), float(account.delta)) if left > 0 else 0.0
