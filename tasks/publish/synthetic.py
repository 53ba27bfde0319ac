"""The files of the synthetic records, written block by block; in the CSV file a missing value is what the source calls so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from marginweave.schemas.configuration.columns import MeasuredColumn
from marginweave.schemas.configuration.release import Configuration
from marginweave.tasks.checkpoint.codecs import in_blocks
from marginweave.tasks.checkpoint.files import streamed_file
from marginweave.tasks.engine.local import LocalEngine
from marginweave.tasks.publish.tables import CSV_OPTIONS, PARQUET_OPTIONS, ROW_GROUP, as_written

SYNTHETIC = ("synthetic.parquet", "synthetic.csv")


def missing_as_written(configuration: Configuration) -> dict[str, str]:
    """The text that means "no value" in the source, by column of the output, where there is one and it is not empty."""
    declared = {
        name: [text.strip() for text in configuration.missing_texts(name)]
        for name in configuration.output_names
        if isinstance(configuration.columns[name], MeasuredColumn)
    }
    return {name: texts[0] for name, texts in declared.items() if len(texts) == 1 and texts[0]}


def write_synthetic(place: Path, tables: Iterable[pa.Table], missing: Mapping[str, str]) -> dict[str, str]:
    """Write `synthetic.parquet` and `synthetic.csv` to the folder `place`, block by block, and return their SHA-256 by name.

    The same bytes as `parquet_bytes` and `csv_bytes`, however the records are cut into tables, of which there is one at least.
    In the CSV file a missing value is the text of `missing`; Parquet has a null of its own for it, whatever the source wrote.
    DP: post-processing.

    Raises:
        MachineError: the disk refuses; what stood there stands.
    """
    blocks = in_blocks(tables, ROW_GROUP)
    first = next(blocks)
    with ExitStack() as files:
        streams = [files.enter_context(streamed_file(place / name)) for name in SYNTHETIC]
        parquet = pq.ParquetWriter(streams[0], first.schema, **PARQUET_OPTIONS)
        text = pa_csv.CSVWriter(
            streams[1], as_written(first.schema.empty_table(), missing).schema, write_options=CSV_OPTIONS
        )
        for rows in chain([first], blocks):
            writes = (
                partial(parquet.write_table, rows.combine_chunks(), row_group_size=ROW_GROUP),
                partial(text.write_table, as_written(rows, missing)),
            )
            for _ in LocalEngine().map(lambda write: write(), writes):  # side by side
                pass
        parquet.close()
        text.close()
        return {name: stream.digest for name, stream in zip(SYNTHETIC, streams, strict=True)}
