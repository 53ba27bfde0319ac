"""The files of a release, as common readers take them, and no more in them than cells."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from marginweave.publish.tables import counts_table, csv_bytes, parquet_bytes
from tests.support.published import published


@pytest.mark.parametrize("values", [["f", None, None, "m"], [1.5, None, 40.25], [None, 3, 4]])
def test_a_missing_record_of_one_column_is_no_empty_line(values: list[Any]) -> None:
    """Python's reader and pandas find as many records as there are, missing where they are."""
    written = csv_bytes(pa.table({"only": pa.array(values)})).decode()
    rows = list(csv.reader(io.StringIO(written)))
    assert rows[0] == ["only"]
    assert [row[0] or None for row in rows[1:]] == [None if v is None else str(v) for v in values]
    frame = pd.read_csv(io.StringIO(written))
    assert [None if pd.isna(v) else v for v in frame["only"]] == values


def test_in_more_columns_null_is_the_empty_field() -> None:
    assert csv_bytes(pa.table({"a": ["x", None], "b": [1, 2]})).decode() == '"a","b"\n"x",1\n,2\n'


def test_a_parquet_file_has_cells_and_nothing_else() -> None:
    """No least and greatest value, no count of nulls, no schema of another program, whatever the table carries along."""
    table = pa.table({"a": ["x", None, "z"], "b": [1.5, 2.5, 7.0]}).replace_schema_metadata(
        {"pandas": "xq7marker"}
    )
    file = parquet_bytes(table)
    found = pq.ParquetFile(io.BytesIO(file)).metadata
    assert [found.row_group(0).column(j).is_stats_set for j in range(2)] == [False, False]
    assert b"ARROW:schema" not in file
    assert b"xq7marker" not in file


def test_counts_that_are_not_whole_are_not_written() -> None:
    """The fraction of a count that is weighted, or was not rounded, can tell what it was made from."""
    release, _ = published()
    first = release.aggregates.levels[0]
    weighted = replace(first, counts=first.counts + 0.25)
    assert (
        counts_table(release.aggregates, release.intervals, 2).schema.field("count").type
        == pa.int64()
    )
    with pytest.raises(pa.ArrowInvalid, match="truncated"):
        counts_table(
            replace(release.aggregates, levels=(weighted, *release.aggregates.levels[1:])),
            release.intervals,
            2,
        )
