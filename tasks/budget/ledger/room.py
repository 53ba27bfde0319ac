"""What is left of an account: how much the next release may ask for."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from marginweave.schemas.budget import Cost, Plain, amount
from marginweave.schemas.ledger import Account, ReleaseRecord, Spent
from marginweave.tasks.budget.accountants import gdp_epsilon
from marginweave.tasks.budget.ledger.admission import total_with

_HALVINGS = 40


def room(account: Account, releases: Iterable[ReleaseRecord]) -> float:
    """The largest epsilon, at the cap's delta, of one more release of Gaussian draws alone that still fits; 0 for none.

    There is none under a cap without any delta. Found by halving on mu: the total grows with it. It is more than the
    difference between cap and total, because several releases together cost less than the sum of their epsilons. DP:
    arithmetic on public numbers.
    """
    if not account.delta:
        return 0.0
    spent = Spent()
    for record in releases:
        if record.dataset == account.dataset:
            spent = spent.with_release(record)
    delta = float(account.delta)
    fits, over = 0.0, 2.0
    while _fits(account, spent, over) and over < 1e3:
        over *= 2
    for _ in range(_HALVINGS):
        middle = (fits + over) / 2
        fits, over = (middle, over) if _fits(account, spent, middle) else (fits, middle)
    return gdp_epsilon(fits, delta) if fits > 1e-9 else 0.0


def _fits(account: Account, spent: Spent, mu: float) -> bool:
    cost = Cost(mu2=amount(mu * mu), rho=amount(mu * mu / 2))
    statement = Plain(epsilon=Decimal(gdp_epsilon(mu, float(account.delta))), delta=account.delta)
    return total_with(account, spent, cost, statement)[1]
