"""From a YAML file to a configuration, with one readable message where a rule is broken."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from marginweave.schemas.aggregation import AggregateSettings
from marginweave.schemas.configuration import (
    Configuration,
    EvaluationSettings,
    ExpectationSettings,
    PrivacySettings,
    PublishSettings,
    SynthesisSettings,
)
from marginweave.schemas.errors import InputError
from marginweave.schemas.yaml_source import read_yaml

_KNOWN: dict[str, type[BaseModel]] = {
    "": Configuration,
    "privacy": PrivacySettings,
    "aggregate": AggregateSettings,
    "synthesize": SynthesisSettings,
    "expectations": ExpectationSettings,
    "evaluate": EvaluationSettings,
    "publish": PublishSettings,
}
_TYPES = {
    "string": "a text",
    "int": "a whole number",
    "bool": "true or false",
    "dict": "a mapping",
    "model": "a mapping",
    "tuple": "a list",
    "list": "a list",
}


def load_configuration(path: Path) -> Configuration:
    """The configuration in the YAML file at `path`.

    Raises:
        InputError: the file is not there or not YAML, or the first rule that it breaks, by key: `privacy.epsilon (-1.0)
            must be positive`.
    """
    return parse_configuration(read_yaml(path))


def parse_configuration(raw: dict[str, Any]) -> Configuration:
    """The configuration that a mapping describes; raises InputError as `load_configuration` does."""
    try:
        return Configuration.model_validate(raw)
    except ValidationError as error:
        # An unknown key first: it is often the misspelt one that is missed elsewhere.
        found = sorted(error.errors(include_url=False), key=lambda item: item["type"] != "extra_forbidden")
        messages = [_message(dict(item)) for item in found]
    unique = list(dict.fromkeys(messages))
    more = f" (and {len(unique) - 1} more)" if len(unique) > 1 else ""
    raise InputError(unique[0] + more)


def _message(error: dict[str, Any]) -> str:
    location = _location(error["loc"])
    key, kind, given = ".".join(location), error["type"], _short(error.get("input"))
    text = str(error["msg"]).removeprefix("Value error, ")
    fixed = {
        "missing": f"{key} is required",
        "extra_forbidden": f"unknown key {key}{_suggestion(location)}",
        "union_tag_not_found": f"{key}.type is required: category or number",
        "too_short": f"{key} must not be empty",
        "thresholds": f"{key} ({given}) {text}",
    }
    if kind in fixed:
        return fixed[kind]
    if kind == "union_tag_invalid":
        return f"{key}.type ({error['ctx']['tag']}) must be category or number in this version"
    if kind == "value_error":
        return f"{key} ({given}) {text}" if text.startswith("must") else f"{key} {text}".strip()
    expected = next((name for prefix, name in _TYPES.items() if kind.startswith(prefix)), None)
    if kind == "literal_error":
        expected = error["ctx"]["expected"].replace("'", "")
    return f"{key} ({given}) must be {expected}" if expected else f"{key}: {text}"


def _location(loc: tuple[int | str, ...]) -> tuple[str, ...]:
    """The path in the file: pydantic also names the branch of a union, which the reader never wrote."""
    parts = [str(part) for part in loc]
    if len(parts) > 2 and parts[0] == "columns":
        del parts[2]
    if len(parts) > 2 and parts[:2] == ["aggregate", "thresholds"]:
        del parts[2]
    return tuple(parts)


def _suggestion(location: tuple[str, ...]) -> str:
    model = _KNOWN.get(".".join(location[:-1])) if location else None
    close = difflib.get_close_matches(location[-1], list(model.model_fields), n=1) if model else []
    return f"; did you mean {close[0]}?" if close else ""


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
