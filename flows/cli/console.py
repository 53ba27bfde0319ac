"""What the commands share: options and what they mean, the consoles, and one readable line for whatever goes wrong."""

from __future__ import annotations

import json
import os
import re
import signal
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperCommand, TyperGroup

from marginweave.base.errors import EXIT_FAILED, InputError, MarginweaveError, OperatorError, place_of, printable
from marginweave.base.interruption import INTERRUPTION, Stopped
from marginweave.base.places import refuse_long, scheme_of
from marginweave.runs.home import home_directory
from marginweave.runs.stopping import obey_signals

if TYPE_CHECKING:
    from marginweave.base.budget import BasicAmount
    from marginweave.ledger import Ledger, LedgerLocation

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="The YAML file that says everything about the release.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="Name of a run; `marginweave runs` lists them.")]


def _resolved(home: Path) -> Path:
    return home_directory(home)


Home = Annotated[
    Path,
    typer.Option(
        "--home", help="Folder in which runs/ lives.", envvar="MARGINWEAVE_HOME", show_default=False, callback=_resolved
    ),
]
Reason = Annotated[str, typer.Option(help="Why; it stays in the ledger.")]
Source = Annotated[str | None, typer.Option(help="The table, instead of the one the configuration names.")]
Dataset = Annotated[
    str, typer.Argument(metavar="DATASET", help="Name of the account: all releases about the same people.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")]
Example = Annotated[bool, typer.Option("--example", help="The ledger of the example data in the home.")]

# Without markup: a path may hold square brackets.
out = Console(highlight=False, soft_wrap=True, markup=False)


class LocalCommand(TyperCommand):
    """A command all of whose files and folders are on this machine."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command, unless a URL, or what no file can be called, was given where a path belongs.

        Only a table may be elsewhere.
        """
        for parameter in self.params:
            given = ctx.params.get(parameter.name or "")
            for place in given if isinstance(given, list | tuple) else [given]:
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
        except (typer.Exit, typer.TyperException, BrokenPipeError):  # who reads a pipe may stop: that is typer's to end
            raise
        except (Exception, KeyboardInterrupt, Stopped) as error:
            message, code = _ending(error)
        tell(message)
        raise typer.Exit(code)


def _ending(error: BaseException) -> tuple[str, int]:
    """The message and exit code of a command that ends with `error`: once a stop was asked for, it is the cause of any error.

    Libraries that the signal interrupts may raise an error of their own in the place of `Stopped`.
    """
    if INTERRUPTION.asked is not None:
        return stopped_words(INTERRUPTION.asked), 128 + INTERRUPTION.asked
    if isinstance(error, KeyboardInterrupt):
        return "stopped", 130
    if isinstance(error, MarginweaveError):
        return error.detail if isinstance(error, OperatorError) else str(error), error.exit_code
    return f"internal error: {type(error).__name__} at {place_of(error)}", EXIT_FAILED


def end_on_signals() -> None:
    """End on SIGTERM and SIGINT as a long command does: in two seconds at most, but not within a draw."""
    obey_signals(lambda number: tell(stopped_words(number)))


def stopped_words(number: int) -> str:
    """What to say after a signal."""
    return f"stopped by {signal.Signals(number).name}. Nothing is lost or charged twice: the same command resumes it"


def tell(message: str) -> None:
    """Print `message` on standard error as one line, whatever the names and values that it quotes hold."""
    typer.echo(f"marginweave: {printable(message)}", err=True)


def table_of(*heads: str) -> Table:
    """An empty table without lines, one column a head."""
    return Table(*heads, box=None, pad_edge=False)


def print_json(facts: object) -> None:
    """Print facts for programs; what JSON has no form for, such as an exact number, is its text."""
    typer.echo(json.dumps(facts, indent=2, ensure_ascii=False, default=str))


def print_wide(table: Table) -> None:
    """Print a table of numbers, which are not folded where there is no terminal, or a narrow one."""
    Console(highlight=False, markup=False, width=200).print(table)


def days(name: str, text: str) -> timedelta:
    """The age that an option called `name` gives in days, such as 30d.

    Raises:
        InputError: something else.
    """
    if not re.fullmatch("[0-9]{1,5}d", text):
        raise InputError(f"{name} ({text}) must be a number of days, such as 7d")
    return timedelta(days=int(text.removesuffix("d")))


def decimal_of(name: str, text: str) -> Decimal:
    """The exact number that an option called `name` gives; raises InputError for something else or no finite one."""
    from marginweave.configuration.values import number

    value = number(text.strip())
    if value is None:
        raise InputError(f"{name} ({text}) is not a number")
    return value


def amount_of(name: str, text: str) -> BasicAmount:
    """The (epsilon, delta) that an option called `name` gives; raises InputError for something else."""
    from marginweave.base.budget import BasicAmount

    epsilon, comma, delta = text.partition(",")
    if not comma:
        raise InputError(f"--{name} must be EPSILON,DELTA, such as 1.5,1e-6")
    return BasicAmount(epsilon=decimal_of(f"{name} epsilon", epsilon), delta=decimal_of(f"{name} delta", delta))


def location_of(example: bool, home: Path) -> LedgerLocation:
    """The ledger of the environment, or that of the example data in the home."""
    from marginweave.ledger import example_ledger_location, ledger_location

    return example_ledger_location(home) if example else ledger_location(os.environ)


def ledger_to_change(example: bool, home: Path) -> Ledger:
    """The ledger, compared with what the runs of this home have seen of it; raises BudgetError where it lacks some of that."""
    from marginweave.ledger import Ledger, Witness

    return Ledger.open(location_of(example, home), witness=Witness(home))
