"""A full disk and a read-only folder at every write: a typed error, nothing lost, and the run goes on when there is room."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from marginweave.accounting.records import State
from marginweave.base.errors import BudgetError
from marginweave.ledger import Ledger
from tests.support.command_line import CommandLine, settle
from tests.support.forked_runs import FAULTS, LEASE, ForkedRuns
from tests.support.kills import Victim
from tests.support.people_table import people
from tests.support.release_checks import opened
from tests.support.releases import ACCOUNT, reserve_release, small_plan
from tests.support.samples import every

pytestmark = pytest.mark.system
# both are open at once: a fault of one may show at the other first
TOGETHER = ("synthetic.parquet", "synthetic.csv")


def _mounted(kind: list[str], place: Path) -> bool:
    return (
        subprocess.run(["mount", *kind, str(place)], check=False, capture_output=True).returncode
        == 0
    )


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


@pytest.mark.parametrize("kind", every(2, ["full", "read-only"]))
def test_every_write_may_fail_once(forks: ForkedRuns, runs: Path, kind: str) -> None:
    """The fault moves from one file to the next: each attempt stops with a typed error, and no draw is ever lost."""
    if not runs.is_mount():
        kind = {"full": "size limit", "read-only": "forbidden"}[kind]
    home = runs.parent
    victim = Victim(
        home=home,
        config=people(home, 40, aggregate__reporting_length=2, publish__keep_private=True),
    )
    failed: list[str] = []
    while True:
        answer = forks.ask(victim.order(fault=[kind, failed, str(runs)]))
        _mend(runs, kind)
        victim.check()
        if answer.code == 0:
            break
        assert answer.code in (1, 3), answer
        assert "cannot be " in answer.message, answer
        name = LEASE.sub("", Path(answer.message.split(" cannot be ")[0]).name)
        if name in TOGETHER:
            name = next((other for other in TOGETHER if other not in failed), name)
        assert name not in failed, answer
        failed.append(name)
    victim.check_finished()
    # request, manifest, checkpoints, draws, and the released files
    assert len(failed) >= 20, failed
    record = victim.record()
    assert record is not None
    assert {draw.state for draw in record.draws} == {State.COMMITTED}
    assert victim.makes.read_text().count("made ") == len(record.draws)


@pytest.mark.parametrize("draw", every(2, [3, 1, 5], first=1))
def test_a_disk_that_fills_after_the_charge_loses_no_draw(
    forks: ForkedRuns, runs: Path, draw: int
) -> None:
    """Room for a draw is set aside before it is charged, so that its bytes are kept when the disk is full."""
    if not runs.is_mount():
        pytest.skip("a disk of limited size can be mounted by root only")
    home = runs.parent
    victim = Victim(home=home, config=people(home, 40, aggregate__reporting_length=2))
    answer = forks.ask(victim.order(fault=["full", draw, str(runs)]))
    assert answer.code == 1, answer
    assert "No space left on device" in answer.message
    victim.check()
    _mend(runs, "full")
    assert forks.ask(victim.order()).code == 0
    victim.check_finished()
    record = victim.record()
    assert record is not None
    assert {draw.state for draw in record.draws} == {State.COMMITTED}


@pytest.fixture
def cramped(tmp_path: Path) -> Iterator[Path]:
    """A home whose ledger is to be on a disk of 768 kB."""
    home = tmp_path / "cramped"
    (home / "ledger").mkdir(parents=True)
    if os.geteuid() or not _mounted(["-t", "tmpfs", "-o", "size=768k", "tmpfs"], home / "ledger"):
        pytest.skip("a disk of limited size can be mounted by root only")
    try:
        yield home
    finally:
        subprocess.run(["umount", str(home / "ledger")], check=True)


def test_a_ledger_without_room_loses_no_draw(forks: ForkedRuns, cramped: Path) -> None:
    """The ledger's own disk is full between charge and commit: what was begun is committed, and nothing more is begun."""
    victim = Victim(home=cramped, config=people(cramped, 40, aggregate__reporting_length=2))
    for number in (1, 1, 1):
        answer = forks.ask(victim.order(fault=["full", number, str(cramped / "ledger")]))
        _mend(cramped / "ledger", "full")
        victim.check()
        # it was the last draw, and the room that was set aside held the publication as well
        if answer.code == 0:
            break
        assert answer.code == 3, answer
        assert "the disk of the ledger" in answer.message
        assert "is full" in answer.message
        record = victim.record()
        assert record is not None
        assert {draw.state for draw in record.draws} <= {State.COMMITTED, State.RESERVED}
    assert forks.ask(victim.order()).code == 0
    victim.check_finished()
    record = victim.record()
    assert record is not None
    assert {draw.state for draw in record.draws} == {State.COMMITTED}
    assert victim.makes.read_text().count("made ") == len(record.draws)


def test_the_rows_of_a_draw_that_was_begun_find_room(cramped: Path) -> None:
    """With every byte of the disk taken after the charge, the lease is read and the draw committed; then `full` is said."""
    place = cramped / "ledger" / "ledger.sqlite"
    ledger = Ledger.create(place, environment={})
    ledger.accounts.open(ACCOUNT, actor="steward")
    reserve_release(ledger, small_plan())
    ledger.draws.take_lease("first", "lease")
    ledger.draws.begin("first", "count", "lease")
    FAULTS["full"](str(place.parent))
    assert ledger.accounts.totals()[0].spent.releases == 1
    assert place.with_name("ledger.reserve").exists()  # reading has not used it
    ledger.draws.check_lease("first", "lease")
    ledger.draws.commit("first", "count", "lease", "ab", tainted=False)
    FAULTS["full"](str(place.parent))
    for move in (
        lambda: ledger.draws.begin("first", "level-1", "lease"),
        lambda: reserve_release(ledger, small_plan(), "second"),
        lambda: ledger.accounts.change_cap("affairs", 2.0, 1e-6, "more", "steward"),
    ):
        with pytest.raises(BudgetError, match=r"the disk of the ledger .* is full"):
            move()
    again = Ledger.open(place, environment={}).releases.find("first")
    assert again is not None
    assert [draw.state for draw in again.draws] == [State.COMMITTED, State.RESERVED, State.RESERVED]
    _mend(place.parent, "full")
    ledger.draws.begin("first", "level-1", "lease")
    assert place.with_name("ledger.reserve").stat().st_size >= 1 << 18


def test_a_full_ledger_is_listed(cramped: Path, served: CommandLine) -> None:
    """Reading needs no room, and what writes says that there is none; nothing was set aside either."""
    place = cramped / "ledger" / "ledger.sqlite"
    ledger = Ledger.create(place, environment={})
    ledger.accounts.open(ACCOUNT, actor="steward")
    place.with_name("ledger.reserve").unlink()
    FAULTS["full"](str(place.parent))
    cli = replace(served, environment={**served.environment, "MARGINWEAVE_LEDGER": str(place)})
    listed = cli("ledger", "list")
    assert (listed.returncode, listed.stdout[:8]) == (0, "affairs:"), listed.stderr
    opened_ = cli("ledger", "open", "visits", "--epsilon", "1", "--delta", "1e-6")
    assert opened_.returncode == 3
    assert "the disk of the ledger" in opened_.stderr
    assert "is full" in opened_.stderr


@pytest.fixture
def small(served: CommandLine, tmp_path: Path) -> Iterator[CommandLine]:
    """A command line whose home, Prefect's database and logs included, is a disk of 48 MB; the ledger is elsewhere."""
    home = tmp_path / "small"
    home.mkdir()
    if os.geteuid() or not _mounted(["-t", "tmpfs", "-o", "size=48m", "tmpfs"], home):
        pytest.skip("a disk of limited size can be mounted by root only")
    try:
        ledger = {"MARGINWEAVE_LEDGER": str(tmp_path / "ledger" / "ledger.sqlite")}
        opened(replace(served, home=home, environment=ledger))
        yield CommandLine(home, ledger)
    finally:
        subprocess.run(["umount", "--lazy", str(home)], check=True)


def _elsewhere(served: CommandLine, small: CommandLine) -> CommandLine:
    """The same home and ledger with a server that keeps its database elsewhere."""
    return replace(served, home=small.home, environment={**served.environment, **small.environment})


@pytest.mark.long  # every write may fail once, below
def test_a_home_that_fills_in_mid_run_is_told_as_that(
    small: CommandLine, served: CommandLine, unused_database: Path, tmp_path: Path
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
        if json.loads(line).get("stage") == "encode":
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
    again = _elsewhere(served, small)("run", path, "--run", "r")
    assert again.returncode == 0, again.stderr


@pytest.mark.long
def test_a_home_without_room_for_the_server_is_told_as_that(
    small: CommandLine, served: CommandLine, tmp_path: Path
) -> None:
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
    again = _elsewhere(served, small)("run", path, "--run", "r")
    assert again.returncode == 0, again.stderr
