"""Commands for auditors and stewards: `overview`, and below `ledger`: `verify`, `anchor`, `export`, `expire`, `reconcile`."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from marginweave.base.durable import PRIVATE_MODE, at_place, replace_file
from marginweave.base.errors import AuditError, BudgetError, InputError
from marginweave.base.user import user_name
from marginweave.runs.home import home_directory

from . import console
from .console import Example, Home, out

if TYPE_CHECKING:
    from marginweave.accounting.accounts import AccountTotal
    from marginweave.ledger import LedgerLocation
    from marginweave.ledger.keys import LedgerKey
    from marginweave.verify.files import AuditedFiles


def verify(
    anchor: Annotated[
        Path | None, typer.Option(help="What `ledger anchor` wrote, kept elsewhere since.")
    ] = None,
    as_json: console.Json = False,
    example: Example = False,
    home: Home = Path(),
) -> None:
    """Check chain, seals, states and caps of every row, and the files of the home against it; exit 1 at the first fault.

    Without the key the chain is checked all the same, and the command fails at the end, because no seal was checked.

    Example: `marginweave ledger verify --anchor /mnt/vault/ledger-anchor.json`
    """
    from marginweave.ledger.audit import Anchor, audit_ledger
    from marginweave.runs.metrics import verification_noted
    from marginweave.verify.files import audit_files, marks_of_runs

    location = console.location_of(example, home)
    recording = nullcontext() if example else verification_noted(home, location)
    expected = None if anchor is None else Anchor.from_json(_content(anchor))
    key, missing = _key_if_any(location)
    with recording:
        before = marks_of_runs(home)
        audited = audit_ledger(location, key, expected)
        files = audit_files(home, audited, key, example=example, before=before)
        rows = len(audited.rows)
        if audited.unchecked:
            raise AuditError(
                f"the chain of {rows} rows holds, but the seals of {audited.unchecked} could not be checked: {missing}"
            )
    if as_json:
        summary = {
            "rows": rows,
            "anchored": anchor is not None,
            "accounts": len(audited.accounts),
            "releases": len(audited.releases),
        }
        console.print_json({**summary, **asdict(files)})
        return
    anchored = ", the anchored row among them" if expected else ""
    out.print(f"{rows} rows in one chain, every seal checked{anchored}")
    counted = f"{len(audited.releases)} release(s) of {len(audited.accounts)} account(s)"
    out.print(f"{counted}, each admitted by the cap of its account")
    _print_files(files)


def _print_files(files: AuditedFiles) -> None:
    """Print how many files were compared with the ledger, and the runs whose files were not."""
    out.print(
        f"{files.files} file(s) of {files.runs} run(s) are as the ledger has them, every privacy.json and account.json "
        "number by number"
    )
    for run in files.in_progress:
        out.print(f"run {run} is in progress: its files were not looked at")
    for run in files.elsewhere:
        out.print(f"run {run} is published and not in this home: its files were not looked at")


def anchor(
    to: Annotated[
        Path | None, typer.Option(help="File to write; standard output if not given.")
    ] = None,
    example: Example = False,
    home: Home = Path(),
) -> None:
    """Number and hash of the newest row, to be kept where the ledger's machine cannot write.

    Example: `marginweave ledger anchor --to /mnt/vault/ledger-anchor.json`
    """
    from marginweave.ledger.audit import audit_ledger
    from marginweave.ledger.keys import load_key

    location = console.location_of(example, home)
    content = audit_ledger(location, load_key(location, os.environ)).anchor.to_json()
    if to is None:
        typer.echo(content, nl=False)
    else:
        replace_file(to, content.encode())


def export(
    to: Annotated[Path, typer.Option(help="Folder to write to; must be empty or new.")],
    dataset: Annotated[
        str | None, typer.Argument(metavar="[DATASET]", help="One account; all if not given.")
    ] = None,
    example: Example = False,
    home: Home = Path(),
) -> None:
    """Write all events as JSON Lines and CSV, and one JSON for each published release in the shape of the public registry.

    Without the key the chain is checked and the events are written all the same; the last line says that no seal was checked.

    Example: `marginweave ledger export census-2026 --to audit/`
    """
    from marginweave.draws.program import program_identity
    from marginweave.ledger.accounts import account_in
    from marginweave.ledger.audit import audit_ledger
    from marginweave.ledger.export import comma_separated, json_lines, registry_record
    from marginweave.publish.statement import ASSUMPTIONS

    location = console.location_of(example, home)
    key, _ = _key_if_any(location)
    audited = audit_ledger(location, key)
    if dataset is not None:
        account_in(audited.accounts, dataset)
    with at_place(to, "written"):
        if to.exists() and any(to.iterdir()):
            raise InputError(f"{to} is not empty; choose another folder")
        (to / "releases").mkdir(parents=True, exist_ok=True)
    rows = [row for row in audited.rows if dataset is None or row["account"] in {None, dataset}]
    replace_file(to / "events.jsonl", json_lines(rows))
    replace_file(to / "events.csv", comma_separated(rows))
    releases = [
        record
        for record in audited.releases.values()
        if dataset is None or record.dataset == dataset
    ]
    published = [record for record in releases if record.published is not None]
    for record in published:
        entry = registry_record(record, [*map(str, ASSUMPTIONS)], program_identity().version)
        place = to / "releases" / f"{record.run}-{record.release[:8]}.json"
        text = json.dumps(entry, indent=2, ensure_ascii=False) + "\n"
        replace_file(place, text.encode())
    out.print(f"{len(rows)} event(s) and {len(published)} published release(s) written to {to}")
    if audited.unchecked:
        out.print(
            f"The seals of {audited.unchecked} row(s) could not be checked: the key is missing"
        )
    unpublished = len(releases) - len(published)
    if unpublished:
        out.print(f"{unpublished} release(s) not published: among the events alone")


def expire(
    older_than: Annotated[str, typer.Option(help="Days without a row, such as 7d.")],
    release: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="This release alone, also if it was begun: its run can never finish."
        ),
    ] = None,
    example: Example = False,
    home: Home = Path(),
) -> None:
    """Give back what is reserved for stalled releases of which nothing was drawn; their runs reserve it again.

    A release that has begun to draw keeps its reservation, so that its run can finish. To give up such a run, use
    `marginweave purge RUN --unfinished`, or name its release with `--release` where its home is lost.

    Example: `marginweave ledger expire --older-than 7d`
    """
    from marginweave.base.budget import Cost

    age = console.days("older-than", older_than)
    ledger = console.ledger_to_change(example, home)
    expired = ledger.draws.expire(age, release)
    for name in expired.returned:
        out.print(f"Release {name}: what was reserved is given back")
        record = ledger.releases.find(name)
        if record is not None and record.charged != Cost():
            out.print(
                f"Its run {record.run} had begun to draw and can no longer finish; what was drawn stays charged. Give a new "
                "release a name with --run, and where the home of this one is left: "
                f"marginweave purge {record.run} --unfinished"
            )
    for name in expired.elsewhere:
        out.print(
            f"Release {name}: left alone, as its run is not below {home}; where that is lost, --release {name}"
        )
    if not (expired.returned or expired.elsewhere):
        out.print("Nothing is that old")


def overview(
    to: Annotated[Path, typer.Option(help="The page to write.")] = Path("overview.html"),
    home: Annotated[
        list[Path] | None, typer.Option(help="A home; once for each. Default: this one.")
    ] = None,
    example: Example = False,
) -> None:
    """Write one page on all accounts and releases: what is spent and left, what awaits approval, which private files are left.

    It reads the ledger and what may leave of the homes, and no row, value or exact count. Only you can read the file.

    Example: `marginweave overview --to overview.html`
    """
    from marginweave.runs.overview import overview_page

    if to.is_dir() or not to.parent.is_dir():
        raise InputError(f"--to ({to}) must be a file in a folder that exists")
    homes = _homes(home)
    page = overview_page(homes, console.location_of(example, homes[0]), datetime.now(UTC))
    with at_place(to, "written"):
        replace_file(to, page, PRIVATE_MODE)
    out.print(f"Written to {to}")


def reconcile(
    home: Annotated[
        list[Path] | None,
        typer.Option(help="A home that drew under this ledger; once for each. Default: this one."),
    ] = None,
    no_other_home: Annotated[
        str | None, typer.Option(help="Why no other home drew under it; it stays in the ledger.")
    ] = None,
    unaccounted: Annotated[
        str | None,
        typer.Option(
            metavar="EPSILON,DELTA", help="What homes that are gone may have released, together."
        ),
    ] = None,
    example: Example = False,
) -> None:
    """Bring a ledger that was restored from an old copy up to what homes have seen of it; it only ever adds charges.

    What is reserved in the old copy is charged as lost. Every account admits nothing until the homes that were not looked at
    are named, by one of the two options; both are stated in account.json from then on.

    Example: `marginweave ledger reconcile --home /srv/census --home /srv/survey --no-other-home "there are two machines"`
    """
    from marginweave.ledger import Ledger
    from marginweave.ledger.reconciliation import OtherHomes

    homes = _homes(home)
    if home:
        for folder in homes:
            if not (folder / "runs").is_dir():
                raise InputError(
                    f"--home {folder} has no runs: it is no home of marginweave; nothing was changed"
                )
    charge = None if unaccounted is None else console.amount_of("unaccounted", unaccounted)
    other_homes = None
    if charge is not None or no_other_home is not None:
        other_homes = OtherHomes(reason=no_other_home, unaccounted=charge)
    ledger = Ledger.open(console.location_of(example, homes[0]))
    outcome = ledger.reconcile(homes, other_homes, actor=user_name())
    out.print(f"Looked at {outcome.runs} run(s) of {len(homes)} home(s)")
    out.print(f"{outcome.adopted} row(s) adopted, {outcome.lost} reserved draw(s) charged as lost")
    for dataset in outcome.charged:
        out.print(f"{dataset} is charged ({unaccounted}) for what other homes may have released")
    for dataset in outcome.opened:
        out.print(_opened_words(ledger.accounts.total(dataset)))
    for dataset in outcome.frozen:
        out.print(
            f'{dataset} admits nothing until --no-other-home "reason" or --unaccounted EPSILON,DELTA says what other homes '
            "may have released"
        )


def _homes(options: list[Path] | None) -> list[Path]:
    """Return the homes of the options `--home`, or the default one."""
    if not options:
        return [home_directory(None)]
    return [home_directory(option) for option in options]


def _opened_words(total: AccountTotal) -> str:
    """Return a sentence on the releases that an account admits after its steward has accounted for other homes."""
    from marginweave.ledger.boxes import is_closed
    from marginweave.ledger.location import raising_command

    account = total.account
    if not is_closed(account, total.spent):
        return f"{account.dataset} admits releases again, as far as its cap holds them"
    return (
        f"{account.dataset} admits nothing until its cap is set again, the same or a larger one, which sets aside what is "
        f"charged for other homes: {raising_command(account.dataset, account.cap)}"
    )


def _key_if_any(location: LedgerLocation) -> tuple[LedgerKey, str]:
    """Return the key and ""; without a key, an empty one and the reason why no seal can be checked."""
    from marginweave.ledger.keys import LedgerKey, load_key

    try:
        return load_key(location, os.environ), ""
    except BudgetError as error:
        return LedgerKey(), str(error)


def _content(place: Path) -> bytes:
    try:
        return place.read_bytes()
    except OSError as error:
        raise InputError(f"anchor ({place}) cannot be read: {error.strerror}") from None
