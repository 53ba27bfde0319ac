"""Reads a text source, compressed or not, into Arrow: every cell as it is written, every fault named without a value.

pyarrow's own messages quote rows, so none of them is ever passed on.
"""

from __future__ import annotations

import csv
import io
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.csv as pa_csv

from marginweave.base.errors import InputError
from marginweave.base.text_files import DELIMITERS, recognise_delimiter, recognise_encoding
from marginweave.configuration.execution import SourceFile
from marginweave.sources.cut_lines import cut_lines
from marginweave.sources.header import names_of, renamed
from marginweave.sources.kinds import compression_of
from marginweave.sources.parts import Part

_SAMPLE = 1 << 16
LINE_END = re.compile(r"\r\n|\r|\n")
_BLOCK = 1 << 23  # a row of at most this many bytes lies in two blocks at most, and can be read
csv.field_size_limit(_BLOCK)
_FIRST = (
    "its first line must hold the column names",
    "the line after those of skip must hold the column names",
)


def arrow_stream(source: str, part: Part, form: SourceFile) -> Any:
    """Return the text of a part as UTF-8 for pyarrow, decompressed and decoded some megabytes at a time.

    It begins with the header and ends with the last row: the lines above and below these are cut off.
    """
    stream = pa.BufferedInputStream(pa.input_stream(part.for_arrow(), compression=None), _BLOCK)
    compression = compression_of(source)
    if compression is not None:
        stream = pa.CompressedInputStream(stream, compression)
    if form.encoding != "utf-8":
        stream = pa.transcoding_input_stream(stream, form.encoding, "utf-8")
    if not form.skip and not form.footer:
        return stream
    return pa.PythonFile(cut_lines(stream, form.skip, form.footer), mode="r")


def byte_stream(source: str, part: Part, form: SourceFile) -> BinaryIO:
    """Return the text of a part as UTF-8 for Python, decompressed and decoded some megabytes at a time."""
    return cast("BinaryIO", io.BufferedReader(arrow_stream(source, part, form), 1 << 20))


def check_quotes_and_widths(
    file: BinaryIO, delimiter: str, width: int | None = None, first_line: int = 1
) -> None:
    """Refuse quotes with which pyarrow would silently take rows for a part of one value, and rows of another width.

    A quote opens at the beginning of a field and nowhere else; inside, two quotes mean one; after the closing quote, a
    delimiter or a line end follows (RFC 4180, section 2). Anything else is not read as it was meant: a quote that opens by
    mistake swallows every row up to the next quote, and the text after that quote is read as a value without an error. The
    text is in any encoding that contains ASCII, without its byte order mark. Where `width` is given, every row that is not
    empty must have `width` fields. `first_line` is the number of its first line, the header's.

    Raises:
        InputError: something follows a closing quote, or a quote is open at the end, or a row is of another width; the message
            lacks its subject, which the caller puts before it, and has no data in it but the number of a line.
    """
    csv.field_size_limit(_BLOCK)  # other libraries lift it, for all of the process
    rows = csv.reader(
        io.TextIOWrapper(file, "latin-1", newline=""), delimiter=delimiter, strict=True
    )
    line = first_line
    try:
        for row in rows:
            if width is not None and len(row) != width and row:
                breaks = sum(len(LINE_END.findall(cell)) for cell in row)
                raise InputError(
                    f"line {first_line + rows.line_num - 1 - breaks} has {_fields(len(row))}, the header has {width}"
                    f"{_trailing(row, width)}"
                )
            line = first_line + rows.line_num
    except csv.Error as error:
        fault = str(error)
    else:
        return
    if "expected after" in fault:
        raise InputError(
            f"has a quote that is closed inside a field, in the row that begins in line {line}; a quote that is meant is "
            "written twice"
        )
    if "field limit" in fault:
        raise InputError(
            f"has a row of more than {_BLOCK >> 20} MiB, or a quote that is never closed, from line {line} on"
        )
    raise InputError(f"has a quote that is never closed, in the row that begins in line {line}")


def _trailing(row: Sequence[str], width: int) -> str:
    """Return advice where a delimiter after the last field makes the difference; nothing elsewhere."""
    if len(row) == width + 1 and not row[-1]:
        return ". The line ends with a delimiter and the header's does not: write one at the end of the header's line, too"
    return ""


def _fields(number: int) -> str:
    return "1 field" if number == 1 else f"{number} fields"


def check_columns(
    present: Sequence[str], columns: Sequence[str], advice: Callable[[], str] = lambda: ""
) -> None:
    """Refuse a text, a sheet or a Parquet or Arrow file that lacks a declared column or has it twice.

    The message repeats no name of the source that was not declared: a file without a header has data there. Where a column is
    lacking, `advice` says what else may be wrong.

    Raises:
        InputError: a declared column is lacking or is there twice.
    """
    missing = [name for name in columns if name not in present]
    if missing:
        names = ", ".join(repr(name) for name in missing)
        plural = "s" if len(missing) > 1 else ""
        raise InputError(f"source lacks the declared column{plural} {names}{advice()}")
    repeated = [name for name in columns if list(present).count(name) > 1]
    if repeated:
        raise InputError(f"source has the column {', '.join(map(repr, repeated))} more than once")


def read_header(source: str, part: Part, delimiter: str, form: SourceFile) -> tuple[str, ...]:
    """Return the column names in the rows of a text file that are its header, after the changes of `rename`.

    Raises:
        InputError: there is none, it is not in the declared encoding, its rows have different numbers of fields, or `rename`
            names a column that it lacks.
    """
    try:
        with byte_stream(source, part, form) as file:
            text = io.TextIOWrapper(file, "utf-8-sig", newline="")
            rows = list(islice(csv.reader(text, delimiter=delimiter), form.header.rows))
    except UnicodeError:
        raise InputError(_not_encoded(source, part, form)) from None
    except csv.Error:
        raise InputError(f"source ({source}) has a header that cannot be parsed") from None
    if len(rows) < form.header.rows or not all(rows):
        raise InputError(f"source ({source}) has no header: {_FIRST[form.skip > 0]}")
    if len({len(row) for row in rows}) > 1:
        raise InputError(
            f"source ({source}) has a header whose rows have different numbers of fields; `skip` is the number of lines above "
            "them"
        )
    return renamed(names_of(rows, form.header), form.new_names)


def read_text(
    source: str, part: Part, delimiter: str, columns: Sequence[str], form: SourceFile
) -> Iterator[pa.Table]:
    """Yield the named columns as texts behind dictionaries, in that order, some megabytes at a time; at least one table.

    pyarrow reads, and stops at a row of another width. It gives no line number, takes a quote that is never closed for the
    rest of the file, and reads on after a quote that is closed inside a field. So Python's strict reader goes first where the
    file has a quote, and names the line where pyarrow stops.

    Raises:
        InputError: no header, a column that is lacking or repeated, another encoding, quotes that do not open and close
            where they may, or a row with another number of fields than the header.
    """
    header = read_header(source, part, delimiter, form)
    check_columns(header, columns, lambda: header_advice(source, part, delimiter, form))
    if has_quotes(source, part, form):
        _check_rows(source, part, delimiter, form, len(header))
    other_widths: list[int] = []

    def stop(row: Any) -> str:
        """Stop at a row of another width; of the row itself, which pyarrow hands over, nothing is taken."""
        other_widths.append(row.actual_columns)
        return "error"

    reason = None
    rows_ahead = form.header.rows
    try:
        with _open_csv(
            arrow_stream(source, part, form), delimiter, header, columns, stop
        ) as reader:
            for batch in reader:
                table = pa.Table.from_batches([batch])
                table = table.slice(rows_ahead)
                rows_ahead -= min(rows_ahead, batch.num_rows)
                yield table.rename_columns(list(columns))
    except UnicodeError:
        reason = _not_encoded(source, part, form)
    except pa.ArrowException as error:
        reason = _reason(str(error), source, part, form)
    # Raised outside `except`, so that Arrow's exception, which has a row in its message, is not chained.
    if other_widths:
        _check_rows(source, part, delimiter, form, len(header))
    if reason is not None:
        raise InputError(reason)


def _open_csv(
    stream: Any,
    delimiter: str,
    header: Sequence[str],
    columns: Sequence[str],
    stop: Callable[[Any], str],
) -> pa_csv.CSVStreamingReader:
    """Open pyarrow's reader of `columns`, whose first rows are the header; `stop` gets a row of another width."""
    # Positions as names: a repeated name among the ignored columns must not stop the run.
    positions = [str(i) for i in range(len(header))]
    wanted = [str(header.index(name)) for name in columns]
    return pa_csv.open_csv(
        stream,
        read_options=pa_csv.ReadOptions(column_names=positions, block_size=_BLOCK),
        parse_options=pa_csv.ParseOptions(
            delimiter=delimiter,
            newlines_in_values=True,
            ignore_empty_lines=len(header) > 1,
            invalid_row_handler=stop,
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, pa.dictionary(pa.int32(), pa.string())),
            include_columns=wanted,
            strings_can_be_null=False,
        ),
    )


def has_quotes(source: str, part: Part, form: SourceFile) -> bool:
    """Return whether a text file has a quote anywhere; raises InputError where it is not in the declared encoding."""
    try:
        with byte_stream(source, part, form) as file:
            return any(b'"' in chunk for chunk in iter(lambda: file.read(1 << 20), b""))
    except UnicodeError:
        reason = _not_encoded(source, part, form)
    raise InputError(reason)


def _check_rows(source: str, part: Part, delimiter: str, form: SourceFile, width: int) -> None:
    """Refuse quotes and rows as `check_quotes_and_widths`, with advice about the delimiter."""
    try:
        with byte_stream(source, part, form) as file:
            start = cast("io.BufferedReader", file).peek(len(BOM_UTF8))
            if start.startswith(BOM_UTF8):
                file.read(len(BOM_UTF8))  # skip the byte order mark
            check_quotes_and_widths(file, delimiter, width, form.skip + 1)
    except InputError as error:
        reason = f"source ({source}) {error}{other_delimiter(source, part, delimiter, form)}"
    except UnicodeError:
        reason = _not_encoded(source, part, form)
    else:
        return
    raise InputError(reason)


def sample_of(source: str, part: Part, form: SourceFile) -> tuple[str, bool]:
    """Return the beginning of a text file, and whether it is complete; raises UnicodeError where it is in another encoding."""
    with byte_stream(source, part, form) as file:
        content = file.read(_SAMPLE)
        is_complete = not file.read(1)
    text = content.decode("utf-8-sig", "strict" if is_complete else "ignore")
    return text, is_complete


def header_advice(source: str, part: Part, delimiter: str, form: SourceFile) -> str:
    """Return what a text file needs whose header lacks a column, and a delimiter that is more likely than the declared one."""
    likely = other_delimiter(source, part, delimiter, form)
    return (
        f"; {_FIRST[form.skip > 0]}, separated by commas in .csv, by tabs in .tsv, or as "
        f"source: {{file: …, delimiter: semicolon}} says; skip: 2 says that two lines are above it{likely}"
    )


def other_delimiter(source: str, part: Part, delimiter: str, form: SourceFile) -> str:
    """Return advice where another delimiter would cut the beginning of the file evenly; nothing where none would."""
    try:
        text, is_complete = sample_of(source, part, form)
    except UnicodeError:
        return ""
    likely = recognise_delimiter(text, is_complete=is_complete)
    if likely is None or DELIMITERS[likely] == delimiter:
        return ""
    return f". Its delimiter is more likely the {likely}: source: {{file: …, delimiter: {likely}}}"


def encoding_of(source: str, part: Part, form: SourceFile) -> str | None:
    """Recognise the encoding of all of the file; None if it is unknown."""
    plain = form.model_copy(update={"encoding": "utf-8", "skip": 0, "footer": 0})
    with byte_stream(source, part, plain) as file:
        return recognise_encoding(iter(lambda: file.read(1 << 20), b""))


def _not_encoded(source: str, part: Part, form: SourceFile) -> str:
    likely = encoding_of(source, part, form)
    if likely is not None and likely != form.encoding:
        hint = f"; for another encoding write source: {{file: …, encoding: {likely}}}"
    elif form.encoding == "utf-8":
        hint = "; it is no text in UTF-16 or windows-1252 either"
    else:
        hint = ""
    return f"source ({source}) must be {form.encoding.upper()}{hint}"


def _reason(message: str, source: str, part: Part, form: SourceFile) -> str:
    """Return a sentence about why pyarrow stopped, which it tells by nothing but its own words."""
    if "UTF8" in message:
        return _not_encoded(source, part, form)
    if "straddl" in message:
        return f"source ({source}) has a row of more than {_BLOCK >> 20} MiB"
    return f"source ({source}) cannot be parsed"
