"""What a configuration takes from files: values, their titles and mappings (code lists, data dictionaries), known counts.

They are public, as all of a configuration is. They take the place of the file's name before anything else is done with a
configuration, so that its digest is of the values and not of a name.
"""

from __future__ import annotations

import csv
import io
import json
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
from marginweave.configuration.yaml_source import read_yaml

_KEYS = frozenset({"file", "value", "label", "column"})
# What the columns of data dictionaries are called, and the keys of those in JSON.
_HEADERS = {
    key: tuple(words.split("|"))
    for key, words in read_yaml(Path(__file__).with_name("dictionary_headers.yaml")).items()
}
_NAMES, _LISTS, _VALUES, _TITLES = (_HEADERS[key] for key in ("names", "lists", "codes", "titles"))
_WORDS = {key: _HEADERS[key] for key in ("label", "description")}

Codes = dict[str, str | None]


class CodeFile(FrozenModel):
    """A file of codes: a .csv, .tsv or .txt with a row a code, or a data dictionary, also as .json.

    `value` and `label` name the columns of a code list that have the codes and their titles, or what they are mapped to.
    `column` names the one that says which column of the table a row is about. Without `value` the file is a data dictionary.
    """

    file: str
    value: str | None = None
    label: str | None = None
    column: str | None = None


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
        rules = {key: structure[key] for key in ("determined", "levels") if isinstance(structure.get(key), list)}
        read = {key: [_with_mapping(rule, below, f"structure.{key}.mapping") for rule in rules[key]] for key in rules}
        found["structure"] = {**structure, **read}
    if isinstance(raw.get("known"), list):
        found["known"] = [
            _with_counts(with_release(known, below, f"known, entry {n}: release"), below, f"known, entry {n}: table")
            for n, known in enumerate(raw["known"], start=1)
        ]
    return found


def column_words(path: Path, name: str) -> dict[str, str]:
    """The `label` and `description` that the data dictionary at `path` has of the column `name`, as far as it has them.

    In a file with a row a value, what the value is called is not what the column is called.

    Raises:
        InputError: the file is not there or cannot be parsed.
    """
    try:
        if path.suffix.lower() == ".json":
            found = _entry(_text(path), name)
        else:
            header, rows = _rows(path)
            names = _known(header, _NAMES)
            found = next((row for row in rows if names and row.get(names) == name), None)
    except ValueError as error:
        raise InputError(f"{path} {error}") from None
    entry = found if isinstance(found, dict) else {}
    taken = _TITLES if _first(entry, _VALUES) is not None else ()
    words = {key: _first(entry, [name for name in names if name not in taken]) for key, names in _WORDS.items()}
    lines = {key: " ".join(text.split()) for key, text in words.items() if isinstance(text, str)}
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
        raise InputError(f"{place} ({spec.file}) has no codes for {name!r}")
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
    if path.suffix.lower() == ".json":
        if spec.value is not None:
            raise ValueError("is JSON, in which value names nothing: leave value, label and column out")
        return _of_json(_text(path), name)
    header, cells = _rows(path)
    return _of_list(header, cells, spec, name) if spec.value is not None else _of_dictionary(header, cells, name)


def _rows(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Header and rows of a text file, trimmed."""
    if path.suffix.lower() not in {".csv", ".tsv", ".txt"}:
        raise ValueError("must be a .csv, .tsv, .txt or .json file")
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


def _of_dictionary(
    header: Sequence[str], rows: Sequence[Mapping[str, str]], name: str
) -> Iterator[tuple[str, str | None]]:
    """The codes of a data dictionary: a row a column of the table with all of its values, or a row a value."""
    names, lists, values, titles = (_known(header, keys) for keys in (_NAMES, _LISTS, _VALUES, _TITLES))
    if names is None or (lists is None and values is None):
        raise ValueError(
            "is no data dictionary: it has no column name, with values or value; of a code list say which column has the "
            "codes: {file: codes.csv, value: code, label: title}"
        )
    for row in rows:
        if row.get(names) != name:
            continue
        if values is not None:
            yield row.get(values, ""), row.get(titles, "") if titles and titles != names else None
        else:
            yield from _of_cell(row.get(lists or "", ""))


def _known(header: Sequence[str], names: Sequence[str]) -> str | None:
    return next((key for name in names for key in header if key.lower() == name), None)


def _of_cell(text: str) -> Iterator[tuple[str, str | None]]:
    """`1=male; 2=female`, `1, male | 2, female` or `f, m`."""
    mark = next((mark for mark in ("|", "\n", ";") if mark in text), ",")
    parts = [part.strip() for part in text.split(mark) if part.strip()]
    between = next((sign for sign in ("=", ":", ",") if parts and all(sign in part for part in parts)), None)
    for part in parts:
        code, _, title = part.partition(between) if between else (part, "", "")
        yield code.strip(), title.strip() or None


def _of_json(text: str, name: str) -> Iterator[tuple[str, str | None]]:
    """The codes of a column; a mapping that has its name, label or description in the place of codes has none."""
    found = _entry(text, name)
    lists = _first(found, _LISTS) if isinstance(found, dict) else None
    words = (*_NAMES, *_WORDS["label"], *_WORDS["description"])
    described = isinstance(found, dict) and any(key in found for key in words)
    return _of_values(lists if lists is not None or described else found)


def _entry(text: str, name: str) -> Any:
    """What is at `{NAME: …}` or `[{"name": NAME, …}]`, also below `columns`, `variables` or `fields`."""
    try:
        content = json.loads(text, parse_int=str, parse_float=str)
    except ValueError:
        raise ValueError("is no JSON") from None
    for key in ("columns", "variables", "fields"):
        if isinstance(content, dict) and isinstance(content.get(key), dict | list):
            content = content[key]
    if isinstance(content, list):
        content = {str(_first(item, _NAMES)): item for item in content if isinstance(item, dict)}
    return content.get(name) if isinstance(content, dict) else None


def _of_values(values: Any) -> Iterator[tuple[str, str | None]]:
    if isinstance(values, dict):
        yield from ((str(code).strip(), str(title).strip()) for code, title in values.items())
    for item in values if isinstance(values, list) else []:
        if isinstance(item, dict):
            title = _first(item, _TITLES)
            yield str(_first(item, (*_VALUES, "name")) or "").strip(), None if title is None else str(title).strip()
        else:
            yield str(item).strip(), None


def _first(item: Mapping[str, Any], names: Sequence[str]) -> Any:
    known = {key.strip().lower(): value for key, value in item.items()}
    return next((known[name] for name in names if name in known), None)
