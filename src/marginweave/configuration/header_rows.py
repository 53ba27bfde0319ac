"""Rows of a source that name its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from marginweave.configuration.values import FrozenModel, PositiveWhole

_MOST_ROWS = 9


class HeaderRows(FrozenModel):
    """Rows above the first row of data: their texts are joined to names, or the row `names` alone has the names.

    Written as the number of rows alone, or as `{rows: 3, names: 1}`: three rows, of which the first names the columns.
    """

    rows: Annotated[PositiveWhole, Field(le=_MOST_ROWS)] = 1
    names: PositiveWhole | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.names is not None and self.names > self.rows:
            raise ValueError(f"has names in row {self.names}, and only {self.rows} rows")
        return self

    @model_serializer(mode="wrap")
    def _short(self, full: SerializerFunctionWrapHandler) -> int | dict[str, Any]:
        return self.rows if self.names is None else full(self)


def _header(value: Any) -> Any:
    return value if isinstance(value, Mapping | HeaderRows) else {"rows": value}


Header = Annotated[HeaderRows, BeforeValidator(_header)]
