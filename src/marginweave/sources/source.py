"""Reads the declared columns of a source as Arrow tables of one type, and nothing else of it.

pyarrow's own messages quote values, so none of them is ever passed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.base.arrow import cell_type, is_cell, is_text, schema_types
from marginweave.base.errors import InputError
from marginweave.base.places import EXAMPLE_PREFIX
from marginweave.base.text_files import line_not_in_utf8
from marginweave.checkpoints.codecs import plain_table
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.execution import SourceFile
from marginweave.configuration.release import Configuration
from marginweave.sources.arrow_file import arrow_batches, arrow_schema
from marginweave.sources.content import content_of, read_example
from marginweave.sources.header import renamed
from marginweave.sources.kinds import SUPPORTED, check_kind, delimiter_of, kind_of
from marginweave.sources.long_cells import LongCells, find_long_cells
from marginweave.sources.number_cells import NumberTexts, plain_numbers
from marginweave.sources.parts import Part, State, fault_of, parts_of, reading
from marginweave.sources.sheet import read_sheet, sheet_header
from marginweave.sources.text_source import (
    byte_stream,
    check_columns,
    has_quotes,
    header_advice,
    read_header,
    read_text,
)

_ROWS = 1 << 17


def read_parquet(source: str, parts: Sequence[Part], columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the named columns in that order: an empty table first, then some rows at a time.

    Raises:
        InputError: a part is no Parquet or Arrow file, parts do not fit, or a column is lacking or of an unusable type.
    """
    types = types_as_read(_common_schema(source, parts, columns), columns)
    yield types.empty_table()
    for number, part in enumerate(parts, 1):
        for batch in _batches(source, part, columns):
            table = pa.Table.from_batches([batch])
            cells = {}
            for name in columns:
                values = table.column(name)
                with suppress(pa.ArrowException):
                    if pa.types.is_string_view(values.type):
                        # Arrow puts only its plain layout of texts behind a dictionary.
                        values = values.cast(pa.string())
                    cells[name] = values.cast(types.field(name).type)
                # Raised outside `except`, so that Arrow's exception, which has values in its message, is not chained.
                if name not in cells:
                    raise InputError(
                        _UNFIT.format(source=source, column=name, number=number, part=part.name)
                    )
            yield pa.table(cells, schema=types)


def types_as_read(present: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """Return the types in which the declared columns are read: texts behind dictionaries, everything else as it is.

    Raises:
        InputError: a column is lacking, repeated, or of a type that has no text.
    """
    check_columns(present.names, columns)
    for name in columns:
        if not is_cell(cell_type(present.field(name).type)):
            raise InputError(
                f"source has the column {name!r} with a type that is neither text nor number nor date; convert it to one of "
                "these, or leave it out"
            )
    fields = [(name, _read_as(present.field(name).type)) for name in columns]
    return pa.schema(fields)


def refuse_floats(types: pa.Schema, exact_text_columns: Iterable[str]) -> None:
    """Refuse a floating-point type of the `exact_text_columns`, whatever the rows are; raises InputError.

    Such a type rounds long ids, so that two persons become one, and spells large ones as 1e+16.
    DP: a function of the schema, which is public.
    """
    for name in exact_text_columns:
        if name not in types.names:
            continue
        kind = cell_type(types.field(name).type)
        if pa.types.is_floating(kind):
            raise InputError(
                f"source has the column {name!r} with the type {kind}, which rounds long ids and codes; write the column as "
                "integers or texts, or declare its values"
            )


def column_schema(source: str, part: Part, form: SourceFile) -> pa.Schema:
    """Return the types of a part and its names, after the changes of `rename`.

    Raises:
        InputError: it is not the Parquet or Arrow file that its name says, or `rename` names a column that it lacks.
    """
    schema = _stored_schema(source, part)
    names = renamed(schema.names, form.new_names)
    return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])


def _stored_schema(source: str, part: Part) -> pa.Schema:
    try:
        return arrow_schema(part) if _is_arrow(source) else pq.read_schema(part.for_arrow())
    except (pa.ArrowException, OSError) as error:
        reason = fault_of(source, error) or _unreadable(source)
    raise InputError(reason)


def _is_arrow(source: str) -> bool:
    return kind_of(source, SourceFile(file=source)) == "arrow"


def _unreadable(source: str) -> str:
    if _is_arrow(source):
        return f"source ({source}) is no Arrow file (Feather of version 2); save it again, or as Parquet"
    return f"source ({source}) is neither Parquet nor a text file; supported are {SUPPORTED}"


_UNFIT = "source ({source}) has the column {column!r} with a type in part {number} ({part}) that does not fit the parts before"


def _common_schema(source: str, parts: Sequence[Part], columns: Sequence[str]) -> pa.Schema:
    """Return the declared columns, found by their names in every part, with types that hold what all parts have."""
    kinds: dict[str, pa.Schema] = {}
    for number, part in enumerate(parts, 1):
        present = _stored_schema(source, part)
        if number == 1:
            check_columns(present.names, columns)
        elif any(present.names.count(name) != 1 for name in columns):
            raise InputError(
                f"source ({source}) has parts with different columns: part {number} ({part.name}) lacks a declared column, or "
                "repeats it"
            )
        for name in columns:
            kind = present.field(name).type
            kind = pa.string() if is_text(kind) else kind
            schema = pa.schema([(name, kind)])
            try:
                kinds[name] = pa.unify_schemas(
                    [kinds.get(name, schema), schema], promote_options="permissive"
                )
            except pa.ArrowException:
                raise InputError(
                    _UNFIT.format(source=source, column=name, number=number, part=part.name)
                ) from None
    return pa.schema([kinds[name].field(0) for name in columns])


def _batches(source: str, part: Part, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of one part; columns of texts come as the dictionaries that the file has."""
    reason = None
    try:
        if _is_arrow(source):
            yield from arrow_batches(part, columns, _ROWS)
            return
        with pq.ParquetFile(part.for_arrow()) as file:
            schema = file.schema_arrow
            texts = [name for name in columns if is_text(schema.field(name).type)]
        with pq.ParquetFile(
            part.for_arrow(), read_dictionary=texts, memory_map=False, pre_buffer=False
        ) as file:
            yield from file.iter_batches(batch_size=_ROWS, columns=list(columns))
    except (pa.ArrowException, OSError) as error:
        reason = fault_of(source, error) or _unreadable(source)
    if reason is not None:
        raise InputError(reason)


def _read_as(kind: pa.DataType) -> pa.DataType:
    """Return the type in which cells of this type are read.

    Texts of any layout, and columns without a single value, come behind a dictionary of plain texts; decimals in 128 bits.
    """
    inner = cell_type(kind)
    # Arrow cannot put these behind a dictionary
    if pa.types.is_decimal32(inner) or pa.types.is_decimal64(inner):
        return pa.decimal128(inner.precision, inner.scale)
    if is_text(inner) or pa.types.is_null(inner):
        return pa.dictionary(pa.int32(), pa.string())
    return inner


@dataclass(frozen=True)
class TableSource:
    """A source that can be read some rows at a time, any number of times."""

    name: str
    form: SourceFile
    numbers: Mapping[str, NumberTexts] = field(default_factory=dict)
    """Columns whose texts are numbers that are not spelled as in configurations, and how each spells them."""
    exact_text_columns: Sequence[str] = ()
    """Columns of ids and of private domains, whose texts matter exactly; see `Sections.spelled_names`."""

    @classmethod
    def of(cls, place: str, configuration: Configuration) -> TableSource:
        """Return the source at `place`, in the form that the configuration declares."""
        numbers = {}
        for name, column in configuration.columns.items():
            if isinstance(column, NumberColumn):
                form = column.form_in(configuration.source.numbers)
                if not form.is_usual:
                    numbers[name] = NumberTexts(form, configuration.missing_texts(name))
        return cls(place, configuration.source, numbers, configuration.spelled_names)

    def tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the `columns` in this order, piece by piece, all of the same types; an empty piece if there are no rows.

        Texts are behind dictionaries, which may have entries that no row has; Parquet's other types are as they are. Numbers
        that are texts are spelled as configurations spell them. A cell is read the same whatever other rows hold.

        Raises:
            InputError: no header, a declared column that is lacking, repeated or of a type that cannot be used, bytes that
                are not in the declared encoding, or a row with another number of fields than the header.
        """
        for table in self._as_written(columns):
            refuse_floats(table.schema, self.exact_text_columns)
            yield plain_numbers(table, self.numbers)

    def _as_written(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        kind = kind_of(self.name, self.form)
        if kind == "example":
            example = _renamed_example(self.name, self.form)
            yield example.select(list(columns)).cast(types_as_read(example.schema, columns))
            return
        with reading(self.name):
            parts = parts_of(self.name)
            if kind == "text":
                delimiter = delimiter_of(self.name, self.form) or ","
                yield from read_text(self.name, parts[0], delimiter, columns, self.form)
            elif kind == "sheet":
                header = sheet_header(self.name, parts[0], self.form)
                check_columns(header, columns, lambda: advice_on_header(self.name, self.form))
                yield from read_sheet(
                    self.name, parts[0], columns, self.form, self.exact_text_columns
                )
            else:
                check_columns(column_schema(self.name, parts[0], self.form).names, columns)
                stored = _stored_names(self.name, parts[0], self.form)
                for table in read_parquet(self.name, parts, [stored[name] for name in columns]):
                    yield table.rename_columns(list(columns))

    def types(self, columns: Sequence[str]) -> dict[str, str]:
        """Return the types that columns have in its schema, as `schema_types`; none for a text, a sheet or an example.

        A column whose type is not the same in all parts has none. Raises InputError as `column_schema`.
        """
        if kind_of(self.name, self.form) not in {"parquet", "arrow"}:
            return {}
        with reading(self.name):
            parts = parts_of(self.name)
            schemas = [_stored_schema(self.name, part) for part in parts]
            stored = _stored_names(self.name, parts[0], self.form)
        stored_names = [stored[name] for name in columns if name in stored]
        types = schema_types(schemas[0], stored_names)
        for schema in schemas[1:]:
            types_of_part = schema_types(schema, stored_names)
            types = {name: kind for name, kind in types.items() if types_of_part.get(name) == kind}
        return {name: types[stored[name]] for name in columns if stored.get(name) in types}

    def without_text(self, columns: Sequence[str]) -> list[str]:
        """Return which columns have a type without a text in the first part, such as a duration or a list.

        Raises InputError as `column_schema`.
        """
        if kind_of(self.name, self.form) not in {"parquet", "arrow"}:
            return []
        with reading(self.name):
            schema = column_schema(self.name, parts_of(self.name)[0], self.form)
        check_columns(schema.names, columns)
        return [name for name in columns if not is_cell(cell_type(schema.field(name).type))]

    def table(self, columns: Sequence[str]) -> pa.Table:
        """Return all of it as one table, without dictionaries. Raises InputError as `tables`."""
        return plain_table(pa.concat_tables(self.tables(columns)))

    def long_cells(self) -> LongCells | None:
        """Return the cells of a text file with many line breaks, as `find_long_cells`; None for another kind of file."""
        delimiter = delimiter_of(self.name, self.form)
        if delimiter is None:
            return None
        with reading(self.name):
            part = parts_of(self.name)[0]
            if not has_quotes(self.name, part, self.form):
                return None
            return find_long_cells(self.name, part, delimiter, self.form)

    def line_not_in_utf8(self) -> int | None:
        """Return the first line that is not UTF-8 of a text file that is mostly UTF-8 and was taken for windows-1252."""
        if self.form.encoding != "windows-1252" or delimiter_of(self.name, self.form) is None:
            return None
        plain = self.form.model_copy(update={"encoding": "utf-8", "skip": 0, "footer": 0})
        with reading(self.name), byte_stream(self.name, parts_of(self.name)[0], plain) as file:
            return line_not_in_utf8(file)

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the source, as `content_of`."""
        return content_of(self.name)

    def state(self) -> tuple[State, ...]:
        """Return the state of every part, which differs after the part was written to."""
        if self.name.startswith(EXAMPLE_PREFIX):
            return ()
        with reading(self.name):
            return tuple(part.state for part in parts_of(self.name))

    @contextmanager
    def unchanged(self, otherwise: str) -> Iterator[None]:
        """Refuse a source that has changed between the beginning and the end, by an InputError that says `otherwise`."""
        state = self.state()
        yield
        if self.state() != state:
            raise InputError(otherwise)


def check_header(
    source: str, columns: Sequence[str], form: SourceFile, exact_text_columns: Sequence[str] = ()
) -> None:
    """Refuse a source by its kind and its header, and by nothing in its rows.

    `exact_text_columns` are the columns of ids and of private domains, whose texts matter exactly.

    Raises:
        InputError: a kind of file that is not supported, no header, a column that is missing, or one of a type that cannot
            carry what is declared.
    """
    check_kind(source, form)
    check_columns(source_columns(source, form), columns, lambda: advice_on_header(source, form))
    if kind_of(source, form) in {"parquet", "arrow"}:
        with reading(source):
            refuse_floats(column_schema(source, parts_of(source)[0], form), exact_text_columns)


_CHECKED_UP_TO_BYTES = 1 << 26


def check_rows(
    source: str, columns: Sequence[str], form: SourceFile, exact_text_columns: Sequence[str] = ()
) -> None:
    """Read a source from its first row to its last, unless it is large: faults are known before a run begins.

    Raises:
        InputError: as `TableSource.tables`; where it names a row, it reveals something of the rows.
    """
    if (
        not source.startswith(EXAMPLE_PREFIX)
        and sum(part.size for part in parts_of(source)) <= _CHECKED_UP_TO_BYTES
    ):
        for _ in TableSource(source, form, exact_text_columns=exact_text_columns).tables(columns):
            pass


def source_columns(source: str, form: SourceFile) -> tuple[str, ...]:
    """Return the column names of the source, in its own order; raises InputError as `TableSource.tables` does."""
    if source.startswith(EXAMPLE_PREFIX):
        return tuple(_renamed_example(source, form).column_names)
    first = parts_of(source)[0]
    delimiter = delimiter_of(source, form)
    with reading(source):
        if delimiter:
            return read_header(source, first, delimiter, form)
        if kind_of(source, form) == "sheet":
            return sheet_header(source, first, form)
    return tuple(column_schema(source, first, form).names)


def _renamed_example(source: str, form: SourceFile) -> pa.Table:
    example = read_example(source)
    return example.rename_columns(list(renamed(example.column_names, form.new_names)))


def _stored_names(source: str, part: Part, form: SourceFile) -> dict[str, str]:
    """Return the names in a Parquet or Arrow file, by the names after the changes of `rename`."""
    stored = _stored_schema(source, part).names
    return dict(zip(renamed(stored, form.new_names), stored, strict=True))


def advice_on_header(source: str, form: SourceFile) -> str:
    """Return advice on a text or a sheet that lacks a declared column; nothing for another kind of file."""
    delimiter = delimiter_of(source, form)
    if kind_of(source, form) == "sheet":
        return "; its first row must hold the column names, or the row below those that source: {file: …, skip: 2} leaves out"
    if delimiter is None:
        return ""
    with reading(source):
        return header_advice(source, parts_of(source)[0], delimiter, form)
