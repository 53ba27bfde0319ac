"""One readable message where a configuration breaks a rule."""

from __future__ import annotations

import difflib
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.configuration.values import listed
from marginweave.schemas.configuration.yaml_source import lines_of
from marginweave.schemas.errors import InputError

_LIMITS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}
_TYPES = {
    "string": "a text",
    "int": "a whole number",
    "bool": "true or false",
    "dict": "a mapping",
    "model": "a mapping",
    "tuple": "a list",
    "list": "a list",
    "byte_size": "a size, such as 80MB",
}


def refusal(error: ValidationError, text: str = "") -> InputError:
    """The first rule that is broken, by key, and how many more are: `privacy.epsilon (-1.0) must be positive (and 1 more)`.

    All that waits in a draft for a yes is named, with its lines in the configuration's `text`.
    """
    # An unknown key first: it is often the misspelt one that is missed elsewhere.
    found = sorted(error.errors(include_url=False), key=lambda item: item["type"] != "extra_forbidden")
    unique = list(dict.fromkeys(_message(dict(item)) for item in found))
    waiting = list(dict.fromkeys(_place(item["loc"]) for item in found if "drafted" in item["msg"]))
    more = f" (and {others} more)" if (others := len(unique) - max(1, len(waiting))) else ""
    if len(waiting) > 1:
        lines = lines_of(text)
        waiting.sort(key=lambda place: lines.get(place, 0))
        named = [f"{place} (line {lines[place]})" if place in lines else place for place in waiting]
        more += f". {len(waiting)} questions are open: {listed(named, 10)}"
    return InputError(unique[0] + more)


def _message(error: dict[str, Any]) -> str:
    key, kind, given = _place(error["loc"]), error["type"], _short(error.get("input"))
    text, least = str(error["msg"]).removeprefix("Value error, "), (error.get("ctx") or {}).get("min_length", 1)
    fixed = {
        "missing": f"{key} is required",
        "extra_forbidden": f"unknown key {key}{_suggestion(error['loc'])}",
        "union_tag_not_found": f"{key}.type is required: {_either(_kinds())}",
        "too_short": f"{key} must have at least {least}" if least > 1 else f"{key} must not be empty",
    }
    if kind in fixed:
        return fixed[kind]
    if kind == "union_tag_invalid":
        return f"{key}.type ({error['ctx']['tag']}) must be {_either(_kinds())}"
    if text.startswith("must"):
        return f"{key} ({given}) {text}"
    if kind == "value_error":
        return f"{key} {text}".strip()
    if kind in _LIMITS:
        words, limit = _LIMITS[kind]
        bound = error["ctx"][limit]
        return f"{key} ({given}) must be " + ("positive" if (limit, bound) == ("gt", 0) else f"{words} {bound:.12g}")
    expected = next((name for prefix, name in _TYPES.items() if kind.startswith(prefix)), None)
    if kind == "literal_error":
        expected = error["ctx"]["expected"].replace("'", "")
    return f"{key} ({given}) must be {expected}" if expected else f"{key}: {text}"


def _place(loc: tuple[int | str, ...]) -> str:
    """The path in the file: pydantic also names the branch of a union, which the reader never wrote."""
    branch = {"aggregate": 1, "synthesize": 1, "columns": 2, "known": 2}.get(str(loc[0])) if loc else None
    return ".".join(str(part) for number, part in enumerate(loc) if number != branch)


def _suggestion(loc: tuple[int | str, ...]) -> str:
    """The known key that an unknown one is nearest to, among those that may stand in its place."""
    models: list[type[BaseModel]] = [Configuration]
    for part in loc[:-1]:
        below = [
            m for model in models if part in model.model_fields for m in _models(model.model_fields[part].annotation)
        ]
        tagged = [model for model in models if part in _tags(model)]
        models = below or tagged or models
    if not loc:
        return ""
    named = {info.alias or name for model in models for name, info in model.model_fields.items()}
    known = named - {str(loc[-1])}  # another branch may have it
    close = difflib.get_close_matches(str(loc[-1]), sorted(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models that a field can hold, through unions, mappings and annotations."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]


def _tags(model: type[BaseModel]) -> tuple[str, ...]:
    """The words under `type` that choose a kind of column, or those under `method`."""
    field = model.model_fields.get("type") or model.model_fields.get("method")
    return get_args(field.annotation) if field else ()


def _kinds() -> list[str]:
    return [tag for model in _models(Configuration.model_fields["columns"].annotation) for tag in _tags(model)]


def _either(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


_WEIGHTS = (
    "survey weights are not supported: every record counts once. Declare the weight as a number column, which is released "
    "like any other, and apply it to the synthetic records"
)


_TABLES = (
    "several linked tables are not supported: link them before the release into one table and name that as source. "
    "Several rows a person become one record with unit: {column: ID, join: true}, or count as they are with "
    "unit: {column: ID, max_records: 4}"
)


_HOUSEHOLDS = (
    "households are not supported: their members are not kept together in synthetic records. To protect whole households, "
    "name the household's number as the unit: {column: HOUSEHOLD, max_records: 8}"
)


_INSTEAD = {
    **dict.fromkeys(("weight", "weights", "survey_weights"), _WEIGHTS),
    **dict.fromkeys(("tables", "join", "joins", "sources"), _TABLES),
    **dict.fromkeys(("household", "households"), _HOUSEHOLDS),
}


def refuse_unsupported(raw: dict[str, Any]) -> None:
    """Raises InputError for the first key of `raw` that asks for survey weights, linked tables or households.

    Such a key is looked for where it would stand; the names of columns are the user's own.
    """
    privacy, columns = _mapping(raw.get("privacy")), _mapping(raw.get("columns"))
    unit = privacy.get("unit")
    unit = {unit: None} if isinstance(unit, str) else {key: None for key in _mapping(unit) if key != "join"}
    places = {"": raw, "privacy.": privacy, "source.": raw.get("source"), "privacy.unit.": unit}
    places |= {f"columns.{name}.": column for name, column in columns.items()}
    for place, mapping in places.items():
        for key in _mapping(mapping):
            if key in _INSTEAD:
                raise InputError(f"{place}{key}: {_INSTEAD[key]}")


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
