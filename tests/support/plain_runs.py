"""Runs in the process of a test, by the functions of the stages, without Prefect."""

from __future__ import annotations

from pathlib import Path

from marginweave.flows.stages import run_in_process
from marginweave.runs.lookup import record_stop_reason, run_lock
from marginweave.runs.preparation import prepare_run
from marginweave.runs.request import read_request
from marginweave.tasks.stage import quiet


def run_plainly(home: Path, config: Path, run: str) -> Path:
    """The folder of a run that was made in this process."""
    request = read_request(config, run=run, source=None, home=home)
    with record_stop_reason(request.folder), run_lock(request.folder):
        private, _ = quiet("prepare")(prepare_run)(request)
        run_in_process(request, private)
    return request.folder.path
