"""Proposes how a linked table is declared, and which columns of the source follow from its rows.

What is read from the data is private until somebody confirms it. DP: none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marginweave.configuration.execution import SourceFile
from marginweave.drafts.column_draft import ColumnDraft
from marginweave.drafts.drafted_columns import propose_column
from marginweave.drafts.find_relations import find_relations
from marginweave.drafts.found_keys import Link
from marginweave.drafts.subjects import Subject, capped
from marginweave.drafts.table_facts import TableFacts

_DAYS = 30
_FEW_VALUES = 4
"""Of a category with so many values, or fewer, each is a suggestion; of another one the most frequent is an example."""
_MOST_CONDITIONS = 4
_MOST_ENDS = 3
_ABOVE = 0.01
"""Share of the units that may have more rows than the upper end of their number."""
_ENDS = tuple(step * 10**power for power in range(9) for step in (1, 2, 3, 5))
_DATES = ("date", "datetime")
_NOT_DERIVED = ("text", "codes", "missing")
"""Keys of a number or date that say how cells are written: a derived cell is a number or a date itself, or none."""
_COUNT = "how many rows; more than {end} count as {end}: a higher end costs no noise, and has cells of few people"
_ANY = "whether any row is that"
_EXAMPLE = "whether any row is that: one such line for each value that you will ask for"
_WITHIN = (
    f"whether a row follows another one within {_DAYS} days: write the days that you will ask for"
)
_LARGEST = "the largest of the rows; smallest: {name} gives the other end"


@dataclass(frozen=True, kw_only=True)
class DerivedDraft:
    """A suggestion: how a column of the source follows from rows of a linked table, and how it is declared."""

    name: str
    rule: Mapping[str, Any]
    column: ColumnDraft
    remark: str


@dataclass(frozen=True, kw_only=True)
class LinkedDraft:
    """The draft of a linked table: its columns that suggestions read, and the suggestions."""

    name: str
    source: SourceFile
    link: Link
    columns: Mapping[str, ColumnDraft]
    derived: Sequence[DerivedDraft]
    end: int
    """Upper end of the number of rows of a unit."""
    guesses: Sequence[str] = ()
    doubts: Sequence[str] = ()

    @property
    def at_most(self) -> Subject:
        """The choice of `at_most`, with its price."""
        counts = self.link.rows_of_ids
        return capped(self.link.by, np.sort(counts[counts > 0]))

    @property
    def above(self) -> int:
        """Number of units with more rows than `end`. Private: for the terminal alone."""
        return int((self.link.rows_of_ids > self.end).sum())

    @property
    def question_count(self) -> int:
        """Number of facts that wait for a yes: the ids, the source if it was guessed, columns, and suggestions."""
        columns = sum(column.waits for column in self.columns.values())
        return 1 + bool(self.guesses) + columns + len(self.derived)


def propose_linked(
    name: str, source: SourceFile, facts: TableFacts, link: Link, taken: Collection[str]
) -> LinkedDraft:
    """Return the draft of a linked table.

    Args:
        name: Its name in the draft.
        source: Where it is, and how it is written.
        facts: The table and its header.
        link: Its column of ids, and the number of its rows for each id of the source.
        taken: Names that no derived column may have.
    """
    columns = {
        column: propose_column(facts.column(column), source.numbers)
        for column in facts.names
        if column != link.by and column not in facts.without_text
    }
    end = _end_of_counts(link)
    suggestions = _suggestions(facts, columns, link, end, source)
    derived = _named(suggestions, name, taken)
    read = {column for each in derived for column in _columns_of(each.rule)}
    return LinkedDraft(
        name=name,
        source=source,
        link=link,
        columns={column: draft for column, draft in columns.items() if column in read},
        derived=derived,
        end=end,
    )


def _suggestions(
    facts: TableFacts,
    columns: Mapping[str, ColumnDraft],
    link: Link,
    end: int,
    source: SourceFile,
) -> Iterator[DerivedDraft]:
    """Yield what can be derived of the rows: their number, rows that follow each other, values that any has, largest ones."""
    edges = [0, *(edge for edge in _ENDS if edge < end), end]
    counted = ColumnDraft("number", {"bounds": [0, end], "bins": edges, "decimals": 0})
    yield DerivedDraft(name="", rule={"count": True}, column=counted, remark=_COUNT.format(end=end))
    if not link.is_one_to_one:
        yield from _followers(facts, columns, source)
    yield from list(_conditions(facts, columns))[:_MOST_CONDITIONS]
    numbers = [name for name, draft in columns.items() if draft.type == "number"]
    for name in numbers[:_MOST_ENDS]:
        declared = {
            key: value for key, value in columns[name].facts.items() if key not in _NOT_DERIVED
        }
        yield DerivedDraft(
            name=f"largest_{name}",
            rule={"largest": name},
            column=ColumnDraft("number", {**declared, "missing": [""]}),
            remark=_LARGEST.format(name=name),
        )


def _followers(
    facts: TableFacts, columns: Mapping[str, ColumnDraft], source: SourceFile
) -> Iterator[DerivedDraft]:
    """Yield whether a row follows another: after the later of two ordered dates, or after the one date that there is."""
    dated = {name: draft for name, draft in columns.items() if draft.type in _DATES}
    pair: tuple[str, str] | None = None
    if len(dated) == 1:
        (name,) = dated
        pair = name, name
    elif dated:
        orders = [
            (relation.columns[0], relation.columns[-1])
            for relation in find_relations(facts.table, dated, source.numbers).asked
            if relation.key == "ordered"
        ]
        same = [order for order in orders if dated[order[0]].type == dated[order[1]].type]
        pair = same[0] if same else None
    if pair is not None:
        yield DerivedDraft(
            name=f"again_within_{_DAYS}_days",
            rule={"within": f"{_DAYS} days", "from": pair[1], "to": pair[0]},
            column=ColumnDraft("boolean"),
            remark=_WITHIN,
        )


def _conditions(facts: TableFacts, columns: Mapping[str, ColumnDraft]) -> Iterator[DerivedDraft]:
    """Yield whether any row has a value: true, one of a few, or an example of many."""
    for name, draft in columns.items():
        values: Sequence[str] = ()
        remark = _ANY
        if draft.type == "boolean":
            values = draft.facts.get("true_values", ["true"])[:1]
        elif draft.type == "category" and isinstance(draft.facts.get("values"), list):
            values = list(map(str, draft.facts["values"]))
            if len(values) > _FEW_VALUES:
                cells = facts.column(name).cells
                values = [max(values, key=lambda value: cells.get(value, 0))]
                remark = _EXAMPLE
        for value in values:
            yield DerivedDraft(
                name=name if draft.type == "boolean" else f"{name}_{value}",
                rule={"any": {name: value}},
                column=ColumnDraft("boolean"),
                remark=remark,
            )


def _end_of_counts(link: Link) -> int:
    """Return the least of 2, 3, 5, 10, 20, … that at most one unit in a hundred has more rows than."""
    counts = link.rows_of_ids
    most = _ABOVE * len(counts)
    return next(end for end in _ENDS[1:] if int((counts > end).sum()) <= most)


def _columns_of(rule: Mapping[str, Any]) -> Iterator[str]:
    """Yield the columns of the linked table that a rule reads."""
    yield from rule.get("any", {})
    for key in ("largest", "from", "to"):
        if key in rule:
            yield rule[key]


def _named(
    suggestions: Iterator[DerivedDraft], table: str, taken: Collection[str]
) -> list[DerivedDraft]:
    """Return the suggestions, each with a name that no other column has; the number of rows has that of the table."""
    plain_table = _plain(table)
    names = set(taken)
    derived = []
    for each in suggestions:
        wanted = _plain(each.name) if each.name else plain_table
        choices = [wanted, f"{plain_table}_{wanted}" if each.name else f"number_of_{plain_table}"]
        choices += [f"{choices[1]}_{number}" for number in range(2, len(names) + 4)]
        name = next(choice for choice in choices if choice not in names)
        names.add(name)
        derived.append(
            DerivedDraft(name=name, rule=each.rule, column=each.column, remark=each.remark)
        )
    return derived


def _plain(name: str) -> str:
    """Return a name of letters, digits and underscores, at most 60 characters."""
    return re.sub(r"\W+", "_", name).strip("_")[:60] or "rows"
