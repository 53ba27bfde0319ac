"""Amounts of privacy budget: costs of draws, statements and allowances, as exact decimals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import Literal

Neighbors = Literal["add-remove", "replace-one"]
NoiseName = Literal["rounded-gaussian", "discrete-laplace"]
"""Noise on the counts of marginals, by its name in ledgers and released files."""
NoiseSetting = Literal["gaussian", "laplace", "auto"]
"""Noise on the counts of marginals, by its name in a configuration; `auto` lets the program choose."""
MechanismName = Literal[NoiseName, "exponential"]
ParameterName = Literal["noise_multiplier", "epsilon"]


# A larger delta, the chance of no protection at all, is refused unless the steward gives a reason.
MOST_DELTA = Decimal("0.001")
_STEP = Decimal(1).scaleb(-30)
# Decimal's default of 28 digits neither holds an amount above 0.01 at this step nor sums exactly.
_EXACT = Context(prec=400, rounding=ROUND_CEILING)


def amount(value: float) -> Decimal:
    """Return `value` as an exact decimal, rounded up: a charge is never smaller than what was computed."""
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"budget amount ({value}) must be finite and not negative")
    upper = math.nextafter(value, math.inf) if value else 0.0
    return Decimal(upper).quantize(_STEP, context=_EXACT)


def stated(value: float | Decimal) -> Decimal:
    """Return `value` as the shortest decimal of its double, so that caps and statements compare as they were typed."""
    return Decimal(repr(float(value)))


@dataclass(frozen=True, kw_only=True)
class Stability:
    """Largest change of the counted table by one unit of privacy: at most `records` of its rows come or go, or change.

    Under `add-remove` up to `records` rows are there or not; under `replace-one` up to `records` rows are replaced by at most
    `records` other rows. Every sensitivity is a function of it.
    """

    records: int
    neighbors: Neighbors

    def __post_init__(self) -> None:
        if self.records < 1:
            raise ValueError(f"records ({self.records}) must be at least 1")


@dataclass(frozen=True, kw_only=True)
class BasicAmount:
    """An amount of (epsilon, delta) that adds up by basic composition: a statement, a charge, or an allowance."""

    epsilon: Decimal = Decimal(0)
    delta: Decimal = Decimal(0)

    @classmethod
    def as_stated(cls, epsilon: float | Decimal, delta: float | Decimal) -> BasicAmount:
        """Return (epsilon, delta) as typed: the shortest decimals of their doubles."""
        return cls(epsilon=stated(epsilon), delta=stated(delta))

    def __add__(self, addend: BasicAmount) -> BasicAmount:
        if not addend:  # most draws have no plain (epsilon, delta), and there are thousands of them
            return self
        epsilon = _EXACT.add(self.epsilon, addend.epsilon)
        return BasicAmount(epsilon=epsilon, delta=_EXACT.add(self.delta, addend.delta))

    def __neg__(self) -> BasicAmount:
        # exact, as - is not
        return BasicAmount(epsilon=self.epsilon.copy_negate(), delta=self.delta.copy_negate())

    def __sub__(self, subtrahend: BasicAmount) -> BasicAmount:
        return self + -subtrahend

    def __bool__(self) -> bool:
        return bool(self.epsilon or self.delta)

    def within(self, limit: BasicAmount) -> bool:
        """Return whether it is at most `limit` in both coordinates."""
        return self.epsilon <= limit.epsilon and self.delta <= limit.delta


NOTHING = BasicAmount()


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Cost of a draw: `mu2` for GDP, `rho` for zCDP, an additive `delta`, and `plain`.

    Each draw is charged in both currencies, GDP and zCDP.

    `plain` is the price of a mechanism with an (epsilon, delta) only, such as Laplace noise or a subsample; it comes from the
    allowance of the account, and where it is charged, `mu2` and `rho` are 0.
    """

    mu2: Decimal = Decimal(0)
    rho: Decimal = Decimal(0)
    delta: Decimal = Decimal(0)
    plain: BasicAmount = NOTHING

    def __add__(self, cost: Cost) -> Cost:
        return Cost(
            mu2=_EXACT.add(self.mu2, cost.mu2),
            rho=_EXACT.add(self.rho, cost.rho),
            delta=_EXACT.add(self.delta, cost.delta),
            plain=self.plain + cost.plain,
        )

    def __neg__(self) -> Cost:
        return Cost(
            mu2=self.mu2.copy_negate(),
            rho=self.rho.copy_negate(),
            delta=self.delta.copy_negate(),
            plain=-self.plain,
        )

    def __sub__(self, cost: Cost) -> Cost:
        return self + -cost

    def __str__(self) -> str:
        text = f"mu^2 {float(self.mu2):.6g}, rho {float(self.rho):.6g}, additive delta {float(self.delta):.6g}"
        plain = f", plain epsilon {float(self.plain.epsilon):.6g} and delta {float(self.plain.delta):.6g}"
        return text + plain if self.plain else text

    @property
    def texts(self) -> dict[str, str]:
        """Amounts as exact texts, by their names in the ledger."""
        plain = {"plain_epsilon": self.plain.epsilon, "plain_delta": self.plain.delta}
        named = {"mu2": self.mu2, "rho": self.rho, "delta": self.delta, **plain}
        return {name: format(value, "f") for name, value in named.items()}
