"""What several releases about the same people cost together: the smallest of the compositions that are valid."""

from __future__ import annotations

import math
from decimal import Context, Decimal

from marginweave.accounting.accountants import gdp_epsilon, zcdp_delta, zcdp_epsilon
from marginweave.accounting.charges import Charge
from marginweave.accounting.records import DrawRecord
from marginweave.base.budget import BasicAmount, Cost
from marginweave.base.errors import InputError

# Wide enough for every sum of ledger amounts to be exact.
EXACT = Context(prec=400)


PricedDraw = Charge | DrawRecord
"""A draw with its price: one of a plan, or a row of the ledger."""


def composed_epsilon(cost: Cost, delta: Decimal) -> tuple[float, str]:
    """Smallest epsilon at `delta` of draws that cost `cost` together, and the composition it comes from: gdp or zcdp.

    mu^2, rho and delta add under adaptive composition of draws whose prices were fixed before the first of them (Dong, Roth
    and Su 2019, corollary 3.3; Bun and Steinke 2016, lemma 2.3 and, for the additive delta, 8.8). What is charged in plain
    (epsilon, delta) is added to the conversion of the rest, by basic composition (Dwork and Roth 2014, theorem 3.16). So both
    hold at delta - sum of deltas; infinite where nothing of it is left for what must be converted. Rounded up; plain epsilons
    alone are the nearest float, as in `account_epsilon`.
    DP: arithmetic on public numbers.
    """
    left = rounded(EXACT.subtract(delta, EXACT.add(cost.delta, cost.plain.delta)), up=False)
    if left < 0 or (left == 0 and (cost.mu2 or cost.rho)):
        return math.inf, "gdp"
    gdp = gdp_epsilon(math.nextafter(math.sqrt(rounded(cost.mu2, up=True)), math.inf), left) if cost.mu2 else 0.0
    converted, name, rho = gdp, "gdp", rounded(cost.rho, up=True)
    if gdp and zcdp_delta(rho, gdp) <= left:  # one look at the curve most often tells
        converted, name = min((gdp, "gdp"), (zcdp_epsilon(rho, left), "zcdp"))
    if not cost.plain.epsilon:
        return converted, name
    if not converted:
        return float(cost.plain.epsilon), name
    return math.nextafter(converted + rounded(cost.plain.epsilon, up=True), math.inf), name


def account_epsilon(cost: Cost, statement: BasicAmount, delta: Decimal) -> tuple[float, str]:
    """Smallest epsilon at `delta` of releases that cost `cost` and state `statement` together, and its composition's name.

    `composed_epsilon` of the cost, or `plain`: the sum of the stated epsilons, where the stated deltas add to at most `delta`;
    as the nearest float, so that a release alone is never above its own (epsilon, delta). Holds for budgets that were fixed
    before the first result (Dwork and Roth 2014, theorem 3.16, beside the sources there); the smallest of several sums is no
    filter, so it is shown, and admits nothing (`Box` does).
    Nothing spent is 0; at delta 0 only pure epsilons have a sum; where no composition is valid the epsilon is infinite.
    DP: arithmetic on public numbers.

    Raises:
        InputError: a delta outside [0, 1).
    """
    if not 0 <= delta < 1:
        raise InputError(f"delta ({delta}) must be at least 0 and below 1")
    epsilon, name = composed_epsilon(cost, delta)
    if statement.delta <= delta and float(statement.epsilon) <= epsilon:
        return float(statement.epsilon), "plain"
    return epsilon, name


def rounded(value: Decimal, *, up: bool) -> float:
    """`value` as a float on the side that is asked for."""
    nearest = float(value)
    fits = Decimal(nearest) >= value if up else Decimal(nearest) <= value
    return nearest if fits else math.nextafter(nearest, math.inf if up else -math.inf)
