"""The shipped functions on a CSV file, without ledger and Prefect: python -m benchmarks.scale.ours FILE CONFIGURATION.

Prints what `peer.py` prints. Compiled code is loaded beforehand, on a few rows, as imports are.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from benchmarks.adult import aggregate
from benchmarks.scale.peer import memory
from marginweave.configuration.load import load_configuration
from marginweave.configuration.release import Configuration
from marginweave.estimate.normalize import normalize
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import EncodedTable, encode_table
from tests.support.synthesized import synthesize_codes

WARM = 100


def encode(
    configuration: Configuration, path: str, rows: int | None = None
) -> tuple[EncodedTable, float]:
    """The encoded table, and the CPU seconds of cleaning and encoding it."""
    texts = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(configuration.names, pa.string()))
    raw = pyarrow.csv.read_csv(path, convert_options=texts)
    begun = time.process_time()
    return encode_table(
        clean_table(raw[:rows], configuration), configuration
    ), time.process_time() - begun


def release(table: EncodedTable, configuration: Configuration) -> tuple[int, float, float]:
    """As many records as the table has; their number, and the CPU seconds of aggregation and of synthesis."""
    begun = time.process_time()
    aggregates = aggregate(table, configuration)
    aggregated = time.process_time()
    settings = configuration.synthesize.model_copy(update={"records": table.records})
    records = len(synthesize_codes(normalize(aggregates), configuration, settings)[0])
    return records, aggregated - begun, time.process_time() - aggregated


def main() -> None:
    """Measure and print."""
    configuration = load_configuration(Path(sys.argv[2]))
    release(encode(configuration, sys.argv[1], WARM)[0], configuration)
    imports = memory("VmRSS")
    table, converted = encode(configuration, sys.argv[1])
    records, aggregated, synthesized = release(table, configuration)
    facts = {"convert": converted, "aggregate": aggregated, "synthesize": synthesized}
    facts |= {"records": records, "imports": imports, "peak": memory("VmHWM")}
    print(json.dumps(facts))  # noqa: T201 - a benchmark prints


if __name__ == "__main__":
    main()
