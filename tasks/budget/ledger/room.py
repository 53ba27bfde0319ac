"""What is left of an account: how much the next release may ask for."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from marginweave.schemas.budget import Cost, amount
from marginweave.schemas.ledger import Account, ReleaseRecord
from marginweave.tasks.budget.accountants import gdp_epsilon
from marginweave.tasks.budget.ledger.admission import total_with

_HALVINGS = 40


def room(account: Account, releases: Iterable[ReleaseRecord]) -> float:
    """The largest epsilon, at the cap's delta, of one more release of Gaussian draws alone that still fits; 0 for none.

    Found by halving on mu: the total grows with it. It is more than the difference between cap and total, because several
    releases together cost less than the sum of their epsilons. DP: arithmetic on public numbers.
    """
    own = [record for record in releases if record.dataset == account.dataset]
    delta = float(account.delta)
    fits, over = 0.0, 2.0
    while _fits(account, own, over) and over < 1e3:
        over *= 2
    for _ in range(_HALVINGS):
        middle = (fits + over) / 2
        fits, over = (middle, over) if _fits(account, own, middle) else (fits, middle)
    return gdp_epsilon(fits, delta) if fits > 1e-9 else 0.0


def _fits(account: Account, releases: list[ReleaseRecord], mu: float) -> bool:
    cost = Cost(mu2=amount(mu * mu), rho=amount(mu * mu / 2))
    statement = (Decimal(gdp_epsilon(mu, float(account.delta))), account.delta)
    return total_with(account, releases, cost, statement)[1]
