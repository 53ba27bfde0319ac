"""A ledger with one reserved release."""

from __future__ import annotations

from pathlib import Path

import pytest

from marginweave.ledger import Ledger
from tests.support.releases import ACCOUNT, reserve_release, small_plan


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger in which attempt `A` at release `r` has the reserved draws count, level-1 and level-2."""
    made = Ledger.create(tmp_path / "ledger" / "ledger.sqlite", environment={})
    made.accounts.open(ACCOUNT, actor="steward")
    reserve_release(made, small_plan(), "r", run="affairs-0123abcd")
    made.draws.take_lease("r", "A")
    return made
