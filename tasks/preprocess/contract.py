"""The clean table in the form in which its contract is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from marginweave.tasks.arrow import compute as pc

if TYPE_CHECKING:
    import pandas as pd


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
