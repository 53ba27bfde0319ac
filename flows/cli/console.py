"""Common parts of the commands: options and their values, the consoles, and one readable line for each error."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import textwrap
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperCommand, TyperGroup

from marginweave.base.errors import (
    EXIT_FAILED,
    InputError,
    MarginweaveError,
    OperatorError,
    VerdictError,
    place_of,
    printable,
)
from marginweave.base.interruption import INTERRUPTION, Stopped
from marginweave.base.places import refuse_long, scheme_of
from marginweave.runs.home import home_directory
from marginweave.runs.stopping import obey_signals

if TYPE_CHECKING:
    from marginweave.base.budget import BasicAmount
    from marginweave.ledger import Ledger, LedgerLocation

Config = Annotated[
    Path,
    typer.Argument(metavar="CONFIG", help="The YAML file that says everything about the release."),
]
RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="Name of a run; `marginweave runs` lists them.")
]
Released = Annotated[
    str, typer.Argument(metavar="RUN|FOLDER", help="Name of a run, or the folder of a release.")
]


def _resolved(home: Path) -> Path:
    return home_directory(home)


Home = Annotated[
    Path,
    typer.Option(
        "--home",
        help="Folder in which runs/ lives.",
        envvar="MARGINWEAVE_HOME",
        show_default=False,
        callback=_resolved,
    ),
]
Reason = Annotated[str, typer.Option(help="Why; it stays in the ledger.")]
Source = Annotated[
    str | None, typer.Option(help="The table, instead of the one the configuration names.")
]
Dataset = Annotated[
    str,
    typer.Argument(
        metavar="DATASET", help="Name of the account: all releases about the same people."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")]
Example = Annotated[
    bool, typer.Option("--example", help="The ledger of the example data in the home.")
]


class _LineConsole(Console):
    """Prints a text as one line for programs, and in a terminal in lines that end between words."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; only a terminal has a width that lines must fit."""
        super().print(*objects, **{"soft_wrap": not self.is_terminal, **options})


# Without markup: a path may have square brackets.
out = _LineConsole(highlight=False, markup=False)


class LocalCommand(TyperCommand):
    """A command whose files and folders are all on this machine."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command, but refuse a URL, or a name that no file can have, in the place of a path.

        Only a table may be on another machine.
        """
        for parameter in self.params:
            value = ctx.params.get(parameter.name or "")
            for place in value if isinstance(value, list | tuple) else [value]:
                if not isinstance(place, Path):
                    continue
                refuse_long(parameter.opts[0], place)
                if scheme_of(str(place)) is not None:
                    raise InputError(
                        f"{parameter.opts[0]} is a URL, and must be a path on this machine; copy it yourself"
                    )
        return super().invoke(ctx)


class Commands(TyperGroup):
    """Commands that end with the error's exit code and one line on standard error; no traceback, which could quote data."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was typed."""
        try:
            return super().invoke(ctx)
        # typer ends a command whose pipe is closed
        except (typer.Exit, typer.TyperException, BrokenPipeError):
            raise
        except (Exception, KeyboardInterrupt, Stopped) as error:
            message, code = _ending(error)
            points = error.points if isinstance(error, VerdictError) else ()
        tell(message, points)
        raise typer.Exit(code)


def _ending(error: BaseException) -> tuple[str, int]:
    """Return the message and exit code of a command that ends with `error`. After a signal, the signal is the cause.

    Libraries that the signal interrupts may raise another error in the place of `Stopped`.
    """
    if INTERRUPTION.asked is not None:
        return stopped_words(INTERRUPTION.asked), 128 + INTERRUPTION.asked
    if isinstance(error, KeyboardInterrupt):
        return "stopped", 130
    if isinstance(error, MarginweaveError):
        return error.detail if isinstance(error, OperatorError) else str(error), error.exit_code
    return f"internal error: {type(error).__name__} at {place_of(error)}", EXIT_FAILED


def end_on_signals() -> None:
    """End this command on SIGTERM and SIGINT: in two seconds at most, but not within a draw."""
    obey_signals(lambda number: tell(stopped_words(number)))


def stopped_words(number: int) -> str:
    """Return the message after a signal."""
    return f"stopped by {signal.Signals(number).name}. Nothing is lost or charged twice: the same command resumes it"


def tell(message: str, points: Sequence[str] = ()) -> None:
    """Print `message` on standard error as one line, whatever it quotes, and the points; a terminal breaks between words."""
    for text in (f"marginweave: {printable(message)}", *(f"  - {printable(it)}" for it in points)):
        line = text
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns
            line = textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
        typer.echo(line, err=True)


def table_of(*heads: str) -> Table:
    """Return an empty table without lines, with a column for each head."""
    return Table(*heads, box=None, pad_edge=False)


def print_json(facts: object) -> None:
    """Print facts as JSON; a value that JSON cannot have, such as an exact number, becomes its text."""
    typer.echo(json.dumps(facts, indent=2, ensure_ascii=False, default=str))


def print_wide(table: Table) -> None:
    """Print a table of numbers, without line breaks in cells where there is no terminal, or a narrow one."""
    Console(highlight=False, markup=False, width=200).print(table)


def days(name: str, text: str) -> timedelta:
    """Return the age that an option called `name` has in days, such as 30d.

    Raises:
        InputError: something else.
    """
    if not re.fullmatch("[0-9]{1,5}d", text):
        raise InputError(f"{name} ({text}) must be a number of days, such as 7d")
    return timedelta(days=int(text.removesuffix("d")))


def decimal_of(name: str, text: str) -> Decimal:
    """Return the exact number of an option called `name`; raises InputError for other text or a number that is not finite."""
    from marginweave.configuration.values import number

    value = number(text.strip())
    if value is None:
        raise InputError(f"{name} ({text}) is not a number")
    return value


def amount_of(name: str, text: str) -> BasicAmount:
    """Return the (epsilon, delta) of an option called `name`; raises InputError for something else."""
    from marginweave.base.budget import BasicAmount

    epsilon, comma, delta = text.partition(",")
    if not comma:
        raise InputError(f"--{name} must be EPSILON,DELTA, such as 1.5,1e-6")
    return BasicAmount(
        epsilon=decimal_of(f"{name} epsilon", epsilon), delta=decimal_of(f"{name} delta", delta)
    )


def location_of(example: bool, home: Path) -> LedgerLocation:
    """Return the location of the ledger of the environment, or that of the example data in the home."""
    from marginweave.ledger import example_ledger_location, ledger_location

    return example_ledger_location(home) if example else ledger_location(os.environ)


def ledger_to_change(example: bool, home: Path) -> Ledger:
    """Open the ledger and compare it with the rows that the runs of this home have seen; raises BudgetError if it lacks any."""
    from marginweave.ledger import Ledger, Witness

    return Ledger.open(location_of(example, home), witness=Witness(home))
