"""Base classes of the files of a release: JSON by a contract that the file names."""

from __future__ import annotations

import json
from textwrap import indent
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from marginweave.base.shown import Shown

_MOST_SHOWN = 8


class Described(Shown, BaseModel):
    """A part of a released file; each field's description says its unit."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        defer_build=True,
    )

    def __repr__(self) -> str:
        lines = (f"  {name}: {_short(value)}" for name, value in self if value not in (None, ()))
        return "\n".join([type(self).__name__, *lines])

    __str__ = __repr__


class ReleasedFile(Described):
    """A JSON file that names its contract: `schema_` of each kind, with the JSON Schema beside this module."""

    def to_json(self) -> bytes:
        """Return the file: indented JSON, the same bytes for equal content; a key without a value is left out."""
        content = self.model_dump(mode="json", exclude_unset=True)
        written = {"$schema": type(self).model_fields["schema_"].default, **content}
        text = json.dumps(written, indent=2, ensure_ascii=False)
        return f"{text}\n".encode()

    @classmethod
    def from_json(cls, content: str | bytes) -> Self:
        """Return the content that `to_json` wrote.

        Raises:
            InputError: an older version wrote it.
            ValueError: it has another form.
        """
        return cls.model_validate_json(content)


def _short(value: Any) -> str:
    """Return a value as text; of many entries, or entries that are no plain values, their number."""
    if isinstance(value, tuple | dict):
        are_plain = all(isinstance(entry, str | int | float) for entry in value)
        if len(value) > _MOST_SHOWN or not are_plain:
            return f"{len(value)} entries"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple):
        return "; ".join(map(str, value))
    return indent(str(value), "  ").strip()


def contract(name: str) -> Any:
    """Return the key `$schema` of a file whose contract has this name."""
    return Field(default=name, alias="$schema", description="Identifier of this contract.")


def optional(description: str) -> Any:
    """Return a key that is left out where it has no value."""
    return Field(default=None, exclude_if=lambda value: value is None, description=description)
