"""Privacy budget between stages: what a draw costs, and the plan of a release. Amounts are exact decimals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import Literal

Neighbors = Literal["add-remove", "replace-one"]
Mechanism = Literal["rounded-gaussian", "exponential", "threshold"]

_STEP = Decimal(1).scaleb(-30)
# Decimal's default of 28 digits neither holds an amount above 0.01 at this step nor sums exactly.
_EXACT = Context(prec=400, rounding=ROUND_CEILING)


def amount(value: float) -> Decimal:
    """`value` as an exact decimal, rounded up: a charge is never smaller than what was computed."""
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"budget amount ({value}) must be finite and not negative")
    return Decimal(math.nextafter(value, math.inf) if value else 0.0).quantize(_STEP, context=_EXACT)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a draw spends, in both currencies at once: `mu2` for GDP, `rho` for zCDP, and an additive `delta`."""

    mu2: Decimal = Decimal(0)
    rho: Decimal = Decimal(0)
    delta: Decimal = Decimal(0)

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            mu2=_EXACT.add(self.mu2, other.mu2),
            rho=_EXACT.add(self.rho, other.rho),
            delta=_EXACT.add(self.delta, other.delta),
        )


@dataclass(frozen=True, kw_only=True)
class PlannedDraw:
    """One draw of noise, known before any data is read.

    `name` is `count`, `percentile-k` or `level-k`. `parameter` is the noise multiplier sigma_k of a Gaussian (its standard
    deviation is sigma_k times the L2 sensitivity), or the epsilon of an exponential mechanism.
    """

    name: str
    mechanism: Mechanism
    length: int
    parameter: float
    cost: Cost


@dataclass(frozen=True, kw_only=True)
class BudgetPlan:
    """The whole split of (epsilon, delta), a function of the configuration alone.

    `delta_threshold` pays for the discovery of private domains (0 when every domain is public) and is part of the cost of
    `level-1`. `spent_epsilon` is the epsilon at `delta` of the draws together, at most `epsilon`. `spares` is how many lost
    draws the account keeps room for; they are no part of what is guaranteed.
    """

    epsilon: float
    delta: float
    neighbors: Neighbors
    accountant: Literal["gdp", "zcdp", "sds"]
    delta_threshold: float
    spent_epsilon: float
    draws: tuple[PlannedDraw, ...]
    spares: int = 0

    @property
    def cost(self) -> Cost:
        """Sum of the draws, spares not among them: what the release is guaranteed by."""
        return sum((draw.cost for draw in self.draws), Cost())

    @property
    def spare_cost(self) -> Cost:
        """What one spare costs: in each currency as much as the most expensive draw, whichever it will replace."""
        costs = [draw.cost for draw in self.draws]
        return Cost(
            mu2=max(cost.mu2 for cost in costs),
            rho=max(cost.rho for cost in costs),
            delta=max(cost.delta for cost in costs),
        )

    @property
    def reserved_cost(self) -> Cost:
        """What is reserved in the account: the draws and the spares."""
        return sum([self.spare_cost] * self.spares, self.cost)

    def draw(self, name: str) -> PlannedDraw:
        """The draw called `name`."""
        for draw in self.draws:
            if draw.name == name:
                return draw
        raise KeyError(name)
