"""One attempt at a time may draw, commit, name a file and publish; and a lost draw is made again under a spare charge only."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest

from marginweave.schemas.budget import Plain
from marginweave.schemas.errors import BudgetError, InputError, MachineError
from marginweave.schemas.ledger import State
from marginweave.tasks.budget.ledger import Ledger
from marginweave.tasks.checkpoint.draws import DrawStore, reconcile, run_draw
from marginweave.tasks.checkpoint.files import StagedFile

Make = Callable[[], tuple[bytes, bool]]


def _payload(data: bytes) -> Make:
    return lambda: (data, False)


def _never() -> tuple[bytes, bool]:
    raise AssertionError("a draw was made twice")


def _broken() -> tuple[bytes, bool]:
    raise MemoryError


def _states(ledger: Ledger) -> dict[str, State]:
    record = ledger.release("r")
    assert record is not None
    return {draw.name: draw.state for draw in record.draws}


def _takeover_in_the_draw(ledger: Ledger, store: DrawStore) -> Make:
    def slow() -> tuple[bytes, bool]:
        ledger.take_lease("r", "B")
        reconcile(ledger, store, "r", "B")
        return b"of the zombie", False

    return slow


def test_a_zombie_leaves_neither_a_commit_nor_a_file(ledger: Ledger, draw_store: DrawStore) -> None:
    """An attempt that is taken over in its draw finds its file gone and its lease stale; nothing noisy is left on disk."""
    with pytest.raises((BudgetError, MachineError), match=r"taken over|cannot be written"):
        run_draw(ledger, draw_store, "r", "count", "A", _takeover_in_the_draw(ledger, draw_store))
    assert _states(ledger)["count"] == State.CHARGED_LOST
    assert list(draw_store.folder.draws.iterdir()) == []
    for name in ("count", "level-1"):
        with pytest.raises(BudgetError):
            run_draw(ledger, draw_store, "r", name, "A", _never)
    assert run_draw(ledger, draw_store, "r", "level-1", "B", _payload(b"new")) == b"new"


def test_a_stale_lease_is_noticed_before_the_file_has_its_name(ledger: Ledger, draw_store: DrawStore) -> None:
    """The newcomer has taken the lease and done nothing else yet: the zombie's noise gets no name all the same."""

    def slow() -> tuple[bytes, bool]:
        ledger.take_lease("r", "B")
        return b"of the zombie", False

    with pytest.raises(BudgetError, match="taken over"):
        run_draw(ledger, draw_store, "r", "count", "A", slow)
    assert list(draw_store.folder.draws.iterdir()) == []


@pytest.mark.parametrize("moment", ["before the check", "between check and link", "after the link"])
def test_a_zombie_cannot_rename_after_the_takeover(
    ledger: Ledger, draw_store: DrawStore, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The takeover falls before the lease is checked, right before the link, or after it: no file, no file, adopted."""
    link = os.link

    def takeover() -> None:
        ledger.take_lease("r", "B")
        reconcile(ledger, draw_store, "r", "B")

    if moment == "before the check":
        write = StagedFile.write

        def late(staged: StagedFile, data: bytes) -> None:
            write(staged, data)
            takeover()

        monkeypatch.setattr(StagedFile, "write", late)
    else:

        def linking(*arguments: object) -> None:
            if moment == "between check and link":
                takeover()
            link(*arguments)  # type: ignore[arg-type]
            if moment == "after the link":
                takeover()

        monkeypatch.setattr(os, "link", linking)
    with pytest.raises((BudgetError, MachineError), match=r"taken over|cannot be written|cannot become"):
        run_draw(ledger, draw_store, "r", "count", "A", _payload(b"noise"))
    files = [path.name for path in draw_store.folder.draws.iterdir()]
    if moment == "after the link":
        assert _states(ledger)["count"] == State.COMMITTED
        assert files == ["count.A.draw"]
        assert run_draw(ledger, draw_store, "r", "count", "B", _never) == b"noise"
    else:
        assert _states(ledger)["count"] == State.CHARGED_LOST
        assert files == []


def test_removal_takes_temporary_files_first(
    ledger: Ledger, draw_store: DrawStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zombie that links while the newcomer removes does not leave its file behind."""
    ledger.begin_draw("r", "count", "A")
    with draw_store.room("count", "A", 10) as staged:
        staged.write(b"noise")
        ledger.take_lease("r", "B")
        unlink = type(staged.path).unlink

        def racing(path: object, missing_ok: bool = False) -> None:
            if staged.temporary.exists() and not staged.path.exists():
                os.link(staged.temporary, staged.path)  # the zombie, in the middle of the removal
            unlink(path, missing_ok)  # type: ignore[arg-type]

        monkeypatch.setattr(type(staged.path), "unlink", racing)
        draw_store.destroy("count", "A")
        monkeypatch.undo()
    assert list(draw_store.folder.draws.iterdir()) == []


def test_a_lease_is_taken_once_and_not_after_publication(ledger: Ledger) -> None:
    """A stale lease cannot come back, and a finished release has no attempts."""
    ledger.take_lease("r", "B")
    ledger.take_lease("r", "B")  # its own: there is nothing to do
    with pytest.raises(BudgetError, match="must be new"):
        ledger.take_lease("r", "A")
    ledger.give_back("r", ["count", "level-1", "level-2"])
    with pytest.raises(BudgetError, match="taken over"):
        ledger.finish("r", "A", {"release/a.csv": "0" * 64})
    ledger.finish("r", "B", {"release/a.csv": "0" * 64})
    with pytest.raises(BudgetError, match="is published"):
        ledger.take_lease("r", "C")


def test_expiry_gives_back_what_was_never_begun(ledger: Ledger, draw_store: DrawStore) -> None:
    """Only RESERVED draws of releases without recent rows are given back; the rest stays charged, the run cannot go on."""
    run_draw(ledger, draw_store, "r", "count", "A", _payload(b"noise"))
    ledger.begin_draw("r", "level-1", "A")
    assert ledger.expire(timedelta(days=1)) == ()
    with pytest.raises(InputError):
        ledger.expire(timedelta(days=-1))
    assert ledger.expire(timedelta(0)) == ("r",)
    assert ledger.expire(timedelta(0)) == ()
    assert _states(ledger) == {"count": State.COMMITTED, "level-1": State.DRAWN, "level-2": State.RETURNED}
    with pytest.raises(BudgetError, match="was given back"):
        run_draw(ledger, draw_store, "r", "level-2", "A", _never)


class TestSpares:
    """With room for two lost draws."""

    @pytest.fixture
    def spares(self) -> int:
        return 2

    def test_room_is_reserved_and_returned(self, ledger: Ledger) -> None:
        """The account is charged for both spares, with a statement of its own each, until they are given back."""
        record = ledger.release("r")
        assert record is not None
        assert record.charged.mu2 == Decimal("0.05")
        assert record.statement == Plain(epsilon=Decimal(3), delta=Decimal("3e-6"))
        ledger.give_back("r", ["spare-1", "spare-2"])
        record = ledger.release("r")
        assert record is not None
        assert record.charged.mu2 == Decimal("0.03")
        assert record.statement == Plain(epsilon=Decimal(1), delta=Decimal("1e-6"))

    def test_a_lost_draw_is_made_again_under_a_spare(self, ledger: Ledger, draw_store: DrawStore) -> None:
        """Two losses of one draw use both spares; the third is final. Every noisy output has a charge of its own."""
        for attempt in ("B", "C"):
            with pytest.raises(MemoryError):
                run_draw(ledger, draw_store, "r", "count", _current(ledger), _broken)
            ledger.take_lease("r", attempt)
        assert run_draw(ledger, draw_store, "r", "count", "C", _payload(b"third")) == b"third"
        assert run_draw(ledger, draw_store, "r", "count", "C", _never) == b"third"
        lost, committed = State.CHARGED_LOST, State.COMMITTED
        assert _states(ledger) | {"count": lost, "spare-1": lost, "spare-2": committed} == _states(ledger)
        assert [path.name for path in draw_store.folder.draws.iterdir()] == ["spare-2.C.draw"]
        with pytest.raises(MemoryError):
            run_draw(ledger, draw_store, "r", "level-1", "C", _broken)
        with pytest.raises(BudgetError, match="draw level-1 of release r was charged and lost"):
            run_draw(ledger, draw_store, "r", "level-1", "C", _never)

    @pytest.mark.parametrize(
        ("name", "replaces"),
        [("spare-1", None), ("spare-1", "count"), ("spare-1", "spare-2"), ("count", "level-1"), ("spare-1", "other")],
    )
    def test_a_spare_stands_for_a_lost_draw_only(self, ledger: Ledger, name: str, replaces: str | None) -> None:
        """A spare is begun for a planned draw that is lost and not replaced yet; other draws replace nothing."""
        with pytest.raises(BudgetError):
            ledger.begin_draw("r", name, "A", replaces=replaces)

    def test_one_spare_a_loss(self, ledger: Ledger) -> None:
        """A loss that a spare stands for already takes no second one."""
        ledger.begin_draw("r", "count", "A")
        ledger.lose_draw("r", "count", "A")
        ledger.begin_draw("r", "spare-1", "A", replaces="count")
        with pytest.raises(BudgetError, match="is not lost"):
            ledger.begin_draw("r", "spare-2", "A", replaces="count")


def _current(ledger: Ledger) -> str:
    record = ledger.release("r")
    assert record is not None
    assert record.lease is not None
    return record.lease
