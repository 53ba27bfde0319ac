"""What several releases about the same people cost together: the smallest of the compositions that are valid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Context, Decimal

from marginweave.schemas.budget import NOTHING, Cost, Plain
from marginweave.schemas.errors import InputError
from marginweave.tasks.budget.accountants import gdp_epsilon, zcdp_delta, zcdp_epsilon

# Wide enough for every sum of ledger amounts to be exact.
_EXACT = Context(prec=400)


def composed_epsilon(cost: Cost, delta: Decimal) -> tuple[float, str]:
    """Smallest epsilon at `delta` of draws that cost `cost` together, and the composition it comes from: gdp or zcdp.

    mu^2, rho and delta add under adaptive composition of draws whose prices were fixed before the first of them (Dong, Roth
    and Su 2019, corollary 3.3; Bun and Steinke 2016, lemma 2.3 and, for the additive delta, 8.8). What is charged in plain
    (epsilon, delta) is added to the conversion of the rest, by basic composition (Dwork and Roth 2014, theorem 3.16). So both
    hold at delta - sum of deltas; infinite where nothing of it is left for what must be converted. Rounded up; plain epsilons
    alone are the nearest float, as in `account_epsilon`.
    DP: arithmetic on public numbers.
    """
    left = _rounded(_EXACT.subtract(delta, _EXACT.add(cost.delta, cost.plain.delta)), up=False)
    if left < 0 or (left == 0 and (cost.mu2 or cost.rho)):
        return math.inf, "gdp"
    gdp = gdp_epsilon(math.nextafter(math.sqrt(_rounded(cost.mu2, up=True)), math.inf), left) if cost.mu2 else 0.0
    converted, name = _smaller(gdp, _rounded(cost.rho, up=True), left)
    if not cost.plain.epsilon:
        return converted, name
    if not converted:
        return float(cost.plain.epsilon), name
    return math.nextafter(converted + _rounded(cost.plain.epsilon, up=True), math.inf), name


def account_epsilon(
    costs: Sequence[Cost], statements: Sequence[Plain], delta: Decimal, purse: Plain = NOTHING
) -> tuple[float, str]:
    """Smallest valid epsilon at `delta` of everything an account spent, and the composition's name: gdp, zcdp or plain.

    Valid where no release's budget was chosen from noisy results of earlier ones, which is assumed (deployments/privacy.md).
    The smallest of several compositions is no filter, nor is a conversion at what thresholds leave of delta: a release of half
    the mu^2, and then, by its outcome, one of the other half or one whose threshold has nearly all of delta, are each within
    a cap whose delta they exceed almost twofold together.
    `gdp` and `zcdp` convert the sum of mu^2 or rho and add the account's `purse` whole, whatever is charged to it: its
    size is public and fixed, and the two parts, each with a bound of its own, compose (concurrently, too: Haney et al.
    2023). `plain` adds the stated (epsilon, delta) of whole
    releases and holds where the deltas add to at most `delta`. Its epsilon is the nearest float, so that it compares with
    the nearest float of a cap as the decimals do: a release alone never exceeds a cap equal to its own (epsilon, delta).
    The other two are rounded up. Nothing spent is 0; at delta 0 only pure epsilons have a sum; where no composition is valid
    the epsilon is infinite.
    DP: arithmetic on public numbers.

    Args:
        costs: what the charged draws of each release spent, one entry a release; in plain at most `purse` together.
        statements: (epsilon, delta) of each release as a whole, aligned with `costs`.
        delta: the account's.
        purse: the account's.

    Raises:
        InputError: `costs` and `statements` of different lengths, or a delta outside [0, 1).
    """
    if len(costs) != len(statements):
        raise InputError(f"statements ({len(statements)}) must be as many as costs ({len(costs)})")
    if not 0 <= delta < 1:
        raise InputError(f"delta ({delta}) must be at least 0 and below 1")
    total, stated = sum(costs, Cost()), sum(statements, NOTHING)
    epsilon, name = math.inf, "gdp"
    if total.plain.within(purse):
        epsilon, name = composed_epsilon(Cost(mu2=total.mu2, rho=total.rho, delta=total.delta, plain=purse), delta)
    if stated.delta <= delta and float(stated.epsilon) <= epsilon:
        return float(stated.epsilon), "plain"
    return epsilon, name


def _smaller(gdp: float, rho: float, delta: float) -> tuple[float, str]:
    """`gdp`, or the epsilon of rho-zCDP at `delta` where that is smaller. One look at the curve most often tells."""
    if gdp == 0 or zcdp_delta(rho, gdp) > delta:
        return gdp, "gdp"
    zcdp = zcdp_epsilon(rho, delta)
    return (gdp, "gdp") if gdp <= zcdp else (zcdp, "zcdp")


def _rounded(value: Decimal, *, up: bool) -> float:
    """`value` as a float on the side that is asked for."""
    nearest = float(value)
    exact = Decimal(nearest)
    if up and exact < value:
        return math.nextafter(nearest, math.inf)
    if not up and exact > value:
        return math.nextafter(nearest, -math.inf)
    return nearest
