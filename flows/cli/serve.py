"""`marginweave serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from marginweave.flows.cli.console import Home, command, out

_Configs = Annotated[
    list[Path],
    typer.Argument(metavar="CONFIG...", help="The YAML files of the releases, each for a dataset of its own."),
]
_Cron = Annotated[str, typer.Option("--cron", help="When to release: minute, hour, day of month, month, day of week.")]
_Zone = Annotated[str, typer.Option("--timezone", help="Time zone of --cron and of the dates in the names of runs.")]
_Port = Annotated[
    int | None, typer.Option("--port", min=1, max=65535, help="Show Prefect's pages on this port of this machine.")
]


@command
def serve(configs: _Configs, cron: _Cron, timezone: _Zone = "UTC", port: _Port = None, home: Home = None) -> None:
    """Release on a schedule, on one machine, until it is stopped; Prefect's server comes and goes with it.

    The run of a day is called DATASET-DATE. One that was interrupted goes on at the next start.

    Example: `marginweave serve deployments/examples/affairs.yaml --cron "30 1 * * *" --timezone Europe/Oslo`
    """
    from marginweave.flows.orchestration.environment import home_directory, prepare_environment

    place = home_directory(home, os.environ)
    prepare_environment(place)  # before Prefect is imported
    from marginweave.flows.service import Timetable, datasets_of, serve_releases

    datasets = datasets_of(configs)
    timetable = Timetable(cron=cron, zone=timezone)
    out.print(f"Serving {', '.join(datasets)}: {cron} ({timezone}); stop with Ctrl-C")
    if port is not None:
        out.print(f"Prefect's pages: http://127.0.0.1:{port}")
    serve_releases(datasets, timetable, place, port)
