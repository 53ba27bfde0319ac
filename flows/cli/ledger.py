"""`marginweave ledger …`: accounts, and their spent budgets."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from marginweave.base.errors import BudgetError, InputError
from marginweave.base.user import user_name

from . import console
from .console import Dataset, Example, Home, Reason, decimal_of, out

if TYPE_CHECKING:
    from marginweave.accounting.accounts import Account, AccountTotal, Policy
    from marginweave.accounting.records import ReleaseRecord
    from marginweave.ledger import Ledger

_Weak = Annotated[
    str | None,
    typer.Option(metavar="REASON", help="Why delta may be above .001; it stays in the ledger."),
]
_Per = Annotated[
    str | None,
    typer.Option(
        metavar="PERIOD=E,D", help="Policy beside the cap: day, week, month, quarter or year."
    ),
]
_NEWEST = 8
app = typer.Typer(
    help="Budgets and what was spent of them.", no_args_is_help=True, rich_markup_mode="markdown"
)


@app.command("open", cls=console.LocalCommand)
def open_account(
    dataset: Dataset,
    *,
    epsilon: Annotated[str | None, typer.Option(help="Cap on epsilon over all releases.")] = None,
    delta: Annotated[str | None, typer.Option(help="Cap on delta over all releases.")] = None,
    unit: Annotated[
        str | None, typer.Option(help="Whose privacy: row, or subject:COLUMN.", show_default="row")
    ] = None,
    neighbors: Annotated[
        str | None, typer.Option(help="add-remove or replace-one.", show_default="add-remove")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--for", metavar="CONFIG", help="Configuration whose releases the account is for."
        ),
    ] = None,
    weak_delta: _Weak = None,
    per: _Per = None,
) -> None:
    """Open an account; makes ledger and key where they are missing.

    `--per quarter=1,1e-7` adds a policy to the cap: what may be reserved in one day, week, month, quarter or year (UTC). It is
    no guarantee: what people lose adds up over all periods, and the cap is what bounds it.

    The cap is kept by a box of constants, fixed here: a sum of mu², of the deltas of thresholds, and an allowance for what
    is known in plain (epsilon, delta) only, such as Laplace noise or a subsampled resize. `--for CONFIG` chooses it for as many
    releases of that configuration as the cap holds, and takes from there what is not given: epsilon, delta, unit, neighbors.
    Without it thresholds get a tenth of delta, and plain charges nothing.

    Example: `marginweave ledger open census-2026 --for census.yaml --epsilon 4`, or
    `marginweave ledger open census-2026 --epsilon 4 --delta 1e-6 --per quarter=1,2.5e-7`
    """
    from marginweave.ledger import Ledger, ledger_location
    from marginweave.ledger.keys import KEY_VARIABLE, environment_key, key_file

    options: dict[str, Any] = {
        "epsilon": None if epsilon is None else decimal_of("epsilon", epsilon),
        "delta": None if delta is None else decimal_of("delta", delta),
        "unit": unit,
        "neighbors": neighbors,
        "weak_delta": weak_delta,
        "policy": None if per is None else _policy_of(per),
    }
    if config is None and (epsilon is None or delta is None):
        raise InputError(
            "--epsilon and --delta are required, or --for CONFIG, a file that has both"
        )
    _check_unit(unit, neighbors)
    proposed = _proposed(dataset, config)
    changes = {name: value for name, value in options.items() if value is not None}
    account = replace(proposed, **changes)
    location = ledger_location(os.environ)
    ledger = Ledger.create(location)
    ledger.accounts.open(account, actor=user_name())
    out.print(
        f"Account {dataset} is open: epsilon {float(account.epsilon):g} at delta {float(account.delta):g}, in {location}"
    )
    if account.policy is not None:
        out.print(f"Its policy, which guarantees nothing: {account.policy}")
    place = KEY_VARIABLE if environment_key(os.environ) else key_file(location)
    out.print(_room_of(ledger.accounts.total(dataset), proposed))
    out.print(
        f"Back up the ledger's key, which is in {place}. Without it you cannot make further releases"
    )


def _room_of(total: AccountTotal, single: Account) -> str:
    """Return how many releases a new account has room for, and of which noise; `single` is for one release, or is empty."""
    from marginweave.ledger.admission import BY_STATEMENT, LAPLACE

    noise = ""
    if not total.account.box.mu2:
        releases = f"releases charged in epsilon alone, as with Laplace noise ({LAPLACE})"
        if total.account.delta:
            releases = f"{BY_STATEMENT}; only its first may be another"
        noise = f". It holds {releases}"
    if single.kind_of_plan is None:
        many = "How many of yours fit: marginweave plan CONFIG"
        return f"A release with this epsilon and delta uses all of it: a second one does not fit. {many}{noise}"
    from marginweave.forecast.account import SEVERAL, count_of, releases_that_fit

    number, _ = releases_that_fit(
        total.account, total.spent, (single.kind_of_plan, single.cap), SEVERAL
    )
    raised = f"For more, raise the cap before the first one: marginweave ledger cap {total.account.dataset}"
    return f"Releases of this configuration that fit: {count_of(number, number)}. {raised}{noise}"


def _proposed(dataset: str, config: Path | None) -> Account:
    """Return an account for one release of a configuration, or an empty account without one."""
    from marginweave.accounting.accounts import Account
    from marginweave.configuration.load import load_configuration
    from marginweave.runs.preparation import account_for

    if config is not None:
        account = account_for(load_configuration(config))
        if account.dataset != dataset:
            raise InputError(
                f"the releases of {config} are charged to {account.dataset}, not to {dataset}: open that account, or write "
                f"`dataset: {dataset}` in the file"
            )
        return account
    return Account(
        dataset=dataset, epsilon=Decimal(0), delta=Decimal(0), unit="row", neighbors="add-remove"
    )


def _check_unit(unit: str | None, neighbors: str | None) -> None:
    """Refuse a unit of privacy, or neighboring tables, that no configuration can have."""
    from marginweave.base.budget import Neighbors
    from marginweave.configuration.privacy import SUBJECT_PREFIX

    if (
        unit is not None
        and unit != "row"
        and not re.fullmatch(rf"{SUBJECT_PREFIX}.*\S.*", unit, re.DOTALL)
    ):
        raise InputError(f"unit ({unit}) must be row or subject:COLUMN")
    if neighbors not in {None, *get_args(Neighbors)}:
        raise InputError(f"neighbors ({neighbors}) must be {' or '.join(get_args(Neighbors))}")


def _policy_of(text: str) -> Policy:
    """Return the policy of `--per PERIOD=E,D`."""
    from marginweave.accounting.accounts import PERIODS, Policy

    period, _, amounts = text.partition("=")
    if period.strip() not in PERIODS or "," not in amounts:
        raise InputError(
            f"per ({text}) must be PERIOD=EPSILON,DELTA, the period one of {', '.join(PERIODS)}"
        )
    return Policy(
        per=PERIODS[PERIODS.index(period.strip())], **asdict(console.amount_of("per", amounts))
    )


@app.command("create-tables", cls=console.LocalCommand)
def create_tables(
    writer: Annotated[
        str | None,
        typer.Option(
            help="Role of PostgreSQL that gets INSERT and SELECT, and loses every other right to the tables."
        ),
    ] = None,
) -> None:
    """Make the ledger's tables in PostgreSQL, where they are missing, and let a role append to them.

    `MARGINWEAVE_LEDGER_OWNER` is the URL of the tables' owner, where the ledger's own role may only append. That role is
    made beforehand: `CREATE ROLE steward LOGIN PASSWORD '…'`.

    Example: `marginweave ledger create-tables --writer steward`
    """
    from marginweave import ledger

    location = ledger.ledger_location(os.environ)
    ledger.create_tables(location, os.environ, writer=writer)
    out.print(f"The ledger {location} has its tables")


@app.command("cap", cls=console.LocalCommand)
def cap(
    dataset: Dataset,
    *,
    epsilon: Annotated[str, typer.Option(help="Cap on epsilon over all releases.")],
    delta: Annotated[str, typer.Option(help="Cap on delta over all releases.")],
    reason: Reason,
    weak_delta: _Weak = None,
    per: _Per = None,
    example: Example = False,
    home: Home = Path(),
) -> None:
    """Change the cap of an account, and with `--per` the policy of its periods (`--per none` ends it); what was spent stays.

    Example: `marginweave ledger cap census-2026 --epsilon 6 --delta 1e-6 --reason "board decision 12"`
    """
    from . import spending

    ledger = console.ledger_to_change(example, home)
    policy: Policy | Literal["as it is"] | None = "as it is"
    if per is not None:
        policy = None if per == "none" else _policy_of(per)
    epsilon_cap = float(decimal_of("epsilon", epsilon))
    delta_cap = float(decimal_of("delta", delta))
    ledger.accounts.change_cap(
        dataset,
        epsilon_cap,
        delta_cap,
        reason,
        user_name(),
        policy=policy,
        weak_delta=weak_delta,
    )
    out.print(spending.line(ledger.accounts.total(dataset)))


@app.command("list", cls=console.LocalCommand)
def list_accounts(
    as_json: console.Json = False, example: Example = False, home: Home = Path()
) -> None:
    """List all accounts with what they have spent.

    Example: `marginweave ledger list`
    """
    from . import spending

    totals = _compared(example, home).accounts.totals()
    if as_json:
        console.print_json([_sums(total) for total in totals])
        return
    for total in totals:
        out.print(spending.line(total))


def _sums(total: AccountTotal) -> dict[str, object]:
    """Return the spent and the remaining budget of an account."""
    from marginweave.ledger.boxes import account_sums, epsilon_left

    return {
        **account_sums(total).model_dump(mode="json"),
        "epsilon_left": float(epsilon_left(total)),
    }


@app.command("show", cls=console.LocalCommand)
def show(
    dataset: Dataset,
    every: Annotated[
        bool, typer.Option("--all", help="Every release, with its stages and draws.")
    ] = False,
    as_json: console.Json = False,
    example: Example = False,
    home: Home = Path(),
) -> None:
    """Show one account: what is left, and what its newest releases were charged.

    What is left is of all releases. With `--all` there is a line for each of them, for each stage and mechanism, and for each
    draw.

    Example: `marginweave ledger show census-2026`
    """
    from . import spending

    ledger = _compared(example, home)
    total = ledger.accounts.total(dataset)
    releases = ledger.releases.newest(dataset, total.spent.ever_reserved if every else _NEWEST)
    if as_json:
        newest = [_release_facts(record) for record in releases]
        console.print_json({**_sums(total), "unit": total.account.unit, "newest": newest})
        return
    out.print(spending.line(total))
    out.print(spending.left(total))
    out.print(spending.box(total))
    if total.account.policy is not None:
        moment = datetime.now(UTC)
        out.print(
            spending.period(
                total.account.policy, ledger.accounts.period_spent(dataset, moment), moment
            )
        )
    out.print(
        f"unit {total.account.unit}, {total.account.neighbors}, composed by {total.composition}"
    )
    if not releases:
        return
    if not every:
        out.print(
            f"The newest {len(releases)} of {total.spent.ever_reserved} releases; --all shows every release, stage and draw"
        )
        out.print("")
        out.print(spending.by_release(releases))
        return
    for table in (spending.by_release(releases), spending.by_stage(releases)):
        out.print("")
        out.print(table)
    for release in releases:
        out.print(
            f"\n{release.run} release {release.release}, {release.created:%Y-%m-%d %H:%M} UTC"
        )
        out.print(spending.by_draw(release))


def _release_facts(record: ReleaseRecord) -> dict[str, object]:
    """Return a release and its draws, for JSON."""
    return {
        "run": record.run,
        "release": record.release,
        "created": record.created,
        "epsilon": record.epsilon,
        "delta": record.delta,
        "draws": [asdict(draw) for draw in record.draws],
    }


def _compared(example: bool, home: Path) -> Ledger:
    """Open the ledger for reading; warn where the runs of this home have seen rows that it lacks."""
    from marginweave.ledger import Ledger

    ledger = Ledger.open(console.location_of(example, home))
    try:
        console.ledger_to_change(example, home)
    except BudgetError as refusal:
        console.tell(f"warning: {refusal}")
    return ledger
