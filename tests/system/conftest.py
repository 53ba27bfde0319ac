"""Real processes: the command line in homes of its own, with one Prefect server and one warm parent for most of the tests."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from marginweave.flows.prefect.environment import prepare_environment
from marginweave.flows.prefect.servers import prefect_server
from tests.support.browser import Browser, axe_source, browser
from tests.support.cli_fork_server import forking
from tests.support.cluster import Cluster, cluster
from tests.support.command_line import CommandLine, prefect_database, settle
from tests.support.firefox import Firefox, firefox
from tests.support.kills import ForkServer
from tests.support.postgres import Server, postgres_server
from tests.support.shapes import NewVictim, victims


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
            with closing(sqlite3.connect(prefect_database(shared))) as made, closing(sqlite3.connect(kept)) as copy:
                made.backup(copy)
    return kept


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
    environment = CommandLine(place, {"PREFECT_API_URL": server}).variables
    with forking(place, environment) as program:
        yield program


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


@pytest.fixture
def new_victim(tmp_path: Path) -> NewVictim:
    return victims(tmp_path)


@pytest.fixture(scope="session")
def parent(tmp_path_factory: pytest.TempPathFactory, server: str) -> Iterator[ForkServer]:
    """One warm parent for all runs that are killed or meet a fault, with nothing of the developer's own environment."""
    place = tmp_path_factory.mktemp("warm")
    started = ForkServer(victims(place), CommandLine(place, {"PREFECT_API_URL": server}).variables)
    yield started
    started.close()


@pytest.fixture(scope="module")
def database_server() -> Iterator[Server]:
    with postgres_server() as started:
        yield started


@pytest.fixture(scope="module")
def databases() -> Iterator[Cluster]:
    with cluster("superuser-word") as started:
        yield started


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core."""
    return axe_source(tmp_path_factory.mktemp("axe"))


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for the pages of one module."""
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def mozilla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    """The other browser, for the pages of one module."""
    with firefox(tmp_path_factory.mktemp("profile")) as opened:
        yield opened
