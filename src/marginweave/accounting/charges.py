"""All that the ledger knows of what is planned: how each draw is made, what it costs, and what all of them state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from marginweave.base.budget import BasicAmount, Cost, MechanismName, Neighbors


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One draw, known before any data is read, as it is reserved and charged.

    `mechanism` says how it draws, with a `parameter`: of Gaussian noise the multiplier of its sensitivity, else epsilon.
    `length` is the number of attributes of the combinations that it is about, of k-tuples; else 0. `terms` are the other
    public facts that it draws by: they are reserved with it, and compared before it is drawn.
    """

    name: str
    mechanism: MechanismName
    length: int = 0
    parameter: float
    cost: Cost
    terms: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def facts(self) -> dict[str, Any]:
        """What rows of the ledger say of it, but its cost."""
        return {
            "name": self.name,
            "mechanism": self.mechanism,
            "length": self.length,
            "parameter": self.parameter,
            "terms": dict(self.terms),
        }


@dataclass(frozen=True, kw_only=True)
class ChargedPlan:
    """The charges of a release in their order, and the (epsilon, delta) that it states.

    `delta_threshold` pays for the discovery of private domains (0 when every domain is public) and is part of the cost of the
    draw that discovers them. `spent_epsilon` is the epsilon at `delta` of the draws together, at most `epsilon`. `unit` is the
    unit of privacy as the account knows it.
    """

    epsilon: float
    delta: float
    neighbors: Neighbors
    delta_threshold: float
    spent_epsilon: float
    charges: tuple[Charge, ...]
    unit: str = "row"

    @property
    def cost(self) -> Cost:
        """Sum of the charges: what the release is guaranteed by, and what is reserved for it."""
        return sum((charge.cost for charge in self.charges), Cost())

    @property
    def statement(self) -> BasicAmount:
        """The (epsilon, delta) that the release states."""
        return BasicAmount.stated(self.epsilon, self.delta)

    @cached_property
    def by_name(self) -> dict[str, Charge]:
        """The charges by the names of their draws."""
        return {charge.name: charge for charge in self.charges}
