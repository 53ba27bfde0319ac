"""A run folder, its stores, and a ledger with one reserved release."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from marginweave.schemas.budget import BudgetPlan, Cost, PlannedDraw
from marginweave.schemas.ledger import Account
from marginweave.tasks.budget.ledger import Ledger
from marginweave.tasks.checkpoint.draws import DrawStore
from marginweave.tasks.checkpoint.run_folder import RunFolder
from marginweave.tasks.checkpoint.store import Store

KEY = bytes(range(32))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder.at(tmp_path / "home", "affairs-0123abcd")
    made.create()
    return made


@pytest.fixture
def store(folder: RunFolder) -> Store:
    return Store(folder.private, KEY)


@pytest.fixture
def draw_store(folder: RunFolder) -> DrawStore:
    return DrawStore(folder, KEY)


@pytest.fixture
def spares() -> int:
    """How many lost draws release `r` keeps room for."""
    return 0


@pytest.fixture
def ledger(tmp_path: Path, spares: int) -> Ledger:
    """A ledger in which attempt `A` at release `r` has the reserved draws count, level-1 and level-2."""
    cost = Cost(mu2=Decimal("0.01"), rho=Decimal("0.005"))
    draws = tuple(
        PlannedDraw(name=name, mechanism="rounded-gaussian", length=i, parameter=10.0, cost=cost)
        for i, name in enumerate(("count", "level-1", "level-2"))
    )
    plan = BudgetPlan(
        epsilon=1.0,
        delta=1e-6,
        neighbors="add-remove",
        accountant="gdp",
        delta_threshold=0.0,
        spent_epsilon=1.0,
        draws=draws,
        spares=spares,
    )
    made = Ledger.create(tmp_path / "ledger" / "ledger.sqlite", environment={})
    made.open_account(
        Account(dataset="affairs", epsilon=Decimal(1), delta=Decimal("1e-6"), unit="row", neighbors="add-remove"),
        actor="steward",
    )
    made.reserve(
        dataset="affairs",
        release_id="r",
        run="affairs-0123abcd",
        plan=plan,
        plan_digest="p",
        source_digest="s",
        unit="row",
        actor="steward",
    )
    made.take_lease("r", "A")
    return made
