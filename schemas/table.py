"""Pandera contracts of tables that enter and leave, built from a configuration: the raw input and the synthetic output."""

from __future__ import annotations

from collections.abc import Callable, Set
from datetime import date
from typing import TYPE_CHECKING, Any

from marginweave.schemas.configuration.columns import (
    BooleanColumn,
    Category,
    Column,
    ConstantColumn,
    DateColumn,
    MeasuredColumn,
    NumberColumn,
    SetColumn,
)
from marginweave.schemas.configuration.columns.periods import moment_of
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.configuration.values import ValueMatcher
from marginweave.schemas.errors import InputError, StageError

if TYPE_CHECKING:
    import pandas as pd
    import pandera.pandas as pa

RULE_DECLARED = "every value is declared"
RULE_NUMBER = "every value is a number"
RULE_DATE = "every value is a date in the declared format"
RULE_BOUNDS = "every value lies within bounds"
RULE_CAP = "no cell has more values than max_values"


def input_schema(configuration: Configuration) -> pa.DataFrameSchema:
    """The contract of the raw table: exactly the counted columns, in order; where `outside: error`, no value outside."""
    import pandera.pandas as pa

    columns = {
        name: pa.Column(checks=_input_checks(configuration, name), nullable=True) for name in configuration.names
    }
    return pa.DataFrameSchema(columns, strict=True, ordered=True, unique_column_names=True)


def output_schema(configuration: Configuration) -> pa.DataFrameSchema:
    """The contract of the synthetic table: declared order, values inside the public domains, nulls only where allowed."""
    import pandera.pandas as pa

    columns = {}
    for name in configuration.output_names:
        nullable = configuration.can_be_missing(name) or (
            not configuration.synthesize.complete and not isinstance(configuration.columns[name], ConstantColumn)
        )
        columns[name] = pa.Column(checks=_output_checks(configuration.columns[name]), nullable=nullable)
    return pa.DataFrameSchema(columns, strict=True, ordered=True, unique_column_names=True)


def check_contract(schema: pa.DataFrameSchema, frame: pd.DataFrame, stage: str) -> None:
    """Hold `frame` against `schema`; the error names stage, column and rule, never a value.

    Raises:
        InputError: the raw table breaks a rule that the configuration declares (stage `validate`).
        StageError: a table of ours breaks its contract.
    """
    refuse(stage, broken_rules(schema, frame))


def broken_rules(schema: pa.DataFrameSchema, frame: pd.DataFrame) -> set[tuple[str, str]]:
    """Column and name of every rule of `schema` that `frame` breaks; of a table in parts, the union over its parts."""
    import pandera.errors

    try:
        schema.validate(frame, lazy=True)
    except pandera.errors.SchemaErrors as errors:
        return {_rule(error) for error in errors.schema_errors}
    return set()


def refuse(stage: str, broken: Set[tuple[str, str]]) -> None:
    """Raise what `check_contract` raises where rules are broken."""
    if broken:
        kind = InputError if stage == "validate" else StageError
        rules = (f"column {column!r} breaks the rule '{rule}'" for column, rule in sorted(broken))
        raise kind(f"{stage}: " + "; ".join(rules))


def _rule(error: Any) -> tuple[str, str]:
    column = getattr(error.schema, "name", None) or "table"
    check = getattr(error, "check", None)
    return str(column), str(getattr(check, "name", None) or getattr(error.reason_code, "name", "contract")).lower()


def _input_checks(configuration: Configuration, name: str) -> list[pa.Check]:
    import pandera.pandas as pa

    column = configuration.columns[name]
    if not isinstance(column, MeasuredColumn) or column.outside != "error":
        return []
    missing = ValueMatcher(configuration.missing_texts(name))
    rule = {NumberColumn: RULE_NUMBER, DateColumn: RULE_DATE}.get(type(column), RULE_DECLARED)
    return [pa.Check(_all(lambda text: missing.index(text) >= 0 or column.accepts(text), column), name=rule)]


def _output_checks(column: Column) -> list[pa.Check]:
    import pandera.pandas as pa

    if isinstance(column, NumberColumn):
        return [pa.Check.in_range(*column.clamp, name=RULE_BOUNDS)]
    if isinstance(column, Category):
        return [] if column.domain == "private" else [pa.Check.isin(list(column.labels), name=RULE_DECLARED)]
    if isinstance(column, BooleanColumn):
        return [pa.Check.isin([False, True], name=RULE_DECLARED)]
    if isinstance(column, DateColumn):
        return [_date_check(column)]
    if isinstance(column, SetColumn):
        return [
            pa.Check(_all(column.accepts, column), name=RULE_DECLARED),
            pa.Check(_all(lambda text: len(column.parts(text)) <= column.max_values, column), name=RULE_CAP),
        ]
    return [pa.Check.isin([column.value], name=RULE_DECLARED)] if isinstance(column, ConstantColumn) else []


def _date_check(column: DateColumn) -> pa.Check:
    """Texts of a format are dates of it; dates and moments lie within the bounds."""
    import pandas as pd
    import pandera.pandas as pa

    if column.format is not None:
        return pa.Check(_all(column.accepts, column), name=RULE_DATE)
    first, last = (moment_of(unit * column.seconds) for unit in (column.edges[0], column.edges[-1] - 1))
    limits = (first.date(), last.date()) if column.type == "date" else (pd.Timestamp(first), pd.Timestamp(last))
    return pa.Check.in_range(*limits, name=RULE_BOUNDS)


def _all(accepts: Callable[[str], bool], column: Column) -> Callable[[pd.Series[Any]], bool]:
    """A check over the distinct values of a column; what is physically null counts as the empty text, a native date fits."""

    def fits(value: Any, empty: bool) -> bool:
        if isinstance(column, DateColumn) and isinstance(value, date) and not empty:
            return True
        return accepts("" if empty else str(value).strip())

    def check(series: pd.Series[Any]) -> bool:
        distinct = series.drop_duplicates()
        return all(fits(value, bool(empty)) for value, empty in zip(distinct, distinct.isna(), strict=True))

    return check
