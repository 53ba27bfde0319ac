"""`marginweave server …`: a Prefect server that stands in the home, where releases need not start one of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marginweave.flows.cli import console
from marginweave.flows.cli.console import Home, out
from marginweave.schemas.errors import EXIT_FAILED

_Port = Annotated[int, typer.Option(min=1, max=65535, help="Of Prefect's pages and API, on this machine alone.")]
app = typer.Typer(
    help="A Prefect server that stands in the home: releases start at once, and Prefect's pages show them.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.command(cls=console.LocalCommand)
def start(*, port: _Port = 4280, home: Home = Path()) -> None:
    """Start the server; every run in this home uses it until `server stop`.

    It is for this machine alone, and not started again when the machine is: for that see Production in the documentation.

    Example: `marginweave server start`
    """
    from marginweave.flows.orchestration.standing import standing_server, start_server

    if standing_server(home) is None:
        out.print("Starting Prefect's server (about 5 s; longer in a new home)")
    server = start_server(home, port)
    out.print(f"Prefect's server stands in {home}: {server.pages}")
    out.print("Stop it: marginweave server stop")


@app.command(cls=console.LocalCommand)
def stop(home: Home = Path()) -> None:
    """Stop the server. A run that uses it starts a server of its own, and goes on.

    Example: `marginweave server stop`
    """
    from marginweave.flows.orchestration.standing import stop_server

    stopped = stop_server(home)
    out.print(f"No server stands in {home}" if stopped is None else f"Stopped the server of {home}")


@app.command(cls=console.LocalCommand)
def status(home: Home = Path()) -> None:
    """Say where the server is. Ends with exit code 1 where none stands, or it does not answer.

    Example: `marginweave server status`
    """
    from marginweave.flows.orchestration.standing import answers, standing_server

    server = standing_server(home)
    if server is None:
        out.print(f"No server stands in {home}; start one: marginweave server start")
        raise typer.Exit(EXIT_FAILED)
    well = answers(server)
    out.print(
        f"Prefect's server of {home}: {server.pages}, process {server.process}{'' if well else ', does not answer'}"
    )
    if not well:
        raise typer.Exit(EXIT_FAILED)
