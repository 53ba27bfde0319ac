"""Holds a table in blocks against its contract and a suite of expectations, and tells all that is broken at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.errors import InputError
from marginweave.schemas.table import broken_rules, input_schema, refuse
from marginweave.tasks.arrow import compute as pc
from marginweave.tasks.checkpoint.codecs import plain_table
from marginweave.tasks.validate.expectations import Suite

if TYPE_CHECKING:
    import pandas as pd
    import pandera.pandas as pandera


@dataclass(frozen=True)
class InputChecks:
    """What a raw table must meet. All rules look at one row, so blocks are held against them one by one."""

    configuration: Configuration
    suite: Suite | None
    _rules: set[tuple[str, str]] = field(default_factory=set, init=False)
    _expectations: dict[tuple[str, str], None] = field(default_factory=dict, init=False)

    @cached_property
    def _schema(self) -> pandera.DataFrameSchema:
        return input_schema(self.configuration)

    def look_at(self, block: pa.Table) -> None:
        """Hold one block against contract and suite."""
        counted = block.select(list(self.configuration.names))
        self._rules.update(broken_rules(self._schema, _frame(distinct_values(counted))))
        if self.suite is not None:
            results = self.suite.check(_frame(plain_table(block)))
            self._expectations.update(((r.column, r.expectation), None) for r in results if not r.success)

    def refuse_broken(self) -> None:
        """Raise InputError with column and rule, and no value, of all that was broken in any block."""
        refuse("validate", self._rules)
        if self._expectations:
            rules = "; ".join(f"column {column!r} breaks {kind}" for column, kind in self._expectations)
            raise InputError(f"validate: the source does not meet the suite of expectations: {rules}")


def distinct_values(table: pa.Table) -> pa.Table:
    """Every distinct cell of each column, the first one repeated where a column has fewer of them than another.

    The contract looks at single cells of single columns: it holds of this table if and only if it holds of the whole one.
    """
    columns = {name: _distinct(table.column(name)) for name in table.column_names}
    most = max((len(values) for values in columns.values()), default=0)
    return pa.table({name: _filled(values, most) for name, values in columns.items()})


def _distinct(values: pa.ChunkedArray) -> pa.Array:
    if not pa.types.is_dictionary(values.type):
        return pc.unique(values)
    whole = values.combine_chunks()
    return whole.dictionary.take(pc.unique(whole.indices))


def _filled(values: pa.Array, most: int) -> pa.Array:
    return values.take(pa.array(np.where(np.arange(most) < len(values), np.arange(most), 0)))


def _frame(table: pa.Table) -> pd.DataFrame:
    import pandas as pd

    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return frame
