"""The command line in a home of its own: the installed program as a process, or its commands in forks of this process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn

from marginweave.flows.prefect.environment import ANALYTICS_OFF
from marginweave.runs.home import service_directory
from tests.support.forks import Fork
from tests.support.places import INSTALLED

WITH_PREFECT = ("run", "resume", "approve", "reject", "serve", "supervise", "alert")
"""Commands that call Prefect's server, or start one."""


def prefect_database(home: Path) -> Path:
    return service_directory(home) / "prefect" / "prefect.db"


def settle(home: Path, database: Path) -> None:
    prefect_database(home).parent.mkdir(parents=True, mode=0o700)
    shutil.copyfile(database, prefect_database(home))


@dataclass(frozen=True)
class CommandLine:
    """`marginweave` as it is installed, with a home, a ledger and, if given, a server of its own."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """The whole environment of the process: nothing of the developer's own Prefect or ledger."""
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "MARGINWEAVE_"))
        }
        ours = {
            "MARGINWEAVE_HOME": str(self.home),
            "MARGINWEAVE_LEDGER": str(self.home / "ledger" / "ledger.sqlite"),
        }
        return {**kept, **ours, **self.environment}

    def command(self, *arguments: str | Path) -> list[str]:
        """The command as a list, for what is started and killed, or told apart by its process."""
        return [str(INSTALLED), *map(str, arguments)]

    def kill_after(self, config: Path, run: str, stage: str) -> None:
        """Begin a run and send it SIGKILL when it has told of the end of `stage`."""
        command = self.command("run", config, "--run", run)
        process = subprocess.Popen(
            command, cwd=self.home, env=self.variables, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line).get("stage") == stage:
                break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()

    def __call__(
        self, *arguments: str | Path, timeout: float = 400, umask: int = -1
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end, under the `umask` of this process unless one is given; standard output and error as text."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.home,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=timeout,
            umask=umask,
            check=False,
        )


class ForkedCommandLine(CommandLine):
    """The same commands without the start of a program, and without Prefect: runs call the stages as plain functions.

    A process that has imported everything is forked: a run takes half a second where the installed program and Prefect take
    five. What is said of a process, of its start or of Prefect is tested with the installed program.
    """

    def begin(self, *arguments: str | Path, umask: int = -1) -> Fork:
        """Begin a command."""
        return Fork(partial(self._do, [str(argument) for argument in arguments], umask))

    def __call__(
        self, *arguments: str | Path, timeout: float = 400, umask: int = -1
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end, as the installed program does."""
        begun = self.begin(*arguments, umask=umask)
        return subprocess.CompletedProcess(
            list(map(str, arguments)), begun.wait(timeout), begun.out, begun.err
        )

    def _do(self, arguments: list[str], umask: int) -> NoReturn:
        """Become the program."""
        from marginweave.flows.cli import main
        from tests.support.plain_runs import commands_without_prefect

        variables = self.variables
        os.environ.clear()
        os.environ.update(variables | ANALYTICS_OFF)
        os.chdir(self.home)
        if umask != -1:
            os.umask(umask)
        sys.argv = ["marginweave", *arguments]
        with commands_without_prefect():
            main()
        raise AssertionError("main ends the process")


class ServedCommandLine(ForkedCommandLine):
    """The installed program where a command calls Prefect's server; all others, which are forked, take a tenth of the time."""

    def __call__(
        self, *arguments: str | Path, timeout: float = 400, umask: int = -1
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end."""
        kind = CommandLine if str(arguments[0]) in WITH_PREFECT else ForkedCommandLine
        return kind.__call__(self, *arguments, timeout=timeout, umask=umask)
