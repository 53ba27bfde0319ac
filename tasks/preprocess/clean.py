"""Row-local cleaning of a column: every step looks at one cell and public constants, so it is 1-stable."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from marginweave.schemas.configuration.columns import (
    BooleanColumn,
    Category,
    Column,
    DateColumn,
    NumberColumn,
    SetColumn,
)
from marginweave.schemas.configuration.release import Configuration
from marginweave.tasks.preprocess.categories import clean_category
from marginweave.tasks.preprocess.dates import clean_date
from marginweave.tasks.preprocess.numbers import clean_number
from marginweave.tasks.preprocess.sets import clean_set


def clean_table(raw: pa.Table, configuration: Configuration) -> pa.Table:
    """Clean every counted column of `raw`; missing is null.

    A category or boolean becomes a dictionary array over its public labels (a private domain: over the sorted distinct
    texts), a number float64, a date date32, a moment timestamp[s], a set a list array over such a dictionary.

    DP: 1-stable preprocessing; domains and bounds are public constants, one row in is one row out.
    """
    columns = {
        name: clean_column(
            raw.column(name).combine_chunks(), configuration.columns[name], configuration.missing_texts(name)
        )
        for name in configuration.names
    }
    return pa.table(columns)


def clean_column(values: pa.Array, column: Column, missing: Sequence[str]) -> pa.Array:
    """Clean one column by the rules of its kind; `missing` are the texts that mean "no value"."""
    if isinstance(column, Category | BooleanColumn):
        return clean_category(values, column, missing)
    if isinstance(column, NumberColumn):
        return clean_number(values, column, missing)
    if isinstance(column, DateColumn):
        return clean_date(values, column, missing)
    assert isinstance(column, SetColumn)  # only measured columns are cleaned
    return clean_set(values, column, missing)
