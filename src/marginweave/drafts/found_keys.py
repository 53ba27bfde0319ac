"""Finds which columns of several tables are keys: ids that one table has once, and the rows of another refer to.

Everything here is read from the data, and private. DP: none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Integers
from marginweave.base.arrow import compute as pc
from marginweave.base.arrow import to_numpy
from marginweave.base.errors import InputError
from marginweave.drafts.table_facts import TableFacts

_SUFFIX = re.compile(r"(?:[ ._-]+(?i:id|nr|no|number|key|code)|(?<=[a-z])(?:ID|Id|Nr|No))$")
"""The word for an id at the end of a name: patient_id, patient no, patientId."""
_BARE = re.compile(r"(?i)(?:id|nr|no|number|key|code)")
_NO_LETTERS = re.compile(r"[\W_]+")
_ONCE = 0.95
"""Least share of the ids of a key that are in one row alone."""
_KNOWN = 0.5
"""Least share of the rows with an id whose id the other table has."""


@dataclass(frozen=True, eq=False)
class IdColumn:
    """The distinct ids of a column, trimmed and in order, and the number of rows of each; an empty cell is none."""

    texts: pa.Array
    counts: Integers
    rows: int

    @classmethod
    def of(cls, facts: TableFacts, name: str) -> IdColumn:
        """Return the ids of a column of a table."""
        cells = facts.column(name)
        is_id = pc.not_equal(cells.texts, "")
        return cls(cells.texts.filter(is_id), cells.counts[to_numpy(is_id)], facts.rows)

    @cached_property
    def filled(self) -> int:
        """Number of rows with an id."""
        return int(self.counts.sum())

    @property
    def repeated(self) -> int:
        """Number of rows with the id of an earlier row."""
        return self.filled - len(self.counts)

    @property
    def distinct_share(self) -> float:
        """Distinct ids by row with an id: 1 where each id is in one row."""
        return len(self.counts) / max(self.filled, 1)

    @property
    def can_be_key(self) -> bool:
        """Return whether nearly every id is in one row alone."""
        return self.filled > 0 and self.distinct_share >= _ONCE


@dataclass(frozen=True, kw_only=True, eq=False)
class Link:
    """A column `by` of the table `child`, whose cells are ids in the column `key` of the table `parent`. Private."""

    parent: str
    key: str
    child: str
    by: str
    ids: IdColumn
    rows_of_ids: Integers
    """For each id of the parent, the number of rows of the child; shape (ids,)."""

    @property
    def linked(self) -> int:
        """Number of rows of the child that have an id of the parent."""
        return int(self.rows_of_ids.sum())

    @property
    def orphans(self) -> int:
        """Number of rows of the child with an id that the parent has not."""
        return self.ids.filled - self.linked

    @property
    def without_id(self) -> int:
        """Number of rows of the child without an id."""
        return self.ids.rows - self.ids.filled

    @property
    def is_one_to_one(self) -> bool:
        """Return whether no id of the parent has several rows."""
        return int(self.rows_of_ids.max(initial=0)) <= 1


@dataclass(frozen=True, kw_only=True)
class Family:
    """A root table, the links of its children by their names, and the tables below children that do not have its key."""

    root: str
    key: str
    ids: IdColumn
    """The ids in the key of the root."""
    children: Mapping[str, Link]
    below: Mapping[str, Link]
    """Of tables that have the id of a child and none of the root, their link to that child."""


class _Keys:
    """The ids of columns of several tables, each read once."""

    def __init__(self, tables: Mapping[str, TableFacts]) -> None:
        self.tables = tables
        self._ids: dict[tuple[str, str], IdColumn] = {}

    def ids(self, table: str, column: str) -> IdColumn:
        """Return the ids of a column."""
        place = table, column
        if place not in self._ids:
            self._ids[place] = IdColumn.of(self.tables[table], column)
        return self._ids[place]

    def columns(self, table: str) -> Iterator[str]:
        """Yield the columns of a table whose cells have a text."""
        facts = self.tables[table]
        for name in facts.names:
            if name not in facts.without_text:
                yield name


def find_family(tables: Mapping[str, TableFacts]) -> Family:
    """Return how several tables belong together, in their order: of two that can be the root, it is the one with more children.

    A key is a column of which nearly every id is in one row alone; another table refers to it by a column of the same name, or
    of the table's name and `id`, of which at least half of the ids are among those of the key.

    Raises:
        InputError: a table has no key that links it to another.
    """
    keys = _Keys(tables)
    links = [
        link
        for parent in tables
        for child in tables
        if parent != child
        for link in _links(keys, parent, child)
    ]
    have_parents = {link.child for link in links}
    places = [(link.parent, link.key) for link in links if link.parent not in have_parents]
    if not places:
        raise InputError(_no_key(tables))
    root, key = max(dict.fromkeys(places), key=places.count)
    children = {
        link.child: link for link in reversed(links) if (link.parent, link.key) == (root, key)
    }
    below: dict[str, Link] = {}
    for name in tables:
        if name in {root, *children}:
            continue
        found = [
            link for link in links if link.child == name and link.parent in {*children, *below}
        ]
        if not found:
            raise InputError(_not_linked(name, root, key))
        below[name] = found[0]
    ordered = {name: children[name] for name in tables if name in children}
    return Family(root=root, key=key, ids=keys.ids(root, key), children=ordered, below=below)


def _no_key(tables: Mapping[str, TableFacts]) -> str:
    return (
        f"no table of {', '.join(tables)} has a column of ids that another one refers to: a key is in one row alone in its "
        "table, and elsewhere has the same name, or the name of its table and _id. Name the columns so, or draft one file"
    )


def _not_linked(name: str, root: str, key: str) -> str:
    return f"{name} has no column with the ids of {root}: give it the column {key!r}, under this name, or draft without it"


def _links(keys: _Keys, parent: str, child: str) -> Iterator[Link]:
    """Yield the links of a child to the keys of a parent, each key once, the best column of each."""
    for key in keys.columns(parent):
        names = [by for by in keys.columns(child) if _are_of_one_name(parent, key, by)]
        if not names or not keys.ids(parent, key).can_be_key:
            continue
        links = [_link(keys, (parent, key), (child, by)) for by in names]
        fitting = [link for link in links if _fits(keys, link)]
        if fitting:
            yield max(fitting, key=lambda link: link.linked)


def _link(keys: _Keys, parent: tuple[str, str], child: tuple[str, str]) -> Link:
    """Return the link of a column of ids to a key."""
    known = keys.ids(*parent)
    ids = keys.ids(*child)
    places = pc.index_in(known.texts, value_set=ids.texts)
    is_known = to_numpy(places.is_valid())
    rows = np.zeros(len(known.texts), np.int64)
    rows[is_known] = ids.counts[to_numpy(places.drop_null())]
    return Link(
        parent=parent[0], key=parent[1], child=child[0], by=child[1], ids=ids, rows_of_ids=rows
    )


def _fits(keys: _Keys, link: Link) -> bool:
    """Return whether a column refers to a key: most of its ids are there, and the key has fewer rows for an id.

    Where both have each id once, the table with more ids has the key, and of equal ones the table that was named first. Two
    columns `id` of that kind number two kinds of things.
    """
    if link.linked < _KNOWN * max(link.ids.filled, 1):
        return False
    known = keys.ids(link.parent, link.key)
    if known.distinct_share != link.ids.distinct_share:
        return known.distinct_share > link.ids.distinct_share
    order = list(keys.tables)
    parent = -len(known.counts), order.index(link.parent)
    child = -len(link.ids.counts), order.index(link.child)
    return parent < child and not _BARE.fullmatch(link.by)


def _are_of_one_name(parent: str, key: str, by: str) -> bool:
    """Return whether two names can be of one id: the same but for `_id`, or `id` and the name of the table with `_id`."""
    if _plain(key) == _plain(by):
        return True
    names = _singulars(parent) if _BARE.fullmatch(key) else [_stem(key)]
    return not _BARE.fullmatch(by) and _stem(by) in names


def _stem(name: str) -> str:
    """Return a name without the word for an id at its end, in lower case, letters and digits alone."""
    return _plain(_SUFFIX.sub("", name))


def _plain(name: str) -> str:
    return _NO_LETTERS.sub("", name).lower()


def _singulars(table: str) -> Sequence[str]:
    """Return the names that one row of a table can have."""
    name = _plain(table)
    forms = [name, name.removesuffix("s"), name.removesuffix("es"), name.removesuffix("en")]
    return [*forms, f"{name[:-3]}y"] if name.endswith("ies") else forms
