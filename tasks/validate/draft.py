"""Writes the draft of a configuration from a look at a table: YAML in which everything read from the data waits for a yes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from marginweave.schemas.configuration.source import EXAMPLE_PREFIX, SourceFile
from marginweave.schemas.configuration.yaml_source import TEXT_KEYS
from marginweave.schemas.errors import InputError
from marginweave.tasks.validate.look import ColumnDraft, look_at
from marginweave.tasks.validate.source import TableSource, source_columns

_LONGEST_NAME = 256
_PLAIN = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_./+-]| (?=[A-Za-z0-9_]))*")
_WORDS = frozenset({"true", "false", "null"})
_NOT_COUNTED = frozenset({"identifier", "constant"})

_HEAD = """\
# SENSITIVE: `marginweave init` wrote this draft by a look at the data. Keep it as you keep the data until it is confirmed.
#
# Everything in a configuration must be public knowledge. For each column that says `confirm: true`, compare what the line
# says with what is published (a questionnaire, a code list, a law), correct it, and then either
#   - write  public: "where this is published"  instead of  confirm: true;  privacy.json prints it as an assumption,
#   - or make it private:  {type: category, domain: private},  or for a number  bounds: private, within: [lowest, highest];
#     missing, decimals and the like were read from the data, too: delete them there,
#   - or delete the line: a column that is not named is not released.
# Values that nobody has in this table but that exist belong into the list; bounds are what can be, not what there is.
# Until then `marginweave run` and `marginweave plan` refuse this file. Names and order of the columns come from the file's
# header: they are public, too.
"""
_NOTHING_COUNTED = """\
#
# No column of this table is counted: each one is drafted as an identifier or a constant. Confirmed as it is, the file is still
# refused; give at least one column that is released another type, such as category or number.
"""
_PRIVACY = """\
privacy:
  epsilon: 1.0  # what this release may spend; the account's cap is set by `marginweave ledger open`
  delta: 1e-6   # well below 1 / (number of people)
  unit: row     # whose privacy: one row; where a person has several rows {column: ID, max_records: 4}
missing: [""]   # texts that mean "no value"; a column can have its own list
"""


def draft_configuration(source: str, form: SourceFile) -> str:
    """The draft, as YAML, of a configuration for the table at `source`; `form.file` is what the draft calls it.

    DP: none; the text is as sensitive as the table until each column is confirmed.

    Raises:
        InputError: the source cannot be read, or has column names that a configuration cannot have.
    """
    present = source_columns(source, form)
    named = _usable_names(present)
    table = TableSource(source, form).table(named)
    columns = {name: look_at(name, table.column(name)) for name in named}
    unnamed = [f"  # column {i + 1} has no name and is left out\n" for i, name in enumerate(present) if not name]
    lines = [column_line(name, draft) for name, draft in columns.items()]
    counted = any(draft.type not in _NOT_COUNTED for draft in columns.values())
    head = _HEAD if counted else _HEAD + _NOTHING_COUNTED
    return "".join([head, heading(dataset_name(source), form), _PRIVACY, "columns:\n", *unnamed, *lines])


def heading(dataset: str, form: SourceFile) -> str:
    """The lines `dataset` and `source`."""
    dumped = form.model_dump(exclude_none=True)
    return f"dataset: {dataset}\nsource: {flow('source', dumped)}\n"


def dataset_name(source: str) -> str:
    """A name for the ledger account, after the file."""
    stem = Path(source.removeprefix(EXAMPLE_PREFIX)).name.partition(".")[0].lower()
    return re.sub(r"[^a-z0-9._-]+", "-", stem).strip("-._")[:64] or "dataset"


def column_line(name: str, draft: ColumnDraft, public: str | None = None) -> str:
    """One column as one line: what nobody has called public is marked, a private domain has nothing to confirm."""
    mark: dict[str, Any] = {"confirm": True} if public is None else {"public": public}
    mark = {} if draft.is_private else mark
    remark = f"  # {draft.remark}" if draft.remark else ""
    return f"  {flow('', name)}: {flow('', {'type': draft.type, **draft.facts, **mark})}{remark}\n"


def flow(key: str, value: Any) -> str:
    """A value as it stands on one line of YAML below `key`, such that it is read back as it is."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow('', k)}: {flow(k, v)}" for k, v in value.items()) + "}"
    if isinstance(value, str):
        return _text(value, plain=key in TEXT_KEYS or value[:1].isalpha())
    if isinstance(value, Sequence):
        return "[" + ", ".join(flow(key, item) for item in value) + "]"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _text(text: str, *, plain: bool) -> str:
    if plain and _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return str(yaml.safe_dump(text, default_style='"', allow_unicode=True, width=10**9)).strip()


def _usable_names(present: Iterable[str]) -> list[str]:
    """The names of the columns that have one; a fault is told by its place, since a file without a header has data there."""
    names: list[str] = []
    for place, name in enumerate(present, 1):
        if not name:
            continue
        if name in names:
            raise InputError(f"source has the same name for columns {names.index(name) + 1} and {place}; rename one")
        if len(name) > _LONGEST_NAME or name != name.strip() or not name.isprintable():
            raise InputError(
                f"source has a name for column {place} that is too long, begins or ends with a space, or cannot be printed"
            )
        names.append(name)
    if not names:
        raise InputError("source has no column with a name")
    return names
