"""Commands for releases on a schedule: `serve`, `supervise`, `alert`."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from marginweave.base.errors import InputError, StageError

from ..prefect.environment import forget_proxies, prepare_environment
from . import console
from .console import Home, out

_Configs = Annotated[
    list[Path],
    typer.Argument(
        metavar="CONFIG...", help="The YAML files of the releases, each for a different dataset."
    ),
]
_Cron = Annotated[
    list[str],
    typer.Option(
        help="When to release: minute, hour, day of month, month, day of week. One for all, or one for each CONFIG in order."
    ),
]
_Zone = Annotated[
    str, typer.Option(help="Time zone of --cron and of the dates in the names of runs.")
]
_Port = Annotated[
    int | None,
    typer.Option(min=1, max=65535, help="Show Prefect's pages on this port of this machine."),
]


def serve(
    configs: _Configs, cron: _Cron, timezone: _Zone = "UTC", port: _Port = None, home: Home = Path()
) -> None:
    """Release on a schedule, on one machine, until it is stopped; Prefect's server comes and goes with it.

    The run of a day is called DATASET-DATE. One that was interrupted is resumed at the next start.

    Example: `marginweave serve deployments/examples/affairs.yaml --cron "30 1 * * *" --timezone Europe/Oslo`
    """
    console.end_on_signals()
    prepare_environment(home)  # before Prefect is imported
    from ..service import check_times, serve_releases, served_datasets

    datasets = served_datasets(configs, cron)
    for dataset in datasets:
        check_times(dataset.cron, timezone)
        out.print(f"Serving {dataset.name}: {dataset.cron} ({timezone})")
    out.print("Stop with Ctrl-C")
    if port is not None:
        out.print(f"Prefect's pages: http://127.0.0.1:{port}")
    serve_releases(datasets, timezone, home, port, out.print)


def _server_url(purpose: str) -> str:
    """Return the URL of the Prefect server that is named; raises InputError where none is."""
    from prefect.settings import PREFECT_API_URL

    url = PREFECT_API_URL.value()
    if url is None:
        raise InputError(f"PREFECT_API_URL is not set: it says which Prefect server {purpose}")
    return url


def supervise() -> None:
    """Resume releases of a Prefect server whose worker or process has vanished, once each, until it is stopped.

    One for a Prefect server, beside its workers; `serve` has its own. PREFECT_API_URL says which server.

    Example: `marginweave supervise`
    """
    console.end_on_signals()
    url = _server_url("to look after")
    from ..prefect.supervisor import supervise as look_after

    out.print(f"Looking after the releases of {url}; stop with Ctrl-C")
    look_after(threading.Event(), out.print)


def alert() -> None:
    """Send a test alert through every automation that sends alerts of releases, and say which of them could deliver it.

    `deployments/automations.py` makes the automations. PREFECT_API_URL says of which Prefect server; where `serve` has one,
    it is `http://127.0.0.1:PORT/api`. Exit code 1: an alert was not delivered.

    Example: `marginweave alert`
    """
    url = _server_url("sends the alert")
    forget_proxies(url)
    from ..prefect.alerts import send_test_alert

    outcomes = send_test_alert(url)
    for outcome in outcomes:
        out.print(str(outcome))
    failed = [outcome for outcome in outcomes if not outcome.is_delivered]
    if failed:
        raise StageError(
            f"{len(failed)} of {len(outcomes)} alerts did not leave Prefect's server: correct the address, and run "
            "deployments/automations.py again"
        )
