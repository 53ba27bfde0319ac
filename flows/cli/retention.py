"""`marginweave runs` and `marginweave purge`: what a home holds, and the removal of what is private."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from marginweave.flows.cli.console import Home, command, days, out
from marginweave.schemas.errors import InputError


@command
def runs(home: Home = None) -> None:
    """List the runs of the home, and which of them still hold private files: `internal` where only an exact evaluation is kept.

    Example: `marginweave runs`
    """
    from marginweave.flows.orchestration.environment import home_directory
    from marginweave.flows.postprocess.retention import list_runs

    table = Table("run", "dataset", "state", "begun", "private files", box=None, pad_edge=False)
    for run in list_runs(home_directory(home, os.environ)):
        private = "yes" if run.holds_private else "internal" if run.holds_exact else "no"
        table.add_row(run.name, run.dataset, run.state, run.begun, private)
    out.print(table)


@command
def purge(
    run_name: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Name of a run; `marginweave runs` lists them.")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", help="Instead of RUN: days since a run's last stage, such as 30d.")
    ] = None,
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Also a run that is not finished.")] = False,
    home: Home = None,
) -> None:
    """Remove what is private in a run; its release stays. By age, failed runs too, and never one that is in progress.

    Example: `marginweave purge affairs-1a2b3c4d`, or `marginweave purge --older-than 30d`
    """
    from marginweave.flows.orchestration.environment import home_directory
    from marginweave.flows.postprocess.retention import purge_older, purge_run

    place = home_directory(home, os.environ)
    if (run_name is None) == (older_than is None):
        raise InputError("either RUN or --older-than says what is to be purged")
    if run_name is not None:
        purge_run(place, run_name, unfinished=unfinished)
        out.print(_purged(place, run_name))
        return
    purged = purge_older(place, days("older-than", older_than or ""))
    for run in purged.runs:
        out.print(_purged(place, run))
    for run in purged.in_progress:
        out.print(f"Run {run} is in progress, and was left alone")
    if not purged.runs:
        out.print("Nothing that old holds private files")


def _purged(home: Path, run: str) -> str:
    """What was removed, and what is not: `internal/` stays until somebody removes it."""
    from marginweave.flows.postprocess.retention import holds_exact
    from marginweave.tasks.checkpoint.run_folder import RunFolder

    folder = RunFolder.at(home, run)
    if holds_exact(folder):
        return f"private/ is gone from run {run}; {folder.internal} still holds an evaluation that is exact"
    kept = f"; {folder.internal} keeps the log and the request" if folder.internal.is_dir() else ""
    return f"Nothing private is left in run {run}{kept}"
