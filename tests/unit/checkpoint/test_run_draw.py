"""Charge, then draw, then commit: one noisy output for one charge, wherever the process dies."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from marginweave.schemas.errors import BudgetError, StageError
from marginweave.schemas.ledger import State
from marginweave.tasks.budget.ledger import Ledger
from marginweave.tasks.checkpoint.draws import DrawStore, reconcile, run_draw
from marginweave.tasks.checkpoint.files import StagedFile
from tests.support.draws import stage_draw

PAYLOAD = b"noisy counts"


def _never() -> tuple[bytes, bool]:
    raise AssertionError("a draw was made twice")


def _fresh() -> tuple[bytes, bool]:
    return PAYLOAD, False


def _state(ledger: Ledger, name: str = "count") -> State:
    record = ledger.release("r")
    assert record is not None
    draw = record.draw(name)
    assert draw is not None
    return draw.state


def _draw_files(store: DrawStore) -> list[Path]:
    return sorted(store.folder.draws.iterdir())


def _again(ledger: Ledger, store: DrawStore, lease: str, make: Callable[[], tuple[bytes, bool]]) -> bytes:
    """A new attempt at the draw `count`."""
    record = ledger.release("r")
    assert record is not None
    if record.lease != lease:
        ledger.take_lease("r", lease)
    return run_draw(ledger, store, "r", "count", lease, make)


def test_order_is_charge_draw_store_commit(
    ledger: Ledger, draw_store: DrawStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When `make` is called the charge is durable for any reader of the database; bytes are stored before the commit."""
    seen: list[object] = []
    keep = StagedFile.keep

    def make() -> tuple[bytes, bool]:
        with sqlite3.connect(ledger.location) as other:
            seen.append(other.execute("SELECT kind, draw, lease FROM events ORDER BY seq DESC LIMIT 1").fetchone())
        (empty,) = _draw_files(draw_store)
        seen.append((empty.suffix, set(empty.read_bytes())))
        return PAYLOAD, False

    def recording(*arguments: object) -> bool:
        done = keep(*arguments)  # type: ignore[arg-type]
        seen.append(_state(ledger))
        return done

    monkeypatch.setattr(StagedFile, "keep", recording)
    assert run_draw(ledger, draw_store, "r", "count", "A", make) == PAYLOAD
    assert seen == [("DRAWN", "count", "A"), (".tmp", {0}), State.DRAWN]
    assert _state(ledger) == State.COMMITTED


def test_committed_draws_are_read_back(ledger: Ledger, draw_store: DrawStore) -> None:
    """Any later call, under any lease, gives the same bytes and adds no row."""
    run_draw(ledger, draw_store, "r", "count", "A", _fresh)
    rows = ledger.verify()
    for lease in ("A", "B"):
        assert run_draw(ledger, draw_store, "r", "count", lease, _never) == PAYLOAD
    assert ledger.verify() == rows


@pytest.mark.parametrize("damage", [lambda p: p.unlink(), lambda p: p.write_bytes(p.read_bytes()[:-1] + b"?")])
def test_committed_draws_are_never_redrawn(
    ledger: Ledger, draw_store: DrawStore, damage: Callable[[Path], object]
) -> None:
    """Missing or damaged bytes of a committed draw stop the run; the charge and the state stand."""
    run_draw(ledger, draw_store, "r", "count", "A", _fresh)
    damage(draw_store.place("count", "A"))
    with pytest.raises(BudgetError, match="a committed draw is never redrawn"):
        run_draw(ledger, draw_store, "r", "count", "B", _never)
    assert _state(ledger) == State.COMMITTED


def test_committed_bytes_must_be_those_of_the_ledger(ledger: Ledger, draw_store: DrawStore) -> None:
    """An authentic draw that is not the one whose digest was committed is refused."""
    run_draw(ledger, draw_store, "r", "count", "A", _fresh)
    draw_store.place("count", "A").unlink()
    stage_draw(draw_store, "r", "count", "A", b"another draw")
    with pytest.raises(BudgetError, match="never redrawn"):
        run_draw(ledger, draw_store, "r", "count", "A", _never)


def _die(*_: object, **__: object) -> None:
    os._exit(9)


def _after(function: Callable[..., object]) -> Callable[..., object]:
    def call(*arguments: object, **named: object) -> object:
        function(*arguments, **named)
        os._exit(9)

    return call


def _before(_: Callable[..., object]) -> Callable[..., object]:
    return _die


def _halfway(fdopen: Callable[..., object]) -> Callable[..., object]:
    def call(descriptor: int, mode: str) -> object:
        if mode != "wb":
            return fdopen(descriptor, mode)
        os.write(descriptor, PAYLOAD[:5])
        os._exit(9)

    return call


# where the process dies → what is replaced to kill it there, the state it leaves, whether a resume has the bytes
CRASHES: dict[str, tuple[object, str, Callable[..., object], State, bool]] = {
    "before the charge": (Ledger, "begin_draw", _before, State.RESERVED, True),
    "after the charge": (Ledger, "begin_draw", _after, State.DRAWN, False),
    "in the draw": (sys.modules[__name__], "_fresh", _before, State.DRAWN, False),
    "in the middle of the file": (os, "fdopen", _halfway, State.DRAWN, False),
    "before the file has its name": (os, "link", _before, State.DRAWN, False),
    "after the file has its name": (os, "link", _after, State.DRAWN, True),
    "before the commit": (Ledger, "commit_draw", _before, State.DRAWN, True),
    "after the commit": (Ledger, "commit_draw", _after, State.COMMITTED, True),
}


def _killed_run(ledger: Ledger, store: DrawStore, point: str) -> int:
    child = os.fork()
    if child == 0:
        try:
            owner, name, how, _, _ = CRASHES[point]
            setattr(owner, name, how(getattr(owner, name)))
            run_draw(ledger, store, "r", "count", "A", _fresh)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("point", CRASHES)
@pytest.mark.parametrize("lease", ["A", "B"])
def test_a_killed_run_leaves_one_draw_or_a_lost_charge(
    ledger: Ledger, draw_store: DrawStore, point: str, lease: str
) -> None:
    """At every point of death a resume returns the very bytes, or books the loss, says so, and destroys what is left."""
    assert _killed_run(ledger, draw_store, point) == 9
    _, _, _, state, usable = CRASHES[point]
    assert _state(ledger) == state
    resume = _fresh if state == State.RESERVED else _never
    if usable:
        assert _again(ledger, draw_store, lease, resume) == PAYLOAD
        assert _state(ledger) == State.COMMITTED
        assert _again(ledger, draw_store, lease, _never) == PAYLOAD
    else:
        for _ in range(2):  # and it stays so
            with pytest.raises(BudgetError, match=r"draw count of release r was charged and lost.*mu\^2 0\.01"):
                _again(ledger, draw_store, lease, resume)
        reconcile(ledger, draw_store, "r", lease)
        assert _state(ledger) == State.CHARGED_LOST
        assert not _draw_files(draw_store)
    record = ledger.release("r")
    assert record is not None
    assert len([draw for draw in record.draws if draw.cost.mu2]) == 3
    assert record.charged.mu2 * 100 == 3  # every charge stands, once
    ledger.verify()


def test_failed_draws_are_lost_not_repeated(ledger: Ledger, draw_store: DrawStore) -> None:
    """An exception in the draw keeps the charge: neither this attempt nor the next draws again."""
    begun = []

    def broken() -> tuple[bytes, bool]:
        begun.append("noise")
        raise MemoryError

    with pytest.raises(MemoryError):
        run_draw(ledger, draw_store, "r", "count", "A", broken)
    assert begun == ["noise"]
    with pytest.raises(BudgetError, match="charged and lost"):
        _again(ledger, draw_store, "B", _never)
    assert run_draw(ledger, draw_store, "r", "level-1", "B", _fresh) == PAYLOAD


def test_a_forged_or_damaged_staged_file_is_not_adopted(ledger: Ledger, draw_store: DrawStore) -> None:
    """Only an authentic file of the lease in the DRAWN row is adopted; another lease's file is not."""
    ledger.begin_draw("r", "count", "A")
    stage_draw(draw_store, "r", "count", "B", b"of another lease")
    draw_store.place("count", "A").write_bytes(b"without a seal")
    with pytest.raises(BudgetError, match="charged and lost"):
        _again(ledger, draw_store, "B", _never)
    assert not draw_store.place("count", "A").exists()


def test_a_lease_is_not_used_twice(ledger: Ledger, draw_store: DrawStore) -> None:
    """A file that stands before its charge stops the draw while nothing is spent."""
    stage_draw(draw_store, "r", "count", "A", b"from before")
    with pytest.raises(StageError, match="lease of a draw must be new"):
        run_draw(ledger, draw_store, "r", "count", "A", _never)
    assert _state(ledger) == State.RESERVED


def test_tainted_draws_are_lost_and_not_stored(ledger: Ledger, draw_store: DrawStore) -> None:
    """A seeded draw is neither committed nor kept where a resume could adopt it."""
    with pytest.raises(BudgetError, match="tainted"):
        run_draw(ledger, draw_store, "r", "count", "A", lambda: (PAYLOAD, True))
    assert _state(ledger) == State.CHARGED_LOST
    assert not _draw_files(draw_store)


def test_nothing_is_drawn_without_a_reservation(ledger: Ledger, draw_store: DrawStore) -> None:
    """Unknown releases, unknown draws and returned draws refuse before `make`."""
    ledger.give_back("r", ["level-2"])
    for release, name in (("other", "count"), ("r", "level-9"), ("r", "level-2")):
        with pytest.raises(BudgetError):
            run_draw(ledger, draw_store, release, name, "A", _never)
