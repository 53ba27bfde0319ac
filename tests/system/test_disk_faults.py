"""A full disk and a read-only folder at every write: a typed error, nothing lost, and the run goes on when there is room."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marginweave.schemas.ledger import State
from tests.support.kills import Victim, WarmParent
from tests.support.warm_parent import LEASE
from tests.system.test_kills import new_victim, parent, parents  # noqa: F401 - fixtures
from tests.system.test_release import people

pytestmark = pytest.mark.system
NewVictim = Callable[..., Victim]


def _mounted(kind: list[str], place: Path) -> bool:
    return subprocess.run(["mount", *kind, str(place)], check=False, capture_output=True).returncode == 0


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """A home whose `runs/` is a disk of 4 MB, or an ordinary folder where nothing may be mounted."""
    place = tmp_path / "home" / "runs"
    place.mkdir(parents=True)
    mounted = os.geteuid() == 0 and _mounted(["-t", "tmpfs", "-o", "size=4m", "tmpfs"], place)
    try:
        yield place
    finally:
        while mounted and place.is_mount():
            subprocess.run(["umount", str(place)], check=True)


def _mend(place: Path, kind: str) -> None:
    if kind == "full":
        (place / "ballast").unlink(missing_ok=True)
    elif kind == "read-only" and not os.access(place, os.W_OK):
        subprocess.run(["umount", str(place)], check=True)
    elif kind == "forbidden":
        place.chmod(0o700)


@pytest.mark.parametrize("kind", ["full", "read-only"])
def test_every_write_may_fail_once(parent: WarmParent, runs: Path, kind: str) -> None:  # noqa: F811
    """The fault moves from one file to the next: each attempt stops with a typed error, and no draw is ever lost."""
    if not runs.is_mount():
        kind = {"full": "size limit", "read-only": "forbidden"}[kind]
    home = runs.parent
    victim = Victim(home=home, config=people(home, 40, aggregate__reporting_length=2, publish__keep_private=True))
    failed: list[str] = []
    while True:
        answer = parent.ask(victim.order(fault=[kind, failed, str(runs)]))
        _mend(runs, kind)
        victim.check()
        if answer["code"] == 0:
            break
        assert answer["code"] in (1, 3), answer
        assert "cannot be " in answer["message"], answer
        name = LEASE.sub("", Path(answer["message"].split(" cannot be ")[0]).name)
        assert name not in failed, answer
        failed.append(name)
    victim.check_finished()
    assert len(failed) >= 20, failed  # request, manifest, checkpoints, draws, and the released files
    record = victim.record()
    assert record is not None
    assert {draw.state for draw in record.draws} == {State.COMMITTED}
    assert len(victim.makes.read_text().splitlines()) == len(record.draws)


@pytest.mark.parametrize("draw", [1, 3, 5])
def test_a_disk_that_fills_after_the_charge_loses_no_draw(parent: WarmParent, runs: Path, draw: int) -> None:  # noqa: F811
    """Room for a draw is set aside before it is charged, so that its bytes are kept when the disk is full."""
    if not runs.is_mount():
        pytest.skip("a disk of limited size can be mounted by root only")
    home = runs.parent
    victim = Victim(home=home, config=people(home, 40, aggregate__reporting_length=2))
    answer = parent.ask(victim.order(fault=["full", draw, str(runs)]))
    assert answer["code"] == 1, answer
    assert "No space left on device" in answer["message"]
    victim.check()
    _mend(runs, "full")
    assert parent.ask(victim.order())["code"] == 0
    victim.check_finished()
    record = victim.record()
    assert record is not None
    assert {draw.state for draw in record.draws} == {State.COMMITTED}


def test_a_ledger_without_room_books_what_it_could_not_commit(parent: WarmParent, tmp_path: Path) -> None:  # noqa: F811
    """The ledger's own disk is full between charge and commit: exit 3; a draw that could not be fenced is booked lost."""
    home = tmp_path / "home"
    (home / "ledger").mkdir(parents=True)
    if os.geteuid() or not _mounted(["-t", "tmpfs", "-o", "size=512k", "tmpfs"], home / "ledger"):
        pytest.skip("a disk of limited size can be mounted by root only")
    try:
        settings = {"aggregate__reporting_length": 2, "privacy__redraws": 3}
        victim = Victim(home=home, config=people(home, 40, **settings))
        for number in (1, 3):
            answer = parent.ask(victim.order(fault=["full", number, str(home / "ledger")]))
            _mend(home / "ledger", "full")
            victim.check()
            assert answer["code"] == 3, answer
            assert "the ledger" in answer["message"]
        assert parent.ask(victim.order())["code"] == 0
        victim.check_finished()
    finally:
        subprocess.run(["umount", str(home / "ledger")], check=True)
