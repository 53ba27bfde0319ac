"""Pandera contracts of tables that enter and leave, built from a configuration: the raw input and the synthetic output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import TYPE_CHECKING, Any

from marginweave.schemas.configuration.columns import ConstantColumn, MeasuredColumn
from marginweave.schemas.configuration.columns.base import Rule
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.configuration.values import ValueMatcher
from marginweave.schemas.errors import InputError, StageError

if TYPE_CHECKING:
    import pandas as pd
    import pandera.pandas as pa


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
        columns[name] = pa.Column(checks=checks_of(configuration.columns[name].released_rules), nullable=nullable)
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
    column = configuration.columns[name]
    if not isinstance(column, MeasuredColumn) or column.outside != "error":
        return []
    missing = ValueMatcher(configuration.missing_texts(name))
    keeps = lambda text: missing.index(text) >= 0 or column.accepts(text)  # noqa: E731
    return checks_of([Rule(name=column.input_rule, each=keeps, native=column.native)])


def checks_of(rules: Iterable[Rule]) -> list[pa.Check]:
    """The rules of a column as pandera has them."""
    return [_check(rule) for rule in rules]


def _check(rule: Rule) -> pa.Check:
    import pandera.pandas as pa

    if rule.limits is not None:
        return pa.Check.in_range(*rule.limits, name=rule.name)
    if rule.values is not None:
        return pa.Check.isin(list(rule.values), name=rule.name)
    if rule.labels is not None:
        return pa.Check(lambda series: tuple(series.cat.categories) == rule.labels, name=rule.name)
    assert rule.each is not None
    return pa.Check(_every(rule.each, rule.native), name=rule.name)


def _every(keeps: Callable[[str], bool], native: tuple[type, ...]) -> Callable[[pd.Series[Any]], bool]:
    """A check over the distinct values of a column; what is physically null counts as the empty text."""

    def check(series: pd.Series[Any]) -> bool:
        distinct = series.drop_duplicates()
        cells = zip(distinct, distinct.isna(), strict=True)
        return all((isinstance(v, native) and not e) or keeps("" if e else str(v).strip()) for v, e in cells)

    return check
