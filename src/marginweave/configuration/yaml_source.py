"""Reads a configuration file: YAML 1.2 scalars, codes kept as written; and writes what was read as canonical JSON."""

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

# Below these keys every scalar is the text that was written: no, N, 01, 12:30 and 1_000 survive.
TEXT_KEYS = (
    *("values", "titles", "missing", "true_values", "false_values", "value", "separator", "format", "structure"),
    *("codes", "outside", "public", "dataset", "source", "input", "output"),
)

# An alias can repeat a list of aliases of lists; nobody writes as many values.
_MOST_NODES = 1_000_000

_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL = {".nan": math.nan, ".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf}
_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}


# What PyYAML says, and what to do.
_ADVICE = {
    "found character '\\t'": "a tab is where YAML has spaces; write spaces",
    " character": "a value begins with a sign that YAML reserves; put it in quotes",
    "mapping values are not allowed": "put a text with a colon in quotes; indent the keys of one level alike",
    "<block end>": "the keys of one level must be indented alike",
    "could not find expected ':'": "this is no key with a value; write a colon and a space between them, as in rows: 100",
    "expected ',' or": "a bracket is not closed, or a comma is missing before this place",
}


def read_text(path: Path, what: str) -> str:
    """The UTF-8 text of a file; `what` is what errors call it."""
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
    raise InputError(f"{what} ({path}) {reason}")


def read_yaml(path: Path, what: str = "configuration", *, as_text: bool = False) -> dict[str, Any]:
    """Parse the mapping in `path`, with every scalar `as_text` if asked; InputError names the line that is not plain YAML."""
    return parse_yaml(read_text(path, what), str(path), as_text=as_text)


def parse_yaml(text: str, name: str = "configuration", *, as_text: bool = False) -> dict[str, Any]:
    """Parse YAML `text` into plain Python values, or into texts alone (no configuration); `name` is what errors call it."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        problem = error.problem or "this is not YAML"
        begun = error.context_mark if problem.startswith("could not") else None
        line = f", line {mark.line + 1}" if (mark := begun or error.problem_mark) else ""
        advice = next((words for part, words in _ADVICE.items() if part in problem), problem)
        raise InputError(f"{name}{line}: {advice}") from None
    except yaml.YAMLError:
        raise InputError(f"{name}: this is not YAML (a character that YAML does not allow)") from None
    except RecursionError:
        raise InputError(f"{name}: nested too deeply") from None
    if node is None:
        raise InputError(f"{name} is empty")
    if not isinstance(node, yaml.MappingNode):
        draft = "" if as_text else ", as a configuration does. To draft one from a table: marginweave init TABLE"
        raise InputError(f"{name} holds no keys with values{draft}")
    return _Reader(name).mapping(node, as_text, (), names=False)


def lines_of(text: str) -> dict[str, int]:
    """The line of each key of the configuration `text`, and of each column, such as `columns.age`."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    found = dict[str, int]()
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        columns = value.value if key.value == "columns" and isinstance(value, yaml.MappingNode) else ()
        found |= {key.value: key.start_mark.line + 1}
        found |= {f"columns.{name.value}": name.start_mark.line + 1 for name, _ in columns}
    return found


@dataclass
class _Reader:
    """Turns nodes into values; `name` is what errors call the text, and `made` counts the values."""

    name: str
    made: int = 0

    def value(self, node: yaml.Node, as_text: bool, above: tuple[int, ...], *, names: bool = False) -> Any:
        self.made += 1
        if self.made > _MOST_NODES:
            raise InputError(f"{self.name} has more than {_MOST_NODES} values")
        if id(node) in above:
            raise InputError(f"{self._line(node)}: an alias refers to itself")
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, as_text, (*above, id(node))) for item in node.value]
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, as_text, above, names=names)
        quoted = getattr(node, "style", None) is not None
        text = self._text(node)
        return text if as_text or quoted else _scalar(text)

    def mapping(self, node: yaml.MappingNode, as_text: bool, above: tuple[int, ...], *, names: bool) -> dict[str, Any]:
        """Where the keys are `names` of columns, none of them says how to read what is below it."""
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise InputError(f"{self._line(key_node)}: a key must be a plain text")
            key = self._text(key_node)
            if key in found:
                raise InputError(f"{self._line(key_node)}: the key {key!r} occurs twice")
            text = as_text or ((key in TEXT_KEYS or key == "table") and not names)  # `table` of known counts
            columns = key == "columns" and not names
            found[key] = self.value(value_node, text, (*above, id(node)), names=columns)
        return found

    def _text(self, node: yaml.Node) -> str:
        """The text of a scalar; the two halves in which JSON escapes a character beyond 16 bits become that character."""
        try:
            return str(node.value).encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise InputError(f"{self._line(node)}: half a character (a lone surrogate)") from None

    def _line(self, node: yaml.Node) -> str:
        return f"{self.name}, line {node.start_mark.line + 1}"


def _scalar(text: str) -> Any:
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
    """The mapping `raw` of a configuration file as canonical JSON, with the number of this format.

    No default is filled in and `auto` stays `auto`. Two spellings that the parser reads as the same are one: the order of
    keys (but that of the columns counts), comments, quotes of a text, `1` and `1.0`. What `Execution` holds is left out.
    """
    kept = {key: _plain(value, key in TEXT_KEYS) for key, value in raw.items() if key not in Execution.model_fields}
    if isinstance(kept.get("known"), list):  # the cells of a table are read as texts, and are numbers in Python
        kept["known"] = [
            {**entry, "table": _plain(entry["table"], as_text=True)}
            if isinstance(entry, dict) and "table" in entry
            else entry
            for entry in kept["known"]
        ]
    if isinstance(kept.get("columns"), dict):
        kept["columns"] = [[name, column] for name, column in kept["columns"].items()]
    return json.dumps({"format": FORMAT, "written": kept}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest_of(text: str) -> str:
    """SHA-256 of `text`, hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def written_content(text: str) -> dict[str, Any]:
    """The content of what `canonical_written` made; its columns are a list of pairs."""
    content: dict[str, Any] = json.loads(text)["written"]
    return content


def mapping_of(text: str) -> dict[str, Any]:
    """A mapping that `canonical_written` turns into `text` again."""
    content = written_content(text)
    return {**content, "columns": dict(content["columns"])}


def _plain(value: Any, as_text: bool) -> Any:
    """`value` as JSON has it, numbers in one spelling; below the keys whose scalars are texts they are texts."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner, as_text or key in TEXT_KEYS) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, as_text) for inner in value]
    if value is None or isinstance(value, bool | str):
        return value
    if as_text or not isinstance(value, int | float):
        return str(value)
    return int(value) if value == value // 1 and abs(value) < _EXACT else value
