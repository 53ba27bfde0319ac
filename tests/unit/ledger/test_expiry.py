"""Expiry gives back what was reserved and never begun, in both databases, and nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest

from marginweave.accounting.records import State
from marginweave.base.errors import BudgetError, InputError
from tests.support.databases import on_both
from tests.support.releases import gaussian, small_plan

pytestmark = on_both


def test_expiry_is_from_reserved_only(ledger, reserve) -> None:
    """A release that was begun is expired where it is named alone; what was begun stays charged; a second time does nothing."""
    reserve()
    ledger.draws.take_lease("first", "lease")
    ledger.draws.begin("first", "count", "lease")
    ledger.draws.commit("first", "count", "lease", "ab" * 32, tainted=False)
    ledger.draws.begin("first", "level-1", "lease")
    rows = ledger.verify()
    with pytest.raises(InputError, match="older-than must not be negative"):
        ledger.draws.expire(timedelta(days=-1))
    assert ledger.draws.expire(timedelta(days=1)).returned == ()
    assert ledger.verify() == rows
    assert ledger.draws.expire(timedelta(0)).returned == ()  # begun: its run could never finish
    assert ledger.verify() == rows
    assert ledger.draws.expire(timedelta(0), "first").returned == ("first",)
    assert ledger.draws.expire(timedelta(0), "first").returned == ()
    assert ledger.verify() == rows + 1
    with pytest.raises(BudgetError, match="release nobody is not in the ledger"):
        ledger.draws.expire(timedelta(0), "nobody")
    record = ledger.releases.find("first")
    assert [draw.state for draw in record.draws] == [State.COMMITTED, State.DRAWN, State.RETURNED]
    assert record.charged == record.draws[0].cost + record.draws[1].cost
    with pytest.raises(BudgetError, match="level-2 of release first is RETURNED"):
        ledger.draws.begin("first", "level-2", "lease")


def test_releases_that_have_nothing_to_give_back_are_left_alone(ledger, reserve) -> None:
    """Of three releases, the one that stands still gives its share back; the finished and the lost one stay."""
    for name in ("finished", "lost", "still"):
        reserve(name, plan=small_plan(cost=gaussian(0.001), epsilon=0.25))
        ledger.draws.take_lease(name, name)
    ledger.draws.return_unused("finished", ["count", "level-1", "level-2"])
    ledger.releases.publish("finished", "finished", {"privacy.json": "ab" * 32})
    for draw in ("count", "level-1", "level-2"):
        ledger.draws.begin("lost", draw, "lost")
        ledger.draws.lose("lost", draw, "lost")
    before = {name: ledger.releases.find(name) for name in ("finished", "lost")}
    assert ledger.draws.expire(timedelta(0)).returned == ("still",)
    assert {name: ledger.releases.find(name) for name in before} == before
    assert not ledger.releases.find("still").charged.mu2
