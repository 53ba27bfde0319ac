"""Options that commands on a ledger share, and what they mean."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from marginweave.schemas.ledger.accounts import Policy
    from marginweave.tasks.ledger import LedgerLocation


Dataset = Annotated[
    str, typer.Argument(metavar="DATASET", help="Name of the account: all releases about the same people.")
]


Epsilon = Annotated[str, typer.Option("--epsilon", help="Cap on epsilon over all releases.")]


Delta = Annotated[str, typer.Option("--delta", help="Cap on delta over all releases.")]


Weak = Annotated[
    str | None,
    typer.Option("--weak-delta", metavar="REASON", help="Why delta may be above .001; it stays in the ledger."),
]


Per = Annotated[
    str | None,
    typer.Option("--per", metavar="PERIOD=E,D", help="Policy beside the cap: day, week, month, quarter or year."),
]


Example = Annotated[bool, typer.Option("--example", help="The ledger of the example data in the home.")]


def home_of(home: Path | None) -> Path:
    """The home that an option names, or the environment does, or the working directory is."""
    from marginweave.flows.orchestration.environment import home_directory

    return home_directory(home, os.environ)


def location_of(example: bool, home: Path | None) -> LedgerLocation:
    """The ledger of the environment, or that of the example data in the home."""
    from marginweave.tasks.ledger import example_ledger_location, ledger_location

    return example_ledger_location(home_of(home)) if example else ledger_location(os.environ)


def decimal_of(name: str, text: str) -> Decimal:
    """The exact number of an option; raises InputError for something else."""
    from marginweave.schemas.configuration.values import number
    from marginweave.schemas.errors import InputError

    value = number(text.strip())
    if value is None:
        raise InputError(f"{name} ({text}) must be a finite number")
    return value


def policy_of(text: str) -> Policy:
    """The policy that `--per PERIOD=E,D` says."""
    from marginweave.schemas.errors import InputError
    from marginweave.schemas.ledger.accounts import PERIODS, Policy

    period, _, amounts = text.partition("=")
    epsilon, comma, delta = amounts.partition(",")
    if period.strip() not in PERIODS or not comma:
        raise InputError(f"per ({text}) must be PERIOD=EPSILON,DELTA, the period one of {', '.join(PERIODS)}")
    return Policy(
        per=PERIODS[PERIODS.index(period.strip())],
        epsilon=decimal_of("per epsilon", epsilon),
        delta=decimal_of("per delta", delta),
    )
