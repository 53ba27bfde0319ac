"""One readable message where a configuration, or another file that a user wrote, breaks a rule."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.configuration.yaml_source import lines_of

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
    "dict": "a mapping (key: value)",
    "model": "a mapping (key: value)",
    "tuple": "a list",
    "list": "a list",
    "byte_size": "a size, such as 80MB",
}


def refusal(error: ValidationError, text: str = "") -> InputError:
    """The rules that are broken, by key: `privacy.epsilon (-1.0) must be positive. Also: rows (12k) must be a number`.

    All that waits in a draft for a yes is named, with its lines in the configuration's `text`.
    """
    found = error.errors(include_url=False)
    unique = broken_rules(map(dict, found), Configuration)
    waiting = list(dict.fromkeys(_place(item["loc"]) for item in found if "drafted" in item["msg"]))
    if len(waiting) > 1:
        more = f" (and {others} more)" if (others := len(unique) - len(waiting)) else ""
        lines = lines_of(text)
        waiting.sort(key=lambda place: lines.get(place, 0))
        named = [f"{place} (line {lines[place]})" if place in lines else place for place in waiting]
        return InputError(f"{unique[0]}{more}. {len(waiting)} questions are open: {listed(named, 10)}")
    return InputError(together(unique))


def broken_rules(found: Iterable[dict[str, Any]], root: type[BaseModel]) -> list[str]:
    """A sentence for each of pydantic's errors in what should be a `root`, but none twice.

    An unknown key comes first. Left out are the key that is missed because it was misspelt, and that a list is too short once
    pydantic has dropped its wrong entries.
    """
    errors = sorted(found, key=lambda item: item["type"] != "extra_forbidden")
    meant = {(*e["loc"][:-1], _closest(e["loc"], root)) for e in errors if e["type"] == "extra_forbidden"}
    meant |= {e["loc"][:n] for e in errors for n in range(len(e["loc"]))}
    kept = (e for e in errors if e["type"] not in ("missing", "too_short") or e["loc"] not in meant)
    return list(dict.fromkeys(_message(e, root) for e in kept))


def together(messages: list[str]) -> str:
    """The first messages as one line, and how many more there are."""
    first, *others = messages
    more = f" (and {len(others) - 3} more)" if others[3:] else ""
    return first + (f"{'' if first.endswith('?') else '.'} Also: {'; '.join(others[:3])}{more}" if others else "")


def written(value: Any) -> str:
    """A value as a configuration writes it."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {written(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(written, value))}]"
    return "empty" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _message(error: dict[str, Any], root: type[BaseModel]) -> str:
    key, kind, given = _place(error["loc"]), error["type"], shortened(error.get("input"))
    text, least = str(error["msg"]).removeprefix("Value error, "), (error.get("ctx") or {}).get("min_length", 1)
    fixed = {
        "missing": f"{key} is required",
        "extra_forbidden": f"unknown key {key}{_suggestion(error['loc'], root)}",
        "union_tag_not_found": f"{key}.type is required: {_either(_kinds())}",
        "too_short": f"{key} must have at least {least}" if least > 1 else f"{key} must not be empty",
    }
    if kind in fixed:
        return fixed[kind]
    if kind == "union_tag_invalid":
        return f"{key}.type ({error['ctx']['tag']}) must be {_either(_kinds())}"
    if text.startswith("must"):
        return f"{key} ({given}) {text}" if key else f"the {root.__name__.lower()} {text}"
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
    """The path in the file, entries of lists from 1, without the branch of a union, which pydantic names and nobody wrote."""
    branch = {"aggregate": 1, "synthesize": 1, "columns": 2, "known": 2}.get(str(loc[0])) if loc else None
    texts = (f", entry {p + 1}:" if isinstance(p, int) else f".{p}" for n, p in enumerate(loc) if n != branch)
    return "".join(texts).replace(":.", ": ").removeprefix(".").removesuffix(":")


def _suggestion(loc: tuple[int | str, ...], root: type[BaseModel]) -> str:
    if loc and str(loc[-1]).isdigit():  # {epsilon: 2,5} has the keys epsilon and 5
        return "; a number has a decimal point, as 2.5, and no comma"
    return f"; did you mean {close}?" if (close := _closest(loc, root)) else ""


def _closest(loc: tuple[int | str, ...], root: type[BaseModel]) -> str:
    """The known key that an unknown one is nearest to, among those that may stand in its place; empty for none."""
    if not loc:
        return ""
    models = [root]
    for part in loc[:-1]:
        below = [
            m for model in models if part in model.model_fields for m in _models(model.model_fields[part].annotation)
        ]
        tagged = [model for model in models if part in _tags(model)]
        models = below or tagged or models
    named = {info.alias or name for model in models for name, info in model.model_fields.items()}
    known = named - {str(loc[-1])}  # another branch may have it
    return next(iter(difflib.get_close_matches(str(loc[-1]), sorted(known), n=1)), "")


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


def shortened(value: Any) -> str:
    """The same, no longer than a message should quote."""
    text = written(value)
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
