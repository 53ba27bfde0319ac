"""Pandera contracts of tables: the raw input, what passes between stages, and the synthetic output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from marginweave.schemas.configuration.attributes import Attribute
from marginweave.schemas.configuration.columns import ConstantColumn, MeasuredColumn
from marginweave.schemas.configuration.columns.base import RULE_DECLARED, RULE_LABELS, Rule
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.configuration.values import ValueMatcher
from marginweave.schemas.errors import InputError, StageError
from marginweave.schemas.released.aggregates import Aggregates, Level

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
    """The contract of the raw table: exactly the counted columns, in order; where `outside: error`, no value outside."""
    return _table({name: (_input_checks(configuration, name), True) for name in configuration.names})


def clean_schema(configuration: Configuration) -> pa.DataFrameSchema:
    """The contract of the clean table: the counted columns in order, public labels, bounds, nulls only where allowed.

    Dates stand as days or seconds from 1970-01-01, sets as the number of their values.
    """
    columns = {}
    for name in configuration.names:
        column = configuration.columns[name]
        assert isinstance(column, MeasuredColumn)
        nullable = column.impute is not None or configuration.lacks_values(name)  # imputed after this stage alone
        columns[name] = (list(map(_check, column.clean_rules)), nullable)
    return _table(columns)


def output_schema(configuration: Configuration) -> pa.DataFrameSchema:
    """The contract of the synthetic table: declared order, values inside the public domains, nulls only where allowed."""
    columns = {}
    for name in configuration.output_names:
        column = configuration.columns[name]
        incomplete = not configuration.synthesize.complete and not isinstance(column, ConstantColumn)
        columns[name] = (
            list(map(_check, column.released_rules)),
            incomplete or configuration.can_be_missing(name),
        )
    return _table(columns)


def codes_schema(attributes: Sequence[Attribute], sizes: Sequence[int], *, complete: bool) -> pa.DataFrameSchema:
    """The contract of codes, one column a slot (`codes_frame`): 0 … size; with `complete`, size only where optional."""
    import pandera.pandas as pa

    columns = {}
    for attribute, size in zip(attributes, sizes, strict=True):
        largest = size if attribute.optional or not complete else size - 1
        for slot in range(attribute.width):
            check = pa.Check.in_range(0, largest, name=RULE_CODES)
            columns[slot_name(attribute.name, slot)] = ([check], False)
    return _table(columns)


def slot_name(attribute: str, slot: int) -> str:
    """Name of a column of codes: an attribute's own, or that of one of its slots."""
    return attribute if slot == 0 else f"{attribute}[{slot}]"


def level_schema(length: int, sizes: Sequence[int]) -> pa.DataFrameSchema:
    """The contract of released combinations of one length (`level_frame`): order, domain, positive counts."""
    import numpy as np
    import pandera.pandas as pa

    names = [(f"column_{i}", f"value_{i}") for i in range(1, length + 1)]
    columns = {
        column: pa.Column(checks=pa.Check.in_range(0, len(sizes) - 1, name=RULE_DECLARED)) for column, _ in names
    }
    columns |= {value: pa.Column(checks=pa.Check.ge(0, name=RULE_CODES)) for _, value in names}
    columns["count"] = pa.Column(checks=pa.Check.ge(1, name=RULE_COUNTS))
    known = np.asarray([*sizes, 0])

    def in_domain(frame: pd.DataFrame) -> bool:
        return all(bool((frame[value] < known[frame[column]]).all()) for column, value in names)

    def increases(frame: pd.DataFrame) -> bool:
        return all(bool((frame[low] < frame[high]).all()) for (low, _), (high, _) in pairwise(names))

    def canonical(frame: pd.DataFrame) -> bool:
        keys = [frame[name].to_numpy() for name in (*(c for c, _ in names), *(v for _, v in names))]
        order = np.lexsort(tuple(reversed(keys)))
        return (
            bool((np.diff(order) > 0).all()) and not frame.duplicated([name for pair in names for name in pair]).any()
        )

    rules = ((in_domain, RULE_CODES), (increases, RULE_COLUMNS), (canonical, RULE_ORDER))
    return pa.DataFrameSchema(columns, checks=[pa.Check(rule, name=name) for rule, name in rules], strict=True)


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
    """Hold every length of released counts against its contract; raises StageError as `check_contract` does."""
    for level in aggregates.levels:
        check_contract(level_schema(level.length, aggregates.domain.sizes), level_frame(level), stage)


def check_codes(
    attributes: Sequence[Attribute], sizes: Sequence[int], codes: Sequence[Any], stage: str, *, complete: bool
) -> None:
    """Hold codes and the sizes of public domains against their contract; raises StageError as `check_contract` does."""
    for attribute, size in zip(attributes, sizes, strict=True):
        if not attribute.private and size != len(attribute.labels):
            raise StageError(f"{stage}: column {attribute.name!r} breaks the rule '{RULE_LABELS}'")
    frame = codes_frame({a.name: values for a, values in zip(attributes, codes, strict=True)})
    check_contract(codes_schema(attributes, sizes, complete=complete), frame, stage)


def level_frame(level: Level) -> pd.DataFrame:
    """A level as a frame: column_1 …, value_1 …, count."""
    import pandas as pd

    parts: dict[str, Any] = {f"column_{i + 1}": level.columns[:, i] for i in range(level.length)}
    parts |= {f"value_{i + 1}": level.values[:, i] for i in range(level.length)}
    return pd.DataFrame({**parts, "count": level.counts})


def codes_frame(codes: Mapping[str, Any]) -> pd.DataFrame:
    """Codes as a frame, one column a slot of an attribute; shapes (n,), or (n, width) for a set."""
    import pandas as pd

    columns = {}
    for name, values in codes.items():
        for slot, part in enumerate([values] if values.ndim == 1 else values.T):
            columns[slot_name(name, slot)] = part
    return pd.DataFrame(columns)


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
    return [_check(Rule(name=column.input_rule, each=keeps, native=column.native), nulls=True)]


def _check(rule: Rule, *, nulls: bool = False) -> pa.Check:
    import pandera.pandas as pa

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
