"""Real processes: the command line in homes of its own, with one Prefect server and one warm parent for most of the tests."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from marginweave.flows.orchestration.environment import prepare_environment, service_directory
from marginweave.flows.orchestration.server import prefect_server
from tests.support.cli_fork_server import forking

REPOSITORY = Path(__file__).resolve().parents[2]
INSTALLED = Path(sys.executable).parent / "marginweave"
EXAMPLES = REPOSITORY / "deployments" / "examples"
DATA = Path(os.environ.get("MARGINWEAVE_TEST_DATA", REPOSITORY.parent / "shared" / "data"))


@contextmanager
def _own_server(home: Path) -> Iterator[str]:
    before = dict(os.environ)
    os.environ.pop("PREFECT_API_URL", None)
    prepare_environment(home)
    try:
        with prefect_server(home / "server.log") as url:
            yield url
    finally:
        os.environ.clear()
        os.environ.update(before)


def _database(home: Path) -> Path:
    return service_directory(home) / "prefect" / "prefect.db"


@pytest.fixture(scope="session")
def unused_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prefect's database as its server makes it: 10 s of CPU, so one for all workers."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "unused"
    shared.mkdir(exist_ok=True)
    kept = shared / "prefect.db"
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            with _own_server(shared):
                pass
            with closing(sqlite3.connect(_database(shared))) as made, closing(sqlite3.connect(kept)) as copy:
                made.backup(copy)
    return kept


def settle(home: Path, database: Path) -> None:
    _database(home).parent.mkdir(parents=True, mode=0o700)
    shutil.copyfile(database, _database(home))


@pytest.fixture(scope="session")
def server(unused_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Prefect server that stands for the whole session."""
    place = tmp_path_factory.mktemp("prefect")
    settle(place, unused_database)
    with _own_server(place) as url:
        yield url


@pytest.fixture(scope="session")
def forked_program(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A `marginweave` that uses the session's server and is forked by a process that has imported everything."""
    place = tmp_path_factory.mktemp("forking")
    environment = CommandLine(place, {"PREFECT_API_URL": server, "MPLCONFIGDIR": str(place / "matplotlib")}).variables
    with forking(place, environment) as program:
        yield program


@dataclass(frozen=True)
class CommandLine:
    """`marginweave` as a process, with a home, a ledger and, if given, a server of its own."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict)
    program: Path = INSTALLED

    @property
    def variables(self) -> dict[str, str]:
        """The whole environment of the process: nothing of the developer's own Prefect or ledger."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "MARGINWEAVE_"))}
        ours = {"MARGINWEAVE_HOME": str(self.home), "MARGINWEAVE_LEDGER": str(self.home / "ledger" / "ledger.sqlite")}
        return {**kept, **ours, **self.environment}

    def command(self, *arguments: str | Path) -> list[str]:
        """The command as a list, of the installed program: for what is started and killed, or told apart by its process."""
        return [str(INSTALLED), *map(str, arguments)]

    def kill_after(self, config: Path, run: str, stage: str) -> None:
        """Begin a run and send it SIGKILL when it has told of the end of `stage`."""
        command = self.command("run", config, "--run", run)
        process = subprocess.Popen(command, cwd=self.home, env=self.variables, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["stage"] == stage:
                break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()

    def __call__(self, *arguments: str | Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run to the end; standard output and error as text."""
        return subprocess.run(
            [str(self.program), *map(str, arguments)],
            cwd=self.home,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


@pytest.fixture
def alone(tmp_path: Path) -> CommandLine:
    """A command line in a new home, that starts its own server where it needs one."""
    home = tmp_path / "home"
    home.mkdir()
    return CommandLine(home)


@pytest.fixture
def settled(alone: CommandLine, unused_database: Path) -> CommandLine:
    """The same where a server has been before, and need not make its database."""
    settle(alone.home, unused_database)
    return alone


@pytest.fixture
def marginweave(alone: CommandLine, server: str, forked_program: Path) -> CommandLine:
    """A command line that uses the session's server, and is forked where it is run to its end."""
    environment = {"PREFECT_API_URL": server, "PREFECT_HOME": str(alone.home / "prefect")}
    return CommandLine(alone.home, environment, forked_program)
