"""Reads a text source (.csv, .tsv) into Arrow: every cell as it stands, every fault named without a value.

pyarrow's own messages quote rows, so none of them is ever passed on.
"""

from __future__ import annotations

import csv
import io
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv as pa_csv

from marginweave.schemas.configuration.execution import SourceFile
from marginweave.schemas.errors import InputError
from marginweave.schemas.places import EXAMPLE_PREFIX
from marginweave.tasks.validate.parts import Part

_BY_ENDING = {".csv": ",", ".tsv": "\t"}
_BLOCK = 1 << 23  # a row that fits is read wherever it stands: it lies in two blocks at most
csv.field_size_limit(_BLOCK)


def check_quotes(file: BinaryIO, delimiter: str) -> None:
    """Refuse quotes with which pyarrow would take rows for a part of one value, losing them in silence.

    A quote opens at the beginning of a field and nowhere else; inside, two stand for one; after the one that closes, a
    delimiter or a line end follows (RFC 4180, section 2). Anything else is not read as it was meant: a quote that opens by
    mistake swallows every row up to the next quote, and whatever stands after that one is taken as text without a word. The
    text is in any encoding that has ASCII in it, without its byte order mark.

    Raises:
        InputError: something follows a closing quote, or a quote is open at the end; the message has no data in it.
    """
    csv.field_size_limit(_BLOCK)  # other libraries lift it, for all of the process
    try:
        for _ in csv.reader(io.TextIOWrapper(file, "latin-1", newline=""), delimiter=delimiter, strict=True):
            pass
    except csv.Error as error:
        fault = str(error)
    else:
        return
    if "expected after" in fault:
        raise InputError("has a quote that is closed inside a field; a quote that is meant is written twice")
    if "field limit" in fault:
        raise InputError(f"has a row of more than {_BLOCK >> 20} MiB, or a quote that is never closed")
    raise InputError("has a quote that is never closed")


def delimiter_of(source: str, form: SourceFile) -> str | None:
    """The character between two fields of a text file; None for everything that is no text file."""
    path = Path(source)
    ending = path.suffix.lower()
    if source.startswith(EXAMPLE_PREFIX) or ending == ".parquet" or path.is_dir():
        return None
    return form.separator or _BY_ENDING.get(ending)


def check_columns(present: Sequence[str], columns: Sequence[str]) -> None:
    """Names of the source that were not declared are never repeated: a file without a header has data there.

    Raises:
        InputError: a declared column is lacking or stands there twice.
    """
    missing = [name for name in columns if name not in present]
    if missing:
        names = ", ".join(repr(name) for name in missing)
        plural = "s" if len(missing) > 1 else ""
        raise InputError(
            f"source lacks the declared column{plural} {names}; its first line must hold the column names, separated by "
            "commas in .csv, by tabs in .tsv, or as source: {file: …, delimiter: semicolon} says"
        )
    repeated = [name for name in columns if list(present).count(name) > 1]
    if repeated:
        raise InputError(f"source has the column {', '.join(map(repr, repeated))} more than once")


def read_header(source: str, file: BinaryIO, delimiter: str, form: SourceFile) -> tuple[str, ...]:
    """Trimmed column names in the first line of a text file.

    Raises:
        InputError: there is none, or it is not in the declared encoding.
    """
    try:
        text = io.TextIOWrapper(file, "utf-8-sig" if form.encoding == "utf-8" else form.encoding, newline="")
        header = next(csv.reader(text, delimiter=delimiter), None)
    except UnicodeError:
        raise InputError(_not_encoded(source, form)) from None
    except csv.Error:
        raise InputError(f"source ({source}) has a header that cannot be parsed") from None
    if not header:
        raise InputError(f"source ({source}) has no header: its first line must hold the column names")
    return tuple(name.strip() for name in header)


def read_text(source: str, part: Part, delimiter: str, columns: Sequence[str], form: SourceFile) -> Iterator[pa.Table]:
    """The named columns as texts behind dictionaries, in that order, some megabytes at a time; at least one table.

    Raises:
        InputError: no header, a column that is lacking or repeated, another encoding, quotes that do not open and close
            where they may, or a row with another number of fields than the header.
    """
    with part.open() as file:
        header = read_header(source, file, delimiter, form)
    check_columns(header, columns)
    with part.open() as file:
        if form.encoding != "utf-8" or file.read(len(BOM_UTF8)) != BOM_UTF8:
            file.seek(0)
        try:
            check_quotes(file, delimiter)
        except InputError as error:
            raise InputError(f"source ({source}) {error}") from None
    # Positions as names: a repeated name among the ignored columns must not stop the run.
    positions, wanted = [str(i) for i in range(len(header))], [str(header.index(name)) for name in columns]
    encoding = "utf8" if form.encoding == "utf-8" else form.encoding  # as pyarrow calls what it need not decode
    reason, first = None, True
    try:
        with pa_csv.open_csv(
            part.for_arrow(),
            read_options=pa_csv.ReadOptions(column_names=positions, block_size=_BLOCK, encoding=encoding),
            parse_options=pa_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=len(header) > 1
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(wanted, pa.dictionary(pa.int32(), pa.string())),
                include_columns=wanted,
                strings_can_be_null=False,
            ),
        ) as reader:
            for batch in reader:
                table = pa.Table.from_batches([batch]).slice(first and batch.num_rows > 0)  # without the header
                first = first and batch.num_rows == 0
                yield table.rename_columns(list(columns))
    except UnicodeError:
        reason = _not_encoded(source, form)
    except pa.ArrowException as error:
        reason = _reason(str(error), source, form)
    if reason is not None:
        raise InputError(reason)


def _not_encoded(source: str, form: SourceFile) -> str:
    hint = "; for another encoding write source: {file: …, encoding: latin-1}" if form.encoding == "utf-8" else ""
    return f"source ({source}) must be {form.encoding.upper()}{hint}"


def _reason(message: str, source: str, form: SourceFile) -> str:
    if "UTF8" in message:
        return _not_encoded(source, form)
    if "Expected" in message and "columns" in message:
        return f"source ({source}) has a row whose number of fields differs from the header's"
    if "straddl" in message:
        return f"source ({source}) has a row of more than {_BLOCK >> 20} MiB"
    return f"source ({source}) cannot be parsed"
