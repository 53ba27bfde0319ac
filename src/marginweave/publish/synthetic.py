"""Writes the files of the synthetic records, block by block; a missing number or date is an empty cell of the CSV file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from marginweave.base.durable import streamed_file
from marginweave.base.parallel import LocalEngine
from marginweave.checkpoints.codecs import in_blocks
from marginweave.configuration.columns import MeasuredColumn
from marginweave.configuration.columns.binned import BinnedColumn
from marginweave.configuration.gaps import has_gaps
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import number
from marginweave.publish.tables import (
    PARQUET_OPTIONS,
    ROW_GROUP,
    as_written,
    csv_beginning,
    csv_options,
)
from marginweave.records.decode import spelled_table, stored_table
from marginweave.records.nested import rows_of, with_keys
from marginweave.texts.sentences import Sentence, report_sentence

SYNTHETIC = ("synthetic.parquet", "synthetic.csv")


def row_files(table: str) -> tuple[str, str]:
    """Return the names of the files with the synthetic rows of a linked table."""
    return f"synthetic-{table}.parquet", f"synthetic-{table}.csv"


def missing_text(configuration: Configuration, name: str) -> str:
    """Return the text for "no value" in a column of the CSV file: empty, except for texts and sets that have a text for it.

    A number or a date that means "no value" would be averaged, and so would a numeric code among values that are numbers.
    The text is not true of cells that are not as declared: where some are found, all without a value are empty.
    """
    column = configuration.columns[name]
    if not isinstance(column, MeasuredColumn) or isinstance(column, BinnedColumn):
        return ""
    if name in configuration.counted_undeclared:
        return ""
    texts = [text.strip() for text in configuration.missing_texts(name)]
    if len(texts) != 1:
        return ""
    is_numeric = number(texts[0]) is not None
    return texts[0] if column.is_set or not is_numeric else ""


def no_value_sentence(configuration: Configuration, name: str) -> Sentence | None:
    """Return a sentence on how the record files show that a column has no value; None where every record has one."""
    if not has_gaps(configuration, name):
        return None
    text = missing_text(configuration, name)
    return report_sentence("no-value.text" if text else "no-value.empty-cell", text=text)


def write_records(
    place: Path,
    read: Callable[[], Iterable[pa.Table]],
    configuration: Configuration,
    types: Mapping[str, str],
    row_gaps: Mapping[str, Collection[str]],
) -> dict[str, str]:
    """Write synthetic records, and the rows that they hold in linked tables, to files that join (`write_synthetic`).

    `read` returns the records, as often as there are tables. `row_gaps` has, by the name of each linked table that gets rows,
    the columns in which they can lack a value. DP: post-processing.
    """
    digests = write_synthetic(place, with_keys(read(), configuration), configuration, types)
    for name, gaps in row_gaps.items():
        of_rows = configuration.of_rows(name, gaps)
        rows = rows_of(read(), name, configuration)
        digests |= write_synthetic(place, rows, of_rows, {}, row_files(name))
    return digests


def write_synthetic(
    place: Path,
    tables: Iterable[pa.Table],
    configuration: Configuration,
    types: Mapping[str, str],
    names: tuple[str, str] = SYNTHETIC,
) -> dict[str, str]:
    """Write a Parquet and a CSV file of these `names` to the folder `place`, block by block, and return their SHA-256 by name.

    The bytes are the same however the records are cut into tables, of which there is at least one. The CSV file is spelled as
    the configuration says that the source is, or as `publish.csv` says, and missing values as `missing_text` says. The Parquet
    file has the schema that `typed_table` gave to the records where the source had `types`; otherwise that of `parquet_bytes`.
    DP: post-processing.

    Raises:
        MachineError: the disk refuses; earlier files are unchanged.
    """
    missing = {}
    for name in configuration.output_names:
        text = missing_text(configuration, name)
        if text:
            missing[name] = text
    options = {**PARQUET_OPTIONS, "store_schema": bool(types)}
    blocks = in_blocks(tables, ROW_GROUP)
    pairs = (_file_tables(rows, configuration, types, missing) for rows in blocks)
    first = next(pairs)
    with ExitStack() as files:
        streams = [files.enter_context(streamed_file(place / name)) for name in names]
        parquet_writer = pq.ParquetWriter(streams[0], first[0].schema, **options)
        csv_settings = configuration.publish.csv
        streams[1].write(csv_beginning(csv_settings))
        csv_writer = pa_csv.CSVWriter(
            streams[1], first[1].schema, write_options=csv_options(csv_settings)
        )
        for parquet_table, csv_table in chain([first], pairs):
            writes = (
                partial(
                    parquet_writer.write_table,
                    parquet_table.combine_chunks(),
                    row_group_size=ROW_GROUP,
                ),
                partial(csv_writer.write_table, csv_table),
            )
            # both files at the same time
            for _ in LocalEngine().map(lambda write: write(), writes):
                pass
        parquet_writer.close()
        csv_writer.close()
        return {name: stream.digest for name, stream in zip(names, streams, strict=True)}


def _file_tables(
    rows: pa.Table,
    configuration: Configuration,
    types: Mapping[str, str],
    missing: Mapping[str, str],
) -> tuple[pa.Table, pa.Table]:
    """Return a block of records as the Parquet file has it, and as the CSV file has it; a column of keys stays as it is."""
    keys = [name for name in rows.column_names if name not in configuration.columns]
    declared = rows.drop_columns(keys)
    stored = stored_table(declared, configuration, types)
    spelled = spelled_table(declared, configuration)
    for name in keys:
        stored = stored.add_column(0, name, rows.column(name))
        spelled = spelled.add_column(0, name, rows.column(name))
    return stored, as_written(spelled, missing)
