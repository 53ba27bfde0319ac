"""Builds released tables and their files: canonical order and sizes, no statistics, the same bytes for the same rows."""

from __future__ import annotations

import io
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from marginweave.base.arrays import Floats, Integers
from marginweave.base.errors import InputError
from marginweave.configuration.evaluation import CsvSettings
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.domain.combinations import Level
from marginweave.domain.labels import Domain
from marginweave.domain.masks import Clique
from marginweave.estimate.intervals import Intervals, count_interval
from marginweave.observations.combinations import Aggregates, LevelNoise
from marginweave.texts.sentences import counts_sentence

ROW_GROUP = 1 << 16
PARQUET_OPTIONS: dict[str, Any] = {
    "write_statistics": False,
    "compression": "zstd",
    "store_schema": False,
}
_NOTES = ("outside", "merged", "merged-outside", "impossible", "unkept")
"""Keys of what is noted of combinations, by their numbers from 1 on; 0 is no note."""
_USUAL = CsvSettings()
_DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t"}


def read_columns(file: Path, names: Sequence[str] | None = None) -> pa.Table:
    """Return the columns of these names of a Parquet file, or all of them.

    `pyarrow.parquet.read_table` returns the same, and imports pandas first, which takes longer than most questions do.
    """
    with pq.ParquetFile(file) as opened:
        return opened.read(names)


def counts_table(
    aggregates: Aggregates,
    intervals: Sequence[Intervals],
    longest: int,
    left_out: Sequence[Clique] = (),
    *,
    besides: str = "",
    coarse: bool = False,
    remarks: Sequence[str] = (),
) -> pa.Table:
    """Return counts of combinations, one a row.

    The columns are `length`, `count`, `noise_sd`, `low`, `high`, `adjusted`, pairs `column_i`, `value_i`, and `note`.

    `count` is as measured, 0 where noise made it negative, null where values were measured together; `noise_sd` that of the
    noise, from marginals of the cell that it was measured in; `low` and `high` the ends of `intervals`, one for each length.
    Where a rule allows no record, all of these are 0, and the note says so. `adjusted` is the count that agrees with others:
    where it lies outside, `note` says so, and where a rule that changed no row allows no such record. The row of length 0 is
    the empty combination: its count is the protected number of records, and its note explains the columns. There are `longest`
    positions, or R if that is more; those beyond are null. At the end, each set of columns of `left_out`, of which only
    combinations above 0 are listed, has a row without values.

    Adjusted counts also follow from `besides`, counts that this release has not drawn, in words: the first note names them, and
    so do those of rows that they may have changed. With `coarse` the first note says where counts in coarser bins are, and at
    its end stand `remarks` on all counts, sentences without a full stop.
    """
    domain = aggregates.domain
    positions = max(longest, aggregates.reporting_length)
    key = _key(aggregates, besides=besides, coarse=coarse, remarks=remarks)
    parts = [_total_row(aggregates, positions, key)]
    for level, noise, level_intervals in zip(
        aggregates.levels, aggregates.noise, intervals, strict=True
    ):
        sigmas = _noise_of_rows(level, noise, aggregates.measured)
        rows = _rows(domain, level, sigmas, level_intervals, positions)
        parts.append(rows.append_column("note", _notes(level, level_intervals, besides)))
    last_rows = []
    for clique in left_out:
        row = {
            "length": len(clique),
            "noise_sd": (aggregates.measured or {})[clique],
            "adjusted": 0,
            "note": str(counts_sentence("note.left-out")),
        }
        for i, attribute in enumerate(clique, start=1):
            row[f"column_{i}"] = domain.names[attribute]
        last_rows.append(row)
    parts.append(pa.Table.from_pylist(last_rows, schema=parts[0].schema))
    return pa.concat_tables(parts).combine_chunks()


def counts_of_others(configuration: Configuration) -> str:
    """Return words for the counts that adjusted ones follow from beside those of this release; empty without any."""
    tables = listed([totals.crossed_names for totals in configuration.totals])
    if configuration.earlier:
        key = "besides.both" if tables else "besides.earlier"
    elif tables:
        key = "besides.known"
    else:
        return ""
    return str(counts_sentence(key, tables=tables))


def _key(aggregates: Aggregates, *, besides: str, coarse: bool, remarks: Iterable[str]) -> str:
    """Return the explanation of the columns, the note of the first row."""
    listed_marginals = "listed-coarse" if coarse else "listed-all"
    listed = "listed-tuples" if aggregates.measured is None else listed_marginals
    sentences = [
        str(
            counts_sentence("key.columns-besides", besides=besides)
            if besides
            else counts_sentence("key.columns")
        ),
        str(counts_sentence(f"key.{listed}")),
    ]
    sentences += [f"{remark[0].upper()}{remark[1:]}." for remark in remarks]
    return " ".join(sentences)


def _total_row(aggregates: Aggregates, positions: int, note: str) -> pa.Table:
    """Return the row of length 0: the number of records."""
    count = np.array([aggregates.record_count], np.int64)
    level = Level.join(0, [((), np.zeros((1, 0), np.int64), count)])
    sigma = aggregates.record_deviation
    intervals = count_interval(level.counts, sigma)
    row = _rows(aggregates.domain, level, np.array([sigma]), intervals, positions)
    return row.append_column("note", [[note]])


def _noise_of_rows(
    level: Level, noise: LevelNoise, measured: Mapping[Clique, float] | None
) -> Floats:
    """Return the standard deviation of the noise of each combination of a level, shape (combinations,)."""
    sigmas = np.full(len(level), noise.deviation)
    if measured is not None:
        for columns, rows in level.by_columns():
            sigmas[rows] = measured[columns]
    return sigmas


def with_combinations(
    numbers: dict[str, pa.Array],
    pairs: Sequence[tuple[pa.Array, pa.Array]],
    positions: int,
) -> pa.Table:
    """Return the columns of `numbers`, then `column_i` and `value_i` of each position: from `pairs`, null beyond them."""
    length = len(next(iter(numbers.values())))
    nothing = pa.nulls(length, pa.string())
    columns = dict(numbers)
    for i in range(positions):
        name, value = pairs[i] if i < len(pairs) else (nothing, nothing)
        columns[f"column_{i + 1}"] = name
        columns[f"value_{i + 1}"] = value
    return pa.table(columns)


def read_counts(
    table: pa.Table,
    domain: Domain,
    noise: tuple[LevelNoise, ...],
) -> tuple[Aggregates, tuple[Intervals, ...]]:
    """Return the aggregates and the intervals of their counts that `counts_table` wrote.

    Raises:
        InputError: a column or value that the domain does not have, or no row of length 0.
        KeyError: the columns of the intervals are lacking.
    """
    record_count, record_deviation = read_record_count(table)
    lengths = table.column("length").to_numpy()
    parts = [table.filter(pa.array(lengths == level.length)) for level in noise]
    aggregates = Aggregates(
        domain=domain,
        record_count=record_count,
        record_deviation=record_deviation,
        levels=tuple(
            _read_level(part, domain, level.length)
            for part, level in zip(parts, noise, strict=True)
        ),
        noise=noise,
    )
    intervals = []
    for part in parts:
        low = _numbers(part, "low")
        high = _numbers(part, "high")
        intervals.append(Intervals(low=low, high=high, measured=_numbers(part, "count")))
    return aggregates, tuple(intervals)


def read_record_count(table: pa.Table) -> tuple[int, float]:
    """Return the number of records that `counts_table` wrote, and the standard deviation of its noise, in records.

    Raises:
        InputError: no row of length 0.
    """
    lengths = table.column("length").to_numpy()
    if not (lengths == 0).any():
        raise InputError("aggregates must have one row of length 0, the protected record count")
    total = table.filter(pa.array(lengths == 0))
    return total.column("count")[0].as_py(), total.column("noise_sd")[0].as_py()


def _numbers(table: pa.Table, column: str) -> Integers:
    """Return a column of whole numbers, -1 for null."""
    numbers: Integers = table.column(column).fill_null(-1).to_numpy().astype(np.int64)
    return numbers


def parquet_bytes(table: pa.Table) -> bytes:
    """Return a Parquet file with fixed row groups and without column statistics."""
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=ROW_GROUP, **PARQUET_OPTIONS)
    return sink.getvalue()


def csv_options(settings: CsvSettings) -> pa_csv.WriteOptions:
    """Return how a CSV file is written, but for `csv_beginning` and for the marks of decimals."""
    return pa_csv.WriteOptions(quoting_style="needed", delimiter=_DELIMITERS[settings.delimiter])


def csv_beginning(settings: CsvSettings) -> bytes:
    """Return what stands before the header of a CSV file."""
    return BOM_UTF8 if settings.bom else b""


def csv_bytes(table: pa.Table, settings: CsvSettings = _USUAL) -> bytes:
    """Return a UTF-8 CSV file with a header; null is the empty field, the empty text is quoted.

    In a table of one column null is quoted as well, and so are numbers: most readers skip an empty line.
    """
    sink = io.BytesIO()
    sink.write(csv_beginning(settings))
    if settings.decimal == "comma":
        table = _with_decimal_commas(table)
    pa_csv.write_csv(as_written(table), sink, csv_options(settings))
    return sink.getvalue()


def _with_decimal_commas(table: pa.Table) -> pa.Table:
    """Return the table with floats as texts."""
    for place, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            texts = table.column(place).cast(pa.string()).to_pylist()
            with_commas = [text and text.replace(".", ",") for text in texts]
            table = table.set_column(place, field.name, pa.array(with_commas, pa.string()))
    return table


def as_written(table: pa.Table, missing: Mapping[str, str] = MappingProxyType({})) -> pa.Table:
    """Return the table that `csv_bytes` writes for a table: itself, or one of one column as texts without nulls.

    Columns of `missing` become texts, too, with that text where there is no value.
    """
    if table.num_columns == 1:
        missing = {table.column_names[0]: "", **missing}
    for name, text in missing.items():
        place = table.column_names.index(name)
        texts = table.column(name).cast(pa.string()).fill_null(text)
        table = table.set_column(place, name, texts)
    return table


def _rows(
    domain: Domain,
    level: Level,
    sigmas: Floats,
    intervals: Intervals,
    positions: int,
) -> pa.Table:
    """Return the rows of one level; `sigmas` is the standard deviation of the noise of each, shape (combinations,)."""
    nowhere = np.zeros(len(level), np.bool_)
    impossible = nowhere if intervals.impossible is None else intervals.impossible
    is_merged = intervals.measured < 0
    numbers = {
        "length": pa.array(np.full(len(level), level.length), pa.int16()),
        "count": pa.array(intervals.measured, pa.int64(), mask=is_merged),
        "noise_sd": pa.array(np.where(impossible, 0.0, sigmas), pa.float64()),
        "low": pa.array(intervals.low, pa.int64()),
        "high": pa.array(intervals.high, pa.int64()),
        "adjusted": pa.array(np.where(impossible, 0, level.counts), pa.int64()),
    }
    names = pa.array(domain.names, pa.string())
    pairs = []
    for i in range(level.length):
        columns = names.take(pa.array(level.columns[:, i]))
        pairs.append((columns, _labels(domain, level, i)))
    return with_combinations(numbers, pairs, positions)


def _notes(level: Level, intervals: Intervals, besides: str) -> pa.Array:
    """Return the note of each combination of a level, null where there is nothing to say."""
    is_outside = (level.counts < intervals.low) | (level.counts > intervals.high)
    is_merged = intervals.measured < 0
    numbers = is_outside + 2 * is_merged  # of `_NOTES`
    if intervals.unkept is not None:
        numbers = np.where(intervals.unkept, _NOTES.index("unkept") + 1, numbers)
    if intervals.impossible is not None:
        numbers = np.where(intervals.impossible, _NOTES.index("impossible") + 1, numbers)
    texts = [None, *(str(counts_sentence(f"note.{key}")) for key in _NOTES)]
    if besides:
        texts[1] = str(counts_sentence("note.outside-besides", besides=besides))
    return pa.array(texts, pa.string()).take(pa.array(numbers))


def _labels(domain: Domain, level: Level, position: int) -> pa.Array:
    """Return the labels of the values at one position: all labels are in one array, addressed by column and value."""
    starts = np.concatenate(([0], np.cumsum(domain.sizes)))
    labels = pa.array([label for labels in domain.labels for label in labels], pa.string())
    places = starts[level.columns[:, position]] + level.values[:, position]
    return labels.take(pa.array(places))


def _read_level(table: pa.Table, domain: Domain, length: int) -> Level:
    """Return the combinations of one length with their adjusted counts. Raises InputError for unknown columns or values."""
    columns = np.zeros((table.num_rows, length), np.int64)
    values = np.zeros((table.num_rows, length), np.int64)
    attributes = {name: j for j, name in enumerate(domain.names)}
    codes = [dict(zip(labels, range(len(labels)), strict=True)) for labels in domain.labels]
    for i in range(length):
        try:
            places = [attributes[name] for name in table.column(f"column_{i + 1}").to_pylist()]
            labels = table.column(f"value_{i + 1}").to_pylist()
            columns[:, i] = places
            values[:, i] = [codes[j][label] for j, label in zip(places, labels, strict=True)]
        except KeyError:
            raise InputError(
                "aggregates name a column or value that their configuration does not have"
            ) from None
    return Level(
        length=length,
        columns=columns,
        values=values,
        counts=_numbers(table, "adjusted"),
    )
