"""Privacy budget between stages: what a draw costs, and the plan of a release. Amounts are exact decimals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import Literal

Neighbors = Literal["add-remove", "replace-one"]
NoiseName = Literal["rounded-gaussian", "discrete-laplace"]
"""Noise on the counts of marginals, as ledgers and released files call it."""
NoiseSetting = Literal["gaussian", "laplace", "auto"]
"""The same as a configuration calls it; `auto` leaves it to us."""
MechanismName = Literal[NoiseName, "exponential"]
ParameterName = Literal["noise_multiplier", "epsilon"]


# A larger delta, the chance of no protection at all, is refused where nobody says why.
MOST_DELTA = Decimal("0.001")
_STEP = Decimal(1).scaleb(-30)
# Decimal's default of 28 digits neither holds an amount above 0.01 at this step nor sums exactly.
_EXACT = Context(prec=400, rounding=ROUND_CEILING)


def amount(value: float) -> Decimal:
    """`value` as an exact decimal, rounded up: a charge is never smaller than what was computed."""
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"budget amount ({value}) must be finite and not negative")
    return Decimal(math.nextafter(value, math.inf) if value else 0.0).quantize(_STEP, context=_EXACT)


def stated(value: float | Decimal) -> Decimal:
    """`value` as the shortest decimal of its double, so that caps and statements compare as they were typed."""
    return Decimal(repr(float(value)))


@dataclass(frozen=True, kw_only=True)
class Stability:
    """How far one unit of privacy moves the table that is counted: `records` of its rows at most come or go, or change.

    Under `add-remove` up to `records` rows are there or not; under `replace-one` up to `records` rows give way to as many
    others at most. Every sensitivity is a function of it.
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
    def stated(cls, epsilon: float | Decimal, delta: float | Decimal) -> BasicAmount:
        """(epsilon, delta) as typed: the shortest decimals of their doubles."""
        return cls(epsilon=stated(epsilon), delta=stated(delta))

    def __add__(self, other: BasicAmount) -> BasicAmount:
        if not other:  # most draws charge nothing in plain, and there are thousands of them
            return self
        return BasicAmount(epsilon=_EXACT.add(self.epsilon, other.epsilon), delta=_EXACT.add(self.delta, other.delta))

    def __neg__(self) -> BasicAmount:
        return BasicAmount(epsilon=self.epsilon.copy_negate(), delta=self.delta.copy_negate())  # exact, as - is not

    def __sub__(self, other: BasicAmount) -> BasicAmount:
        return self + -other

    def __bool__(self) -> bool:
        return bool(self.epsilon or self.delta)

    def within(self, other: BasicAmount) -> bool:
        """Whether it is at most `other` in both coordinates."""
        return self.epsilon <= other.epsilon and self.delta <= other.delta


NOTHING = BasicAmount()


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a draw spends: `mu2` for GDP and `rho` for zCDP, both at once, an additive `delta`, and `plain`.

    `plain` is the price of what is known as (epsilon, delta) only, such as Laplace noise or a subsample; it comes from the
    allowance of the account, and where it is charged, `mu2` and `rho` are 0.
    """

    mu2: Decimal = Decimal(0)
    rho: Decimal = Decimal(0)
    delta: Decimal = Decimal(0)
    plain: BasicAmount = NOTHING

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            mu2=_EXACT.add(self.mu2, other.mu2),
            rho=_EXACT.add(self.rho, other.rho),
            delta=_EXACT.add(self.delta, other.delta),
            plain=self.plain + other.plain,
        )

    def __neg__(self) -> Cost:
        return Cost(
            mu2=self.mu2.copy_negate(), rho=self.rho.copy_negate(), delta=self.delta.copy_negate(), plain=-self.plain
        )

    def __sub__(self, other: Cost) -> Cost:
        return self + -other

    def __str__(self) -> str:
        text = f"mu^2 {float(self.mu2):.6g}, rho {float(self.rho):.6g}, additive delta {float(self.delta):.6g}"
        plain = f", plain epsilon {float(self.plain.epsilon):.6g} and delta {float(self.plain.delta):.6g}"
        return text + plain if self.plain else text

    @property
    def texts(self) -> dict[str, str]:
        """The amounts as exact texts, by the names that they have in the ledger."""
        plain = {"plain_epsilon": self.plain.epsilon, "plain_delta": self.plain.delta}
        named = {"mu2": self.mu2, "rho": self.rho, "delta": self.delta, **plain}
        return {name: format(value, "f") for name, value in named.items()}
