"""Released tables and their files: canonical order and sizes, no statistics, the same bytes for the same rows."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from marginweave.schemas.arrays import Floats, Integers
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.aggregates import Aggregates, Domain, Level, LevelNoise
from marginweave.tasks.checkpoint.codecs import in_blocks
from marginweave.tasks.checkpoint.files import streamed_file
from marginweave.tasks.engine.local import LocalEngine
from marginweave.tasks.evaluate.intervals import Intervals, count_interval

ROW_GROUP = 1 << 16
PARQUET_OPTIONS: dict[str, Any] = {"write_statistics": False, "compression": "zstd", "store_schema": False}
SYNTHETIC = ("synthetic.parquet", "synthetic.csv")
CSV_OPTIONS = pa_csv.WriteOptions(quoting_style="needed")


def counts_table(aggregates: Aggregates, intervals: Sequence[Intervals], longest: int) -> pa.Table:
    """Released combinations, one a row: `length`, `count`, `deviation`, `low`, `high`, then pairs `column_i`, `value_i`.

    The row of length 0 is the empty combination: its count is the protected number of records. `deviation` is the standard
    deviation of the noise that was added, before the counts were made consistent; from marginals, of the cell that a
    combination was measured in. `low` and `high` are the ends of `intervals`, one for each length, aligned with its counts.
    There are `longest` positions, or R if that is more; those beyond the length are null.
    """
    domain, positions = aggregates.domain, max(longest, aggregates.reporting_length)
    nothing = Level.join(0, [((), np.zeros((1, 0), np.int64), np.array([aggregates.record_count], np.int64))])
    sigma = aggregates.record_deviation
    parts = [_rows(domain, nothing, np.array([sigma]), count_interval(nothing.counts, sigma), positions)]
    for level, noise, inside in zip(aggregates.levels, aggregates.noise, intervals, strict=True):
        sigmas = np.full(len(level), noise.deviation)
        if aggregates.measured is not None:
            for columns, rows in level.by_columns():
                sigmas[rows] = aggregates.measured[columns]
        parts.append(_rows(domain, level, sigmas, inside, positions))
    return pa.concat_tables(parts).combine_chunks()


def with_combinations(
    numbers: dict[str, pa.Array], pairs: Sequence[tuple[pa.Array, pa.Array]], positions: int
) -> pa.Table:
    """The columns of `numbers`, then `column_i` and `value_i` of each position: those of `pairs`, null beyond them."""
    nothing = pa.nulls(len(numbers["count"]), pa.string())
    columns = dict(numbers)
    for i in range(positions):
        columns[f"column_{i + 1}"], columns[f"value_{i + 1}"] = pairs[i] if i < len(pairs) else (nothing, nothing)
    return pa.table(columns)


def read_counts(
    table: pa.Table, domain: Domain, noise: tuple[LevelNoise, ...]
) -> tuple[Aggregates, tuple[Intervals, ...]]:
    """The aggregates and the intervals of their counts that `counts_table` wrote.

    Raises:
        InputError: a column or value that the domain does not have, or no row of length 0.
        KeyError: the columns of the intervals are lacking.
    """
    lengths = table.column("length").to_numpy()
    if not (lengths == 0).any():
        raise InputError("aggregates must have one row of length 0, the protected record count")
    head, *parts = [table.filter(pa.array(lengths == k)) for k in (0, *(n.length for n in noise))]
    aggregates = Aggregates(
        domain=domain,
        record_count=head.column("count")[0].as_py(),
        record_deviation=head.column("deviation")[0].as_py(),
        levels=tuple(_read_level(part, domain, n.length) for part, n in zip(parts, noise, strict=True)),
        noise=noise,
    )
    return aggregates, tuple(Intervals(low=_numbers(part, "low"), high=_numbers(part, "high")) for part in parts)


def _numbers(table: pa.Table, column: str) -> Integers:
    numbers: Integers = table.column(column).to_numpy().astype(np.int64)
    return numbers


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


def write_synthetic(place: Path, tables: Iterable[pa.Table]) -> dict[str, str]:
    """Write `synthetic.parquet` and `synthetic.csv` to the folder `place`, block by block, and return their SHA-256 by name.

    The same bytes as `parquet_bytes` and `csv_bytes`, however the records are cut into tables, of which there is one at least.
    DP: post-processing.

    Raises:
        MachineError: the disk refuses; what stood there stands.
    """
    blocks = in_blocks(tables, ROW_GROUP)
    first = next(blocks)
    with ExitStack() as files:
        streams = [files.enter_context(streamed_file(place / name)) for name in SYNTHETIC]
        parquet = pq.ParquetWriter(streams[0], first.schema, **PARQUET_OPTIONS)
        text = pa_csv.CSVWriter(streams[1], as_written(first.schema.empty_table()).schema, write_options=CSV_OPTIONS)

        def write_group(rows: pa.Table) -> None:
            parquet.write_table(rows.combine_chunks(), row_group_size=ROW_GROUP)

        def write_lines(rows: pa.Table) -> None:
            text.write_table(as_written(rows))

        for rows in chain([first], blocks):
            _write([write_group, write_lines], rows)
        parquet.close()
        text.close()
        return {name: stream.digest for name, stream in zip(SYNTHETIC, streams, strict=True)}


def _write(writers: Sequence[Callable[[pa.Table], None]], rows: pa.Table) -> None:
    """Give the rows to every writer, all at once."""
    for _ in LocalEngine().map(lambda write: write(rows), writers):
        pass


def _rows(domain: Domain, level: Level, sigmas: Floats, intervals: Intervals, positions: int) -> pa.Table:
    numbers = {
        "length": pa.array(np.full(len(level), level.length), pa.int16()),
        "count": pa.array(level.counts, pa.int64()),
        "deviation": pa.array(sigmas, pa.float64()),
        "low": pa.array(intervals.low, pa.int64()),
        "high": pa.array(intervals.high, pa.int64()),
    }
    names = pa.array(domain.names, pa.string())
    pairs = [(names.take(pa.array(level.columns[:, i])), _labels(domain, level, i)) for i in range(level.length)]
    return with_combinations(numbers, pairs, positions)


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
    return Level(length=length, columns=columns, values=values, counts=_numbers(table, "count"))
