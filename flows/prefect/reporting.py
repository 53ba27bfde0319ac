"""Progress in the log of a flow run."""

from __future__ import annotations

from marginweave.runs.progress import LogReporter, report_to


def report_to_prefect() -> None:
    """Report in the log of the flow run from now on."""
    from prefect import get_run_logger  # a command that makes no run needs no Prefect

    report_to(LogReporter(get_run_logger().info))  # threads of a stage do not know their flow run
