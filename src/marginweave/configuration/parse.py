"""Readable messages for a configuration, or another file that a user wrote, that breaks a rule."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from marginweave.base.errors import InputError, MustError, UnconfirmedError
from marginweave.configuration.methods import METHOD_ERROR
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
    """Return the error of broken rules, by key: `privacy.epsilon (-1.0) must be positive. Also: rows (12k) must be a number`.

    It lists all parts of a draft that are not confirmed yet, with their lines in the configuration's `text`.
    """
    errors: list[dict[str, Any]] = [dict(item) for item in error.errors(include_url=False)]
    messages = broken_rules(errors, Configuration)
    drafted = list(
        dict.fromkeys(
            _place(item["loc"]) for item in errors if isinstance(_cause(item), UnconfirmedError)
        )
    )
    if len(drafted) <= 1:
        return InputError(join_messages(messages))
    number = len(messages) - len(drafted)
    ending = f" (and {number} more)" if number else ""
    lines = lines_of(text)
    drafted.sort(key=lambda place: lines.get(place, 0))
    places = [f"{place} (line {lines[place]})" if place in lines else place for place in drafted]
    return InputError(
        f"{messages[0]}{ending}. {len(drafted)} questions are open: {listed(places, 10)}"
    )


def broken_rules(errors: Iterable[dict[str, Any]], root: type[BaseModel]) -> list[str]:
    """Return a sentence for each of pydantic's errors in a file that should be a `root`, without repetition.

    An unknown key comes first. Two kinds of error are left out: a key that is missing because it was misspelt, and a list that
    is too short because pydantic has dropped its wrong entries.
    """
    ordered = sorted(errors, key=lambda error: error["type"] != "extra_forbidden")
    explained = set[tuple[int | str, ...]]()  # places at which another error is the cause
    for error in ordered:
        loc = error["loc"]
        if error["type"] == "extra_forbidden":
            explained.add((*loc[:-1], _closest(loc, root)))
        explained.update(loc[:length] for length in range(len(loc)))
    messages = list[str]()
    for error in ordered:
        if error["type"] in ("missing", "too_short") and error["loc"] in explained:
            continue
        messages.append(_message(error, root))
    return list(dict.fromkeys(messages))


def join_messages(messages: list[str]) -> str:
    """Return the first four messages as one line, and the number of the others."""
    first = messages[0]
    if len(messages) == 1:
        return first
    mark = "" if first.endswith("?") else "."
    ending = f" (and {len(messages) - 4} more)" if len(messages) > 4 else ""
    return f"{first}{mark} Also: {'; '.join(messages[1:4])}{ending}"


def written(value: Any) -> str:
    """Return a value as a configuration writes it."""
    if isinstance(value, dict):
        pairs = [f"{key}: {written(inner)}" for key, inner in value.items()]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(written, value))}]"
    if value is None:
        return "empty"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _message(error: dict[str, Any], root: type[BaseModel]) -> str:
    """Return a sentence for one of pydantic's errors: the key, its value, and the rule that it breaks."""
    key = _place(error["loc"])
    kind = error["type"]
    value = shortened(error.get("input"))
    text = str(_cause(error) or error["msg"])
    about_key = _message_on_key(error, key, root)
    if about_key is not None:
        return about_key
    if kind == METHOD_ERROR or isinstance(_cause(error), MustError):
        return f"{key} ({value}) {text}" if key else f"the {root.__name__.lower()} {text}"
    if kind == "value_error":
        return f"{key} {text}".strip()
    if kind in _LIMITS:
        words, limit = _LIMITS[kind]
        bound = error["ctx"][limit]
        rule = "positive" if limit == "gt" and bound == 0 else f"{words} {bound:.12g}"
        return f"{key} ({value}) must be {rule}"
    expected = _expected(error)
    return f"{key} ({value}) must be {expected}" if expected else f"{key}: {text}"


def _cause(error: dict[str, Any]) -> ValueError | None:
    """Return the exception of a rule of ours behind one of pydantic's errors; None where the rule is pydantic's."""
    cause: ValueError | None = (error.get("ctx") or {}).get("error")
    return cause


def _message_on_key(error: dict[str, Any], key: str, root: type[BaseModel]) -> str | None:
    """Return a sentence for a key that is missing, unknown or empty, or a kind of column that is; None for other errors."""
    context = error.get("ctx") or {}
    match error["type"]:
        case "missing":
            return f"{key} is required"
        case "extra_forbidden":
            return f"unknown key {key}{_suggestion(error['loc'], root)}"
        case "union_tag_not_found":
            return f"{key}.type is required: {_either(_kinds())}"
        case "union_tag_invalid":
            return f"{key}.type ({context['tag']}) must be {_either(_kinds())}"
        case "too_short":
            least = context.get("min_length", 1)
            return f"{key} must have at least {least}" if least > 1 else f"{key} must not be empty"
    return None


def _expected(error: dict[str, Any]) -> str | None:
    """Return words for the type, or the words, that a value must be; None where pydantic's error says neither."""
    if error["type"] == "literal_error":
        return error["ctx"]["expected"].replace("'", "")
    for prefix, name in _TYPES.items():
        if error["type"].startswith(prefix):
            return name
    return None


def _place(loc: tuple[int | str, ...]) -> str:
    """Return the path in the file, with entries of lists numbered from 1.

    pydantic's name of the branch of a union, which is not in the file, is left out.
    """
    branch = (
        {"aggregate": 1, "synthesize": 1, "columns": 2, "known": 2, "tables": 4}.get(str(loc[0]))
        if loc
        else None
    )
    if loc[:1] == ("tables",) and loc[2:3] != ("columns",):
        branch = None
    path = ""
    for position, part in enumerate(loc):
        if position != branch:
            path += f", entry {part + 1}:" if isinstance(part, int) else f".{part}"
    return path.replace(":.", ": ").removeprefix(".").removesuffix(":")


def _suggestion(loc: tuple[int | str, ...], root: type[BaseModel]) -> str:
    """Return advice on an unknown key, or an empty text."""
    if loc and str(loc[-1]).isdigit():  # {epsilon: 2,5} has the keys epsilon and 5
        return "; a number has a decimal point, as 2.5, and no comma"
    closest = _closest(loc, root)
    return f"; did you mean {closest}?" if closest else ""


def _closest(loc: tuple[int | str, ...], root: type[BaseModel]) -> str:
    """Return the key that is most like an unknown key, of those that are allowed in its place; empty for none."""
    if not loc:
        return ""
    models = [root]
    for part in loc[:-1]:
        below = list[type[BaseModel]]()
        for model in models:
            if part in model.model_fields:
                below += _models(model.model_fields[part].annotation)
        tagged = [model for model in models if part in _tags(model)]
        models = below or tagged or models
    keys = {field.alias or name for model in models for name, field in model.model_fields.items()}
    unknown = str(loc[-1])
    keys.discard(unknown)  # another branch may have it
    matches = difflib.get_close_matches(unknown, sorted(keys), n=1)
    return matches[0] if matches else ""


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the models that a field can hold, through unions, mappings and annotations."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]


def _tags(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the words under `type` that choose a kind of column, or the words under `method`."""
    field = model.model_fields.get("type") or model.model_fields.get("method")
    return get_args(field.annotation) if field else ()


def _kinds() -> list[str]:
    """Return the words under `type` of all kinds of column."""
    return [
        tag
        for model in _models(Configuration.model_fields["columns"].annotation)
        for tag in _tags(model)
    ]


def _either(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def shortened(value: Any) -> str:
    """Return a value as a configuration writes it, cut to the length that a message should quote."""
    text = written(value)
    return text if len(text) <= 60 else text[:57] + "..."


_WEIGHTS = (
    "survey weights are not supported: every record counts once. Declare the weight as a number column, which is released "
    "like any other, and apply it to the synthetic records"
)


_TABLES = (
    "tables cannot be joined row by row. Name the table with a row a person as source, and derive columns from the others: "
    "tables: {visits: {source: visits.csv, derive: {visits: count}}}"
)


_HOUSEHOLDS = (
    "households are not supported: their members are not kept together in synthetic records. To protect whole households, "
    "name the household's number as the unit: {column: HOUSEHOLD, max_records: 8}"
)


_INSTEAD = {
    **dict.fromkeys(("weight", "weights", "survey_weights"), _WEIGHTS),
    **dict.fromkeys(("join", "joins", "sources"), _TABLES),
    **dict.fromkeys(("household", "households"), _HOUSEHOLDS),
}


def refuse_unsupported(raw: dict[str, Any]) -> None:
    """Refuse the first key of `raw` that asks for survey weights, a join of tables or households (InputError).

    Only places where such a key would be are searched; the names of columns are the user's.
    """
    privacy = _mapping(raw.get("privacy"))
    unit = privacy.get("unit")
    unit_words = (
        [unit] if isinstance(unit, str) else [key for key in _mapping(unit) if key != "join"]
    )
    places: dict[str, Iterable[str]] = {
        "": raw,
        "privacy.": privacy,
        "source.": _mapping(raw.get("source")),
        "privacy.unit.": unit_words,
    }
    for name, column in _mapping(raw.get("columns")).items():
        places[f"columns.{name}."] = _mapping(column)
    for place, keys in places.items():
        for key in keys:
            if key in _INSTEAD:
                raise InputError(f"{place}{key}: {_INSTEAD[key]}")


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
