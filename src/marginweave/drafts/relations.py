"""What all kinds of relations share that a draft suggests as rules of `structure`. Private until they are confirmed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from marginweave.base.errors import printable
from marginweave.drafts.column_draft import ColumnDraft
from marginweave.drafts.declared_cells import DeclaredTable

SAMPLE = 20_000
"""Rows of a sample; a relation is looked for in these, and counted in all rows."""
_COLUMN_KEYS = ("column", "columns", "by", "of", "since")
FIRST_LOOK = 1_000
"""Rows of the sample in which a relation that is no chance is seen at once; it may be broken in twice as many as allowed."""


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A relation that holds in all rows of a table, or in all but a few; as private as the table."""

    key: str
    """Its key in `structure`."""
    entries: Sequence[Mapping[str, Any]]
    """What `structure` has under the key: one entry, or several that are one question."""
    columns: Sequence[str]
    """All columns that it names."""
    words: str
    """The relation for the draft, with values of the table where it is about certain ones."""
    broken: int
    rows: int
    """Number of rows that the relation speaks of."""
    changes: Mapping[str, ColumnDraft] = field(default_factory=dict)
    """Drafts of columns that the rule needs otherwise: bounds that hold what parts add up to."""
    summary: str = ""
    """The relation without values, for a terminal, where `words` have some."""
    computed: Sequence[str] = ()
    """Columns that the rule computes: no other rule can name them."""

    @property
    def name(self) -> str:
        """Name under which it waits to be confirmed."""
        return rule_name(self.key, self.entries[0])

    @property
    def finding(self) -> str:
        """Return a line for the person who drafts; it has an exact count, and never goes into the draft."""
        return f"{self.summary or self.words}: {self.broken:,} of {self.rows:,} rows break it"


@dataclass(frozen=True)
class SampledTable:
    """A table and a sample of its rows: relations are looked for in the sample, and counted in the table."""

    table: DeclaredTable
    sample: DeclaredTable
    first: DeclaredTable
    """First rows of the sample."""

    @classmethod
    def of(cls, table: DeclaredTable) -> SampledTable:
        """Return the table with its sample."""
        sample = table.scattered(SAMPLE)
        first = DeclaredTable(sample.table.slice(0, FIRST_LOOK), table.columns, table.form)
        return cls(table, table if table.rows <= SAMPLE else sample, first)

    def kinds(self, *types: str) -> list[str]:
        """Return the names of the columns of these types."""
        return [name for name, column in self.table.columns.items() if column.type in types]


def rule_name(key: str, rule: Mapping[str, Any]) -> str:
    """Return the name of a rule that `structure` has under `key`: its columns, such as `structure.ordered.arrival, leaving`."""
    columns: list[str] = []
    for part, value in rule.items():
        if key == "forbidden" or part == "where":
            columns += [part] if key == "forbidden" else value
        elif part in _COLUMN_KEYS:
            columns += [value] if isinstance(value, str) else value
    return f"structure.{key}.{', '.join(name for name in columns if name != 'confirm')}"


def quoted(name: str) -> str:
    """Return the name of a column in words."""
    return f"`{printable(name)}`"


def quoted_list(names: Sequence[str]) -> str:
    """Return the names of columns in words, separated by commas."""
    return ", ".join(map(quoted, names))


def shown_values(values: Sequence[str], most: int = 3) -> str:
    """Return the first values in words: "a, b or c"; "a, b, c or one of 5 others" where there are more."""
    shown = list(map(printable, values))
    if len(values) > most + 1:
        shown[most:] = [f"one of {len(values) - most} others"]
    *before, last = shown
    return f"{', '.join(before)} or {last}" if before else last
