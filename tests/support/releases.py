"""A small account, plan and release for tests of the ledger and of what stands on it."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

from marginweave.accounting.accountants import gdp_mu
from marginweave.accounting.accounts import Account
from marginweave.accounting.charges import Charge, ChargedPlan
from marginweave.accounting.records import ReleaseRecord
from marginweave.base.budget import Cost, amount
from marginweave.ledger import Ledger, ReleaseRequest
from marginweave.released.program import Program

ACCOUNT = Account(
    dataset="affairs", epsilon=Decimal(1), delta=Decimal("1e-6"), unit="row", neighbors="add-remove"
)
PROGRAM = Program(version="1", digest="1" * 64)
OTHER_PROGRAM = Program(version="2", digest="2" * 64)
DRAWS = ("count", "level-1", "level-2")
# mu^2 of one draw alone, and of each of three, that cost nearly all of (1, 1e-6).
ALONE = gdp_mu(1.0, 1e-6) ** 2 * (1 - 1e-9)
FULL = ALONE / len(DRAWS)
COST = Cost(mu2=Decimal("0.01"), rho=Decimal("0.005"))


def gaussian(mu2: float, delta: float = 0.0) -> Cost:
    """Cost of a Gaussian draw, with a delta for a threshold."""
    return Cost(mu2=amount(mu2), rho=amount(mu2 / 2), delta=amount(delta))


def small_plan(
    draws: tuple[str, ...] = DRAWS, *, cost: Cost = COST, epsilon: float = 1.0, **changes: Any
) -> ChargedPlan:
    """A plan of (epsilon, 1e-6), or with `changes`, whose draws cost the same each: by default less than it states."""
    multiplier = math.nextafter(1 / math.sqrt(cost.mu2), math.inf)
    plan = ChargedPlan(
        epsilon=epsilon,
        delta=1e-6,
        neighbors="add-remove",
        delta_threshold=0.0,
        spent_epsilon=epsilon,
        charges=tuple(
            Charge(
                name=name, mechanism="rounded-gaussian", length=i, parameter=multiplier, cost=cost
            )
            for i, name in enumerate(draws)
        ),
    )
    return replace(plan, **changes)


def reserve_release(
    ledger: Ledger, plan: ChargedPlan, release: str = "first", **changes: Any
) -> ReleaseRecord:
    """Reserve a release of `plan` from `ACCOUNT`, whose run has the same name; a `source` may be given as a text."""
    request: dict[str, Any] = {
        "dataset": ACCOUNT.dataset,
        "release": release,
        "run": release,
        "plan": plan,
        "plan_digest": "plan-digest",
        "source": "bytes of the source",
        "unit": ACCOUNT.unit,
        "program": PROGRAM,
        "actor": "steward",
    }
    request |= changes
    if isinstance(request["source"], str):
        request["source"] = ledger.keys.source_digest({"": [request["source"].encode()]})
    return ledger.releases.reserve(ReleaseRequest(**request))
