"""Released tables and their files: canonical order and sizes, no statistics, the same bytes for the same counts."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from marginweave.schemas.errors import InputError
from marginweave.schemas.released.aggregates import Aggregates, Domain, Level, LevelNoise
from marginweave.tasks.evaluate.intervals import Intervals, count_interval

ROW_GROUP = 1 << 16
PARQUET_OPTIONS: dict[str, Any] = {"write_statistics": False, "compression": "zstd", "store_schema": False}
CSV_OPTIONS = pa_csv.WriteOptions(quoting_style="needed")


def counts_table(aggregates: Aggregates, intervals: Sequence[Intervals], longest: int) -> pa.Table:
    """Released combinations, one a row: `length`, `count`, `deviation`, `low`, `high`, then pairs `column_i`, `value_i`.

    The row of length 0 is the empty combination: its count is the protected number of records. `deviation` is the standard
    deviation of the noise that was added, before the counts were made consistent; from marginals, of the cell that a
    combination was measured in. `low` and `high` are the ends of `intervals`, one for each length, aligned with its counts.
    There are `longest` positions, or R if that is more; those beyond the length are null.
    """
    positions = max(longest, aggregates.reporting_length)
    names = pa.array(aggregates.domain.names, pa.string())
    parts = [
        pa.table(_rows(aggregates, names, level, count_deviations(aggregates, level, noise), inside, positions))
        for level, noise, inside in zip(aggregates.levels, aggregates.noise, intervals, strict=True)
    ]
    nothing = Level(
        length=0,
        columns=np.zeros((1, 0), np.int64),
        values=np.zeros((1, 0), np.int64),
        counts=np.array([aggregates.record_count], np.int64),
    )
    deviation = aggregates.record_deviation
    inside = count_interval(nothing.counts, deviation)
    head = pa.table(_rows(aggregates, names, nothing, np.array([deviation]), inside, positions))
    return pa.concat_tables([head, *parts]).combine_chunks()


def read_counts(table: pa.Table, domain: Domain, noise: tuple[LevelNoise, ...]) -> Aggregates:
    """The aggregates that `counts_table` wrote.

    Raises:
        InputError: a column or value that the domain does not have, or no row of length 0.
    """
    lengths = table.column("length").to_numpy()
    if not (lengths == 0).any():
        raise InputError("aggregates must have one row of length 0, the protected record count")
    levels = tuple(_read_level(table.filter(pa.array(lengths == n.length)), domain, n.length) for n in noise)
    head = table.filter(pa.array(lengths == 0))
    return Aggregates(
        domain=domain,
        record_count=head.column("count")[0].as_py(),
        record_deviation=head.column("deviation")[0].as_py(),
        levels=levels,
        noise=noise,
    )


def read_intervals(table: pa.Table, lengths: int) -> tuple[Intervals, ...]:
    """The intervals that `counts_table` wrote, of lengths 1 … `lengths`. Raises KeyError where the columns are not there."""
    parts = [table.filter(pa.array(table.column("length").to_numpy() == k)) for k in range(1, lengths + 1)]
    ends = [[part.column(end).to_numpy().astype(np.int64) for end in ("low", "high")] for part in parts]
    return tuple(Intervals(low=low, high=high) for low, high in ends)


def parquet_bytes(table: pa.Table) -> bytes:
    """A Parquet file with fixed row groups and without column statistics."""
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=ROW_GROUP, **PARQUET_OPTIONS)
    return sink.getvalue()


def csv_bytes(table: pa.Table) -> bytes:
    """A UTF-8 CSV file with a header; null is the empty field, the empty text is quoted.

    In a table of one column null is quoted as well, and so are numbers: most readers skip an empty line.
    """
    sink = io.BytesIO()
    pa_csv.write_csv(as_written(table), sink, CSV_OPTIONS)
    return sink.getvalue()


def as_written(table: pa.Table) -> pa.Table:
    """What `csv_bytes` writes of a table: itself, or one of one column as texts without nulls."""
    if table.num_columns != 1:
        return table
    return pa.table([table.column(0).cast(pa.string()).fill_null("")], names=table.column_names)


def count_deviations(aggregates: Aggregates, level: Level, noise: LevelNoise) -> NDArray[np.float64]:
    """Deviation of the noise of every combination; shape (n,)."""
    deviations = np.empty(len(level))
    for columns, rows in level.by_columns():
        deviations[rows] = noise.deviation if aggregates.measured is None else aggregates.measured[columns]
    return deviations


def _rows(
    aggregates: Aggregates,
    names: pa.Array,
    level: Level,
    deviations: NDArray[np.float64],
    intervals: Intervals,
    positions: int,
) -> dict[str, pa.Array]:
    rows = {
        "length": pa.array(np.full(len(level), level.length), pa.int16()),
        "count": pa.array(level.counts, pa.int64()),
        "deviation": pa.array(deviations, pa.float64()),
        "low": pa.array(intervals.low, pa.int64()),
        "high": pa.array(intervals.high, pa.int64()),
    }
    for i in range(positions):
        if i < level.length:
            rows[f"column_{i + 1}"] = names.take(pa.array(level.columns[:, i]))
            rows[f"value_{i + 1}"] = _labels(aggregates.domain, level, i)
        else:
            rows[f"column_{i + 1}"] = rows[f"value_{i + 1}"] = pa.nulls(len(level), pa.string())
    return rows


def _labels(domain: Domain, level: Level, position: int) -> pa.Array:
    """Labels of the values at one position: all labels in one array, addressed by column and value."""
    starts = np.concatenate(([0], np.cumsum(domain.sizes)))
    everything = pa.array([label for labels in domain.labels for label in labels], pa.string())
    return everything.take(pa.array(starts[level.columns[:, position]] + level.values[:, position]))


def _read_level(table: pa.Table, domain: Domain, length: int) -> Level:
    columns = np.zeros((table.num_rows, length), np.int64)
    values = np.zeros((table.num_rows, length), np.int64)
    place = {name: j for j, name in enumerate(domain.names)}
    code = {(j, label): v for j, labels in enumerate(domain.labels) for v, label in enumerate(labels)}
    for i in range(length):
        try:
            columns[:, i] = [place[name] for name in table.column(f"column_{i + 1}").to_pylist()]
            labels = table.column(f"value_{i + 1}").to_pylist()
            values[:, i] = [code[pair] for pair in zip(columns[:, i].tolist(), labels, strict=True)]
        except KeyError:
            raise InputError("aggregates name a column or value that their configuration does not have") from None
    return Level(
        length=length, columns=columns, values=values, counts=table.column("count").to_numpy().astype(np.int64)
    )
