"""One source has one account: the same bytes under another account are refused, always."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marginweave.accounting.records import State
from marginweave.base.errors import BudgetError
from marginweave.ledger import Ledger
from tests.support.databases import on_both

pytestmark = on_both


@pytest.fixture
def twins(ledger, account) -> Ledger:
    """A second account."""
    ledger.accounts.open(replace(account, dataset="twin"), actor="steward")
    return ledger


def test_the_same_bytes_under_another_account_are_refused(twins, reserve) -> None:
    """They would have a second budget for the same people. The refusal is booked and says what to do; other bytes pass."""
    reserve()
    with pytest.raises(
        BudgetError,
        match=r"released under account affairs.*set `dataset: affairs` in the configuration",
    ):
        reserve("second", dataset="twin")
    assert [(e.kind, e.account) for e in twins.session.events()][-1] == (State.REFUSED, "twin")
    assert twins.releases.of("twin") == ()
    reserve("second", dataset="twin", source="other bytes")


@pytest.mark.parametrize("end", ["given back", "published", "rejected"])
def test_they_are_refused_however_the_first_release_ended(twins, reserve, end) -> None:
    """Neither what was given back, nor a decision, nor a new cap of either account opens a second account to the source."""
    reserve(needs_approval=end == "rejected")
    twins.draws.return_unused("first", ["count", "level-1", "level-2"])
    if end != "given back":
        twins.draws.take_lease("first", "lease")
        book = twins.releases.publish if end == "published" else twins.approvals.submit
        book("first", "lease", {"release/a.csv": "cd" * 32})
    if end == "rejected":
        twins.approvals.decide("first", approved=False, by="A", reason="wrong date")
    for name in ("affairs", "twin"):
        twins.accounts.change_cap(name, 5.0, 1e-6, "room", "steward")
    with pytest.raises(BudgetError, match="released under account affairs"):
        reserve("second", dataset="twin")
