"""Whether a supervisor works is seen from outside: a file that grows old where it does not, and systemd's watchdog."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml
from httpx import ConnectError
from prefect.runner import Runner
from prefect.settings import (
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    PREFECT_HOME,
    get_current_settings,
    temporary_settings,
)

from marginweave.flows import service
from marginweave.flows.prefect import supervisor
from marginweave.flows.prefect.session import prefect_session
from marginweave.flows.prefect.supervisor import SIGN_OF_LIFE, SILENCE, supervise
from tests.support.places import REPOSITORY

OLD = 1_000_000_000.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Prefect's home, which nothing has made yet."""
    monkeypatch.setattr(supervisor, "LOOKS", 0.001)
    with temporary_settings({PREFECT_HOME: tmp_path / "prefect"}):
        yield tmp_path / "prefect"


def test_releases_give_signs_of_life_often_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below `serve` as in the shipped deployments: two in the time after which one without any counts as vanished."""
    heartbeats = list[float | None]()

    async def start(runner: Runner) -> None:
        heartbeats.append(runner._heartbeat_seconds)

    monkeypatch.setattr(Runner, "start", start)
    monkeypatch.setattr(supervisor, "supervise", lambda *_: None)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    service._run_until_stopped([], print)
    shipped = yaml.safe_load((REPOSITORY / "deployments" / "prefect.yaml").read_text())
    for deployment in shipped["deployments"]:
        environment = deployment["work_pool"]["job_variables"]["env"]
        heartbeats.append(float(environment["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"]))
    assert all(
        seconds is not None and 2 * seconds < SILENCE.total_seconds() for seconds in heartbeats
    )


def looks(monkeypatch: pytest.MonkeyPatch, *, away: bool = False, well: bool = True) -> list[str]:
    """What a supervisor says that looks three times."""
    stop, said, done = threading.Event(), list[str](), list[None]()

    def look(_: object) -> list[str]:
        done.append(None)
        if len(done) == 3:
            stop.set()
        if away:
            raise ConnectError("nobody listens")
        return []

    monkeypatch.setattr(supervisor.Supervisor, "look", look)
    supervise(stop, said.append, lambda: well)
    assert len(done) == 3
    return said


@pytest.mark.parametrize(("away", "well"), [(False, True), (True, True), (False, False)])
def test_the_file_is_as_old_as_the_last_look_at_a_server_that_answered(
    home: Path, monkeypatch: pytest.MonkeyPatch, away: bool, well: bool
) -> None:
    """Neither where the server is away nor where the service beside it hangs; and it is its owner's alone."""
    looks(monkeypatch)
    sign = home / SIGN_OF_LIFE
    assert sign.stat().st_mode & 0o077 == 0
    os.utime(sign, (OLD, OLD))
    assert (
        looks(monkeypatch, away=away, well=well)
        == ["Prefect's server does not answer. Trying again."] * away
    )
    assert (sign.stat().st_mtime > OLD) is (well and not away)


def test_a_disk_that_refuses_ends_no_supervisor(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write_text("in the way")
    looks(monkeypatch)


@pytest.mark.parametrize("away", [False, True])
def test_the_watchdog_hears_of_every_look(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    """Also while the server is away, which is no reason to start a supervisor anew."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        looks(monkeypatch, away=away)
        assert [systemd.recv(64) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        with pytest.raises(BlockingIOError):
            systemd.recv(64)


@pytest.mark.parametrize("asked", [None, 60])
def test_a_command_gives_signs_of_life_only_where_it_is_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int | None
) -> None:
    """Nobody looks whether it lives, and its flow run would end up to a second late."""
    monkeypatch.setattr(os, "environ", {**os.environ, "PREFECT_API_URL": "http://127.0.0.1:1/api"})
    earlier = (
        nullcontext()
        if asked is None
        else temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: asked})
    )
    with earlier, prefect_session(tmp_path, tmp_path / "log"):
        assert get_current_settings().flows.heartbeat_frequency == asked
