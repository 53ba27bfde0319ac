"""Defines contracts of stages: pandera schemas of the names, types and rules of a table's columns.

Only `arrow_frame` makes a frame of a table, with the same Arrow arrays. A check answers for all cells of a column at once, so
that no failure case of pandera has a value. Names and types are checked without rows: where one is wrong, no cell is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow

from marginweave.base.errors import MarginweaveError, StageError, refuse_broken
from marginweave.columns.kept_rules import keeps
from marginweave.configuration.columns.base import Rule

if TYPE_CHECKING:
    import pandas as pd
    import pandera.pandas as pa


RULE_TYPE = "the type is the declared one"


def load_libraries() -> None:
    """Import what contracts are made of, and what the first check would import: earlier, and in less time."""
    import pandera.backends.pandas.builtin_checks
    import pandera.pandas  # noqa: F401


def arrow_frame(table: pyarrow.Table) -> pd.DataFrame:
    """Return a table as a frame whose columns are its Arrow arrays; nothing is copied."""
    import pandas as pd

    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype, ignore_metadata=True)
    return frame


@dataclass(frozen=True)
class Contract:
    """Names, types and rules that tables of a stage must have; a table that breaks them raises `error`."""

    stage: str
    schema: pa.DataFrameSchema
    error: type[MarginweaveError] = StageError
    _accepted: set[pyarrow.Schema] = field(
        default_factory=set, init=False, repr=False, compare=False
    )
    """Names and types that were checked and are right: blocks of one table have the same."""

    @classmethod
    def of(
        cls,
        stage: str,
        columns: Mapping[str, pa.Column],
        error: type[MarginweaveError] = StageError,
    ) -> Contract:
        """Return the contract of a table that has exactly these columns in this order."""
        return cls(stage, _exactly(columns), error)

    def check(self, table: pyarrow.Table) -> None:
        """Refuse a table that breaks the contract: the error names stage, column and rule, never a value."""
        self.refuse(self.broken(table))

    def broken(self, table: pyarrow.Table) -> set[tuple[str, str]]:
        """Return column and name of every rule that a table, or a block of one, breaks."""
        if table.schema not in self._accepted:
            broken = _broken(self._of_types, table.slice(0, 0))
            if broken:
                return broken
            self._accepted.add(table.schema)
        return _broken(self._of_cells, table.select(list(self._of_cells.columns)))

    def refuse(self, broken: Set[tuple[str, str]]) -> None:
        """Raise what `check` raises where rules are broken."""
        refuse_broken(self.stage, broken, self.error)

    @cached_property
    def _of_types(self) -> pa.DataFrameSchema:
        """Schema of the names and types alone."""
        import pandera.pandas as pa

        columns = {name: pa.Column(column.dtype) for name, column in self.schema.columns.items()}
        return _exactly(columns)

    @cached_property
    def _of_cells(self) -> pa.DataFrameSchema:
        """Schema of the columns in which a cell can break a rule."""
        import pandera.pandas as pa

        columns = self.schema.columns.items()
        return pa.DataFrameSchema(
            {name: column for name, column in columns if column.checks or not column.nullable}
        )


def column_contract(kind: pyarrow.DataType, rules: Iterable[Rule], *, nullable: bool) -> pa.Column:
    """Return the contract of a column of this type that keeps these rules."""
    import pandas as pd
    import pandera.pandas as pa

    checks = [whole_column(rule.name, partial(keeps, rule)) for rule in rules]
    return pa.Column(pd.ArrowDtype(kind), checks, nullable=nullable)


def whole_column(name: str, holds: Callable[[pyarrow.Array], bool]) -> pa.Check:
    """Return a check that is called once with all cells of a column, nulls included."""
    import pandera.pandas as pa

    return pa.Check(lambda series: holds(_cells(series)), name=name, ignore_na=False)


def _exactly(columns: Mapping[str, pa.Column]) -> pa.DataFrameSchema:
    import pandera.pandas as pa

    return pa.DataFrameSchema(dict(columns), strict=True, ordered=True, unique_column_names=True)


def _broken(schema: pa.DataFrameSchema, table: pyarrow.Table) -> set[tuple[str, str]]:
    import pandera.errors

    try:
        schema.validate(arrow_frame(table), lazy=True)
    except pandera.errors.SchemaErrors as errors:
        return set(map(_rule, errors.schema_errors))
    return set()


def _cells(series: pd.Series[Any]) -> pyarrow.Array:
    cells = pyarrow.array(series.array)
    return cells.combine_chunks() if isinstance(cells, pyarrow.ChunkedArray) else cells


def _rule(error: Any) -> tuple[str, str]:
    """Return the column and the name of the rule of a schema error."""
    column = getattr(error.schema, "name", None) or "table"
    check = getattr(error, "check", None)
    name = getattr(check, "name", None) or getattr(error.reason_code, "name", "contract")
    rule = str(name).lower()
    return str(column), RULE_TYPE if rule == "wrong_datatype" else rule
