"""One attempt at a time may draw, commit, name a file and publish; who takes over makes the same bytes."""

from __future__ import annotations

import os

import pytest

from marginweave.accounting.records import State
from marginweave.base.durable import StagedFile
from marginweave.base.errors import BudgetError, MachineError
from marginweave.draws.files import DrawStore
from marginweave.draws.protocol import Attempt, PreparedDraw, run_draw
from marginweave.ledger import Ledger
from marginweave.mechanisms.randomness import DrawBits
from tests.support.draws import (
    draw_of_bits,
    never_made,
    prepared_draw,
    secrets_of,
    settle_begun,
    take_part,
)
from tests.support.releases import PROGRAM


def _noise(bits: DrawBits, noise: bytes) -> bytes:
    return b"noise"


def _states(ledger: Ledger) -> dict[str, State]:
    record = ledger.releases.find("r")
    assert record is not None
    return {draw.name: draw.state for draw in record.draws}


def _takeover_in_the_draw(ledger: Ledger, store: DrawStore, made: list[bytes]) -> PreparedDraw:
    def slow(bits: DrawBits, noise: bytes) -> bytes:
        ledger.draws.take_lease("r", "B")
        settle_begun(ledger, store, "B")
        made.append(draw_of_bits(bits, noise))
        return made[0]

    return prepared_draw(make=slow)


def test_a_zombie_leaves_neither_a_commit_nor_a_file(ledger: Ledger, draw_store: DrawStore) -> None:
    """An attempt that is taken over in its draw finds its file gone and its lease stale; the newcomer makes its very bytes."""
    made: list[bytes] = []
    with pytest.raises((BudgetError, MachineError), match=r"taken over|cannot be written"):
        take_part(ledger, draw_store, "count", "A", _takeover_in_the_draw(ledger, draw_store, made))
    assert _states(ledger)["count"] == State.DRAWN
    assert list(draw_store.folder.draws.iterdir()) == []
    attempt = Attempt(release="r", lease="A", program=PROGRAM)
    with pytest.raises(BudgetError, match="taken over"):
        run_draw(
            ledger.draws,
            draw_store,
            secrets_of(draw_store),
            attempt,
            "level-1",
            prepared_draw(make=never_made),
        )
    assert [take_part(ledger, draw_store, "count", "B", prepared_draw())] == made


def test_a_stale_lease_is_noticed_before_the_file_has_its_name(
    ledger: Ledger, draw_store: DrawStore
) -> None:
    """The newcomer has taken the lease and done nothing else yet: the zombie's noise gets no name all the same."""

    def slow(bits: DrawBits, noise: bytes) -> bytes:
        ledger.draws.take_lease("r", "B")
        return draw_of_bits(bits, noise)

    with pytest.raises(BudgetError, match="taken over"):
        take_part(ledger, draw_store, "count", "A", prepared_draw(make=slow))
    assert list(draw_store.folder.draws.iterdir()) == []


@pytest.mark.parametrize("moment", ["before the check", "between check and link", "after the link"])
def test_a_zombie_cannot_rename_after_the_takeover(
    ledger: Ledger, draw_store: DrawStore, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The takeover falls before the lease is checked, right before the link, or after it: no file, no file, adopted."""
    link = os.link

    def takeover() -> None:
        ledger.draws.take_lease("r", "B")
        settle_begun(ledger, draw_store, "B")

    if moment == "before the check":
        write = StagedFile.write

        def late(staged: StagedFile, data: bytes) -> None:
            write(staged, data)
            if staged.path.suffix == ".draw":
                takeover()

        monkeypatch.setattr(StagedFile, "write", late)
    else:

        def linking(source: object, target: object) -> None:
            drawn = str(target).endswith(".draw")
            if drawn and moment == "between check and link":
                takeover()
            link(source, target)  # pyright: ignore[reportArgumentType]
            if drawn and moment == "after the link":
                takeover()

        monkeypatch.setattr(os, "link", linking)
    with pytest.raises(
        (BudgetError, MachineError), match=r"taken over|cannot be written|cannot become"
    ):
        take_part(ledger, draw_store, "count", "A", prepared_draw(make=_noise))
    files = [path.name for path in draw_store.folder.draws.iterdir()]
    if moment == "after the link":
        assert _states(ledger)["count"] == State.COMMITTED
        assert sorted(files) == ["count.A.copy", "count.A.draw"]
        assert (
            take_part(ledger, draw_store, "count", "B", prepared_draw(make=never_made)) == b"noise"
        )
    else:
        assert _states(ledger)["count"] == State.DRAWN
        assert files == []


def test_removal_takes_temporary_files_first(
    ledger: Ledger, draw_store: DrawStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zombie that links while the newcomer removes does not leave its file behind."""
    ledger.draws.begin("r", "count", "A", {})
    with draw_store.room("count", "A", 10) as (staged, _):
        staged.write(b"noise")
        ledger.draws.take_lease("r", "B")
        unlink = type(staged.path).unlink

        def racing(path: object, missing_ok: bool = False) -> None:
            if staged.temporary.exists() and not staged.path.exists():
                os.link(staged.temporary, staged.path)  # the zombie, in the middle of the removal
            unlink(path, missing_ok)  # pyright: ignore[reportArgumentType]

        monkeypatch.setattr(type(staged.path), "unlink", racing)
        draw_store.destroy("count", "A")
        monkeypatch.undo()
    assert list(draw_store.folder.draws.iterdir()) == []


def test_a_lease_is_taken_once_and_not_after_publication(ledger: Ledger) -> None:
    """A stale lease cannot come back, the current one is taken again for nothing, and a finished release has no attempts."""
    ledger.draws.take_lease("r", "B")
    rows = ledger.verify()
    ledger.draws.take_lease("r", "B")
    assert ledger.verify() == rows
    with pytest.raises(BudgetError, match="must be new"):
        ledger.draws.take_lease("r", "A")
    ledger.draws.return_unused("r", ["count", "level-1", "level-2"])
    with pytest.raises(BudgetError, match="taken over"):
        ledger.releases.publish("r", "A", {"release/a.csv": "0" * 64})
    ledger.releases.publish("r", "B", {"release/a.csv": "0" * 64})
    with pytest.raises(BudgetError, match="is published"):
        ledger.draws.take_lease("r", "C")
