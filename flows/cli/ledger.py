"""`marginweave ledger …`: accounts, and what was spent of them."""

from __future__ import annotations

import getpass
import os
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from marginweave.flows.cli.console import Home, command, days, out

if TYPE_CHECKING:
    from marginweave.schemas.ledger import AccountTotal
    from marginweave.schemas.policy import Policy
    from marginweave.tasks.budget.ledger import LedgerLocation

app = typer.Typer(help="Budgets and what was spent of them.", no_args_is_help=True, rich_markup_mode="markdown")

Dataset = Annotated[
    str, typer.Argument(metavar="DATASET", help="Name of the account: all releases about the same people.")
]
Epsilon = Annotated[str, typer.Option("--epsilon", help="Cap on epsilon over all releases.")]
Delta = Annotated[str, typer.Option("--delta", help="Cap on delta over all releases.")]
Per = Annotated[
    str | None,
    typer.Option("--per", metavar="PERIOD=E,D", help="Policy beside the cap: day, week, month, quarter or year."),
]
Example = Annotated[bool, typer.Option("--example", help="The ledger of the example data in the home.")]


@app.command("open")
@command
def open_account(
    dataset: Dataset,
    *,
    epsilon: Epsilon,
    delta: Delta,
    unit: Annotated[str, typer.Option(help="Whose privacy: row, or subject:COLUMN.")] = "row",
    neighbors: Annotated[str, typer.Option(help="add-remove or replace-one.")] = "add-remove",
    purse_epsilon: Annotated[str, typer.Option(help="Part of epsilon set aside, for good, for plain charges.")] = "0",
    purse_delta: Annotated[str, typer.Option(help="Part of delta set aside with it.")] = "0",
    per: Per = None,
) -> None:
    """Open an account; makes ledger and key where they are missing.

    `--per quarter=1,1e-7` adds a policy to the cap: what may be reserved in one day, week, month, quarter or year (UTC). It is
    no guarantee: what people lose adds up over all periods, and the cap is what bounds it.

    What is known in plain (epsilon, delta) only, such as a subsampled resize or Laplace noise, is charged to the account's
    purse: a part of its cap that is fixed here, and counts in full as soon as there are several releases.

    Example: `marginweave ledger open census-2026 --epsilon 4 --delta 1e-6 --per quarter=1,2.5e-7`
    """
    from marginweave.schemas.budget import Plain
    from marginweave.schemas.errors import InputError
    from marginweave.schemas.ledger import Account
    from marginweave.schemas.privacy import SUBJECT_PREFIX
    from marginweave.tasks.budget.ledger import Ledger, ledger_location

    if unit != "row" and not (unit.startswith(SUBJECT_PREFIX) and unit.removeprefix(SUBJECT_PREFIX).strip()):
        raise InputError(f"unit ({unit}) must be row or subject:COLUMN")
    if neighbors not in ("add-remove", "replace-one"):
        raise InputError(f"neighbors ({neighbors}) must be add-remove or replace-one")
    account = Account(
        dataset=dataset,
        epsilon=_decimal("epsilon", epsilon),
        delta=_decimal("delta", delta),
        unit=unit,
        neighbors="add-remove" if neighbors == "add-remove" else "replace-one",
        purse=Plain(epsilon=_decimal("purse-epsilon", purse_epsilon), delta=_decimal("purse-delta", purse_delta)),
        policy=None if per is None else _policy(per),
    )
    location = ledger_location(os.environ)
    Ledger.create(location).open_account(account, actor=getpass.getuser())
    out.print(
        f"Account {dataset} is open: epsilon {float(account.epsilon):g} at delta {float(account.delta):g}, in {location}"
    )
    if account.policy is not None:
        out.print(f"Its policy, which guarantees nothing: {account.policy}")
    out.print("Keep a copy of the ledger's key in another place: without it no release can be made.")


@app.command("upgrade")
@command
def upgrade_tables(
    writer: Annotated[
        str | None,
        typer.Option(help="Role of PostgreSQL that gets INSERT and SELECT, and loses every other right to the tables."),
    ] = None,
    example: Example = False,
    home: Home = None,
) -> None:
    """Bring the ledger's tables to this version; in PostgreSQL they are made where they are missing.

    `MARGINWEAVE_LEDGER_OWNER` is the URL of the tables' owner, where the ledger's own role may only append. That role is
    made beforehand: `CREATE ROLE steward LOGIN PASSWORD '…'`.

    Example: `marginweave ledger upgrade --writer steward`
    """
    from marginweave.tasks.budget.ledger import upgrade

    location = _location(example, home)
    version = upgrade(location, os.environ, writer=writer)
    out.print(f"The tables of the ledger {location} have version {version}")


@app.command("cap")
@command
def cap(
    dataset: Dataset,
    *,
    epsilon: Epsilon,
    delta: Delta,
    reason: Annotated[str, typer.Option(help="Why; it stays in the ledger.")],
    per: Per = None,
    example: Example = False,
    home: Home = None,
) -> None:
    """Change the cap of an account, and with `--per` the policy of its periods (`--per none` ends it); what was spent stays.

    Example: `marginweave ledger cap census-2026 --epsilon 6 --delta 1e-6 --reason "board decision 12"`
    """
    from marginweave.tasks.budget.ledger import Ledger

    ledger = Ledger.open(_location(example, home))
    policy: Policy | Literal["as it is"] | None = "as it is"
    if per is not None:
        policy = None if per == "none" else _policy(per)
    cap_ = float(_decimal("epsilon", epsilon)), float(_decimal("delta", delta))
    ledger.change_cap(dataset, *cap_, reason, getpass.getuser(), policy=policy)
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
    """Show one account: what is left, and what was spent by release, by stage and mechanism, and by draw.

    Example: `marginweave ledger show census-2026`
    """
    from marginweave.flows.cli.spending import by_draw, by_release, by_stage, left, period, purse
    from marginweave.tasks.budget.ledger import Ledger
    from marginweave.tasks.budget.ledger.room import room

    ledger = Ledger.open(_location(example, home))
    total, releases = ledger.account_total(dataset), ledger.releases(dataset)
    out.print(_line(total))
    out.print(left(total, room(total.account, releases)))
    if total.account.purse:
        out.print(purse(total))
    if total.account.policy is not None:
        out.print(period(total.account, total.account.policy, releases))
    out.print(f"unit {total.account.unit}, {total.account.neighbors}, composed by {total.composition}")
    if releases:
        for table in (by_release(releases), by_stage(releases)):
            out.print("")
            out.print(table)
    for release in releases:
        out.print(f"\n{release.run} release {release.release}, {release.created:%Y-%m-%d %H:%M} UTC")
        out.print(by_draw(release))


@app.command("expire")
@command
def expire(
    older_than: Annotated[str, typer.Option("--older-than", help="Days without a row, such as 7d.")],
    release: Annotated[
        str | None,
        typer.Option(
            "--release", metavar="ID", help="This release alone, also if it was begun: its run can never finish."
        ),
    ] = None,
    example: Example = False,
    home: Home = None,
) -> None:
    """Give back what is reserved for stalled releases of which nothing was drawn; their runs reserve it again.

    A release that has begun to draw keeps its reservation, so that its run can finish. To give up such a run, use
    `marginweave purge RUN --unfinished`, or name its release with `--release` where its home is lost.

    Example: `marginweave ledger expire --older-than 7d`
    """
    from marginweave.tasks.budget.ledger import Ledger

    expired = Ledger.open(_location(example, home)).expire(days("older-than", older_than), release)
    for name in expired:
        out.print(f"Release {name}: what was reserved is given back")
    if not expired:
        out.print("Nothing is that old")


def _line(total: AccountTotal) -> str:
    from marginweave.flows.cli.spending import scientific
    from marginweave.tasks.budget.ledger.admission import rounded_up

    cap_ = total.account
    return (
        f"{cap_.dataset}: epsilon {rounded_up(total.epsilon)} of {float(cap_.epsilon):g} spent at delta "
        f"{scientific(cap_.delta)}, "
        f"{total.releases} release(s)"
    )


def _location(example: bool, home: Path | None) -> LedgerLocation:
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


def _policy(text: str) -> Policy:
    """The policy that `--per PERIOD=E,D` says."""
    from marginweave.schemas.errors import InputError
    from marginweave.schemas.policy import PERIODS, Policy

    period, _, amounts = text.partition("=")
    epsilon, comma, delta = amounts.partition(",")
    chosen = next((known for known in PERIODS if known == period.strip()), None)
    if chosen is None or not comma:
        raise InputError(f"per ({text}) must be PERIOD=EPSILON,DELTA, the period one of {', '.join(PERIODS)}")
    return Policy(per=chosen, epsilon=_decimal("per epsilon", epsilon), delta=_decimal("per delta", delta))
