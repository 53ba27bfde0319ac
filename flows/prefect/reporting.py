"""Progress in the log of a Prefect flow run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marginweave.base.progress import LISTENER

if TYPE_CHECKING:
    pass
from marginweave.runs.progress import _REPORTER, LogReporter, reporter


def report_to_prefect() -> None:
    """Report in the log of the flow run from now on."""
    from prefect import get_run_logger  # a command that makes no run needs no Prefect

    _REPORTER.set(LogReporter(get_run_logger().info))  # threads of a stage do not know their flow run
    LISTENER.set(reporter().advanced)
