"""Parts of a configuration that are in files: values with titles, mappings (code lists, a data dictionary), known counts.

They are public, like the rest of a configuration. They replace the name of the file before anything else is done with a
configuration, so that its digest is of the values and not of a name.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from marginweave.base.errors import InputError, MustError
from marginweave.base.places import scheme_of
from marginweave.base.text_files import DELIMITERS, recognise_delimiter, recognise_encoding
from marginweave.configuration.earlier import with_release
from marginweave.configuration.known import TotalsFile
from marginweave.configuration.values import FrozenModel

_KEYS = frozenset({"file", "value", "label", "column"})
# Columns of a data dictionary. It has a row for each value, whose title is its `label`, and a row without a value for each
# column of the table.
_NAME = "name"
_VALUE = "value"
_LABEL = "label"
_DESCRIPTION = "description"

Codes = dict[str, str | None]


class NoCodesError(InputError):
    """A file of codes that has no codes for a column."""


class CodeFile(FrozenModel):
    """A file of codes, with a row for each code: a .csv, .tsv or .txt.

    `value` names the column of codes, and `label` the column of their titles, or of the values to which they are mapped.
    `column` names the column that says which column of the table a row is about. Without `value` the file is a data dictionary
    (`of_dictionary`).
    """

    file: str
    value: str | None = None
    label: str | None = None
    column: str | None = None

    def of_dictionary(self, header: Sequence[str]) -> CodeFile:
        """Return the file as a code list, for the `header` of a data dictionary; raises ValueError for another header."""
        if not {_NAME, _VALUE} <= set(header):
            raise ValueError(
                "is no data dictionary: it has no columns name and value; of a code list say which column has the codes: "
                "{file: codes.csv, value: code, label: title}"
            )
        label = _LABEL if _LABEL in header else None
        return CodeFile(file=self.file, value=_VALUE, label=label, column=_NAME)


def with_code_lists(raw: Mapping[str, Any], below: Path) -> dict[str, Any]:
    """Return the mapping of a configuration in the folder `below`, with the contents of files in the place of their names.

    Raises:
        InputError: a file that is not there or cannot be parsed, or has no codes for a column.
    """
    read = dict(raw)
    if isinstance(raw.get("columns"), dict):
        read["columns"] = _columns_with_values(raw["columns"], below)
    if isinstance(raw.get("tables"), dict):
        read["tables"] = {
            name: {**table, "columns": _columns_with_values(table["columns"], below)}
            if isinstance(table, dict) and isinstance(table.get("columns"), dict)
            else table
            for name, table in raw["tables"].items()
        }
    structure = raw.get("structure")
    if isinstance(structure, dict):
        rules = structure.get("determined")
        if isinstance(rules, list):
            determined = [
                _with_mapping(rule, below, "structure.determined.mapping") for rule in rules
            ]
            read["structure"] = {**structure, "determined": determined}
    if isinstance(raw.get("known"), list):
        read["known"] = [
            _with_known(entry, below, number) for number, entry in enumerate(raw["known"], start=1)
        ]
    return read


def column_words(path: Path, name: str) -> dict[str, str]:
    """Return the `label` and `description` of the column `name` in the data dictionary at `path`.

    They are in the row of the column without a value; a text that is missing or not printable is left out.

    Raises:
        InputError: the file is not there or cannot be parsed.
    """
    try:
        _, rows = _rows(path)
    except ValueError as error:
        raise InputError(f"{path} {error}") from None
    for row in rows:
        if row.get(_NAME) == name and not row.get(_VALUE):
            lines = {key: " ".join(row.get(key, "").split()) for key in (_LABEL, _DESCRIPTION)}
            return {key: line for key, line in lines.items() if line and line.isprintable()}
    return {}


def _columns_with_values(columns: Mapping[str, Any], below: Path) -> dict[str, Any]:
    """Return columns with the values that the files of their `values` have."""
    return {name: _with_values(name, column, below) for name, column in columns.items()}


def _with_values(name: str, column: Any, below: Path) -> Any:
    """Return a column with the values, and titles unless it has its own, that the file of its `values` has."""
    if not isinstance(column, dict) or not isinstance(column.get("values"), dict):
        return column
    codes = _codes(column["values"], below, name, f"columns.{name}.values")
    with_values = {**column, "values": list(codes)}
    titles = {code: title for code, title in codes.items() if title}
    if titles and "titles" not in column:
        with_values["titles"] = titles
    return with_values


def _with_mapping(rule: Any, below: Path, place: str) -> Any:
    """Return a rule of `determined` with the mapping that its file has; `place` is its place in messages."""
    mapping = rule.get("mapping") if isinstance(rule, dict) else None
    if not isinstance(mapping, dict) or "file" not in mapping or not set(mapping) <= _KEYS:
        return rule
    if not (mapping.get("value") and mapping.get("label")):
        raise InputError(
            f"{place} needs value and label: the columns of the file that map a value to another"
        )
    return {**rule, "mapping": _codes(mapping, below, str(rule.get("by")), place)}


def _with_known(entry: Any, below: Path, number: int) -> Any:
    """Return entry `number` of `known` with the digests of its release, or the counts of its file."""
    entry = with_release(entry, below, f"known, entry {number}: release")
    return _with_counts(entry, below, f"known, entry {number}: table")


def _with_counts(table: Any, below: Path, place: str) -> Any:
    """Return a known table with the rows that its file has; `place` is its place in messages."""
    written = table.get("table") if isinstance(table, dict) else None
    if not isinstance(written, dict):
        return table
    try:
        spec = TotalsFile.model_validate(written)
    except ValidationError:
        raise InputError(
            f"{place} must be a list of rows, or {{file: totals.csv, count: COLUMN}}"
        ) from None
    columns = table["columns"] if isinstance(table.get("columns"), list) else []
    names = [*columns, spec.count]
    try:
        header, rows = _rows(below / spec.file)
        for name in names:
            if str(name) not in header:
                raise ValueError(f"has no column {name!r}")  # noqa: TRY301
    except ValueError as error:
        raise InputError(f"{place} ({spec.file}) {error}") from None
    cells = list[list[str]]()
    for row in rows:
        if row:
            cells.append([row.get(str(name), "") for name in names])
    return {**table, "table": cells}


def _codes(written: Mapping[str, Any], below: Path, name: str, place: str) -> Codes:
    """Return the codes of the column `name`, in the order of the file that `written` names; `place` is for messages.

    Raises:
        InputError: the file is not there or cannot be parsed, or has no codes for the column.
    """
    try:
        spec = CodeFile.model_validate(written)
    except ValidationError:
        raise InputError(
            f"{place} must be a list of values, or {{file: codes.csv, value: code, label: title}}"
        ) from None
    path = below / spec.file
    try:
        codes = _unique(_pairs(path, spec, name))
    except ValueError as error:
        raise InputError(f"{place} ({spec.file}) {error}") from None
    if not codes:
        raise NoCodesError(f"{place} ({spec.file}) has no codes for {name!r}")
    return codes


def _unique(pairs: Iterable[tuple[str, str | None]]) -> Codes:
    """Return the titles by code; raises ValueError for a code with two titles."""
    codes: Codes = {}
    for code, title in pairs:
        if code and codes.setdefault(code, title) != title:
            raise ValueError(f"gives {code!r} twice, with different labels; keep one")
    return codes


def _pairs(path: Path, spec: CodeFile, name: str) -> Iterator[tuple[str, str | None]]:
    """Yield the codes and titles of the column `name`, trimmed; raises ValueError for a file that cannot be used."""
    if scheme_of(spec.file) is not None:
        raise MustError("be a file on this machine")
    header, rows = _rows(path)
    if spec.value is None:
        spec = spec.of_dictionary(header)
    for key in (spec.value, spec.label, spec.column):
        if key and key not in header:
            raise ValueError(f"has no column {key!r}")
    for row in rows:
        if spec.column is None or row.get(spec.column) == name:
            title = row.get(spec.label, "") if spec.label else None
            yield row.get(spec.value or "", ""), title


def _rows(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Return the header and the rows of a text file, trimmed; raises ValueError."""
    if path.suffix.lower() not in {".csv", ".tsv", ".txt"}:
        raise MustError("be a .csv, .tsv or .txt file")
    text = _text(path)
    delimiter = DELIMITERS[recognise_delimiter(text, is_complete=True) or "comma"]
    try:
        lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error:
        raise ValueError("cannot be parsed") from None
    if not lines:
        return [], []
    header = _trimmed(lines[0])
    rows = [dict(zip(header, _trimmed(line), strict=False)) for line in lines[1:]]
    return header, rows


def _trimmed(cells: Iterable[str]) -> list[str]:
    return [cell.strip() for cell in cells]


def _text(path: Path) -> str:
    """Return the text of a file in UTF-8, UTF-16 or windows-1252; raises ValueError."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ValueError("does not exist") from None
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    encoding = recognise_encoding([content])
    if encoding is None:
        raise ValueError("is no text in UTF-8, UTF-16 or windows-1252")
    return content.decode("utf-8-sig" if encoding == "utf-8" else encoding)
