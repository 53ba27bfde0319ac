"""Drafts a configuration for a table: looks at the table and proposes; `draft_text` writes that as YAML.

What a look at a column suggests to declare about it is private until somebody confirms it. DP: none. What is found goes into
the draft (0600) and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from marginweave.base.errors import InputError
from marginweave.base.places import EXAMPLE_PREFIX
from marginweave.configuration.execution import SourceFile
from marginweave.drafts.drafted_configuration import (
    ConfigurationDraft,
    DataDictionary,
    propose_configuration,
)
from marginweave.drafts.found_keys import Family, find_family
from marginweave.drafts.linked_draft import propose_linked
from marginweave.drafts.table_facts import TableFacts, header_doubts, usable_names
from marginweave.sources.source import TableSource, source_columns


def draft_configuration(
    source: str,
    form: SourceFile,
    dictionary: str | None = None,
    below: Path = Path(),
    guesses: Sequence[str] = (),
) -> ConfigurationDraft:
    """Return the draft of a configuration for the table at `source`; `form.file` is its name in the draft.

    `guesses` has a sentence on each key of the form that says where the table is in the file, and was guessed.

    A column that the data `dictionary`, a file below `below`, describes has its codes, which are public, and its label.

    DP: none; it is as sensitive as the table until each column is confirmed.

    Raises:
        InputError: the source cannot be read, has no rows, or has column names that a configuration cannot have.
    """
    described_by = None if dictionary is None else DataDictionary(dictionary, below)
    facts = _read(source, form)
    draft = propose_configuration(dataset_name(source), form, facts, described_by)
    doubts = (*draft.doubts, *_doubts_of_file(source, form))
    return replace(draft, guesses=guesses, doubts=doubts)


@dataclass(frozen=True, kw_only=True)
class DraftedSource:
    """A table to draft: its place, its form, in which `file` is its name in the draft, and what of that was guessed."""

    place: str
    form: SourceFile
    guesses: Sequence[str] = ()


def draft_linked(sources: Sequence[DraftedSource]) -> tuple[ConfigurationDraft, Family]:
    """Return the draft for several tables, as `draft_tables`, with what was guessed, and may be wrong, of each file.

    DP: none; it is as sensitive as the tables until each fact is confirmed.

    Raises:
        InputError: as `draft_configuration`, with the place of the table, or as `draft_tables`.
    """
    by_name = dict(zip(_table_names(sources), sources, strict=True))
    tables: dict[str, TableFacts] = {}
    for name, each in by_name.items():
        with about_table(each.place):
            tables[name] = _read(each.place, each.form)
    forms = {name: each.form for name, each in by_name.items()}
    draft, family = draft_tables(None, forms, tables)
    linked = []
    for table in draft.tables:
        source = by_name[table.name]
        doubts = (*table.doubts, *_doubts_of_file(source.place, source.form))
        linked.append(replace(table, guesses=source.guesses, doubts=doubts))
    root = by_name[family.root]
    doubts = (*draft.doubts, *_doubts_of_file(root.place, root.form))
    return replace(draft, guesses=root.guesses, doubts=doubts, tables=linked), family


def draft_tables(
    dataset: str | None, forms: Mapping[str, SourceFile], tables: Mapping[str, TableFacts]
) -> tuple[ConfigurationDraft, Family]:
    """Return the draft for several tables, and how they belong together: `find_family` finds which of them is the source.

    Args:
        dataset: Name of the ledger account; that of the source if None.
        forms: The source of each table as the draft names it, and how it is written.
        tables: The tables by the same names, in the order in which they were named.

    Raises:
        InputError: as `propose_configuration` and `find_family`.
    """
    family = find_family(tables)
    facts = replace(tables[family.root], key=family.key)
    draft = propose_configuration(dataset or family.root, forms[family.root], facts)
    taken = set(facts.header)
    linked = []
    for name, link in family.children.items():
        table = propose_linked(name, forms[name], tables[name], link, taken)
        linked.append(replace(table, doubts=header_doubts(tables[name].names)))
        taken |= {derived.name for derived in table.derived}
    return replace(draft, tables=linked, counts_nothing=False), family


@contextmanager
def about_table(place: str) -> Iterator[None]:
    """Put the place of a table before the text of an InputError that does not name it."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error) if place in str(error) else f"{place}: {error}") from None


def _table_names(sources: Sequence[DraftedSource]) -> list[str]:
    """Return a name for each table, made from that of its file; later tables of a name have a number."""
    names: list[str] = []
    for source in sources:
        stem = dataset_name(source.place)
        choices = [stem, *(f"{stem}-{number}" for number in range(2, len(sources) + 1))]
        names.append(next(name for name in choices if name not in names))
    return names


def _read(source: str, form: SourceFile) -> TableFacts:
    """Return the facts of the table at `source`; raises InputError as `usable_names`, or as it is read."""
    header = source_columns(source, form)
    names = usable_names(header)
    table_source = TableSource(source, form)
    without_text = table_source.without_text(names)
    table = table_source.table([name for name in names if name not in without_text])
    return TableFacts(table, header, without_text)


def _doubts_of_file(place: str, form: SourceFile) -> Iterator[str]:
    """Yield what may be wrong with the file: cells that may hold rows, and a line in another encoding than the others."""
    source = TableSource(place, form)
    long_cells = source.long_cells()
    if long_cells is not None:
        yield f"{long_cells.words} {long_cells.advice}"
    line = source.line_not_in_utf8()
    if line is not None:
        yield (
            f"Most of the file is UTF-8, and line {line} is not, so that all was read as windows-1252, and letters with marks "
            "may be two or three wrong ones. Correct the line, and draft again."
        )


def draft_table(
    table: pa.Table,
    dataset: str,
    form: SourceFile,
    header: Sequence[str],
    dictionary: DataDictionary | None = None,
) -> ConfigurationDraft:
    """Return the draft for a table in memory; columns of its `header` may have no name.

    DP: none; it is as sensitive as the table until each column is confirmed.

    Raises:
        InputError: the table has no rows, or column names that a configuration cannot have.
    """
    facts = TableFacts(table, header)
    return propose_configuration(dataset, form, facts, dictionary)


def dataset_name(source: str) -> str:
    """Return a name for the ledger account, made from the name of the file."""
    file = Path(source.removeprefix(EXAMPLE_PREFIX)).name
    stem = file.partition(".")[0].lower()
    name = re.sub(r"[^a-z0-9._-]+", "-", stem).strip("-._")
    return name[:64] or "dataset"
