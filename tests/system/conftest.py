"""The command line in homes of its own: installed, with one Prefect server for all, or forked from a warm process of tests."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import pytest

from marginweave.flows.prefect.environment import prepare_environment
from marginweave.flows.prefect.servers import prefect_server
from tests.support.browser import AXE, Browser, browser, fetch_axe
from tests.support.cluster import Cluster, cluster
from tests.support.command_line import (
    CommandLine,
    ForkedCommandLine,
    ServedCommandLine,
    prefect_database,
    settle,
)
from tests.support.firefox import Firefox, firefox
from tests.support.forked_runs import ForkedRuns
from tests.support.people_table import people
from tests.support.plain_runs import commands_without_prefect
from tests.support.postgres import Server, postgres_server
from tests.support.shapes import NewVictim, victims
from tests.support.shared import made_once, shared_folder, started_once

NOWHERE = "http://127.0.0.1:9/api"  # a port on which nobody listens
# What commands do for the first time is done before any is forked: kernels, templates, statements, modules.
WARMED_UP = (
    "ledger open people --epsilon 50 --delta 1e-4",
    *(
        "check {config}",
        "plan {config}",
        "run {config} --run r",
        "query r --by sex --mean age",
        "table r sex region",
    ),
    *(
        "report r --to {home}/pages",
        "evaluate r",
        "synthesize r --to {home}/more",
        "runs",
        "ledger list",
    ),
    *("ledger show people", "ledger verify"),
)


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
def unused_database(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prefect's database as its server makes it: 20 s of CPU, so kept for all workers, and for later runs of the suite."""

    def make(folder: Path) -> None:
        home = tmp_path_factory.mktemp("unused")
        with _own_server(home):
            pass
        with (
            closing(sqlite3.connect(prefect_database(home))) as made,
            closing(sqlite3.connect(folder / "prefect.db")) as copy,
        ):
            made.backup(copy)

    cache = pytestconfig.cache
    assert cache is not None
    return made_once(cache.mkdir(f"prefect-{version('prefect')}"), make) / "prefect.db"


@pytest.fixture(scope="session")
def server_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the Prefect server of all workers has its database and its log."""
    return shared_folder(tmp_path_factory, "prefect")


@pytest.fixture(scope="session")
def server(unused_database: Path, server_folder: Path) -> Iterator[str]:
    """URL of a Prefect server that stands for the whole run of the suite, one for all workers."""

    @contextmanager
    def start(folder: Path) -> Iterator[str]:
        settle(folder, unused_database)
        with _own_server(folder) as url:
            yield url

    with started_once(server_folder, start) as url:
        yield url


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Make a release by each method in this process, and ask it, so that what is forked from it is quick."""
    from marginweave.flows.cli.app import app

    for method in ("k-tuples", "marginals"):
        home = tmp_path_factory.mktemp("warm")
        config = people(home, 40, aggregate__method=method)
        with (
            (home / "log").open("w") as log,
            mock.patch.dict(os.environ, CommandLine(home).variables),
            redirect_stdout(log),
            redirect_stderr(log),
            commands_without_prefect(),
        ):
            for command in WARMED_UP:
                app(command.format(config=config, home=home).split(), standalone_mode=False)


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
def marginweave(alone: CommandLine, warm: None) -> ForkedCommandLine:
    """A forked command line that calls the stages without Prefect; whatever looked for its server would fail."""
    return ForkedCommandLine(
        alone.home, {"PREFECT_API_URL": NOWHERE, "PREFECT_HOME": str(alone.home / "prefect")}
    )


@pytest.fixture
def paged(alone: CommandLine, server: str, warm: None) -> ForkedCommandLine:
    """For pages: blocks of commands are forked, without Prefect; blocks of shell and Python have the server of the suite."""
    return ForkedCommandLine(
        alone.home, {"PREFECT_API_URL": server, "PREFECT_HOME": str(alone.home / "prefect")}
    )


@pytest.fixture
def served(alone: CommandLine, server: str, warm: None) -> CommandLine:
    """The installed command line with the server of the suite: where Prefect, or the flow as it runs it, matters."""
    return ServedCommandLine(
        alone.home, {"PREFECT_API_URL": server, "PREFECT_HOME": str(alone.home / "prefect")}
    )


@pytest.fixture
def new_victim(tmp_path: Path) -> NewVictim:
    return victims(tmp_path)


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory, warm: None) -> ForkedRuns:
    """What does all runs that are killed or meet a fault."""
    return ForkedRuns(victims(tmp_path_factory.mktemp("calm")))


@pytest.fixture(scope="module")
def database_server() -> Iterator[Server]:
    with postgres_server() as started:
        yield started


@pytest.fixture(scope="module")
def databases() -> Iterator[Cluster]:
    with cluster("superuser-word") as started:
        yield started


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core."""
    return (made_once(shared_folder(tmp_path_factory, "axe"), fetch_axe) / AXE).read_text(
        encoding="utf-8"
    )


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
