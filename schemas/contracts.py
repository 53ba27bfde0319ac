"""Pandera contracts between stages: the clean table, the encoded one, and released counts. A breach is a fault of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from marginweave.schemas.configuration.attributes import Attribute
from marginweave.schemas.configuration.columns import MeasuredColumn
from marginweave.schemas.configuration.columns.base import RULE_DECLARED, RULE_LABELS
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.errors import StageError
from marginweave.schemas.released.aggregates import Aggregates, Level
from marginweave.schemas.table import check_contract, checks_of

if TYPE_CHECKING:
    import pandas as pd
    import pandera.pandas as pa

RULE_CODES = "every code has a label"
RULE_COUNTS = "every count is positive"
RULE_ORDER = "combinations stand in canonical order, each once"
RULE_COLUMNS = "the columns of a combination increase"


def clean_schema(configuration: Configuration) -> pa.DataFrameSchema:
    """The contract of the clean table: the counted columns in order, public labels, bounds, nulls only where allowed.

    Dates stand as days or seconds from 1970-01-01, sets as the number of their values.
    """
    import pandera.pandas as pa

    columns = {}
    for name in configuration.names:
        column = configuration.columns[name]
        assert isinstance(column, MeasuredColumn)
        nullable = column.impute is not None or configuration.lacks_values(name)  # imputed after this stage alone
        columns[name] = pa.Column(checks=checks_of(column.clean_rules), nullable=nullable)
    return pa.DataFrameSchema(columns, strict=True, ordered=True, unique_column_names=True)


def codes_schema(attributes: Sequence[Attribute], sizes: Sequence[int], *, complete: bool) -> pa.DataFrameSchema:
    """The contract of codes, one column a slot (`codes_frame`): 0 … size; with `complete`, size only where optional."""
    import pandera.pandas as pa

    columns = {}
    for attribute, size in zip(attributes, sizes, strict=True):
        check = pa.Check.le(size if attribute.optional or not complete else size - 1, name=RULE_CODES)
        for slot in range(attribute.width):
            columns[slot_name(attribute.name, slot)] = pa.Column(checks=[check, pa.Check.ge(0, name=RULE_CODES)])
    return pa.DataFrameSchema(columns, strict=True, ordered=True, unique_column_names=True)


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
