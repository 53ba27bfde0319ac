"""Runs by the functions of the stages, without Prefect: in the process of a test, or where a command would start the flow."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from marginweave.flows.stages import run_in_process
from marginweave.runs.capabilities import RunReference
from marginweave.runs.lookup import record_stop_reason, run_lock
from marginweave.runs.preparation import prepare_run
from marginweave.runs.process_hardening import closed_to_others
from marginweave.runs.request import Request, read_request
from marginweave.tasks.stage import quiet


def run_plainly(home: Path, config: Path, run: str) -> Path:
    """The folder of a run that was made in this process."""
    request = read_request(config, run=run, source=None, home=home)
    with record_stop_reason(request.folder), run_lock(request.folder):
        private, _ = quiet("prepare")(prepare_run)(request)
        run_in_process(request, private)
    return request.folder.path


@contextmanager
def commands_without_prefect() -> Iterator[None]:
    """Inside, `marginweave run` and its like call the stages as plain functions, and need no server."""

    def release(request: Request, private: RunReference) -> None:
        with closed_to_others(), record_stop_reason(request.folder), run_lock(request.folder):
            run_in_process(request, private)

    with mock.patch.object(
        importlib.import_module("marginweave.flows.cli.run"), "_release", release
    ):
        yield
