"""What several releases about the same people cost together: the smallest of the compositions that are valid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Context, Decimal

from marginweave.schemas.budget import Cost
from marginweave.schemas.errors import InputError
from marginweave.tasks.budget.accountants import gdp_epsilon, zcdp_epsilon

# Wide enough for every sum of ledger amounts to be exact.
_EXACT = Context(prec=400)


def composed_epsilon(cost: Cost, delta: Decimal) -> tuple[float, str]:
    """Smallest epsilon at `delta` of draws that cost `cost` together, and the composition it comes from: gdp or zcdp.

    mu^2, rho and delta add under adaptive composition (Dong, Roth and Su 2019, corollary 3.3; Bun and Steinke 2016, lemma
    2.3 and, for the additive delta, 8.8), so both hold at delta - sum of deltas; infinite where nothing of it is left.
    DP: arithmetic on public numbers.
    """
    left = _rounded(_EXACT.subtract(delta, cost.delta), up=False)
    if left <= 0:
        return math.inf, "gdp"
    gdp = gdp_epsilon(math.nextafter(math.sqrt(_rounded(cost.mu2, up=True)), math.inf), left) if cost.mu2 else 0.0
    zcdp = zcdp_epsilon(_rounded(cost.rho, up=True), left)
    return (gdp, "gdp") if gdp <= zcdp else (zcdp, "zcdp")


def account_epsilon(
    costs: Sequence[Cost], statements: Sequence[tuple[Decimal, Decimal]], delta: Decimal
) -> tuple[float, str]:
    """Smallest valid epsilon at `delta` of everything an account spent, and the composition's name: gdp, zcdp or plain.

    `plain` adds the stated (epsilon, delta) of whole releases and holds where the deltas add to at most `delta`. Its
    epsilon is the nearest float, so that it compares with the nearest float of a cap as the decimals do: a release alone
    never exceeds a cap equal to its own (epsilon, delta). The other two are rounded up. Nothing spent is 0; where no
    composition is valid the epsilon is infinite.
    DP: arithmetic on public numbers.

    Args:
        costs: what the charged draws of each release spent, one entry a release.
        statements: (epsilon, delta) of each release as a whole, aligned with `costs`.
        delta: the account's.

    Raises:
        InputError: `costs` and `statements` of different lengths, or a delta outside (0, 1).
    """
    if len(costs) != len(statements):
        raise InputError(f"statements ({len(statements)}) must be as many as costs ({len(costs)})")
    if not 0 < delta < 1:
        raise InputError(f"delta ({delta}) must lie strictly between 0 and 1")
    epsilon, name = composed_epsilon(sum(costs, Cost()), delta)
    if _total(stated for _, stated in statements) <= delta:
        plain = float(_total(stated for stated, _ in statements))
        if plain <= epsilon:
            return plain, "plain"
    return epsilon, name


def _total(values: Iterable[Decimal]) -> Decimal:
    total = Decimal(0)
    for value in values:
        total = _EXACT.add(total, value)
    return total


def _rounded(value: Decimal, *, up: bool) -> float:
    """`value` as a float on the side that is asked for."""
    nearest = float(value)
    exact = Decimal(nearest)
    if up and exact < value:
        return math.nextafter(nearest, math.inf)
    if not up and exact > value:
        return math.nextafter(nearest, -math.inf)
    return nearest
