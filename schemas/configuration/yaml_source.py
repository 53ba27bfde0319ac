"""Reads a configuration file: YAML 1.2 scalars, codes kept as written; and writes what was read as canonical JSON."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from marginweave.schemas.configuration.execution import Execution
from marginweave.schemas.errors import InputError

# Below these keys every scalar is the text that was written: no, N, 01, 12:30 and 1_000 survive.
TEXT_KEYS = frozenset(
    {
        *("values", "missing", "true_values", "false_values", "value", "separator", "format", "structure"),
        *("outside", "public", "dataset", "source", "input", "output"),
    }
)

# An alias can repeat a list of aliases of lists; nobody writes as many values.
_MOST_NODES = 1_000_000

_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL = {".nan": math.nan, ".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf}
_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}


def read_yaml(path: Path, *, as_text: bool = False) -> dict[str, Any]:
    """Parse the mapping in `path`, with every scalar `as_text` if asked; InputError names the line that is not plain YAML."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"configuration ({path}) does not exist") from None
    except IsADirectoryError:
        raise InputError(f"configuration ({path}) is a folder; it must be a YAML file") from None
    except UnicodeDecodeError:
        raise InputError(f"configuration ({path}) must be UTF-8") from None
    except OSError as error:
        raise InputError(f"configuration ({path}) cannot be read: {error.strerror}") from None
    return parse_yaml(text, str(path), as_text=as_text)


def parse_yaml(text: str, name: str = "configuration", *, as_text: bool = False) -> dict[str, Any]:
    """Parse YAML `text` into plain Python values, or into texts alone; `name` is what errors call it."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError(f"{name}{line}: {error.problem or 'this is not YAML'}") from None
    except yaml.YAMLError:
        raise InputError(f"{name}: this is not YAML (a character that YAML does not allow)") from None
    except RecursionError:
        raise InputError(f"{name}: nested too deeply") from None
    if node is None:
        raise InputError(f"{name} is empty")
    if not isinstance(node, yaml.MappingNode):
        raise InputError(
            f"{name} holds no keys with values, as a configuration does. To draft one from a table: marginweave init TABLE"
        )
    value: dict[str, Any] = _construct(node, name, as_text, (), itertools.count())
    return value


def _construct(
    node: yaml.Node, name: str, as_text: bool, above: tuple[int, ...], made: Iterator[int], *, names: bool = False
) -> Any:
    if next(made) > _MOST_NODES:
        raise InputError(f"{name} has more than {_MOST_NODES} values")
    if id(node) in above:
        raise InputError(f"{name}, line {node.start_mark.line + 1}: an alias refers to itself")
    above = (*above, id(node))
    if isinstance(node, yaml.SequenceNode):
        return [_construct(item, name, as_text, above, made) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        return _construct_mapping(node, name, as_text, above, made, names=names)
    quoted = getattr(node, "style", None) is not None
    text = _text(node, name)
    return text if as_text or quoted else _scalar(text)


def _text(node: yaml.Node, name: str) -> str:
    """The text of a scalar; the two halves in which JSON escapes a character beyond 16 bits become that character."""
    try:
        return str(node.value).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise InputError(f"{name}, line {node.start_mark.line + 1}: half a character (a lone surrogate)") from None


def _construct_mapping(
    node: yaml.MappingNode, name: str, as_text: bool, above: tuple[int, ...], made: Iterator[int], *, names: bool
) -> dict[str, Any]:
    """Where the keys are `names` of columns, none of them says how to read what is below it."""
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        where = f"{name}, line {key_node.start_mark.line + 1}"
        if not isinstance(key_node, yaml.ScalarNode):
            raise InputError(f"{where}: a key must be a plain text")
        key = _text(key_node, name)
        if key in mapping:
            raise InputError(f"{where}: the key {key!r} stands twice")
        text = as_text or (key in TEXT_KEYS and not names)
        mapping[key] = _construct(value_node, name, text, above, made, names=key == "columns" and not names)
    return mapping


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
    keys (but that of the columns counts), comments, quotes of a text, `1` and `1.0`. What `Execution` holds is left out, and
    `privacy.redraws`, which has no effect.
    """
    kept = {key: _plain(value, key in TEXT_KEYS) for key, value in raw.items() if key not in Execution.model_fields}
    if isinstance(kept.get("privacy"), dict):
        kept["privacy"].pop("redraws", None)
    if isinstance(kept.get("columns"), dict):
        kept["columns"] = [[name, column] for name, column in kept["columns"].items()]
    content = {"format": FORMAT, "written": kept}
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest_of(text: str) -> str:
    """SHA-256 of `text`, hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_written(text: str) -> bool:
    """Whether `canonical_written` made `text`; the other possibility is a resolved configuration, as 0.1.0 kept it."""
    return bool(json.loads(text).get("format") == FORMAT)


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
