"""Writes a value of a configuration as one line of YAML, in which texts that YAML would read otherwise are quoted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from marginweave.configuration.yaml_source import TEXT_KEYS

_PLAIN = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_./+-]| (?=[A-Za-z0-9_]))*")
_WORDS = frozenset({"true", "false", "null"})


def yaml_line(value: Any, below: str = "") -> str:
    """Return a value as one line of YAML below the key `below`, such that it is read back as the same value."""
    if isinstance(value, Mapping):
        pairs = [
            f"{yaml_line(name)}: {yaml_line(item, below=name)}" for name, item in value.items()
        ]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, str):
        may_be_plain = below in TEXT_KEYS or value[:1].isalpha()
        return _text(value, plain=may_be_plain)
    if value is None:
        return "null"
    if isinstance(value, Sequence):
        return "[" + ", ".join(yaml_line(item, below=below) for item in value) + "]"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _text(text: str, *, plain: bool) -> str:
    if plain and _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    quoted = yaml.safe_dump(text, default_style='"', allow_unicode=True, width=10**9)
    return str(quoted).strip()
