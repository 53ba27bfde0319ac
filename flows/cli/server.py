"""`marginweave server …`: a Prefect server that keeps running in the home, so that releases need not start one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marginweave.base.errors import EXIT_FAILED

from . import console
from .console import Home, out

_Port = Annotated[int, typer.Option(min=1, max=65535, help="Of Prefect's pages and API, on this machine alone.")]
app = typer.Typer(
    help="A Prefect server that keeps running in the home: releases need not start one, and its pages show them.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.command(cls=console.LocalCommand)
def start(*, port: _Port = 4280, home: Home = Path()) -> None:
    """Start the server; every run in this home uses it until `server stop`.

    For this machine alone, where every account can reach it. It does not come back after a reboot: for that see Production in
    the documentation.

    Example: `marginweave server start`
    """
    from ..prefect.standing import standing_server, start_server

    if standing_server(home) is None:
        out.print("Starting Prefect's server; in a new home this takes about 15 s")
    server = start_server(home, port)
    out.print(f"Prefect's server runs in {home}: {server.pages}")
    out.print("Stop it: marginweave server stop")


@app.command(cls=console.LocalCommand)
def stop(home: Home = Path()) -> None:
    """Stop the server. A run that uses it starts its own and continues.

    Example: `marginweave server stop`
    """
    from ..prefect.standing import stop_server

    stopped = stop_server(home)
    out.print(f"No server runs in {home}" if stopped is None else f"Stopped the server of {home}")


@app.command(cls=console.LocalCommand)
def status(as_json: console.Json = False, home: Home = Path()) -> None:
    """Say where the server is. Ends with exit code 1 where none runs, or it does not answer.

    Example: `marginweave server status`
    """
    from ..prefect.servers import answers
    from ..prefect.standing import standing_server

    server = standing_server(home)
    well = server is not None and answers(server.url, 5.0)
    if as_json:
        console.print_json({"url": server and server.url, "process": server and server.process, "answers": well})
    elif server is None:
        out.print(f"No server runs in {home}; start one: marginweave server start")
    else:
        silent = "" if well else ", does not answer"
        out.print(f"Prefect's server of {home}: {server.pages}, process {server.process}{silent}")
    if not well:
        raise typer.Exit(EXIT_FAILED)
