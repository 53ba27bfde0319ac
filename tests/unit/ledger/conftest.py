"""A ledger with one account, and plans whose draws together cost a little less than they state."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, make_url

from marginweave.accounting.accounts import Account
from marginweave.accounting.charges import ChargedPlan
from marginweave.accounting.records import ReleaseRecord
from marginweave.base.budget import Neighbors
from marginweave.ledger import Ledger, LedgerLocation, create_tables, ledger_location
from tests.support.postgres import Server, postgres_server
from tests.support.releases import ACCOUNT, DRAWS, gaussian, reserve_release, small_plan

MakePlan = Callable[..., ChargedPlan]
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
    return _environment(server.database(), tmp_path)


@pytest.fixture(scope="session")
def prepared(server: Server) -> URL:
    """A database with tables that their owner made, for a role with INSERT and SELECT: copied, never used."""
    owner = server.database()
    role = make_url(server.role(owner))
    create_tables(
        ledger_location({"MARGINWEAVE_LEDGER": owner}),
        {"MARGINWEAVE_LEDGER": owner},
        writer=role.username,
    )
    return role


@pytest.fixture
def writer(server: Server, prepared: URL, tmp_path: Path) -> dict[str, str]:
    """The environment of such a role in a copy of such a database."""
    copied = make_url(server.database(str(prepared.database))).database
    return _environment(
        prepared.set(database=copied).render_as_string(hide_password=False), tmp_path
    )


def _environment(url: str, folder: Path) -> dict[str, str]:
    return {
        "MARGINWEAVE_LEDGER": url,
        "MARGINWEAVE_LEDGER_KEY_FILE": str(folder / "keys" / "postgresql.key"),
    }


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    """Which database the ledger is in: a file, unless the test is marked `on_both`."""
    return str(getattr(request, "param", "sqlite"))


@pytest.fixture
def location(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> LedgerLocation:
    """A new place; in PostgreSQL as a role sees it that may only read and append."""
    if backend == "sqlite":
        return tmp_path / "home of ledgers" / "ledger.sqlite"
    return ledger_location(request.getfixturevalue("writer"))


@pytest.fixture
def account() -> Account:
    return ACCOUNT


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Account], Path]:
    """The folder of a ledger in a file, with its key and one account, made once for each: copied, never used."""

    @cache
    def make(account: Account) -> Path:
        folder = tmp_path_factory.mktemp("opened")
        Ledger.create(folder / "ledger.sqlite", environment={}).accounts.open(
            account, actor="steward"
        )
        return folder

    return make


@pytest.fixture
def ledger(location: LedgerLocation, account: Account, opened: Callable[[Account], Path]) -> Ledger:
    if isinstance(location, Path):
        shutil.copytree(opened(account), location.parent, dirs_exist_ok=True)
        return Ledger.open(location)
    made = Ledger.create(location)
    made.accounts.open(account, actor="steward")
    return made


@pytest.fixture
def plan() -> MakePlan:
    def make(
        epsilon: float = 1.0,
        delta: float = 1e-6,
        draws: tuple[str, ...] = DRAWS,
        mu2: float = 0.01,
        cost_delta: float = 0.0,
        neighbors: Neighbors = "add-remove",
    ) -> ChargedPlan:
        cost = gaussian(mu2, cost_delta)
        return small_plan(draws, cost=cost, epsilon=epsilon, delta=delta, neighbors=neighbors)

    return make


@pytest.fixture
def reserve(ledger: Ledger, plan: MakePlan) -> Reserve:
    def call(release_id: str = "first", **changes: Any) -> ReleaseRecord:
        return reserve_release(ledger, release=release_id, **{"plan": plan(), **changes})

    return call
