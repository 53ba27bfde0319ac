"""What a configuration takes from files: values, their titles and mappings (code lists, a data dictionary), known counts.

They are public, as all of a configuration is. They take the place of the file's name before anything else is done with a
configuration, so that its digest is of the values and not of a name.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from marginweave.base.errors import InputError
from marginweave.base.places import scheme_of
from marginweave.base.text_files import DELIMITERS, recognise_delimiter, recognise_encoding
from marginweave.configuration.earlier import with_release
from marginweave.configuration.known import TotalsFile
from marginweave.configuration.values import FrozenModel

_KEYS = frozenset({"file", "value", "label", "column"})
# The columns of a data dictionary: a row a value with its title under `label`, and one a column of the table, without a value.
_NAME, _VALUE, _LABEL, _DESCRIPTION = "name", "value", "label", "description"

Codes = dict[str, str | None]


class NoCodesError(InputError):
    """A file of codes that has none for a column."""


class CodeFile(FrozenModel):
    """A file of codes, with a row a code: a .csv, .tsv or .txt.

    `value` and `label` name its columns that have the codes and their titles, or what they are mapped to. `column` names the
    one that says which column of the table a row is about. Without `value` the file is a data dictionary (`of_dictionary`).
    """

    file: str
    value: str | None = None
    label: str | None = None
    column: str | None = None

    def of_dictionary(self, header: Sequence[str]) -> CodeFile:
        """The file as a code list, by the `header` of a data dictionary; raises ValueError if it has another one."""
        if not {_NAME, _VALUE} <= set(header):
            raise ValueError(
                "is no data dictionary: it has no columns name and value; of a code list say which column has the codes: "
                "{file: codes.csv, value: code, label: title}"
            )
        label = _LABEL if _LABEL in header else None
        return CodeFile(file=self.file, value=_VALUE, label=label, column=_NAME)


def with_code_lists(raw: Mapping[str, Any], below: Path) -> dict[str, Any]:
    """The mapping of a configuration in the folder `below`, with what its files hold in the place of their names.

    Raises:
        InputError: a file that is not there or cannot be parsed, or has no codes for a column.
    """
    found = dict(raw)
    if isinstance(raw.get("columns"), dict):
        found["columns"] = {name: _with_values(name, column, below) for name, column in raw["columns"].items()}
    structure = raw.get("structure")
    if isinstance(structure, dict):
        rules = structure.get("determined")
        if isinstance(rules, list):
            determined = [_with_mapping(rule, below, "structure.determined.mapping") for rule in rules]
            found["structure"] = {**structure, "determined": determined}
    if isinstance(raw.get("known"), list):
        found["known"] = [
            _with_counts(with_release(known, below, f"known, entry {n}: release"), below, f"known, entry {n}: table")
            for n, known in enumerate(raw["known"], start=1)
        ]
    return found


def column_words(path: Path, name: str) -> dict[str, str]:
    """The `label` and `description` of the column `name` in the data dictionary at `path`: those of its row without a value.

    Raises:
        InputError: the file is not there or cannot be parsed.
    """
    try:
        _, rows = _rows(path)
    except ValueError as error:
        raise InputError(f"{path} {error}") from None
    about = next((row for row in rows if row.get(_NAME) == name and not row.get(_VALUE)), {})
    lines = {key: " ".join(about.get(key, "").split()) for key in (_LABEL, _DESCRIPTION)}
    return {key: line for key, line in lines.items() if line and line.isprintable()}


def _with_values(name: str, column: Any, below: Path) -> Any:
    if not isinstance(column, dict) or not isinstance(column.get("values"), dict):
        return column
    codes = _read(column["values"], below, name, f"columns.{name}.values")
    titles = {code: title for code, title in codes.items() if title}
    return {**column, "values": list(codes), **({"titles": titles} if titles and "titles" not in column else {})}


def _with_mapping(rule: Any, below: Path, place: str) -> Any:
    mapping = rule.get("mapping") if isinstance(rule, dict) else None
    if not isinstance(mapping, dict) or "file" not in mapping or not set(mapping) <= _KEYS:
        return rule
    if not (mapping.get("value") and mapping.get("label")):
        raise InputError(f"{place} needs value and label: the columns of the file that map a value to another")
    return {**rule, "mapping": _read(mapping, below, str(rule.get("by")), place)}


def _with_counts(table: Any, below: Path, place: str) -> Any:
    given = table.get("table") if isinstance(table, dict) else None
    if not isinstance(given, dict):
        return table
    try:
        spec = TotalsFile.model_validate(given)
    except ValidationError:
        raise InputError(f"{place} must be a list of rows, or {{file: totals.csv, count: COLUMN}}") from None
    columns = table["columns"] if isinstance(table.get("columns"), list) else []
    try:
        header, rows = _rows(below / spec.file)
        for name in (*columns, spec.count):
            if str(name) not in header:
                raise ValueError(f"has no column {name!r}")  # noqa: TRY301
    except ValueError as error:
        raise InputError(f"{place} ({spec.file}) {error}") from None
    return {**table, "table": [[row.get(str(name), "") for name in (*columns, spec.count)] for row in rows if row]}


def _read(given: Mapping[str, Any], below: Path, name: str, place: str) -> Codes:
    """The codes of the column `name` in file order; `place` is where the configuration names the file."""
    try:
        spec = CodeFile.model_validate(given)
    except ValidationError:
        raise InputError(
            f"{place} must be a list of values, or {{file: codes.csv, value: code, label: title}}"
        ) from None
    path = below / spec.file
    try:
        pairs = _pairs(path, spec, name)
        codes = _unique(pairs)
    except ValueError as error:
        raise InputError(f"{place} ({spec.file}) {error}") from None
    if not codes:
        raise NoCodesError(f"{place} ({spec.file}) has no codes for {name!r}")
    return codes


def _unique(pairs: Iterable[tuple[str, str | None]]) -> Codes:
    codes: Codes = {}
    for code, title in pairs:
        if code and codes.setdefault(code, title) != title:
            raise ValueError(f"gives {code!r} twice, with different labels; keep one")
    return codes


def _pairs(path: Path, spec: CodeFile, name: str) -> Iterator[tuple[str, str | None]]:
    """Codes and titles, trimmed; raises ValueError with what is wrong with the file."""
    if scheme_of(spec.file) is not None:
        raise ValueError("must be a file on this machine")
    header, cells = _rows(path)
    return _of_list(header, cells, spec if spec.value is not None else spec.of_dictionary(header), name)


def _rows(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Header and rows of a text file, trimmed."""
    if path.suffix.lower() not in {".csv", ".tsv", ".txt"}:
        raise ValueError("must be a .csv, .tsv or .txt file")
    text = _text(path)
    likely = recognise_delimiter(text, whole=True)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=DELIMITERS[likely or "comma"]))
    except csv.Error:
        raise ValueError("cannot be parsed") from None
    header = [cell.strip() for cell in rows[0]] if rows else []
    return header, [{key: cell.strip() for key, cell in zip(header, row, strict=False)} for row in rows[1:]]


def _text(path: Path) -> str:
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


def _of_list(
    header: Sequence[str], rows: Sequence[Mapping[str, str]], spec: CodeFile, name: str
) -> Iterator[tuple[str, str | None]]:
    """The codes of a file that has a row a code."""
    for key in filter(None, (spec.value, spec.label, spec.column)):
        if key not in header:
            raise ValueError(f"has no column {key!r}")
    for row in rows:
        if spec.column is None or row.get(spec.column) == name:
            yield row.get(spec.value or "", ""), row.get(spec.label, "") if spec.label else None
