"""The installed command line as a process, in a home of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from marginweave.runs.home import service_directory
from tests.support.places import INSTALLED


def prefect_database(home: Path) -> Path:
    return service_directory(home) / "prefect" / "prefect.db"


def settle(home: Path, database: Path) -> None:
    prefect_database(home).parent.mkdir(parents=True, mode=0o700)
    shutil.copyfile(database, prefect_database(home))


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
        command = [str(self.program), "run", str(config), "--run", run]
        process = subprocess.Popen(command, cwd=self.home, env=self.variables, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line).get("stage") == stage:
                break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.read()  # until nobody is left who could write: what is forked ends after who ordered it
        process.stdout.close()

    def __call__(
        self, *arguments: str | Path, timeout: float = 400, umask: int = -1
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end, under the `umask` of this process unless one is given; standard output and error as text."""
        return subprocess.run(
            [str(self.program), *map(str, arguments)],
            cwd=self.home,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=timeout,
            umask=umask,
            check=False,
        )
