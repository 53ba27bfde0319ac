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

from marginweave.base.durable import streamed_file
from marginweave.base.parallel import LocalEngine
from marginweave.checkpoints.codecs import in_blocks
from marginweave.configuration.columns import MeasuredColumn
from marginweave.configuration.release import Configuration
from marginweave.publish.tables import CSV_OPTIONS, PARQUET_OPTIONS, ROW_GROUP, as_written
from marginweave.records.decode import spelled_table, stored_table

SYNTHETIC = ("synthetic.parquet", "synthetic.csv")


def _missing_as_written(configuration: Configuration) -> dict[str, str]:
    """The text that means "no value" in the source, by column of the output, where there is one and it is not empty."""
    declared = {
        name: [text.strip() for text in configuration.missing_texts(name)]
        for name in configuration.output_names
        if isinstance(configuration.columns[name], MeasuredColumn)
    }
    return {name: texts[0] for name, texts in declared.items() if len(texts) == 1 and texts[0]}


def write_synthetic(
    place: Path, tables: Iterable[pa.Table], configuration: Configuration, types: Mapping[str, str]
) -> dict[str, str]:
    """Write `synthetic.parquet` and `synthetic.csv` to the folder `place`, block by block, and return their SHA-256 by name.

    The same bytes however the records are cut into tables, of which there is one at least. The CSV file is spelled as the
    configuration says that the source is, missing values too. The Parquet file has the schema that `typed_table` gave to the
    records where the source had `types`; otherwise it is that of `parquet_bytes`. DP: post-processing.

    Raises:
        MachineError: the disk refuses; what stood there stands.
    """
    missing, options = _missing_as_written(configuration), {**PARQUET_OPTIONS, "store_schema": bool(types)}
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
