"""Expiry gives back what was reserved and never begun, in both databases, and nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest

from marginweave.schemas.errors import BudgetError, InputError
from marginweave.schemas.ledger.states import State
from tests.support.databases import on_both
from tests.support.releases import gaussian, small_plan

pytestmark = on_both


def test_expiry_is_from_reserved_only(ledger, reserve) -> None:
    """A release that was begun is expired where it is named alone; what was begun stays charged; a second time does nothing."""
    reserve()
    ledger.take_lease("first", "lease")
    ledger.begin_draw("first", "count", "lease")
    ledger.commit_draw("first", "count", "lease", "ab" * 32, tainted=False)
    ledger.begin_draw("first", "level-1", "lease")
    rows = ledger.verify()
    with pytest.raises(InputError, match="older-than must not be negative"):
        ledger.expire(timedelta(days=-1))
    assert ledger.expire(timedelta(days=1)).returned == ()
    assert ledger.verify() == rows
    assert ledger.expire(timedelta(0)).returned == ()  # begun: its run could never finish
    assert ledger.verify() == rows
    assert ledger.expire(timedelta(0), "first").returned == ("first",)
    assert ledger.expire(timedelta(0), "first").returned == ()
    assert ledger.verify() == rows + 1
    with pytest.raises(BudgetError, match="release nobody is not in the ledger"):
        ledger.expire(timedelta(0), "nobody")
    record = ledger.release("first")
    assert [draw.state for draw in record.draws] == [State.COMMITTED, State.DRAWN, State.RETURNED]
    assert record.charged == record.draws[0].cost + record.draws[1].cost
    with pytest.raises(BudgetError, match="level-2 of release first is RETURNED"):
        ledger.begin_draw("first", "level-2", "lease")


def test_releases_that_have_nothing_to_give_back_are_left_alone(ledger, reserve) -> None:
    """Of three releases, the one that stands still gives its share back; the finished and the lost one stay."""
    for name in ("finished", "lost", "still"):
        reserve(name, plan=small_plan(cost=gaussian(0.001), epsilon=0.25))
        ledger.take_lease(name, name)
    ledger.give_back("finished", ["count", "level-1", "level-2"])
    ledger.finish("finished", "finished", {"privacy.json": "ab" * 32})
    for draw in ("count", "level-1", "level-2"):
        ledger.begin_draw("lost", draw, "lost")
        ledger.lose_draw("lost", draw, "lost")
    before = {name: ledger.release(name) for name in ("finished", "lost")}
    assert ledger.expire(timedelta(0)).returned == ("still",)
    assert {name: ledger.release(name) for name in before} == before
    assert not ledger.release("still").charged.mu2
