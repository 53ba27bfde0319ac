"""`marginweave serve`: released by its schedule, killed in the middle, gone on with at the next start, nothing left behind."""

from __future__ import annotations

import datetime
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.people_table import people
from tests.support.production import documented, until
from tests.support.release_checks import RELEASED, opened, processes_of

pytestmark = pytest.mark.system


def started(cli: CommandLine, path: Path, due: datetime.datetime) -> subprocess.Popen[bytes]:
    """Start the documented service with this configuration and time in the place of its own."""
    cron = f"{due.minute} {due.hour} * * *"
    replaced = {"visits.yaml": str(path), "30 1 * * *": cron, "Europe/Oslo": "Asia/Kathmandu"}
    words = [word for word in documented("marginweave serve") if word != "clinics.yaml"]
    assert replaced.keys() <= {*words}
    command = cli.command(*[replaced.get(word, word) for word in words[1:]])
    with (cli.home / "serve.log").open("ab") as log:
        return subprocess.Popen(command, cwd=cli.home, env=cli.variables, stdout=log, stderr=log)


@pytest.mark.long  # cron knows no seconds: up to two minutes of waiting
def test_a_service_that_was_killed_goes_on_at_its_next_start(
    settled: CommandLine, tmp_path: Path
) -> None:
    """SIGKILL takes server and release with it; the next start finishes the same run; SIGTERM ends that with code 143."""
    # With room for a draw that the kill may hit: then, too, the release is finished.
    cli, path = opened(settled, 3.0), people(tmp_path)
    zone = datetime.timezone(datetime.timedelta(hours=5, minutes=45))
    now = datetime.datetime.now(zone)
    due = (now + datetime.timedelta(seconds=90)).replace(second=0)  # a server takes its time
    manifest = cli.home / "runs" / f"people-{due.date()}" / "manifest.json"

    service = started(cli, path, due)
    until(
        lambda: manifest.exists() and "encode" in json.loads(manifest.read_text())["stages"],
        pause=0.005,
    )
    os.kill(service.pid, signal.SIGKILL)
    service.wait()
    until(lambda: not processes_of(cli), 20)
    assert json.loads(manifest.read_text())["state"] == "running"

    service = started(cli, path, due)
    until(lambda: json.loads(manifest.read_text())["state"] == "finished")
    second = cli("serve", path, "--cron", "0 0 1 1 *")
    assert second.returncode == 1
    assert "is served by another process" in second.stderr
    lines = [
        line for line in (cli.home / "serve.log").read_text().splitlines() if line.startswith("{")
    ]
    assert json.loads(lines[-1])["event"] == "finished"
    service.terminate()
    assert service.wait(20) == 143
    until(lambda: not processes_of(cli), 5)
    assert {file.name for file in (manifest.parent / "release").iterdir()} == RELEASED
    said = (cli.home / "serve.log").read_text()
    assert "Traceback" not in said
    assert not [
        line
        for line in said.splitlines()
        if not line.startswith(("{", "Serving", "marginweave: stopped"))
    ]  # nothing of a library's


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--cron", "every night"], "--cron (every night) must be a cron expression"),
        (
            ["--cron", "0 1 * * *", "--timezone", "Mars/Olympus"],
            "--timezone (Mars/Olympus) must be the name of a time zone",
        ),
    ],
)
def test_a_timetable_that_cannot_be_read_is_refused(
    alone: CommandLine, tmp_path: Path, options: list[str], said: str
) -> None:
    refused = alone("serve", people(tmp_path), *options)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"marginweave: {said}")
    assert list(alone.home.iterdir()) == []


def test_a_port_that_somebody_has_is_refused(alone: CommandLine, tmp_path: Path) -> None:
    """Its answers would be taken for those of our server, and our schedule would stand there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = alone("serve", people(tmp_path), "--cron", "0 1 * * *", "--port", port)
    assert refused.returncode == 2
    assert refused.stderr == f"marginweave: port {port} is taken; choose another with --port\n"


def test_one_service_releases_a_dataset_once(alone: CommandLine, tmp_path: Path) -> None:
    path = people(tmp_path)
    refused = alone("serve", path, path, "--cron", "0 1 * * *")
    assert refused.returncode == 2
    assert "are both for dataset people" in refused.stderr
