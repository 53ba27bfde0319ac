"""What the commands share: options, the two consoles, and one readable line for whatever goes wrong."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, ParamSpec, TypeVar

import typer
from rich.console import Console

from marginweave.schemas.errors import EXIT_FAILED, InputError, MarginweaveError, OperatorError, place_of

if TYPE_CHECKING:
    from marginweave.schemas.configuration.release import Configuration

P = ParamSpec("P")
R = TypeVar("R")

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="The YAML file that says everything about the release.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="Name of a run; `marginweave runs` lists them.")]
Home = Annotated[
    Path | None,
    typer.Option("--home", help="Folder in which runs/ lives.", envvar="MARGINWEAVE_HOME", show_envvar=True),
]
Reason = Annotated[str, typer.Option(help="Why; it stays in the ledger.")]
Source = Annotated[str | None, typer.Option("--source", help="The table, instead of the one the configuration names.")]

# Without markup: a path may hold square brackets.
out = Console(highlight=False, soft_wrap=True, markup=False)


def command(function: Callable[P, R]) -> Callable[P, R]:
    """End with the error's own exit code and one line on standard error; no traceback, which could quote data."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except OperatorError as error:
            fail(error.detail, error.exit_code)
        except MarginweaveError as error:
            fail(str(error), error.exit_code)
        except KeyboardInterrupt:
            fail("stopped. The same command resumes it", 130)
        except typer.Exit:
            raise
        except Exception as error:
            fail(f"internal error: {type(error).__name__} at {place_of(error)}", EXIT_FAILED)

    return call


def fail(message: str, code: int) -> NoReturn:
    """Print `message` on standard error and leave with `code`."""
    tell(message)
    raise typer.Exit(code)


def tell(message: str) -> None:
    """Print `message` on standard error as one line, whatever the names and values that it quotes hold."""
    line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in message)
    typer.echo(f"marginweave: {line}", err=True)


def warn_of_former_keys(configuration: Configuration) -> None:
    """Warn on standard error of keys that are still read and have no effect any more."""
    if "redraws" in configuration.privacy.model_fields_set:
        tell(
            "privacy.redraws has no effect any more; interrupted draws are repeated, not redrawn. Remove the key: 0.3 will "
            "refuse it"
        )


def days(name: str, text: str) -> timedelta:
    """The age that an option called `name` gives in days, such as 30d.

    Raises:
        InputError: something else.
    """
    number = text.removesuffix("d")
    if not (text.endswith("d") and number.isascii() and number.isdigit() and len(number) < 6):
        raise InputError(f"{name} ({text}) must be a number of days, such as 7d")
    return timedelta(days=int(number))
