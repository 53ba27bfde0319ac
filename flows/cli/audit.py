"""`marginweave ledger …` for the auditor: verify, anchor, export; and the two decisions that are written down."""

from __future__ import annotations

import getpass
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from marginweave.flows.cli.console import Home, Reason, command, out
from marginweave.flows.cli.ledger_options import Example, home_of, location_of
from marginweave.flows.orchestration.environment import home_directory

if TYPE_CHECKING:
    from marginweave.tasks.ledger import LedgerLocation
    from marginweave.tasks.ledger.keys import Keyring

keys = typer.Typer(help="The key that seals the ledger.", no_args_is_help=True, rich_markup_mode="markdown")


@command
def verify(
    anchor: Annotated[Path | None, typer.Option(help="What `ledger anchor` wrote, kept elsewhere since.")] = None,
    example: Example = False,
    home: Home = None,
) -> None:
    """Check chain, seals, states and caps of every row, and the files of the home against it; exit 1 at the first fault.

    Without the key the chain is checked all the same, and the command fails at the end: no seal was.

    Example: `marginweave ledger verify --anchor /mnt/vault/ledger-anchor.json`
    """
    from marginweave.flows.verify.files import audit_files
    from marginweave.schemas.errors import AuditError
    from marginweave.tasks.ledger.audit import Anchor, audit_ledger

    location = location_of(example, home)
    expected = None if anchor is None else Anchor.from_json(_content(anchor))
    ring, missing = _keys(location)
    audited = audit_ledger(location, ring, expected)
    files = audit_files(home_directory(home), audited, ring, example=example)
    rows = len(audited.rows)
    if audited.unchecked:
        raise AuditError(
            f"the chain of {rows} rows holds, but the seals of {audited.unchecked} could not be checked: "
            f"{missing or 'a key is missing from the ring'}"
        )
    out.print(f"{rows} rows in one chain, every seal checked" + (", the anchored row among them" if expected else ""))
    out.print(
        f"{len(audited.releases)} release(s) of {len(audited.accounts)} account(s), within their caps at every row"
    )
    out.print(
        f"{files.files} file(s) of {files.runs} run(s) are as the ledger has them, every privacy.json number by number"
    )
    for run in files.in_progress:
        out.print(f"run {run} is in progress: its files were not looked at")
    for run in files.elsewhere:
        out.print(f"run {run} is published and not in this home: its files were not looked at")


@command
def anchor(
    to: Annotated[Path | None, typer.Option(help="File to write; standard output if not given.")] = None,
    example: Example = False,
    home: Home = None,
) -> None:
    """Number and hash of the newest row, to be kept where the ledger's machine cannot write.

    Example: `marginweave ledger anchor --to /mnt/vault/ledger-anchor.json`
    """
    from marginweave.tasks.checkpoint.files import replace_file
    from marginweave.tasks.ledger.audit import audit_ledger

    location = location_of(example, home)
    content = audit_ledger(location, _loaded(location)).anchor.to_json()
    if to is None:
        typer.echo(content, nl=False)
    else:
        replace_file(to, content.encode())


@command
def export(
    to: Annotated[Path, typer.Option(help="Folder to write to; must be empty or new.")],
    dataset: Annotated[str | None, typer.Argument(metavar="[DATASET]", help="One account; all if not given.")] = None,
    example: Example = False,
    home: Home = None,
) -> None:
    """Write all events as JSON Lines and CSV, and one JSON for each published release in the shape of the public registry.

    Without the key the chain is checked and the events are written all the same; the last line says that no seal was checked.

    Example: `marginweave ledger export census-2026 --to audit/`
    """
    from marginweave.schemas.errors import InputError
    from marginweave.tasks.checkpoint.files import at_place, replace_file
    from marginweave.tasks.ledger.accounts import account_in
    from marginweave.tasks.ledger.audit import audit_ledger
    from marginweave.tasks.ledger.export import comma_separated, json_lines, registry_record
    from marginweave.tasks.program import program_identity
    from marginweave.tasks.publish.statement import ASSUMPTIONS, old_releases

    location = location_of(example, home)
    audited = audit_ledger(location, _keys(location)[0])
    if dataset is not None:
        account_in(audited.accounts, dataset)
    with at_place(to, "written"):
        if to.exists() and any(to.iterdir()):
            raise InputError(f"{to} is not empty; choose another folder")
        (to / "releases").mkdir(parents=True, exist_ok=True)
    rows = [row for row in audited.rows if dataset is None or row["account"] in {None, dataset}]
    replace_file(to / "events.jsonl", json_lines(rows))
    replace_file(to / "events.csv", comma_separated(rows))
    own = [record for record in audited.releases.values() if dataset is None or record.dataset == dataset]
    published = [record for record in own if record.published is not None]
    for record in published:
        before = audited.accounts[record.dataset].releases_before
        entry = registry_record(record, [*ASSUMPTIONS, *old_releases(before)], program_identity().version)
        place = to / "releases" / f"{record.run}-{record.release[:8]}.json"
        replace_file(place, (json.dumps(entry, indent=2, ensure_ascii=False) + "\n").encode())
    out.print(f"{len(rows)} event(s) and {len(published)} published release(s) written to {to}")
    if audited.unchecked:
        out.print(f"The seals of {audited.unchecked} row(s) could not be checked: a key is missing")
    if len(own) > len(published):
        out.print(f"{len(own) - len(published)} release(s) not published: among the events alone")


@command
def alias(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="The account that may release it as well.")],
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The account under which the source was released.")],
    reason: Reason,
    example: Example = False,
    home: Home = None,
) -> None:
    """Decide that sources released under OTHER may be released under DATASET too: their people then have two budgets.

    Example: `marginweave ledger alias census-2026-b census-2026 --reason "board decision 14"`
    """
    from marginweave.tasks.ledger import Ledger, Witness

    witness = Witness(home_of(home))
    Ledger.open(location_of(example, home), witness=witness).accounts.alias(
        dataset, other, reason, actor=getpass.getuser()
    )
    out.print(f"Sources of {other} may be released under {dataset}; what {other} has spent is not counted there")


@keys.command("rotate")
@command
def rotate(reason: Reason, example: Example = False, home: Home = None) -> None:
    """Seal new rows with a new key; the old keys stay, and verify the old rows.

    Where the key comes from `MARGINWEAVE_LEDGER_KEY`, add the new one at its end first, after a comma.

    Example: `marginweave ledger key rotate --reason "yearly"`
    """
    from marginweave.tasks.ledger import Ledger, Witness

    witness = Witness(home_of(home))
    name = Ledger.open(location_of(example, home), witness=witness).keys.rotate(reason, actor=getpass.getuser())
    out.print(f"New rows are sealed with key {name}")
    out.print("Back up the ledger's keys. Without them you cannot make further releases")


def _keys(location: LedgerLocation) -> tuple[Keyring, str]:
    """The keys, or an empty ring and why there are none."""
    from marginweave.schemas.errors import BudgetError
    from marginweave.tasks.ledger.keys import Keyring, load_key

    try:
        return load_key(location, os.environ), ""
    except BudgetError as error:
        return Keyring(()), str(error)


def _loaded(location: LedgerLocation) -> Keyring:
    from marginweave.tasks.ledger.keys import load_key

    return load_key(location, os.environ)


def _content(place: Path) -> bytes:
    from marginweave.schemas.errors import InputError

    try:
        return place.read_bytes()
    except OSError as error:
        raise InputError(f"anchor ({place}) cannot be read: {error.strerror}") from None
