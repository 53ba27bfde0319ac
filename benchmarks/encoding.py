"""CPU seconds of cleaning and encoding 1M rows x 20 mixed columns, beside what pandas takes to read and categorize them.

python -m benchmarks.encoding. The yardstick is of the same process: pandas.read_parquet of the file, then
astype("category") of every column. Ours is what the stages do with it: read the declared columns, clean, encode.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.adult import measured
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration
from marginweave.mechanisms.randomness import KeyedBits
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import EncodedTable, encode_table
from marginweave.sources.source import TableSource

ROWS = 1_000_000
LIMIT = 3.0
RNG = np.random.default_rng(11)
MONTHS = np.datetime_as_string(np.arange("2015-01-01", "2024-01-01", dtype="datetime64[D]"))


def _words(size: int, prefix: str) -> pa.Array:
    """Texts of a domain of `size`."""
    codes = pa.array(RNG.integers(0, size, ROWS).astype(np.int32))
    return pa.DictionaryArray.from_arrays(
        codes, pa.array([f"{prefix}{i}" for i in range(size)])
    ).dictionary_decode()


def _cells(size: int) -> pa.Array:
    """Sets of up to 4 of `size` values, as texts."""
    cells = [
        ";".join(f"s{v}" for v in RNG.integers(0, size, RNG.integers(0, 5))) for _ in range(5000)
    ]
    return pa.array(cells).take(pa.array(RNG.integers(0, len(cells), ROWS)))


def mixed_columns() -> dict[str, tuple[dict[str, Any], pa.Array]]:
    """Twenty columns: what is declared of each, and its values."""
    category = {
        f"c{n}": ({"type": "category", "values": [f"v{i}" for i in range(n)]}, _words(n, "v"))
        for n in (2, 9, 60, 800)
    }
    private = {
        f"p{n}": ({"type": "category", "domain": "private"}, _words(n, "w")) for n in (30, 3000)
    }
    codes = {
        f"k{n}": (
            {"type": "category", "values": list(range(n))},
            pa.array(RNG.integers(0, n, ROWS)),
        )
        for n in (5, 100)
    }
    number = {"type": "number", "bounds": [0, 100], "bins": 20}
    numbers = {
        "real": (number, pa.array(RNG.random(ROWS) * 120)),
        "gaps": (number, pa.array(RNG.random(ROWS) * 120, mask=RNG.random(ROWS) < 0.2)),
        "whole": ({**number, "decimals": 0}, pa.array(RNG.integers(-5, 130, ROWS))),
        "small": ({**number, "decimals": 0}, pa.array(RNG.integers(0, 100, ROWS).astype(np.int16))),
        "text": (number, pa.array(np.char.mod("%.1f", RNG.integers(0, 1200, ROWS) / 10).tolist())),
    }
    date = {"type": "date", "bounds": ["2015-01-01", "2023-12-31"], "bins": "month"}
    days = RNG.integers(0, len(MONTHS), ROWS)
    seconds = RNG.integers(1_420_070_400, 1_700_000_000, ROWS)
    dates = {
        "day": (date, pa.array(MONTHS.tolist()).take(pa.array(days))),
        "native": (
            {**date, "bins": "weekday"},
            pa.array((days + 16436).astype(np.int32)).cast(pa.date32()),
        ),
        "moment": (
            {**date, "type": "datetime", "bins": "week"},
            pa.array(seconds).cast(pa.timestamp("s")),
        ),
    }
    others = {
        "flag": ({"type": "boolean"}, pa.array(RNG.random(ROWS) < 0.3)),
        "answer": (
            {"type": "boolean"},
            pa.array(["yes", "no", ""]).take(pa.array(RNG.integers(0, 3, ROWS))),
        ),
        "set": (
            {"type": "set", "values": [f"s{i}" for i in range(12)], "max_values": 3},
            _cells(12),
        ),
        "third": (
            {"type": "category", "values": ["a", "b", "c"]},
            pa.array(["a", "b", "c"]).take(pa.array(days % 3)),
        ),
    }
    return {**category, **private, **codes, **numbers, **dates, **others}


def encode(path: Path, configuration: Configuration) -> EncodedTable:
    """What the stages validate, preprocess and encode do with the rows."""
    raw = TableSource(str(path), configuration.source).table(configuration.names)
    words = KeyedBits(key=bytes(32), purpose="encode")
    return encode_table(clean_table(raw, configuration), configuration, words)


def main() -> None:
    """Print the table."""
    columns = mixed_columns()
    configuration = parse_configuration(
        {
            "dataset": "mixed",
            "source": "mixed.parquet",
            "privacy": {"epsilon": 1.0, "delta": 1e-6, "unit": "row"},
            "columns": {name: declared for name, (declared, _) in columns.items()},
        }
    )
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "mixed.parquet"
        pq.write_table(pa.table({name: values for name, (_, values) in columns.items()}), path)
        _, unit = measured(
            "pandas: read, category", lambda: pd.read_parquet(path).astype("category"), None
        )
        table, seconds = measured("read, clean, encode", lambda: encode(path, configuration), unit)
    verdict = "within" if seconds <= LIMIT * unit else "MORE than"
    print(f"{table.records} rows x {len(columns)} columns: {verdict} {LIMIT:g} x pandas")  # noqa: T201 - a benchmark prints


if __name__ == "__main__":
    main()
