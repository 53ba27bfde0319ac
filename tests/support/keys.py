"""Keys of a configuration that a text names."""

from __future__ import annotations

import re

from marginweave.configuration.release import Configuration


def all_keys() -> set[str]:
    """Return every key that a configuration can have, at any depth."""
    keys: set[str] = set()
    pending: list[object] = [Configuration.model_json_schema()]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            keys |= part.get("properties", {}).keys()
            pending += part.values()
        elif isinstance(part, list):
            pending += part
    return keys


def named_keys(text: str, keys: set[str]) -> set[str]:
    """Return the keys that a text names: in backticks, before a colon, or with a section and a point before them."""
    words = re.findall(r"`([a-z_.]+)`|\b([a-z_]+): |\b([a-z_]+\.[a-z_]+[a-z_.]*)", text)
    return {name for name in map("".join, words) if set(name.split(".")) <= keys}
