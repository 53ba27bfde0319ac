"""A process that has made releases and asked them, and forks one child a command: `marginweave` without its start.

Importing Prefect, pyarrow, numba and the stages takes some 4 s of CPU, loading compiled kernels, fonts and
templates for the first time some more, and the tests type hundreds of commands. A child has the arguments, environment,
folder and streams of `tests.support.forked_cli`, which ends as the child does, and runs `marginweave.flows.cli.main`. Where the
environment says WITHOUT_PREFECT, stages are called as plain functions: half of the time, where Prefect is not what a test is
about. What is said of processes, of their start or of a server of their own is tested with the installed program.

Where it says KILLING, the child is `tests.support.run_fork_server`, which forks the runs that are killed, as warm as commands.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from marginweave.flows.prefect.environment import ANALYTICS_OFF

# What commands import when they run, beside the stages: Prefect's engines, what runs suites (4 s), tables of the examples.
IMPORTED = (
    "anyio._backends._asyncio", "fastapi.encoders", "great_expectations", "marginweave.flows.cli",
    "marginweave.flows.prefect.session", "prefect.artifacts", "prefect.concurrency._sync",
    "prefect.events.worker", "prefect.flow_engine", "prefect.task_engine", "prefect.utilities.visualization",
    "statsmodels.datasets",
)  # fmt: skip
# What the commands of the tests do for the first time is done once: kernels, templates, statements, modules.
WARMED_UP = (
    "check {config}", "plan {config}", "run {config} --run r", "query r --by sex --mean age", "table r sex region",
    "report r --to {home}/pages", "evaluate r", "synthesize r --to {home}/more", "runs",
    "ledger list", "ledger show people", "ledger verify",
)  # fmt: skip
REPOSITORY = Path(__file__).resolve().parents[2]  # this is run as a script, which finds no other module of tests
WITHOUT_PREFECT = "MARGINWEAVE_TESTS_WITHOUT_PREFECT"
KILLING = "MARGINWEAVE_TESTS_KILLING"


class Forking:
    """Accepts orders at a socket until standard input ends."""

    def __init__(self, place: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(place)
        self._listener.listen()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(sys.stdin, selectors.EVENT_READ, sys.exit)

    def serve(self) -> NoReturn:
        """Fork what is ordered, and tell how it ended."""
        while True:
            for key, _ in self._selector.select():
                key.data()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        _, streams, _, _ = socket.recv_fds(client, len(b"streams"), 3)
        with client.makefile() as written:
            order = json.loads(written.readline())
        pid = os.fork()
        if pid == 0:
            self._listener.close()
            client.close()
            _run(order, streams)
        for stream in streams:
            os.close(stream)
        ended = os.pidfd_open(pid)
        self._selector.register(ended, selectors.EVENT_READ, partial(self._tell, pid, ended, client))
        self._selector.register(client, selectors.EVENT_READ, partial(self._kill, pid, client))

    def _kill(self, pid: int, client: socket.socket) -> None:
        """Who ordered it has been killed, and so is what was ordered, unless it has just ended."""
        if client.fileno() >= 0:
            self._selector.unregister(client)
            client.close()
            os.kill(pid, signal.SIGKILL)

    def _tell(self, pid: int, ended: int, client: socket.socket) -> None:
        _, status = os.waitpid(pid, 0)
        self._selector.unregister(ended)
        os.close(ended)
        if client.fileno() >= 0:
            self._selector.unregister(client)
            with client, suppress(OSError):
                client.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _run(order: dict[str, Any], streams: list[int]) -> NoReturn:
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(order["folder"])
        os.environ.clear()
        os.environ.update(order["environment"] | ANALYTICS_OFF)
        sys.argv = ["marginweave", *order["arguments"]]
        from prefect.context import refresh_global_settings_context

        from marginweave.flows.cli import main
        from tests.support.plain_runs import commands_without_prefect  # imported by what has warmed up

        if WITHOUT_PREFECT not in os.environ:
            refresh_global_settings_context()  # those of the order's environment
        if KILLING in os.environ:
            from tests.support import run_fork_server

            run_fork_server.main()
            os._exit(0)
        with commands_without_prefect() if WITHOUT_PREFECT in os.environ else nullcontext():
            main()
    finally:
        os._exit(97)


@contextmanager
def forking(place: Path, environment: dict[str, str]) -> Iterator[Path]:
    """A `marginweave` for the time of the tests: a program whose commands are forked by a process in `environment`."""
    socket_, program = place / "socket", place / "marginweave"
    client = Path(__file__).with_name("forked_cli.py")
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{client}" "{socket_}" "$@"\n')
    program.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-P", __file__, socket_],  # a script, as the installed program is one
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield program
    process.stdin.close()
    process.wait(timeout=120)
    process.stdout.close()


def _warm_up(home: Path) -> None:
    """Type commands on two releases: without Prefect, whose threads a child would not have."""
    sys.path.insert(0, str(REPOSITORY))
    from marginweave.flows.cli.app import app
    from tests.support.kills import Victim
    from tests.support.people_table import people
    from tests.support.plain_runs import commands_without_prefect

    sys.path.remove(str(REPOSITORY))

    for method in ("k-tuples", "marginals"):
        place = home / method
        place.mkdir(parents=True)
        victim = Victim(home=place, config=people(place, 40, aggregate__method=method))
        # children have the environment of their orders
        os.environ.update({"MARGINWEAVE_HOME": str(place), "MARGINWEAVE_LEDGER": str(victim.ledger_file)})
        with (place / "log").open("w") as log, redirect_stdout(log), redirect_stderr(log), commands_without_prefect():
            for command in WARMED_UP:
                app(command.format(config=victim.config, home=place).split(), standalone_mode=False)


def main() -> None:
    """Import, make a release, say so, and serve."""
    os.environ.update(ANALYTICS_OFF)
    from marginweave.flows import release  # noqa: F401 - first: its module has its name

    for module in IMPORTED:
        importlib.import_module(module)
    _warm_up(Path(sys.argv[1]).with_name("warm"))
    gc.freeze()
    forking = Forking(sys.argv[1])
    os.write(1, b"ready\n")
    forking.serve()


if __name__ == "__main__":
    main()
