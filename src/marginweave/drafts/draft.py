"""Drafts a configuration for a table: looks at the table and proposes; `draft_text` writes that as YAML.

What a look at a column suggests to declare about it is private until somebody confirms it. DP: none. What is found goes into
the draft (0600) and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from marginweave.base.places import EXAMPLE_PREFIX
from marginweave.configuration.execution import SourceFile
from marginweave.drafts.drafted_configuration import (
    ConfigurationDraft,
    DataDictionary,
    propose_configuration,
)
from marginweave.drafts.table_facts import TableFacts, usable_names
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
    header = source_columns(source, form)
    names = usable_names(header)
    table_source = TableSource(source, form)
    without_text = table_source.without_text(names)
    table = table_source.table([name for name in names if name not in without_text])
    described_by = None if dictionary is None else DataDictionary(dictionary, below)
    facts = TableFacts(table, header, without_text)
    draft = replace(
        propose_configuration(dataset_name(source), form, facts, described_by), guesses=guesses
    )
    return replace(draft, doubts=(*draft.doubts, *_doubts_of_file(table_source)))


def _doubts_of_file(source: TableSource) -> Iterator[str]:
    """Yield what may be wrong with the file: cells that may hold rows, and a line in another encoding than the others."""
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
