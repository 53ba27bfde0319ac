"""Privacy budget between stages: what a draw costs, and the plan of a release. Amounts are exact decimals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any, Literal, get_args

Neighbors = Literal["add-remove", "replace-one"]
AccountantName = Literal["gdp", "zcdp", "sds", "joint"]
CountNoise = Literal["rounded-gaussian", "discrete-laplace"]
Mechanism = Literal["rounded-gaussian", "discrete-laplace", "exponential", "threshold"]

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
class Plain:
    """An amount of plain (epsilon, delta), which adds up coordinate by coordinate: a statement, a charge, or an allowance."""

    epsilon: Decimal = Decimal(0)
    delta: Decimal = Decimal(0)

    def __add__(self, other: Plain) -> Plain:
        if not other:  # most draws charge nothing in plain, and there are thousands of them
            return self
        return Plain(epsilon=_EXACT.add(self.epsilon, other.epsilon), delta=_EXACT.add(self.delta, other.delta))

    def __sub__(self, other: Plain) -> Plain:
        if not other:
            return self
        return Plain(
            epsilon=_EXACT.subtract(self.epsilon, other.epsilon), delta=_EXACT.subtract(self.delta, other.delta)
        )

    def __bool__(self) -> bool:
        return bool(self.epsilon or self.delta)

    def within(self, other: Plain) -> bool:
        """Whether it is at most `other` in both coordinates."""
        return self.epsilon <= other.epsilon and self.delta <= other.delta


NOTHING = Plain()


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a draw spends: `mu2` for GDP and `rho` for zCDP, both at once, an additive `delta`, and `plain`.

    `plain` is the price of what is known as (epsilon, delta) only, such as Laplace noise or a subsample; it comes from the
    allowance of the account, and where it is charged, `mu2` and `rho` are 0.
    """

    mu2: Decimal = Decimal(0)
    rho: Decimal = Decimal(0)
    delta: Decimal = Decimal(0)
    plain: Plain = NOTHING

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            mu2=_EXACT.add(self.mu2, other.mu2),
            rho=_EXACT.add(self.rho, other.rho),
            delta=_EXACT.add(self.delta, other.delta),
            plain=self.plain + other.plain,
        )

    def __sub__(self, other: Cost) -> Cost:
        return Cost(
            mu2=_EXACT.subtract(self.mu2, other.mu2),
            rho=_EXACT.subtract(self.rho, other.rho),
            delta=_EXACT.subtract(self.delta, other.delta),
            plain=self.plain - other.plain,
        )

    def __str__(self) -> str:
        text = f"mu^2 {float(self.mu2):.6g}, rho {float(self.rho):.6g}, additive delta {float(self.delta):.6g}"
        plain = f", plain epsilon {float(self.plain.epsilon):.6g} and delta {float(self.plain.delta):.6g}"
        return text + plain if self.plain else text

    @property
    def texts(self) -> dict[str, str]:
        """The amounts as exact texts, by the names that they have in the ledger."""
        named = {
            "mu2": self.mu2,
            "rho": self.rho,
            "delta": self.delta,
            "plain_epsilon": self.plain.epsilon,
            "plain_delta": self.plain.delta,
        }
        return {name: format(value, "f") for name, value in named.items()}


@dataclass(frozen=True, kw_only=True)
class PlannedDraw:
    """One draw of noise, known before any data is read.

    `name` is `bounds-J-low`, `bounds-J-high`, `count`, `percentile-k` or `level-k`; of marginals `values`, `one-way`,
    `selection` and `marginals`, whose `length` is 0; and `evaluation`, of length 0 as well. `parameter` is the noise
    multiplier sigma_k of a Gaussian (its standard deviation is sigma_k times the L2 sensitivity; for several marginals the
    joint one), or the epsilon of an exponential mechanism, or of Laplace noise, for several marginals together; of the last
    as the decimal that it prints as. `terms` are the other public facts that it draws by (`tasks/aggregate/terms.py`): they
    are reserved with it, and empty before.
    """

    name: str
    mechanism: Mechanism
    length: int
    parameter: float
    cost: Cost
    terms: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def facts(self) -> dict[str, Any]:
        """What rows and bundles say of the draw, but its cost: name, mechanism, length, parameter, terms."""
        return {
            "name": self.name,
            "mechanism": self.mechanism,
            "length": self.length,
            "parameter": self.parameter,
            "terms": dict(self.terms),
        }


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """What `accountant: joint` knows of the draw that discovers private domains: public facts, from the configuration alone.

    `draw` is its name; `least_share` the least part of what a unit adds to its counts that goes to private values, where a
    unit has as many of them as it can; `adaptive` says that an earlier draw, a percentile, chooses how many those are;
    `neighbors` is the relation of the tables that are counted: the plan's, or `replace-one` of a resized one. Who has the rows
    of a ledger alone checks all of it against the draws but `least_share`, which follows from columns and caps: that needs
    the configuration.
    """

    draw: str
    least_share: float
    adaptive: bool
    neighbors: Neighbors

    def __post_init__(self) -> None:
        if not 0 < self.least_share <= 1:
            raise ValueError(f"least_share ({self.least_share}) must lie in (0, 1]")
        if self.neighbors not in get_args(Neighbors):
            raise ValueError(f"neighbors ({self.neighbors}) must be {' or '.join(get_args(Neighbors))}")
        if not isinstance(self.adaptive, bool):
            raise ValueError(f"adaptive ({self.adaptive}) must be true or false")


@dataclass(frozen=True, kw_only=True)
class BudgetPlan:
    """The whole split of (epsilon, delta), a function of the configuration alone.

    `delta_threshold` pays for the discovery of private domains (0 when every domain is public) and is part of the cost of
    `level-1`, or of `values`; where nothing is fabricated, of every level, an equal part. `spent_epsilon` is the epsilon at
    `delta` of the draws together, at most `epsilon`. `unit` is the unit of privacy as the account knows it. With
    `discovery` the statement (epsilon, delta) holds by `tasks/accounting/sparse_histogram.py`; what is charged to the account
    is the sum of the draws' costs all the same.
    """

    epsilon: float
    delta: float
    neighbors: Neighbors
    accountant: AccountantName
    delta_threshold: float
    spent_epsilon: float
    draws: tuple[PlannedDraw, ...]
    unit: str = "row"
    discovery: Discovery | None = None

    @property
    def cost(self) -> Cost:
        """Sum of the draws: what the release is guaranteed by, and what is reserved for it."""
        return sum((draw.cost for draw in self.draws), Cost())

    def draw(self, name: str) -> PlannedDraw:
        """The draw called `name`."""
        for draw in self.draws:
            if draw.name == name:
                return draw
        raise KeyError(name)
