"""What a run does while Prefect's server starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from marginweave.base.progress import LISTENER, listener
from marginweave.configuration.release import Configuration
from marginweave.flows.cli import run as run_command
from marginweave.flows.prefect import servers
from tests.support.command_line import CommandLine
from tests.support.configurations import configuration
from tests.support.people_table import people
from tests.support.release_checks import opened

pytestmark = pytest.mark.system

# Prints what was compiled or loaded after the rehearsal.
RELEASE = """
import sys
from pathlib import Path
from numba.core.dispatcher import Dispatcher
from marginweave import Synthesizer
from marginweave.configuration.load import load_configuration
from marginweave.runs.rehearsal import rehearse

def called():
    modules = [m for name, m in list(sys.modules.items()) if name.startswith("marginweave")]
    steps = {step for m in modules for step in vars(m).values() if isinstance(step, Dispatcher)}
    return {(step.py_func.__qualname__, types) for step in steps for types in step.signatures}

config = Path(sys.argv[1])
rehearse(load_configuration(config))
rehearsed = called()
Synthesizer(config, verbose=False).fit(config.with_name("people.csv"))
print(len(rehearsed) > 5, sorted(map(str, called() - rehearsed)))
"""


def test_a_server_starts_while_something_else_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the start of the process of the server, and before anybody waits for its answer."""
    happened: list[str] = []
    server = mock.Mock()
    server.poll.return_value = None

    def start(*_: object, **__: object) -> mock.Mock:
        happened.append("start")
        return server

    def answers(*_: object) -> bool:
        happened.append("answer")
        return True

    def rehearse() -> None:
        happened.append("rehearsal")

    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setattr(servers, "_start_process", start)
    monkeypatch.setattr(servers, "answers", answers)
    with servers.prefect_server(tmp_path / "server.log", meanwhile=rehearse):
        assert happened == ["start", "rehearsal", "answer"]


def test_nothing_is_reported_of_a_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit of the rehearsal looked like that of the release, before it had begun."""
    heard: list[str] = []
    monkeypatch.setattr("marginweave.runs.rehearsal.rehearse", lambda _: listener()("pass 1"))
    request: Any = SimpleNamespace(configuration=configuration())
    token = LISTENER.set(heard.append)
    try:
        run_command._rehearse(request)
        listener()("of the release")
    finally:
        LISTENER.reset(token)
    assert heard == ["of the release"]


def test_a_disk_that_refuses_compiled_code_ends_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(given: Configuration) -> None:
        asked.append(given.dataset)
        raise OSError

    monkeypatch.setattr("marginweave.runs.rehearsal.rehearse", refuse)
    request: Any = SimpleNamespace(configuration=configuration())
    run_command._rehearse(request)
    assert asked == ["people"]


@pytest.mark.parametrize("method", ["k-tuples", "marginals"])
def test_a_release_calls_nothing_that_was_not_rehearsed(
    alone: CommandLine, tmp_path: Path, method: str
) -> None:
    """Each step with the same types of its arguments: numba compiles for others when it meets them."""
    config = people(tmp_path, aggregate__method=method)
    opened(alone)
    done = subprocess.run(
        [sys.executable, "-c", RELEASE, config],
        env=alone.variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "True []\n"), done.stderr
