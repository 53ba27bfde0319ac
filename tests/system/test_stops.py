"""A signal ends a long stage in two seconds, wherever its threads are, and the same command goes on from there."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.people_table import people
from tests.support.release_checks import RELEASED, opened

pytestmark = pytest.mark.system
LONG = {"method": "mixture", "components": 1500, "fits": 60, "iterations": 6}
"""Some ten seconds and more on two cores, whatever the noise is: a line comes after two."""


def test_a_signal_during_a_fit_ends_it_in_two_seconds_and_the_fit_is_resumed(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """At its first line of progress, which says models and passes alone; nothing is charged again."""
    cli = opened(marginweave, 3.0)
    path = people(tmp_path, aggregate={"method": "marginals", "cliques": {"all": 2}}, synthesize=LONG)
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
    sent = time.monotonic()
    out, said = process.communicate(timeout=20)
    assert time.monotonic() - sent < 2
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
        "text": f"model {number} of 60, {told['text'].split(', ')[1]}",
    }
    resumed = cli("run", path, "--run", "r")
    assert resumed.returncode == 0, resumed.stderr
    ended = json.loads(resumed.stdout.splitlines()[-1])
    assert not ended["charged_now"]
    assert {file.name for file in (cli.home / "runs" / "r" / "release").iterdir()} >= RELEASED
