"""Pandera contracts of tables: the raw input, what passes between stages, and the synthetic output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from marginweave.base.errors import InputError, StageError
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.columns import MeasuredColumn
from marginweave.configuration.columns.base import RULE_DECLARED, RULE_LABELS, Rule
from marginweave.configuration.gaps import has_gaps
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import ValueMatcher
from marginweave.domain.combinations import Level
from marginweave.observations.combinations import Aggregates

if TYPE_CHECKING:
    import pandas as pd
    import pandera.pandas as pa

RULE_CODES = "every code has a label"
RULE_COUNTS = "every count is positive"
RULE_ORDER = "combinations stand in canonical order, each once"
RULE_COLUMNS = "the columns of a combination increase"


def _table(columns: Mapping[str, tuple[list[pa.Check], bool]]) -> pa.DataFrameSchema:
    """The contract of a table that has exactly these columns in this order: the checks of each, and whether it has nulls."""
    import pandera.pandas as pa

    checked = {name: pa.Column(checks=checks, nullable=nullable) for name, (checks, nullable) in columns.items()}
    return pa.DataFrameSchema(checked, strict=True, ordered=True, unique_column_names=True)


def input_schema(configuration: Configuration) -> pa.DataFrameSchema:
    """The contract of the raw table: exactly the columns that count, in order; where `outside: error`, no value outside."""
    return _table({name: (_input_checks(configuration, name), True) for name in configuration.raw_names})


def clean_schema(configuration: Configuration) -> pa.DataFrameSchema:
    """The contract of the clean table: the counted columns in order, public labels, bounds, nulls only where allowed.

    Dates stand as days or seconds from 1970-01-01, sets as the number of their values.
    """
    columns = {}
    for name in configuration.names:
        column = configuration.columns[name]
        assert isinstance(column, MeasuredColumn)
        is_filled_later = column.impute is not None or configuration.may_be_undeclared(name)
        nullable = is_filled_later or configuration.lacks_values(name)
        columns[name] = (list(map(_check, column.clean_rules)), nullable)
    return _table(columns)


def output_schema(configuration: Configuration) -> pa.DataFrameSchema:
    """The contract of the synthetic table: declared order, values inside the public domains, nulls only where allowed."""
    columns = {}
    for name in configuration.output_names:
        checks = list(map(_check, configuration.columns[name].released_rules))
        columns[name] = checks, has_gaps(configuration, name)
    return _table(columns)


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


def check_aggregates(aggregates: Aggregates, stage: str) -> None:
    """Check order, domain and sign of the released counts of every length; raises StageError as `check_contract` does."""
    for level in aggregates.levels:
        refuse(stage, _broken_level(level, aggregates.domain.sizes))


def _broken_level(level: Level, sizes: Sequence[int]) -> set[tuple[str, str]]:
    """Every rule that the combinations of one length break, with the column (column_1 …, value_1 …, count) or `table`."""
    known = (level.columns >= 0) & (level.columns < len(sizes))
    largest = np.asarray([*sizes, 0])[np.where(known, level.columns, -1)]
    keys = np.concatenate([level.columns, level.values], axis=1)
    in_order = (np.diff(np.lexsort(keys.T[::-1])) > 0).all()
    each_once = (keys[1:] != keys[:-1]).any(axis=1).all()
    kept = {
        **{(f"column_{i + 1}", RULE_DECLARED): known[:, i] for i in range(level.length)},
        **{(f"value_{i + 1}", RULE_CODES): level.values[:, i] >= 0 for i in range(level.length)},
        ("count", RULE_COUNTS): level.counts >= 1,
        ("table", RULE_CODES): level.values < largest,
        ("table", RULE_COLUMNS): level.columns[:, :-1] < level.columns[:, 1:],
        ("table", RULE_ORDER): in_order and each_once,
    }
    return {rule for rule, holds in kept.items() if not np.all(holds)}


def check_codes(
    attributes: Sequence[Attribute], sizes: Sequence[int], codes: Sequence[Any], stage: str, *, complete: bool
) -> None:
    """Check the sizes of public domains, and that codes lie in 0 … size; with `complete`, those above it only for gaps.

    Codes of an attribute have shape (n,), or (n, width) for a set. Raises StageError as `check_contract` does.
    """
    broken = {("table", RULE_CODES)} if len(set(map(len, codes))) > 1 else set()
    for attribute, size, values in zip(attributes, sizes, codes, strict=True):
        if not attribute.private and size != len(attribute.labels):
            broken.add((attribute.name, RULE_LABELS))
        largest = size + max(len(attribute.gaps), not complete) - 1
        slots = [values] if values.ndim == 1 else values.T
        if len(slots) != attribute.width or not all(((slot >= 0) & (slot <= largest)).all() for slot in slots):
            broken.add((attribute.name, RULE_CODES))
    refuse(stage, broken)


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
    return [_check(Rule(name=column.stopping_rule, each=keeps, native=column.native), nulls=True)]


def _check(rule: Rule, *, nulls: bool = False) -> pa.Check:
    import pandera.pandas as pa

    if rule.limits is not None and rule.values is not None:
        low, high, others = *rule.limits, list(rule.values)
        return pa.Check(lambda series: series.between(low, high) | series.isin(others), name=rule.name)
    if rule.limits is not None:
        return pa.Check.in_range(*rule.limits, name=rule.name)
    if rule.values is not None:
        return pa.Check.isin(list(rule.values), name=rule.name)
    if rule.labels is not None:
        return pa.Check(lambda series: tuple(series.cat.categories) == rule.labels, name=rule.name)
    assert rule.each is not None
    return pa.Check(_every(rule.each, rule.native), name=rule.name, ignore_na=not nulls)


def _every(keeps: Callable[[str], bool], native: tuple[type, ...]) -> Callable[[pd.Series[Any]], bool]:
    """A check over the distinct values of a column; what is physically null counts as the empty text."""

    def check(series: pd.Series[Any]) -> bool:
        distinct = series.drop_duplicates()
        cells = zip(distinct, distinct.isna(), strict=True)
        return all((isinstance(v, native) and not e) or keeps("" if e else str(v).strip()) for v, e in cells)

    return check
