"""`marginweave server`: a Prefect server that stands in a home, for the runs of that home."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from marginweave.flows.prefect.servers import SERVER
from tests.support.command_line import CommandLine
from tests.support.people_table import people
from tests.support.prefect_api import ask
from tests.support.production import free_port
from tests.support.release_checks import opened

pytestmark = pytest.mark.system


def process_of(cli: CommandLine) -> int:
    """The process that `server status` names."""
    return int(re.findall(r"process (\d+)", ok(cli, "server", "status").stdout)[0])


def ok(cli: CommandLine, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """A command that ends well."""
    result = cli(*words)
    assert result.returncode == 0, result.stderr
    return result


def servers(home: Path) -> list[psutil.Process]:
    """Prefect servers of ours with this home."""
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended meanwhile
            if SERVER in one.cmdline() and one.environ().get("PREFECT_HOME", "").startswith(str(home)):
                found.append(one)
    return found


@pytest.mark.long  # the test below has a server that stands, too
def test_runs_use_the_server_of_their_home(settled: CommandLine, tmp_path: Path) -> None:
    """It outlives the command that started it, every run is in it, and stopping leaves nothing behind."""
    cli, path, port = opened(settled), people(tmp_path), str(free_port())
    refused = cli("server", "status")
    assert (refused.returncode, "server start" in refused.stdout) == (1, True)
    try:
        ok(cli, "server", "start", "--port", port)
        process = process_of(cli)
        assert psutil.pid_exists(process)
        assert f"http://127.0.0.1:{port}" in ok(cli, "runs").stdout
        ok(cli, "run", path, "--run", "one")
        assert [one.pid for one in servers(cli.home)] == [process]  # the run started none of its own, and left this one
        runs = ask(f"http://127.0.0.1:{port}/api", "/flow_runs/filter", {"flow_runs": {"name": {"any_": ["one"]}}})
        assert [run["state_type"] for run in runs] == ["COMPLETED"]
        assert port in ok(cli, "server", "start", "--port", str(free_port())).stdout  # the same one
        assert process_of(cli) == process
    finally:
        cli("server", "stop")
    assert not servers(cli.home)
    assert "No server" in ok(cli, "server", "stop").stdout


@pytest.mark.long  # a minute: the run waits for the server that was killed
def test_a_run_outlives_the_server_that_it_uses(settled: CommandLine, tmp_path: Path) -> None:
    """The server is killed in the middle of the run, which goes on with one of its own: one charge."""
    cli, path, port = opened(settled), people(tmp_path), str(free_port())
    ok(cli, "server", "start", "--port", port)
    run = subprocess.Popen(
        cli.command("run", path, "--run", "one"), cwd=cli.home, env=cli.variables, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    lines = [run.stdout.readline()]
    os.kill(process_of(cli), signal.SIGKILL)
    lines += run.stdout.readlines()
    assert run.wait(120) == 0, lines
    assert '"releases": 1,' in lines[-1]
    assert cli("server", "status").returncode == 1
    ended = time.monotonic() + 20
    while servers(cli.home) and time.monotonic() < ended:
        time.sleep(0.1)
    assert not servers(cli.home)


def test_what_stands_in_the_way_is_said(alone: CommandLine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = cli_error(alone, "server", "start", "--port", port)
        assert f"port {port} is taken" in refused
    named = CommandLine(alone.home, {"PREFECT_API_URL": "http://127.0.0.1:1/api"})
    assert "PREFECT_API_URL is set" in cli_error(named, "server", "start")
    assert not servers(alone.home)


def cli_error(cli: CommandLine, *words: str) -> str:
    """What a refused command says."""
    result = cli(*words)
    assert result.returncode == 2
    return result.stderr
