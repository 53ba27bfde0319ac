"""The files of the synthetic records, written block by block; in the CSV file a missing number or date is an empty cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from marginweave.publish.tables import CSV_OPTIONS, PARQUET_OPTIONS, ROW_GROUP, as_written
from marginweave.records.decode import spelled_table, stored_table

SYNTHETIC = ("synthetic.parquet", "synthetic.csv")


def missing_text(configuration: Configuration, name: str) -> str:
    """What stands for "no value" in a column of the CSV file: an empty cell, but for texts and sets that have a text for it.

    A number or a date that means "no value" would be averaged, and so would a numeric code beside values that are numbers.
    The text is not true of cells that are not as declared: where some are found, all without a value are empty.
    """
    column = configuration.columns[name]
    if not isinstance(column, MeasuredColumn) or isinstance(column, BinnedColumn):
        return ""
    if name in configuration.counted_undeclared:
        return ""
    texts = [text.strip() for text in configuration.missing_texts(name)]
    return texts[0] if len(texts) == 1 and (column.is_set or number(texts[0]) is None) else ""


def missing_words(configuration: Configuration, name: str) -> str:
    """How the files of the records show that a column has no value: a sentence, empty where that cannot be."""
    if not has_gaps(configuration, name):
        return ""
    text = missing_text(configuration, name)
    shown = f"the text “{text}”, whatever a cell without a value had instead," if text else "an empty cell"
    return f"No value is {shown} in synthetic.csv and null in synthetic.parquet."


def write_synthetic(
    place: Path, tables: Iterable[pa.Table], configuration: Configuration, types: Mapping[str, str]
) -> dict[str, str]:
    """Write `synthetic.parquet` and `synthetic.csv` to the folder `place`, block by block, and return their SHA-256 by name.

    The same bytes however the records are cut into tables, of which there is one at least. The CSV file is spelled as the
    configuration says that the source is, and what is missing as `missing_text` says. The Parquet file has the schema that
    `typed_table` gave to the records where the source had `types`; otherwise that of `parquet_bytes`. DP: post-processing.

    Raises:
        MachineError: the disk refuses; what stood there stands.
    """
    texts = {name: missing_text(configuration, name) for name in configuration.output_names}
    missing = {name: text for name, text in texts.items() if text}
    options = {**PARQUET_OPTIONS, "store_schema": bool(types)}
    pairs = (
        (stored_table(rows, configuration, types), as_written(spelled_table(rows, configuration), missing))
        for rows in in_blocks(tables, ROW_GROUP)
    )
    first = next(pairs)
    with ExitStack() as files:
        streams = [files.enter_context(streamed_file(place / name)) for name in SYNTHETIC]
        parquet = pq.ParquetWriter(streams[0], first[0].schema, **options)
        text = pa_csv.CSVWriter(streams[1], first[1].schema, write_options=CSV_OPTIONS)
        for stored, spelled in chain([first], pairs):
            writes = (
                partial(parquet.write_table, stored.combine_chunks(), row_group_size=ROW_GROUP),
                partial(text.write_table, spelled),
            )
            for _ in LocalEngine().map(lambda write: write(), writes):  # side by side
                pass
        parquet.close()
        text.close()
        return {name: stream.digest for name, stream in zip(SYNTHETIC, streams, strict=True)}
