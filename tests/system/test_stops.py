"""A signal ends a long stage, wherever its threads are, and the same command goes on from there."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.long_fit import LONG_FIT
from tests.support.people_table import people
from tests.support.release_checks import RELEASED, opened

pytestmark = pytest.mark.system


def test_a_signal_during_a_fit_ends_it_and_the_fit_is_resumed(
    served: CommandLine, tmp_path: Path
) -> None:
    """At its first line of progress, which says models and passes alone; nothing is charged again."""
    cli = opened(served, 3.0)
    path = people(tmp_path, **LONG_FIT)
    process = subprocess.Popen(
        cli.command("run", path, "--run", "r"),
        cwd=cli.home,
        env=cli.variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    told = next(line for line in map(json.loads, process.stdout) if line["event"] == "progress")
    process.send_signal(signal.SIGTERM)
    out, said = process.communicate(timeout=120)
    words = "marginweave: stopped by SIGTERM. Nothing is lost or charged twice: the same command resumes it\n"
    assert (said, process.returncode) == (words, 128 + signal.SIGTERM)
    (last,) = map(json.loads, out.splitlines())
    assert (last["event"], last["stage"], last["error"]) == ("stopped", "fit", "Stopped")
    assert told.pop("time")
    assert told.pop("seconds") >= 2
    number = told["text"].split()[1]
    assert told == {
        "event": "progress",
        "run": "r",
        "dataset": "people",
        "stage": "fit",
        "text": f"model {number} of 160, {told['text'].split(', ')[1]}",
    }
    resumed = cli("run", path, "--run", "r")
    assert resumed.returncode == 0, resumed.stderr
    *stages, ended = map(json.loads, resumed.stdout.splitlines())
    assert not ended["charged_now"]
    assert [
        line["charged"] for line in stages if line["event"] == "stage" and line["charged"]
    ] == []
    assert {file.name for file in (cli.home / "runs" / "r" / "release").iterdir()} >= RELEASED
