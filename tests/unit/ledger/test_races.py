"""However many processes ask at once, the cap holds and the chain stays whole, in both databases."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from decimal import Decimal
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from marginweave.schemas.budget import BudgetPlan
from marginweave.schemas.errors import BudgetError
from marginweave.schemas.ledger import Account, EventKind, State
from marginweave.tasks.budget.ledger import Ledger, ledger_location

RACERS = 64
ADMITTED = 10
ACCOUNT = Account(
    dataset="affairs", epsilon=Decimal(ADMITTED), delta=Decimal("1e-5"), unit="row", neighbors="add-remove"
)

pytestmark = pytest.mark.system


@pytest.fixture(params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest, location: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A ledger whose account has room for ten releases at epsilon 1 in the plain sum, which is the tightest here."""
    if request.param == "postgresql":
        for name, value in request.getfixturevalue("database").items():
            monkeypatch.setenv(name, value)
    made = Ledger.create(
        location if request.param == "sqlite" else ledger_location(request.getfixturevalue("database"))
    )
    made.open_account(ACCOUNT, actor="steward")
    return made


def _reserve(ledger: Ledger, plan: BudgetPlan, release: str) -> None:
    digests = {"plan_digest": "plan", "source_digest": "source"}
    ledger.reserve(dataset="affairs", release_id=release, run=release, plan=plan, unit="row", actor="racer", **digests)


def _race(work: list) -> Counter[str]:
    """Every piece of work in a process forked from this warm one, all at once; how often each ended how."""
    context = multiprocessing.get_context("fork")
    barrier: Barrier = context.Barrier(len(work))
    results = context.Queue()

    def run(own: object) -> None:
        barrier.wait()
        try:
            own()  # type: ignore[operator]
            results.put("granted")
        except BudgetError:
            results.put("refused")
        except Exception as error:
            results.put(repr(error))

    processes = [context.Process(target=run, args=(own,)) for own in work]
    for process in processes:
        process.start()
    counted = Counter(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join()
    return counted


def test_sixty_four_race_for_ten(shared: Ledger, plan) -> None:
    """Exactly ten are granted, the others are refused and written down, and every row is in its place."""
    heavy = plan(mu2=1e6, draws=("count", "level-1"))
    counted = _race([lambda n=n: _reserve(shared, heavy, f"release-{n}") for n in range(RACERS)])
    assert counted == {"granted": ADMITTED, "refused": RACERS - ADMITTED}
    total = shared.account_total("affairs")
    assert (total.releases, total.epsilon) == (ADMITTED, float(ADMITTED))
    again = Ledger.open(shared.location)
    assert again.verify() == 2 + ADMITTED * 3 + (RACERS - ADMITTED)
    assert sum(event.kind == EventKind.REFUSED for event in again._all_events()) == RACERS - ADMITTED
    assert again.account_total("affairs") == total


def test_sixty_four_race_for_one_release(shared: Ledger, plan) -> None:
    """The same release asked for at once is booked once, and all who asked have it."""
    heavy = plan(mu2=1e6)
    assert _race([lambda: _reserve(shared, heavy, "same") for _ in range(RACERS)]) == {"granted": RACERS}
    assert shared.account_total("affairs").releases == 1
    assert shared.verify() == 2 + 4


def test_sixty_four_race_for_one_draw(shared: Ledger, plan) -> None:
    """One caller begins a draw; the others are told so before they have drawn anything."""
    _reserve(shared, plan(), "one")
    shared.take_lease("one", "lease")
    counted = _race([lambda: shared.begin_draw("one", "count", "lease") for _ in range(RACERS)])
    assert counted == {"granted": 1, "refused": RACERS - 1}
    record = shared.release("one")
    assert record is not None
    assert record.draws[0].state == State.DRAWN
