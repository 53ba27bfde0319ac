"""Row-local cleaning of a table: every step looks at one cell and public constants, so it is 1-stable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from marginweave.tasks.arrow import compute as pc

if TYPE_CHECKING:
    import pandas as pd


from marginweave.schemas.configuration.release import Configuration
from marginweave.tasks.columns import values_of


def clean_table(raw: pa.Table, configuration: Configuration) -> pa.Table:
    """Clean every counted column of `raw`; missing is null.

    A category or boolean becomes a dictionary array over its public labels (a private domain: over the sorted distinct
    texts), a number float64, a date date32, a moment timestamp[s], a set a list array over such a dictionary.

    DP: 1-stable preprocessing; domains and bounds are public constants, one row in is one row out.
    """
    columns = {}
    for name in configuration.names:
        kind = values_of(configuration.columns[name], configuration.missing_texts(name))
        columns[name] = kind.clean(raw.column(name).combine_chunks())
    return pa.table(columns)


def clean_frame(clean: pa.Table) -> pd.DataFrame:
    """A clean table for `clean_schema`: dates as days or seconds from 1970-01-01, sets as the number of their values."""
    frame: pd.DataFrame = pa.table({name: _plain(clean.column(name)) for name in clean.column_names}).to_pandas()
    return frame


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.int64())
    return pc.list_value_length(values) if pa.types.is_list(values.type) else values
