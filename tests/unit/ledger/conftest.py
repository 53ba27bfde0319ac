"""A ledger with one account, and plans whose draws together cost a little less than they state."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from marginweave.schemas.budget import BudgetPlan, Cost, Neighbors, PlannedDraw, amount
from marginweave.schemas.ledger import Account, ReleaseRecord
from marginweave.tasks.budget.ledger import Ledger
from tests.support.postgres import Server, postgres_server

MakePlan = Callable[..., BudgetPlan]
Reserve = Callable[..., ReleaseRecord]


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MARGINWEAVE_LEDGER")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with postgres_server() as started:
        yield started


@pytest.fixture
def database(server: Server, tmp_path: Path) -> dict[str, str]:
    """The environment of a ledger in a fresh database; its key is in a file of the test's own."""
    return {
        "MARGINWEAVE_LEDGER": server.database(),
        "MARGINWEAVE_LEDGER_KEY_FILE": str(tmp_path / "keys" / "postgresql.key"),
    }


@pytest.fixture
def location(tmp_path: Path) -> Path:
    return tmp_path / "home of ledgers" / "ledger.sqlite"


@pytest.fixture
def account() -> Account:
    return Account(dataset="affairs", epsilon=Decimal(1), delta=Decimal("1e-6"), unit="row", neighbors="add-remove")


@pytest.fixture
def ledger(location: Path, account: Account) -> Ledger:
    made = Ledger.create(location)
    made.open_account(account, actor="steward")
    return made


@pytest.fixture
def plan() -> MakePlan:
    def make(
        epsilon: float = 1.0,
        delta: float = 1e-6,
        draws: tuple[str, ...] = ("count", "level-1", "level-2"),
        mu2: float = 0.01,
        cost_delta: float = 0.0,
        neighbors: Neighbors = "add-remove",
    ) -> BudgetPlan:
        cost = Cost(mu2=amount(mu2), rho=amount(mu2 / 2), delta=amount(cost_delta))
        return BudgetPlan(
            epsilon=epsilon,
            delta=delta,
            neighbors=neighbors,
            accountant="gdp",
            delta_threshold=0.0,
            spent_epsilon=epsilon,
            draws=tuple(
                PlannedDraw(name=name, mechanism="rounded-gaussian", length=i, parameter=10.0, cost=cost)
                for i, name in enumerate(draws)
            ),
        )

    return make


@pytest.fixture
def reserve(ledger: Ledger, plan: MakePlan) -> Reserve:
    def call(release_id: str = "first", **changes: object) -> ReleaseRecord:
        arguments: dict[str, object] = {
            "dataset": "affairs",
            "release_id": release_id,
            "run": release_id,
            "plan": plan(),
            "plan_digest": "plan-digest",
            "source_digest": "source-digest",
            "unit": "row",
            "actor": "steward",
        }
        return ledger.reserve(**{**arguments, **changes})  # type: ignore[arg-type]

    return call
