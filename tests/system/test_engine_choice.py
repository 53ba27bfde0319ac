"""`engine` of a configuration from the command line: processes of this machine, and a cluster that is not there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from marginweave.counts import cluster
from marginweave.flows.cli.app import _invoke
from tests.support.command_line import CommandLine
from tests.support.places import EXAMPLES

pytestmark = pytest.mark.system


@pytest.mark.long  # half a minute; a worker of a cluster counts in a process as well
def test_a_release_on_processes(served: CommandLine, tmp_path: Path) -> None:
    """`engine: {dask: local}` from the command line: the release is made, Dask says nothing and leaves nothing."""
    place = tmp_path / "affairs.yaml"
    place.write_text((EXAMPLES / "affairs.yaml").read_text() + "\nengine: {dask: local}\n")
    run = served("run", place, timeout=240)  # Dask's processes are spawned by a program
    output = run.stdout + run.stderr
    assert run.returncode == 0, output
    assert "distributed" not in output
    assert not list(served.home.rglob("scratch-*"))


@pytest.mark.long  # waits for what is not there
def test_a_cluster_that_is_not_there_costs_nothing(
    served: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is told before anything is charged; the same run goes on where the file names another engine."""
    place = tmp_path / "affairs.yaml"
    text = (EXAMPLES / "affairs.yaml").read_text()
    place.write_text(text + '\nengine: {dask: "tcp://127.0.0.1:1"}\n')
    # the command in this process, which waits for less than half a minute
    with monkeypatch.context() as here:
        here.setattr(cluster, "_PATIENCE", "1s")
        here.setattr(sys, "argv", ["marginweave", "run", str(place), "--run", "one"])
        for name, value in served.variables.items():
            here.setenv(name, value)
        code = _invoke()
    told = capsys.readouterr()
    assert (code, "cannot be reached" in told.err) == (1, True), told
    (release,) = (served.home / "runs").iterdir()
    assert not list((release / "private" / "draws").glob("*"))
    assert '"charged": ["' not in told.out
    place.write_text(text)
    assert served("run", place, "--run", "one", timeout=240).returncode == 0
