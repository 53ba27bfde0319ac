"""However many processes ask at once, the cap holds and the chain stays whole, in both databases."""

from __future__ import annotations

import math
import multiprocessing
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from multiprocessing.synchronize import Barrier

import pytest

from marginweave.accounting.accountants import gdp_epsilon
from marginweave.accounting.records import EventKind, State
from marginweave.base.errors import BudgetError
from marginweave.ledger import Ledger, LedgerLocation
from tests.support.databases import on_both
from tests.support.releases import ACCOUNT, ALONE, FULL, reserve_release

RACERS = 12
ADMITTED = 5
pytestmark = [pytest.mark.system, on_both]


@pytest.fixture
def shared(location: LedgerLocation) -> Ledger:
    """A ledger whose account has room for what five and a half releases at epsilon 1 cost together."""
    made = Ledger.create(location)
    made.accounts.open(
        replace(ACCOUNT, epsilon=Decimal(gdp_epsilon(math.sqrt((ADMITTED + 0.5) * ALONE), 1e-6))), actor="steward"
    )
    return made


def _race(work: list) -> Counter[str]:
    """Every piece of work in a process forked from this warm one, all at once; how often each ended how."""
    context = multiprocessing.get_context("fork")
    barrier: Barrier = context.Barrier(len(work))
    results = context.Queue()

    def run(own: object) -> None:
        barrier.wait()
        try:
            own()  # pyright: ignore[reportCallIssue]
            results.put("granted")
        except BudgetError:
            results.put("refused")
        except Exception as error:
            results.put(repr(error))

    processes = [context.Process(target=run, args=(own,)) for own in work]
    for process in processes:
        process.start()
    counted = Counter(results.get(timeout=180) for _ in processes)
    for process in processes:
        process.join()
    return counted


def test_many_race_for_five(shared: Ledger, plan) -> None:
    """Exactly five are granted, the others are refused and written down, and every row is in its place."""
    heavy = plan(mu2=ALONE / 2, draws=("count", "level-1"))
    counted = _race([lambda n=n: reserve_release(shared, heavy, f"release-{n}") for n in range(RACERS)])
    assert counted == {"granted": ADMITTED, "refused": RACERS - ADMITTED}
    total = shared.accounts.total("affairs")
    assert (total.spent.releases, total.epsilon) == (
        ADMITTED,
        pytest.approx(gdp_epsilon(math.sqrt(ADMITTED * ALONE), 1e-6)),
    )
    again = Ledger.open(shared.location)
    assert again.verify() == 2 + ADMITTED * 3 + (RACERS - ADMITTED)
    assert sum(event.kind == EventKind.REFUSED for event in again.session.events()) == RACERS - ADMITTED
    assert again.accounts.total("affairs") == total


def test_many_race_for_one_release(shared: Ledger, plan) -> None:
    """The same release asked for at once is booked once, and all who asked have it."""
    heavy = plan(mu2=FULL)
    assert _race([lambda: reserve_release(shared, heavy, "same") for _ in range(RACERS)]) == {"granted": RACERS}
    assert shared.accounts.total("affairs").spent.releases == 1
    assert shared.verify() == 2 + 4


def test_many_race_for_one_draw(shared: Ledger, plan) -> None:
    """One caller begins a draw; the others, of other inputs, are told so before they have drawn anything."""
    reserve_release(shared, plan(), "one")
    shared.draws.take_lease("one", "lease")
    counted = _race(
        [lambda n=n: shared.draws.begin("one", "count", "lease", {"inputs": str(n)}) for n in range(RACERS)]
    )
    assert counted == {"granted": 1, "refused": RACERS - 1}
    record = shared.releases.find("one")
    assert record is not None
    assert record.draws[0].state == State.DRAWN
