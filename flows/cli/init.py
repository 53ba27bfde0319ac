"""`marginweave init`: the draft of a configuration, from a look at a table."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from marginweave.base.durable import write_once
from marginweave.base.errors import InputError, printable
from marginweave.base.places import is_path

from .console import Home, out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from marginweave.configuration.execution import SourceFile
    from marginweave.drafts.drafted_configuration import ConfigurationDraft
    from marginweave.drafts.found_keys import Family

_Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help="The table to look at: CSV, XLSX, Parquet, Arrow, or a folder of parts; of linked tables all of them.",
    ),
]
_Output = Annotated[
    Path | None,
    typer.Option(help="Where the draft goes; the first FILE's name with .yaml if not given."),
]
_Encoding = Annotated[
    str | None,
    typer.Option(
        help="How the text is written, recognised if not given: utf-8, utf-16, latin-1, windows-1252."
    ),
]
_Delimiter = Annotated[
    str | None,
    typer.Option(help="Between two fields, recognised if not given: comma, semicolon, tab, pipe."),
]
_Sheet = Annotated[
    str | None, typer.Option(help="The sheet of a workbook with several, guessed if not given.")
]
_Dictionary = Annotated[
    Path | None, typer.Option(help="A data dictionary (CSV: name, value, label, description).")
]


def init(
    files: _Files,
    *,
    output: _Output = None,
    encoding: _Encoding = None,
    delimiter: _Delimiter = None,
    sheet: _Sheet = None,
    dictionary: _Dictionary = None,
    home: Home = Path(),
) -> None:
    """Draft a configuration. What was read from data is marked; `run` refuses it until each line is confirmed or private.

    Of patients and their stays, `marginweave init patients.csv stays.csv`: columns of the patients follow from the stays.

    Example: `marginweave init visits.csv`
    """
    from marginweave.drafts.draft_text import write_draft

    stem, _, _ = Path(files[0]).name.partition(".")
    target = output or Path(f"{stem or 'draft'}.yaml")
    forms = {
        file: _form(file, target, encoding=encoding, delimiter=delimiter, sheet=sheet)
        for file in files
    }
    if len(files) > 1:
        if dictionary is not None:
            raise InputError(
                "--dictionary describes the columns of one file; leave it out, and name code lists in the draft"
            )
        if len({form.file for form in forms.values()}) < len(files):
            raise InputError("a file is named twice; name each table once")
        draft, family = _draft_linked(forms, target, home, encoding=encoding is None)
    else:
        draft = _draft(
            files[0],
            forms[files[0]],
            target,
            home,
            encoding=encoding is None,
            dictionary=dictionary,
        )
        family = None
    _write_new(target, write_draft(draft))
    _tell_layout(draft)
    if family is not None:
        _tell_links(draft, family)
    _tell_findings(draft)
    _tell_next(target, draft)


def _form(
    named: str, target: Path, *, encoding: str | None, delimiter: str | None, sheet: str | None
) -> SourceFile:
    """Return the source for the draft: its path is relative to the draft, like every source."""
    from pydantic import ValidationError

    from marginweave.configuration.execution import SourceFile
    from marginweave.sources.parts import refuse_url

    refuse_url(named)
    is_relative = is_path(named) and not Path(named).is_absolute()
    file = os.path.relpath(named, target.parent) if is_relative else named
    try:
        return SourceFile.model_validate(
            {"file": file, "encoding": encoding or "utf-8", "delimiter": delimiter, "sheet": sheet}
        )
    except ValidationError as error:
        option = str(error.errors()[0]["loc"][0])
    values = {
        "encoding": "utf-8, utf-16, latin-1 or windows-1252",
        "delimiter": "comma, semicolon, tab or pipe",
        "sheet": "the name of a sheet",
    }
    raise InputError(f"--{option} must be {values[option]}")


def _draft(
    source: str,
    form: SourceFile,
    target: Path,
    home: Path,
    *,
    encoding: bool,
    dictionary: Path | None,
) -> ConfigurationDraft:
    from marginweave.drafts.draft import draft_configuration
    from marginweave.drafts.recognise import recognise
    from marginweave.drafts.recognise_layout import guesses
    from marginweave.sources.sheet import workbooks_in_memory

    _refuse_existing(target)
    dictionary_name = None if dictionary is None else os.path.relpath(dictionary, target.parent)
    with workbooks_in_memory():
        recognised = recognise(source, form, encoding=encoding)
        draft = draft_configuration(
            source, recognised, dictionary_name, target.parent, guesses(form, recognised)
        )
    _record(draft, source, target, home)
    _tell_read(draft.rows, source, recognised)
    return draft


def _draft_linked(
    forms: Mapping[str, SourceFile], target: Path, home: Path, *, encoding: bool
) -> tuple[ConfigurationDraft, Family]:
    """Return the draft for several tables, and how they belong together; print how each was read."""
    from marginweave.drafts.draft import DraftedSource, about_table, draft_linked
    from marginweave.drafts.recognise import recognise
    from marginweave.drafts.recognise_layout import guesses
    from marginweave.sources.sheet import workbooks_in_memory

    _refuse_existing(target)
    sources = []
    with workbooks_in_memory():
        for place, form in forms.items():
            with about_table(place):
                recognised = recognise(place, form, encoding=encoding)
            sources.append(
                DraftedSource(place=place, form=recognised, guesses=guesses(form, recognised))
            )
        draft, family = draft_linked(sources)
    place_of = {source.form.file: source.place for source in sources}
    _record(draft, place_of[draft.source.file], target, home)
    _tell_read(draft.rows, place_of[draft.source.file], draft.source)
    for table in draft.tables:
        _tell_read(table.link.ids.rows, place_of[table.source.file], table.source)
    return draft, family


def _record(draft: ConfigurationDraft, source: str, target: Path, home: Path) -> None:
    """Write down that somebody looks at the table of a draft, before anything of it is shown."""
    from marginweave.configuration.code_lists import with_code_lists
    from marginweave.configuration.yaml_source import canonical_written, parse_yaml
    from marginweave.drafts.draft_text import write_draft
    from marginweave.runs.looks import record_look

    drafted = with_code_lists(parse_yaml(write_draft(draft)), target.parent)
    record_look(home, "init", drafted["dataset"], source, canonical_written(drafted))


def _tell_read(rows: int, source: str, form: SourceFile) -> None:
    from marginweave.drafts.recognise import describe

    out.print(
        f"Read {rows:,} rows of {source} with {describe(source, form)}; if that is wrong, correct `source` in the draft"
    )


def _tell_links(draft: ConfigurationDraft, family: Family) -> None:
    """Print by which columns tables are linked, and how many rows have no unit: exact counts, which no file has."""
    root = family.root
    key = printable(family.key)
    ids = family.ids
    out.print(
        f"A unit is a row of {root}, by {key}, with its rows in all tables (the counts are for you alone):"
    )
    out.print(
        f"  - {root}: of {ids.rows:,} rows {ids.repeated:,} have the id of an earlier one, {ids.rows - ids.filled:,} have none"
    )
    for table in draft.tables:
        link = table.link
        lost = f"{link.orphans:,} have an id that {root} has not, {link.without_id:,} have none"
        above = f"{table.above:,} of {len(link.rows_of_ids):,} ids have more than {table.end} rows"
        out.print(
            f"  - {table.name}, by {printable(link.by)}: of {link.ids.rows:,} rows {lost}; {above}"
        )
        advice = [*table.doubts, *table.guesses]
        if link.is_one_to_one:
            advice.append(
                f"No id has two rows: add the columns of {table.name} to {root}, and they can be released"
            )
        for line in advice:
            out.print(f"    {line}", style="yellow")
    for name, link in family.below.items():
        out.print(
            f"  - {name} is left out: its rows belong to rows of {link.parent}, by {printable(link.by)}. Add the column "
            f"{key} to it, and draft again",
            style="yellow",
        )


def _tell_layout(draft: ConfigurationDraft) -> None:
    """Print what was guessed of where the table is in the file, which columns are left out, and which rows add up others."""
    for guess in draft.guesses:
        out.print(guess, style="yellow")
    for advice in filter(None, (draft.names_advice, draft.totals_advice)):
        out.print(advice, style="yellow")


def _tell_findings(draft: ConfigurationDraft) -> None:
    """Print the relations that were found, with exact counts, which no file has; nothing where names may be values."""
    if draft.doubts:
        return
    if draft.relations:
        out.print(
            "All rows, or nearly all, keep these relations; the draft asks about each (the counts are for you alone):"
        )
    for relation in draft.relations:
        out.print(f"  - {relation.finding}")


def _tell_next(target: Path, draft: ConfigurationDraft) -> None:
    """Print the steps from the draft to a release, as commands that can be typed."""
    for line in draft.doubts:
        out.print(line, style="yellow")
    out.print(
        f"Wrote {target} (readable only by you). It contains values from your data: protect it like the data until you have "
        "confirmed it"
    )
    place = shlex.quote(str(target))
    room = "# once; it holds one such release, --epsilon makes room for more"
    steps = [
        f"answer the {draft.question_count} questions marked confirm: true in {target}; the comments at its top say how",
        f"marginweave check {place}",
        f"marginweave ledger open {draft.dataset} --for {place}   {room}",
        f"marginweave plan {place}",
        f"marginweave run {place}",
    ]
    out.print("Next, in this order:")
    for number, step in enumerate(steps, 1):
        out.print(f"  {number}. {step}")


def _refuse_existing(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise InputError(
            f"{path} exists already and is not overwritten; name another file with --output, or delete it first"
        )
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder")


def _write_new(path: Path, text: str) -> None:
    """Write a new file that only its owner can read (0600); refuse one that was made in the meantime."""
    if not write_once(path, text.encode()):
        _refuse_existing(path)
