"""`marginweave example`: a made-up table and its configuration, to try everything with."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from marginweave.base.durable import write_once
from marginweave.base.errors import InputError

from .console import out

_FILES = ("visits.csv", "visits.yaml")


def example(
    to: Annotated[
        Path,
        typer.Option(help="Folder for the two files [default: where you are].", show_default=False),
    ] = Path(),
) -> None:
    """Write a made-up table, visits.csv, and its configuration, visits.yaml.

    Example: `marginweave example`
    """
    if not to.is_dir():
        raise InputError(f"--to ({to}) must be a folder that exists")
    for name in _FILES:
        content = files("marginweave.front.example").joinpath(name).read_bytes()
        if not write_once(to / name, content):
            raise InputError(
                f"{to / name} exists already and is not overwritten; name another folder with --to"
            )
        out.print(f"Wrote {to / name}")
    config = to / "visits.yaml"
    out.print(
        f"Next: marginweave ledger open visits --for {config} --epsilon 3, then marginweave run {config}"
    )
