"""Homes that nobody can look at after a ledger was restored: what a steward states about them, and what that costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from marginweave.schemas.budget import Cost, Plain, amount, stated
from marginweave.schemas.errors import InputError
from marginweave.tasks.accounting.accountants import gdp_mu
from marginweave.tasks.ledger.plans import check_cap
from marginweave.tasks.ledger.records import cap_body


@dataclass(frozen=True, kw_only=True)
class OtherHomes:
    """What a steward states about homes that were not looked at: that there are none, and why, or what they may have drawn."""

    reason: str | None = None
    unaccounted: Plain | None = None

    def __post_init__(self) -> None:
        if (self.reason is None) == (self.unaccounted is None):
            raise InputError("either --no-other-home or --unaccounted says what of other homes, and not both")
        if self.reason is not None and not self.reason.strip():
            raise InputError("--no-other-home must say why there is none: it stays in the ledger")
        if self.unaccounted is not None:
            check_cap(float(self.unaccounted.epsilon), float(self.unaccounted.delta))

    @property
    def facts(self) -> dict[str, Any]:
        """As (part of) the body of a RECONCILED row."""
        if self.unaccounted is None:
            return {"no_other_home": self.reason}
        return {"unaccounted": cap_body(self.unaccounted.epsilon, self.unaccounted.delta)}


def unaccounted_cost(statement: Plain) -> Cost:
    """What releases of this program that state (epsilon, delta) together may have cost.

    Their mu^2 is at most that of the Gaussian with this (epsilon, delta), and their deltas of thresholds at most delta; pure
    ones are compared with the Gaussian that dominates them, mu = -2 Phi^-1(1 / (1 + e^epsilon)) (Liu et al. 2022), and rho is
    epsilon^2 / 2 (Bun and Steinke 2016, proposition 1.4).
    """
    from scipy.special import ndtri

    epsilon, delta = float(statement.epsilon), float(statement.delta)
    if delta:
        mu2 = gdp_mu(epsilon, delta) ** 2
        return Cost(mu2=amount(mu2), rho=amount(mu2 / 2), delta=stated(delta))
    mu2 = (2 * float(ndtri(1 / (1 + math.exp(-epsilon))))) ** 2
    return Cost(mu2=amount(mu2), rho=amount(epsilon**2 / 2))
