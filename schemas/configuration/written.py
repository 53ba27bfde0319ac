"""What a user wrote, as canonical JSON: its digest names the run, whatever a version's defaults and `auto` are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from marginweave.schemas.configuration.execution import Execution
from marginweave.schemas.configuration.yaml_source import TEXT_KEYS

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
