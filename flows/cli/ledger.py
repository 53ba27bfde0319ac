"""`marginweave ledger …`: accounts, and what was spent of them."""

from __future__ import annotations

import getpass
import os
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from marginweave.flows.cli.console import Home, command, out

if TYPE_CHECKING:
    from marginweave.schemas.ledger import AccountTotal

app = typer.Typer(help="Budgets and what was spent of them.", no_args_is_help=True, rich_markup_mode="markdown")

Dataset = Annotated[
    str, typer.Argument(metavar="DATASET", help="Name of the account: all releases about the same people.")
]
Epsilon = Annotated[str, typer.Option("--epsilon", help="Cap on epsilon over all releases.")]
Delta = Annotated[str, typer.Option("--delta", help="Cap on delta over all releases.")]
Example = Annotated[bool, typer.Option("--example", help="The ledger of the example data in the home.")]


@app.command("open")
@command
def open_account(
    dataset: Dataset,
    epsilon: Epsilon,
    delta: Delta,
    unit: Annotated[str, typer.Option(help="Whose privacy: row.")] = "row",
    neighbors: Annotated[str, typer.Option(help="add-remove or replace-one.")] = "add-remove",
) -> None:
    """Open an account; makes ledger and key where they are missing.

    Example: `marginweave ledger open census-2026 --epsilon 4 --delta 1e-6`
    """
    from marginweave.schemas.errors import InputError
    from marginweave.schemas.ledger import Account
    from marginweave.tasks.budget.ledger import Ledger, ledger_location

    if unit != "row":
        raise InputError(f"unit ({unit}) must be row in this version")
    if neighbors not in ("add-remove", "replace-one"):
        raise InputError(f"neighbors ({neighbors}) must be add-remove or replace-one")
    account = Account(
        dataset=dataset,
        epsilon=_decimal("epsilon", epsilon),
        delta=_decimal("delta", delta),
        unit=unit,
        neighbors="add-remove" if neighbors == "add-remove" else "replace-one",
    )
    location = ledger_location(os.environ)
    Ledger.create(location).open_account(account, actor=getpass.getuser())
    out.print(
        f"Account {dataset} is open: epsilon {float(account.epsilon):g} at delta {float(account.delta):g}, in {location}"
    )
    out.print("Keep a copy of the ledger's key in another place: without it no release can be made.")


@app.command("cap")
@command
def cap(
    dataset: Dataset,
    epsilon: Epsilon,
    delta: Delta,
    reason: Annotated[str, typer.Option(help="Why; it stays in the ledger.")],
    example: Example = False,
    home: Home = None,
) -> None:
    """Change the cap of an account; what was spent stays spent.

    Example: `marginweave ledger cap census-2026 --epsilon 6 --delta 1e-6 --reason "board decision 12"`
    """
    from marginweave.tasks.budget.ledger import Ledger

    ledger = Ledger.open(_location(example, home))
    ledger.change_cap(
        dataset, float(_decimal("epsilon", epsilon)), float(_decimal("delta", delta)), reason, getpass.getuser()
    )
    out.print(_line(ledger.account_total(dataset)))


@app.command("list")
@command
def list_accounts(example: Example = False, home: Home = None) -> None:
    """List all accounts with what they have spent.

    Example: `marginweave ledger list`
    """
    from marginweave.tasks.budget.ledger import Ledger

    for total in Ledger.open(_location(example, home)).accounts():
        out.print(_line(total))


@app.command("show")
@command
def show(dataset: Dataset, example: Example = False, home: Home = None) -> None:
    """Show one account: every release and every draw that was charged.

    Example: `marginweave ledger show census-2026`
    """
    from marginweave.tasks.budget.ledger import Ledger

    ledger = Ledger.open(_location(example, home))
    total = ledger.account_total(dataset)
    out.print(_line(total))
    out.print(f"unit {total.account.unit}, {total.account.neighbors}, composed by {total.composition}")
    for release in ledger.releases(dataset):
        out.print(f"\n{release.run} release {release.release}, {release.created:%Y-%m-%d %H:%M} UTC")
        out.print(f"planned epsilon {float(release.epsilon):g} at delta {float(release.delta):g}")
        table = Table("draw", "state", "mu²", "rho", "delta", box=None, pad_edge=False)
        for draw in release.draws:
            cost = draw.cost
            table.add_row(draw.name, draw.state, f"{cost.mu2:.6f}", f"{cost.rho:.6f}", f"{float(cost.delta):.2g}")
        out.print(table)


def _line(total: AccountTotal) -> str:
    cap_ = total.account
    return (
        f"{cap_.dataset}: epsilon {total.epsilon:.4g} of {float(cap_.epsilon):g} spent at delta {float(cap_.delta):g}, "
        f"{total.releases} release(s)"
    )


def _location(example: bool, home: Path | None) -> Path:
    from marginweave.flows.environment import home_directory
    from marginweave.tasks.budget.ledger import example_ledger_location, ledger_location

    return example_ledger_location(home_directory(home, os.environ)) if example else ledger_location(os.environ)


def _decimal(name: str, text: str) -> Decimal:
    from marginweave.schemas.errors import InputError
    from marginweave.schemas.values import number

    value = number(text.strip())
    if value is None:
        raise InputError(f"{name} ({text}) must be a finite number")
    return value
