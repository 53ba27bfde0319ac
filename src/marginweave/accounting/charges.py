"""Defines the part of a plan that the ledger keeps: mechanism, parameter and cost of each draw, and the stated budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from marginweave.base.budget import BasicAmount, Cost, MechanismName, Neighbors


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One draw as it is reserved and charged, known before any data is read.

    `parameter` is the noise multiplier of a Gaussian `mechanism`, and the epsilon of any other. `length` is the number of
    attributes in the combinations that a draw of k-tuples counts, and 0 for other draws. `terms` are the other public facts
    that the draw depends on: they are reserved with it, and compared before it is drawn.
    """

    name: str
    mechanism: MechanismName
    length: int = 0
    parameter: float
    cost: Cost
    terms: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def facts(self) -> dict[str, Any]:
        """Entries of the draw in rows of the ledger, without its cost."""
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
        """Sum of the charges: it is reserved for the release, and its guarantee follows from it."""
        return sum((charge.cost for charge in self.charges), Cost())

    @property
    def statement(self) -> BasicAmount:
        """(epsilon, delta) that the release states."""
        return BasicAmount.as_stated(self.epsilon, self.delta)

    @cached_property
    def by_name(self) -> dict[str, Charge]:
        """Charges by the names of their draws."""
        return {charge.name: charge for charge in self.charges}
