"""Reading of a configuration file: YAML 1.2 scalars, codes kept as written; and its content as canonical JSON."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from marginweave.base.errors import InputError
from marginweave.configuration.execution import Execution

# Below these keys every scalar is the text that was written: no, N, 01, 12:30 and 1_000 are not converted.
TEXT_KEYS = (
    *("values", "titles", "same", "missing", "true_values", "false_values", "value", "separator"),
    *("format", "structure", "codes", "outside", "public", "dataset", "source", "input", "output"),
    "derive",
)

# Most values of a file, which nobody writes by hand: aliases of lists of aliases can repeat a list very often.
_MOST_NODES = 1_000_000

_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL = {".nan": math.nan, ".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf}
_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}


# Parts of PyYAML's messages, and advice for each.
_ADVICE = {
    "found character '\\t'": "a tab is where YAML has spaces; write spaces",
    " character": "a value begins with a sign that YAML reserves; put it in quotes",
    "mapping values are not allowed": "put a text with a colon in quotes; indent the keys of one level alike",
    "<block end>": "the keys of one level must be indented alike",
    "could not find expected ':'": "this is no key with a value; write a colon and a space between them, as in rows: 100",
    "expected ',' or": "a bracket is not closed, or a comma is missing before this place",
}


def read_text(path: Path, kind: str) -> str:
    """Return the UTF-8 text of a file; errors call it a `kind`.

    Raises:
        InputError: the file cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        reason = "does not exist"
    except IsADirectoryError:
        reason = "is a folder; it must be a file"
    except UnicodeDecodeError:
        reason = "must be UTF-8"
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    raise InputError(f"{kind} ({path}) {reason}")


def read_yaml(path: Path, kind: str = "configuration", *, as_text: bool = False) -> dict[str, Any]:
    """Parse the mapping in the file `path`, which errors call a `kind`; every scalar is a text with `as_text`.

    Raises:
        InputError: the file cannot be read; or the line that is not plain YAML.
    """
    return parse_yaml(read_text(path, kind), str(path), as_text=as_text)


def parse_yaml(text: str, name: str = "configuration", *, as_text: bool = False) -> dict[str, Any]:
    """Parse YAML `text` into plain Python values, or only into texts with `as_text` (for a file that is no configuration).

    Raises:
        InputError: the text is no mapping in plain YAML; the message begins with `name` and the line.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise InputError(_describe(error, name)) from None
    except yaml.YAMLError:
        raise InputError(
            f"{name}: this is not YAML (a character that YAML does not allow)"
        ) from None
    except RecursionError:
        raise InputError(f"{name}: nested too deeply") from None
    if node is None:
        raise InputError(f"{name} is empty")
    if not isinstance(node, yaml.MappingNode):
        draft = (
            ""
            if as_text
            else ", as a configuration does. To draft one from a table: marginweave init TABLE"
        )
        raise InputError(f"{name} holds no keys with values{draft}")
    return _Reader(name).mapping(node, as_text, (), keys_are_columns=False)


def _describe(error: yaml.MarkedYAMLError, name: str) -> str:
    """Return a message on an error of PyYAML: the line in `name`, and advice if there is any."""
    problem = error.problem or "this is not YAML"
    mark = error.problem_mark
    if problem.startswith("could not") and error.context_mark:
        mark = error.context_mark  # where the key begins that has no value
    line = f", line {mark.line + 1}" if mark else ""
    for part, advice in _ADVICE.items():
        if part in problem:
            return f"{name}{line}: {advice}"
    return f"{name}{line}: {problem}"


def lines_of(text: str) -> dict[str, int]:
    """Return the line of each key of the configuration `text`, of each column, such as `columns.age`, and of each rule.

    Of linked tables it has each key, column and derived column, such as `tables.stays.derive.longest`. Rules
    are numbered from 1, such as `structure.ordered, entry 1`.
    """
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    lines = dict[str, int]()
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        lines[key.value] = key.start_mark.line + 1
        if key.value == "columns" and isinstance(value, yaml.MappingNode):
            for name, _ in value.value:
                lines[f"columns.{name.value}"] = name.start_mark.line + 1
        if key.value == "structure" and isinstance(value, yaml.MappingNode):
            lines |= _lines_of_rules(value)
        if key.value == "tables" and isinstance(value, yaml.MappingNode):
            lines |= _lines_below(value, "tables", depth=3)
    return lines


def _lines_below(section: yaml.MappingNode, place: str, *, depth: int) -> dict[str, int]:
    """Return the line of each key of a section and of the sections in it, so many deep."""
    lines: dict[str, int] = {}
    for key, value in section.value:
        name = f"{place}.{key.value}"
        lines[name] = key.start_mark.line + 1
        if depth > 1 and isinstance(value, yaml.MappingNode):
            lines |= _lines_below(value, name, depth=depth - 1)
    return lines


def _lines_of_rules(structure: yaml.MappingNode) -> dict[str, int]:
    """Return the line of each rule of the section `structure`."""
    lines: dict[str, int] = {}
    for key, rules in structure.value:
        if isinstance(rules, yaml.SequenceNode):
            for place, rule in enumerate(rules.value, 1):
                lines[f"structure.{key.value}, entry {place}"] = rule.start_mark.line + 1
    return lines


@dataclass
class _Reader:
    """Converts nodes of YAML into values; `name` is the name of the text in errors, and `converted` counts the values."""

    name: str
    converted: int = 0

    def value(
        self,
        node: yaml.Node,
        as_text: bool,
        above: tuple[int, ...],
        *,
        keys_are_columns: bool = False,
    ) -> Any:
        """Return the value of a node; `above` has the identities of the nodes that contain it.

        `keys_are_columns` as in `mapping`.
        """
        self.converted += 1
        if self.converted > _MOST_NODES:
            raise InputError(f"{self.name} has more than {_MOST_NODES} values")
        if id(node) in above:
            raise InputError(f"{self._line(node)}: an alias refers to itself")
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, as_text, (*above, id(node))) for item in node.value]
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, as_text, above, keys_are_columns=keys_are_columns)
        quoted = getattr(node, "style", None) is not None
        text = self._text(node)
        return text if as_text or quoted else _scalar(text)

    def mapping(
        self,
        node: yaml.MappingNode,
        as_text: bool,
        above: tuple[int, ...],
        *,
        keys_are_columns: bool,
    ) -> dict[str, Any]:
        """Return the keys and values of a mapping.

        With `keys_are_columns` the keys are names of columns, or of tables: a column called `values` does not make its
        settings text.
        """
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise InputError(f"{self._line(key_node)}: a key must be a plain text")
            key = self._text(key_node)
            if key in values:
                raise InputError(f"{self._line(key_node)}: the key {key!r} occurs twice")
            # `table` of known counts
            has_texts = (key in TEXT_KEYS or key == "table") and not keys_are_columns
            has_columns = key in {"columns", "tables"} and not keys_are_columns
            inner_above = (*above, id(node))
            values[key] = self.value(
                value_node, as_text or has_texts, inner_above, keys_are_columns=has_columns
            )
        return values

    def _text(self, node: yaml.Node) -> str:
        """Return the text of a scalar; two halves in which JSON escapes a character beyond 16 bits become that character."""
        try:
            return str(node.value).encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise InputError(f"{self._line(node)}: half a character (a lone surrogate)") from None

    def _line(self, node: yaml.Node) -> str:
        return f"{self.name}, line {node.start_mark.line + 1}"


def _scalar(text: str) -> Any:
    """Return the value of a scalar without quotes, by the core schema of YAML 1.2."""
    lowered = text.lower()
    if lowered in _CONSTANTS:
        return _CONSTANTS[lowered]
    if _INTEGER.fullmatch(text):
        return int(text) if len(text) <= 30 else float(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return _SPECIAL.get(lowered, text)


FORMAT = 2


_EXACT = 1 << 53  # beyond it a double is no longer every whole number


def canonical_written(raw: Mapping[str, Any]) -> str:
    """Return the mapping `raw` of a configuration file as canonical JSON, with `FORMAT`.

    No default is filled in and `auto` stays `auto`. Two spellings that the parser reads as the same are one: the order of
    keys (but that of the columns counts), comments, quotes of a text, `1` and `1.0`. The keys of `Execution` are left out.
    """
    declared = {key: value for key, value in raw.items() if key not in Execution.model_fields}
    content = _plain(declared, as_text=False)
    if isinstance(content.get("known"), list):
        content["known"] = [_with_text_cells(entry) for entry in content["known"]]
    if isinstance(content.get("columns"), dict):
        content["columns"] = [[name, column] for name, column in content["columns"].items()]
    return json.dumps(
        {"format": FORMAT, "written": content},
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
    )


def _with_text_cells(entry: Any) -> Any:
    """Return an entry of `known` with the cells of its table as texts: a file has texts there, a mapping in Python numbers."""
    if not isinstance(entry, dict) or "table" not in entry:
        return entry
    return {**entry, "table": _plain(entry["table"], as_text=True)}


def digest_of(text: str) -> str:
    """Return the SHA-256 of `text`, hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def written_content(text: str) -> dict[str, Any]:
    """Return the mapping that `canonical_written` wrote as `text`, but with its columns as a list of pairs."""
    content: dict[str, Any] = json.loads(text)["written"]
    return content


def mapping_of(text: str) -> dict[str, Any]:
    """Return the mapping that `canonical_written` wrote as `text`."""
    content = written_content(text)
    return {**content, "columns": dict(content["columns"])}


def _plain(value: Any, as_text: bool, *, keys_are_columns: bool = False) -> Any:
    """Return `value` as JSON has it, numbers in one spelling; below the keys whose scalars are texts they are texts.

    `keys_are_columns` as in `_Reader.mapping`.
    """
    if isinstance(value, Mapping):
        values: dict[str, Any] = {}
        for key, inner in value.items():
            has_texts = key in TEXT_KEYS and not keys_are_columns
            has_columns = key in {"columns", "tables"} and not keys_are_columns
            values[str(key)] = _plain(inner, as_text or has_texts, keys_are_columns=has_columns)
        return values
    if isinstance(value, list | tuple):
        return [_plain(inner, as_text) for inner in value]
    if value is None or isinstance(value, bool | str):
        return value
    if as_text or not isinstance(value, int | float):
        return str(value)
    return int(value) if value == value // 1 and abs(value) < _EXACT else value
