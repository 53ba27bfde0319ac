"""Reads a text source (.csv, .tsv) into Arrow: every cell as it stands, every fault named without a value.

pyarrow's own messages quote rows, so none of them is ever passed on.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv as pa_csv

from marginweave.schemas.errors import InputError
from marginweave.schemas.source import EXAMPLE_PREFIX, SourceFile

_BY_ENDING = {".csv": ",", ".tsv": "\t"}
_CHUNK = 1 << 20
_BLOCK = 1 << 26  # a row must fit a block
_CODECS = {"utf-8": "utf-8-sig", "latin-1": "latin-1", "windows-1252": "cp1252"}
csv.field_size_limit(_BLOCK)


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
        text = io.TextIOWrapper(file, _CODECS[form.encoding], newline="")
        header = next(csv.reader(text, delimiter=delimiter), None)
    except UnicodeError:
        raise InputError(_not_encoded(source, form)) from None
    except csv.Error:
        raise InputError(f"source ({source}) has a header that cannot be parsed") from None
    if not header:
        raise InputError(f"source ({source}) has no header: its first line must hold the column names")
    return tuple(name.strip() for name in header)


def read_text(source: str, data: bytes, delimiter: str, columns: Sequence[str], form: SourceFile) -> pa.Table:
    """The named columns as texts, in that order; a header without rows gives a table of zero rows.

    Raises:
        InputError: no header, a column that is lacking or repeated, another encoding, a quote that stays open, or a row with
            another number of fields than the header.
    """
    header = read_header(source, io.BytesIO(data), delimiter, form)
    check_columns(header, columns)
    if form.encoding != "utf-8":
        data = _recoded(source, data, form)
    _check_quotes(source, data, delimiter)
    # Positions as names: a repeated name among the ignored columns must not stop the run.
    positions = [str(i) for i in range(len(header))]
    wanted = [str(header.index(name)) for name in columns]
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(data),
            read_options=pa_csv.ReadOptions(column_names=positions, block_size=max(_CHUNK, min(len(data), _BLOCK))),
            parse_options=pa_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=len(header) > 1
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(wanted, pa.string()), include_columns=wanted, strings_can_be_null=False
            ),
        )
    except pa.ArrowException as error:
        reason = _reason(str(error), source, form)
    else:
        return table.slice(1).rename_columns(list(columns))
    raise InputError(reason)


def _recoded(source: str, data: bytes, form: SourceFile) -> bytes:
    try:
        return data.decode(_CODECS[form.encoding]).encode()
    except UnicodeError:
        raise InputError(_not_encoded(source, form)) from None


def _not_encoded(source: str, form: SourceFile) -> str:
    hint = "; for another encoding write source: {file: …, encoding: latin-1}" if form.encoding == "utf-8" else ""
    return f"source ({source}) must be {form.encoding.upper()}{hint}"


def _check_quotes(source: str, data: bytes, delimiter: str) -> None:
    """Refuse a quote that opens by mistake: pyarrow would take what follows for one value, losing rows in silence.

    Such a value ends with the file, or at a later quote, after which no delimiter and no line end stands.
    """
    if b'"' not in data:
        return
    text = io.TextIOWrapper(io.BytesIO(data), "utf-8", errors="replace", newline="")
    try:
        for _ in csv.reader(text, delimiter=delimiter, strict=True):
            pass
    except csv.Error as error:
        reason = "that is never closed" if "unexpected end" in str(error) else "with text after its end"
    else:
        return
    raise InputError(f"source ({source}) has a quote {reason}")


def _reason(message: str, source: str, form: SourceFile) -> str:
    if "UTF8" in message:
        return _not_encoded(source, form)
    if "Expected" in message and "columns" in message:
        return f"source ({source}) has a row with another number of fields than its header"
    return f"source ({source}) cannot be parsed"
