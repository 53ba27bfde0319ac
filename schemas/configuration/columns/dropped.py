"""Columns that are never counted."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from marginweave.schemas.configuration.columns.base import ColumnBase, Texts


class IdentifierColumn(ColumnBase):
    """A column that tells people apart, such as a number or a name: it is dropped, and the output does not have it.

    It is read only where `privacy.unit` names it; `missing` lists the texts that mean "no identifier".
    """

    type: Literal["identifier"]
    missing: Texts | None = None


class ConstantColumn(ColumnBase):
    """A column with one public `value` in every row: the source need not have it, the output has it as text."""

    type: Literal["constant"]
    value: Annotated[str, BeforeValidator(str)]
