"""Commands that give back what stalled runs have reserved, and that bring a restored ledger up to date."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from marginweave.flows.cli.console import Home, command, days, out
from marginweave.flows.cli.ledger_options import Example, decimal_of, home_of, location_of

if TYPE_CHECKING:
    from marginweave.schemas.budget import Plain


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
    from marginweave.schemas.budget import Cost
    from marginweave.tasks.ledger import Ledger, Witness

    age, witness = days("older-than", older_than), Witness(home_of(home))
    ledger = Ledger.open(location_of(example, home), witness=witness)
    expired = ledger.draws.expire(age, release)
    for name in expired.returned:
        out.print(f"Release {name}: what was reserved is given back")
        record = ledger.releases.find(name)
        if record is not None and record.charged != Cost():
            out.print(
                f"Its run {record.run} had begun to draw and can no longer finish; what was drawn stays charged. Give a new "
                "release a name of its own with --run, and where the home of this one is left: "
                f"marginweave purge {record.run} --unfinished"
            )
    for name in expired.elsewhere:
        out.print(
            f"Release {name}: left alone, as its run is not below {witness.home}; where that is lost, --release {name}"
        )
    if not (expired.returned or expired.elsewhere):
        out.print("Nothing is that old")


@command
def reconcile(
    home: Annotated[
        list[Path] | None,
        typer.Option("--home", help="A home that drew under this ledger; once for each. Default: this one."),
    ] = None,
    no_other_home: Annotated[
        str | None, typer.Option("--no-other-home", help="Why no other home drew under it; it stays in the ledger.")
    ] = None,
    unaccounted: Annotated[
        str | None,
        typer.Option(metavar="EPSILON,DELTA", help="What homes that are gone may have released, together."),
    ] = None,
    example: Example = False,
) -> None:
    """Bring a ledger that was restored from an old copy up to what homes have seen of it; it only ever adds charges.

    What is reserved in the old copy is charged as lost. Every account admits nothing until the homes that were not looked at
    are named, by one of the two options; both are told in privacy.json from then on.

    Example: `marginweave ledger reconcile --home /srv/census --home /srv/survey --no-other-home "there are two machines"`
    """
    from marginweave.schemas.errors import InputError
    from marginweave.tasks.ledger import Ledger
    from marginweave.tasks.ledger.reconciliation import OtherHomes

    homes = [home_of(each) for each in home] if home else [home_of(None)]
    for each in homes if home else ():
        if not (each / "runs").is_dir():
            raise InputError(f"--home {each} has no runs: it is no home of marginweave; nothing was changed")
    charge = None if unaccounted is None else _charge_of(unaccounted)
    said = no_other_home is not None or charge is not None
    others = OtherHomes(reason=no_other_home, unaccounted=charge) if said else None
    outcome = Ledger.open(location_of(example, homes[0])).reconcile(homes, others, actor=getpass.getuser())
    out.print(f"Looked at {outcome.runs} run(s) of {len(homes)} home(s)")
    out.print(f"{outcome.adopted} row(s) adopted, {outcome.lost} reserved draw(s) charged as lost")
    for dataset in outcome.charged:
        out.print(f"{dataset} is charged ({unaccounted}) for what other homes may have released")
    for dataset in outcome.opened:
        out.print(f"{dataset} admits releases again, as far as its cap holds them")
    for dataset in outcome.frozen:
        out.print(
            f'{dataset} admits nothing until --no-other-home "reason" or --unaccounted EPSILON,DELTA says what of other homes'
        )


def _charge_of(unaccounted: str) -> Plain:
    """The (epsilon, delta) that `--unaccounted EPSILON,DELTA` says."""
    from marginweave.schemas.budget import Plain
    from marginweave.schemas.errors import InputError

    epsilon, comma, delta = unaccounted.partition(",")
    if not comma:
        raise InputError("--unaccounted must be EPSILON,DELTA, such as 1.5,1e-6")
    return Plain(epsilon=decimal_of("epsilon", epsilon), delta=decimal_of("delta", delta))
