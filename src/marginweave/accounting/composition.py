"""Computes the joint cost of several releases about the same people: the smallest of the compositions that are valid."""

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
    """Return the smallest epsilon at `delta` of draws that cost `cost` together, and its composition: gdp or zcdp.

    mu^2, rho and delta add under adaptive composition of draws whose prices were fixed before the first of them (Dong, Roth
    and Su 2019, corollary 3.3; Bun and Steinke 2016, lemma 2.3 and, for the additive delta, 8.8). What is charged in plain
    (epsilon, delta) is added to the conversion of the rest, by basic composition (Dwork and Roth 2014, theorem 3.16). So both
    hold at delta - sum of deltas; infinite where nothing of it is left for what must be converted. Rounded up; plain epsilons
    alone are the nearest float, as in `account_epsilon`.
    DP: arithmetic on public numbers.
    """
    delta_added = EXACT.add(cost.delta, cost.plain.delta)
    delta_to_convert = rounded(EXACT.subtract(delta, delta_added), up=False)
    if delta_to_convert < 0 or (delta_to_convert == 0 and (cost.mu2 or cost.rho)):
        return math.inf, "gdp"
    epsilon, name = _converted_epsilon(cost, delta_to_convert)
    if not cost.plain.epsilon:
        return epsilon, name
    if not epsilon:
        return float(cost.plain.epsilon), name
    total = epsilon + rounded(cost.plain.epsilon, up=True)
    return math.nextafter(total, math.inf), name


def _converted_epsilon(cost: Cost, delta: float) -> tuple[float, str]:
    """Return the smaller of the epsilons that mu^2 and rho of `cost` have at `delta`, and its composition."""
    if not cost.mu2:
        return 0.0, "gdp"
    mu = math.nextafter(math.sqrt(rounded(cost.mu2, up=True)), math.inf)
    gdp = gdp_epsilon(mu, delta)
    rho = rounded(cost.rho, up=True)
    # Most often one evaluation of the curve shows that zCDP is no better, and saves the search for its epsilon.
    if gdp and zcdp_delta(rho, gdp) <= delta:
        zcdp = zcdp_epsilon(rho, delta)
        if zcdp < gdp:
            return zcdp, "zcdp"
    return gdp, "gdp"


def account_epsilon(cost: Cost, statement: BasicAmount, delta: Decimal) -> tuple[float, str]:
    """Return the smallest epsilon at `delta` of releases that cost `cost` and state `statement` together, and its composition.

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
    """Return the float nearest to `value` among those at or above it, or, unless `up`, at or below it."""
    nearest = float(value)
    if up:
        return nearest if Decimal(nearest) >= value else math.nextafter(nearest, math.inf)
    return nearest if Decimal(nearest) <= value else math.nextafter(nearest, -math.inf)
