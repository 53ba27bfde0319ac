"""A run folder, its stores, and a ledger with one reserved release."""

from __future__ import annotations

from pathlib import Path

import pytest

from marginweave.checkpoints.run_folder import RunFolder
from marginweave.checkpoints.store import Store
from marginweave.draws.files import DrawStore
from marginweave.ledger import Ledger
from tests.support.draws import KEY
from tests.support.releases import ACCOUNT, reserve_release, small_plan


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
def ledger(tmp_path: Path) -> Ledger:
    """A ledger in which attempt `A` at release `r` has the reserved draws count, level-1 and level-2."""
    made = Ledger.create(tmp_path / "ledger" / "ledger.sqlite", environment={})
    made.accounts.open(ACCOUNT, actor="steward")
    reserve_release(made, small_plan(), "r", run="affairs-0123abcd")
    made.draws.take_lease("r", "A")
    return made
