"""What this version does not do: a configuration that names it is refused with a sentence that says what to do instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from marginweave.schemas.errors import InputError

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
    """Raises InputError for the first key of `raw` that asks for survey weights, linked tables or households."""
    for place, key in _keys(raw):
        if key in _INSTEAD:
            raise InputError(f"{place}{key}: {_INSTEAD[key]}")


def _keys(raw: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The places where such a key would stand; the names of columns are the user's own."""
    yield from (("", key) for key in raw)
    privacy, source, columns = (_mapping(raw.get(key)) for key in ("privacy", "source", "columns"))
    unit = privacy.get("unit")
    yield from (("privacy.", key) for key in privacy)
    yield from (("source.", key) for key in source)
    yield from (
        ("privacy.unit.", key) for key in ([unit] if isinstance(unit, str) else _mapping(unit)) if key != "join"
    )
    for name, column in columns.items():
        yield from ((f"columns.{name}.", key) for key in _mapping(column))


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
