"""Pandera contracts of a table, built from a configuration: for the raw input and for the synthetic output."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from marginweave.schemas.columns import Category, NumberColumn
from marginweave.schemas.configuration import Configuration
from marginweave.schemas.errors import InputError, StageError
from marginweave.schemas.values import ValueMatcher, number

if TYPE_CHECKING:
    import pandas as pd
    import pandera.pandas as pa

RULE_DECLARED = "every value is declared"
RULE_NUMBER = "every value is a number"
RULE_BOUNDS = "every value lies within bounds"


def input_schema(configuration: Configuration) -> pa.DataFrameSchema:
    """The contract of the raw table: exactly the declared columns, in order; where `outside: error`, no value outside."""
    import pandera.pandas as pa

    columns = {
        name: pa.Column(checks=_input_checks(configuration, name), nullable=True) for name in configuration.names
    }
    return pa.DataFrameSchema(columns, strict=True, ordered=True, unique_column_names=True)


def output_schema(configuration: Configuration) -> pa.DataFrameSchema:
    """The contract of the synthetic table: declared order, values inside the public domains, nulls only where allowed."""
    import pandera.pandas as pa

    columns = {}
    for name, column in configuration.columns.items():
        checks = []
        if isinstance(column, NumberColumn):
            low, high = column.edges[0], column.edges[-1]
            checks.append(pa.Check.in_range(low, high, name=RULE_BOUNDS))
        elif column.domain == "public":
            checks.append(pa.Check.isin(list(column.labels), name=RULE_DECLARED))
        nullable = configuration.can_be_missing(name) or not configuration.synthesize.relax
        columns[name] = pa.Column(checks=checks, nullable=nullable)
    return pa.DataFrameSchema(columns, strict=True, ordered=True, unique_column_names=True)


def check_contract(schema: pa.DataFrameSchema, frame: pd.DataFrame, stage: str) -> None:
    """Hold `frame` against `schema`; the error names stage, column and rule, never a value.

    Raises:
        InputError: the raw table breaks a rule that the configuration declares (stage `validate`).
        StageError: a table of ours breaks its contract.
    """
    import pandera.errors

    try:
        schema.validate(frame, lazy=True)
    except pandera.errors.SchemaErrors as errors:
        broken = sorted({_rule(error) for error in errors.schema_errors})
    else:
        return
    # Raised outside the handler: pandera's own exception, which quotes values, must not even be its context.
    kind = InputError if stage == "validate" else StageError
    raise kind(f"{stage}: " + "; ".join(f"column {column!r} breaks the rule '{rule}'" for column, rule in broken))


def _rule(error: Any) -> tuple[str, str]:
    column = getattr(error.schema, "name", None) or "table"
    check = getattr(error, "check", None)
    return str(column), str(getattr(check, "name", None) or getattr(error.reason_code, "name", "contract")).lower()


def _input_checks(configuration: Configuration, name: str) -> list[pa.Check]:
    import pandera.pandas as pa

    column = configuration.columns[name]
    if column.outside != "error":
        return []
    missing = ValueMatcher(configuration.missing_texts(name))
    if isinstance(column, Category):
        declared = ValueMatcher(column.labels)
        return [pa.Check(_all(lambda text: missing.index(text) >= 0 or declared.index(text) >= 0), name=RULE_DECLARED)]
    return [pa.Check(_all(lambda text: missing.index(text) >= 0 or number(text) is not None), name=RULE_NUMBER)]


def _all(accepts: Callable[[str], bool]) -> Callable[[pd.Series[Any]], bool]:
    """A check over the distinct texts of a column; what is physically null counts as the empty text."""

    def check(series: pd.Series[Any]) -> bool:
        distinct = series.drop_duplicates()
        return all(
            accepts("" if empty else str(text).strip()) for text, empty in zip(distinct, distinct.isna(), strict=True)
        )

    return check
