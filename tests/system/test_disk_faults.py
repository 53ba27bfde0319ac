"""A full disk and a read-only folder at every write: a typed error, nothing lost, and the run goes on when there is room."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marginweave.schemas.ledger import State
from tests.support.kills import Victim, WarmParent
from tests.support.people import people
from tests.support.warm_parent import FAULTS, LEASE
from tests.system.conftest import CommandLine, settle
from tests.system.test_kills import new_victim, parent, parents  # noqa: F401 - fixtures
from tests.system.test_release import opened

pytestmark = pytest.mark.system
NewVictim = Callable[..., Victim]
TOGETHER = ("synthetic.parquet", "synthetic.csv")  # both are open at once: a fault of one may show at the other first


def _mounted(kind: list[str], place: Path) -> bool:
    return subprocess.run(["mount", *kind, str(place)], check=False, capture_output=True).returncode == 0


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """A home whose `runs/` is a disk of 16 MB, or an ordinary folder where nothing may be mounted."""
    place = tmp_path / "home" / "runs"
    place.mkdir(parents=True)
    mounted = os.geteuid() == 0 and _mounted(["-t", "tmpfs", "-o", "size=16m", "tmpfs"], place)
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
        if name in TOGETHER:
            name = next((other for other in TOGETHER if other not in failed), name)
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


@pytest.fixture
def small(tmp_path: Path) -> Iterator[CommandLine]:
    """A command line whose home, Prefect's database and logs included, is a disk of 48 MB; the ledger is elsewhere."""
    home = tmp_path / "small"
    home.mkdir()
    if os.geteuid() or not _mounted(["-t", "tmpfs", "-o", "size=48m", "tmpfs"], home):
        pytest.skip("a disk of limited size can be mounted by root only")
    try:
        yield opened(CommandLine(home, {"MARGINWEAVE_LEDGER": str(tmp_path / "ledger" / "ledger.sqlite")}))
    finally:
        subprocess.run(["umount", "--lazy", str(home)], check=True)


def test_a_home_that_fills_in_mid_run_is_told_as_that(
    small: CommandLine, unused_database: Path, tmp_path: Path
) -> None:
    """Logs and Prefect's database can be written no more either: one line with the reason, and later the run goes on."""
    settle(small.home, unused_database)
    path = people(tmp_path)
    process = subprocess.Popen(
        small.command("run", path, "--run", "r"),
        cwd=tmp_path,
        env=small.variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["stage"] == "encode":
            process.send_signal(signal.SIGSTOP)  # nothing more is written before the disk is full
            FAULTS["full"](str(small.home))
            process.send_signal(signal.SIGCONT)
            break
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    (told,) = err.splitlines()
    assert told.endswith("cannot be written: No space left on device"), err
    assert "/runs/r/" in told  # the file of the run, not Prefect's
    (small.home / "ballast").unlink()
    again = small("run", path, "--run", "r")
    assert again.returncode == 0, again.stderr


def test_a_home_without_room_for_the_server_is_told_as_that(small: CommandLine, tmp_path: Path) -> None:
    """The run itself finds room, Prefect's new database does not."""
    path = people(tmp_path, 40, aggregate__reporting_length=2)
    FAULTS["full"](str(small.home))
    with (small.home / "ballast").open("r+b") as ballast:
        ballast.truncate((small.home / "ballast").stat().st_size - (256 << 10))
    full = small("run", path, "--run", "r")
    assert full.returncode == 1, full.stderr
    (told,) = full.stderr.splitlines()
    assert told.endswith("cannot be written: No space left on device"), full.stderr
    (small.home / "ballast").unlink()
    again = small("run", path, "--run", "r")
    assert again.returncode == 0, again.stderr
