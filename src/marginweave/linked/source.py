"""Reads the source of a release: its table, with the columns that follow from the rows of linked tables.

The id of a row is compared as the unit of privacy compares ids (`id_digests`). A row of a linked table without an id, or with
an id that no row of the source has, belongs to nobody and is in no value.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.base.arrays import Flags, Integers, Words
from marginweave.base.errors import InputError
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.linked import LinkedTable
from marginweave.configuration.release import Configuration
from marginweave.configuration.sections import NESTED, UNDECLARED
from marginweave.linked.derivations import (
    DerivedColumn,
    LinkedRows,
    derived_column,
    linked_values,
)
from marginweave.linked.nested import NestedRows
from marginweave.linked.places import TablePlaces
from marginweave.prepare.rows import id_digests
from marginweave.sources.long_cells import LongCells
from marginweave.sources.number_cells import NumberTexts
from marginweave.sources.source import (
    TableSource,
    advice_on_header,
    check_header,
    check_rows,
    source_columns,
)
from marginweave.sources.text_source import check_columns

_WIDTH = 16


@dataclass(frozen=True)
class UnlinkedRows:
    """How many rows a linked table has, how many of them have no id, and how many the id of no row of the source. Private."""

    rows: int
    without_id: int
    orphans: int


class UnitNumbers:
    """Numbers of the units of the source, from 0, by the digests of their ids; the order is that of the digests."""

    def __init__(self, digests: Sequence[NDArray[np.bytes_]]) -> None:
        self._units = np.unique(np.concatenate(digests))

    def __len__(self) -> int:
        return len(self._units)

    def of(self, digests: NDArray[np.bytes_], has_id: Flags) -> Integers:
        """Return the number of each row's unit, or `len(self)` where the row has no id, or one that the source has not."""
        if not len(self):
            return np.zeros(len(digests), np.int64)
        places = np.searchsorted(self._units, digests)
        is_known = has_id & (self._units[np.minimum(places, len(self) - 1)] == digests)
        return np.where(is_known, places, len(self)).astype(np.int64)


@dataclass(frozen=True)
class LinkedSource:
    """A linked table that can be read any number of times."""

    name: str
    table: LinkedTable
    source: TableSource
    by: str

    @classmethod
    def of(cls, name: str, place: str, configuration: Configuration) -> LinkedSource:
        """Return the table of this name at `place`, in the form that the configuration declares."""
        table = (configuration.tables or {})[name]
        subject = configuration.privacy.subject
        by = table.by or (subject.column if subject is not None else "")
        numbers = {}
        for column_name in table.read_names:
            column = table.columns[column_name]
            if isinstance(column, NumberColumn):
                form = column.form_in(table.source.numbers)
                if not form.is_usual:
                    missing = table.missing_texts(column_name, configuration.missing)
                    numbers[column_name] = NumberTexts(form, missing)
        return cls(name, table, TableSource(place, table.source, numbers, (by,)), by)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        return tuple(dict.fromkeys((*self.table.read_names, self.by)))

    def check_header(self) -> None:
        """Refuse the table as `check_header` does; raises InputError with its name."""
        with naming(self.name):
            check_header(self.source.name, self.columns, self.source.form, (self.by,))

    def check_rows(self) -> None:
        """Refuse the table as `check_rows` does; raises InputError with its name."""
        with naming(self.name):
            check_rows(self.source.name, self.columns, self.source.form, (self.by,))

    def tables(self) -> Iterator[pa.Table]:
        """Yield the columns, piece by piece; raises InputError with the name of the table."""
        with naming(self.name):
            yield from self.source.tables(self.columns)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Put the key of a linked table before the text of an InputError."""
    try:
        yield
    except InputError as error:
        raise InputError(f"tables.{name}: {error}") from None


@dataclass(frozen=True)
class ReleaseSource:
    """The source of a release, which can be read any number of times; without linked tables it is its table."""

    root: TableSource
    configuration: Configuration
    linked: tuple[LinkedSource, ...] = ()
    unlinked: dict[str, UnlinkedRows] = field(default_factory=dict)
    """By linked tables, how many rows belong to nobody, once the tables were read. For the operator alone."""
    watch: Callable[[str, LinkedRows], None] | None = None
    """Is given rows of each linked table that belong to somebody, with its name. For the operator alone."""

    @classmethod
    def of(cls, places: TablePlaces, configuration: Configuration) -> ReleaseSource:
        """Return the source with its linked tables at these places."""
        root = TableSource.of(places.root, configuration)
        linked = (
            LinkedSource.of(name, place, configuration)
            for name, place in sorted(places.linked.items())
        )
        return cls(root, configuration, tuple(linked))

    def columns(self) -> tuple[str, ...]:
        """Return the names of the table's columns, and of the derived ones; raises InputError as `source_columns`."""
        present = source_columns(self.root.name, self.root.form)
        return (*present, *self.configuration.derived)

    def check_header(self) -> None:
        """Refuse a table by its kind and its header, and by nothing in its rows.

        Raises:
            InputError: as `check_header`, for each table; or the source has a derived column.
        """
        configuration = self.configuration
        form = self.root.form
        check_header(self.root.name, configuration.stored_names, form, configuration.spelled_names)
        self._check_derived(source_columns(self.root.name, form))
        for linked in self.linked:
            linked.check_header()

    def check_columns(self) -> None:
        """Refuse tables that lack a declared column, with advice on their headers; raises InputError."""
        present = source_columns(self.root.name, self.root.form)
        names = self.configuration.stored_names
        check_columns(present, names, lambda: advice_on_header(self.root.name, self.root.form))
        self._check_derived(present)
        for linked in self.linked:
            linked.check_header()

    def _check_derived(self, present: Sequence[str]) -> None:
        for name, (table, _) in self.configuration.derived.items():
            if name in present:
                raise InputError(
                    f"source has the column {name!r}, which tables.{table}.derive makes; give the derived one another name"
                )

    def check_rows(self) -> None:
        """Read all tables from the first row to the last, but large ones; raises InputError as `check_rows`."""
        configuration = self.configuration
        check_rows(
            self.root.name, configuration.stored_names, self.root.form, configuration.spelled_names
        )
        for linked in self.linked:
            linked.check_rows()

    def tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the `columns` in this order, piece by piece, as `TableSource.tables`.

        They are of the table, derived (`Configuration.derived`), flags of these (`undeclared_flags`), or hold rows
        (`nested_names`). With others than the table's the ids of the source are read first, then the linked tables, and then
        the source.

        DP: 1-stable for units that come, go or change with all their rows in all tables: a derived cell is a function of its
        row's id and of the rows of linked tables with this id. So a unit moves the rows that have its id, and no other.

        Raises:
            InputError: as `TableSource.tables`.
        """
        flags = {UNDECLARED + name: name for name in self.configuration.undeclared_by_rows}
        others = {*self.configuration.derived, *self.configuration.nested_names}
        followed = (flags.get(name, name) for name in columns)
        wanted = [*dict.fromkeys(name for name in followed if name in others)]
        subject = self.configuration.privacy.subject
        if not wanted or subject is None:
            yield from self.root.tables(columns)
            return
        key = secrets.token_bytes(32)
        units = self._units(subject.column, key)
        values = self._derived_values(wanted, units, key)
        stored = [name for name in columns if name not in values]
        read = list(dict.fromkeys((*stored, subject.column)))
        for table in self.root.tables(read):
            digests, has_id = self._ids(table, subject.column, key)
            places = pa.array(units.of(digests, has_id))
            cells = {name: table.column(name) for name in stored}
            cells |= {
                name: of_units.take(places) for name, of_units in values.items() if name in columns
            }
            yield pa.table({name: cells[name] for name in columns})

    def _units(self, column: str, key: bytes) -> UnitNumbers:
        """Return the numbers of the units that the source has."""
        digests = [np.zeros(0, f"S{_WIDTH}")]
        for table in self.root.tables([column]):
            ids, has_id = self._ids(table, column, key)
            digests.append(np.unique(ids[has_id]))
        return UnitNumbers(digests)

    def _ids(
        self, table: pa.Table, column: str, key: bytes, missing: tuple[str, ...] = ()
    ) -> tuple[NDArray[np.bytes_], Flags]:
        """Return the digest of each row's id, 16 bytes, and which rows have one: no missing text of the source or `missing`."""
        ids = table.column(column).combine_chunks()
        words, has_id = id_digests(ids, (*self.configuration.missing_ids, *missing), key)
        return _as_bytes(words), has_id

    def _derived_values(
        self, wanted: Sequence[str], units: UnitNumbers, key: bytes
    ) -> dict[str, pa.Array]:
        """Return the values of derived columns by unit, and last those of a unit without rows; reads the linked tables."""
        values: dict[str, pa.Array] = {}
        for linked in self.linked:
            possible = (*linked.table.derive, NESTED + linked.name)
            names = [name for name in possible if name in wanted]
            if names:
                values |= self._values_of(linked, names, units, key)
        return values

    def _values_of(
        self, linked: LinkedSource, names: Sequence[str], units: UnitNumbers, key: bytes
    ) -> dict[str, pa.Array]:
        """Return the values of the columns that follow from the rows of one linked table."""
        configuration = self.configuration
        columns = {name: self._column(linked, name, len(units)) for name in names}
        kinds = {
            name: linked_values(configuration, linked.table, name)
            for name in linked.table.read_names
        }
        missing = linked.table.missing_texts(linked.by, configuration.missing)
        rows = without_id = orphans = 0
        for table in linked.tables():
            digests, has_id = self._ids(table, linked.by, key, missing)
            numbers = units.of(digests, has_id)
            is_linked = numbers < len(units)
            rows += len(numbers)
            without_id += int((~has_id).sum())
            orphans += int((has_id & ~is_linked).sum())
            linked_rows = LinkedRows(numbers[is_linked], table.filter(pa.array(is_linked)), kinds)
            for column in columns.values():
                column.add(linked_rows)
            if self.watch is not None:
                self.watch(linked.name, linked_rows)
        self.unlinked[linked.name] = UnlinkedRows(rows, without_id, orphans)
        values = {name: column.values() for name, column in columns.items()}
        flags = {UNDECLARED + name: pa.array(each.undeclared()) for name, each in columns.items()}
        return values | flags

    def _column(self, linked: LinkedSource, name: str, units: int) -> DerivedColumn:
        """Return a column in the making: derived, or with the rows themselves."""
        if name in linked.table.derive:
            return derived_column(self.configuration, linked.table, name, units)
        return NestedRows(units, linked.table, self.configuration.missing)

    def types(self, columns: Sequence[str]) -> dict[str, str]:
        """Return the types that columns have in the schema of the source; derived columns have none."""
        return self.root.types([name for name in columns if name not in self.configuration.derived])

    def without_text(self, columns: Sequence[str]) -> list[str]:
        """Return which columns of the source have a type without a text, as `TableSource.without_text`."""
        return self.root.without_text(
            [name for name in columns if name not in self.configuration.derived]
        )

    def long_cells(self) -> LongCells | None:
        """Return the long cells of the source, as `TableSource.long_cells`."""
        return self.root.long_cells()

    def contents(self) -> dict[str, Iterator[bytes]]:
        """Return the bytes of each table by its name, as `TablePlaces.contents`."""
        linked = {table.name: table.source.name for table in self.linked}
        return TablePlaces(self.root.name, linked).contents()

    @contextmanager
    def unchanged(self, otherwise: str) -> Iterator[None]:
        """Refuse tables of which one has changed between the beginning and the end, by an InputError that says `otherwise`."""
        with ExitStack() as states:
            for source in (self.root, *(linked.source for linked in self.linked)):
                states.enter_context(source.unchanged(otherwise))
            yield


def _as_bytes(words: Words) -> NDArray[np.bytes_]:
    """Return digests of two words each as texts of bytes, shape (rows,): numpy sorts and finds these."""
    flat: NDArray[np.bytes_] = np.ascontiguousarray(words).view(f"S{_WIDTH}").ravel()
    return flat
