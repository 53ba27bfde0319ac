"""Tables of any length, written block by block, with the configuration that releases them.

All are seeded: the same name and number of rows are the same table. No two blocks of rows are in memory at once.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tests.support.places import DATA

BLOCK = 250_000  # rows
PART = 4  # blocks to a Parquet part
PERTURBED = 0.05  # of the values of a table made of adult, so that its rows are not copies of 48842
WIDE, WIDER, TOGETHER = 60, 200, 0.5
VALUED, VALUES, EXPONENT = 10, 5000, 1.1
CODES, FINER = 100_000, 5

Codes = list[NDArray[Any]]


def seeded(length: int) -> dict[str, Any]:
    """Sections of a configuration: counts of up to `length` columns, and records as peers make them."""
    return {
        "aggregate": {"method": "k-tuples", "reporting_length": length},
        "synthesize": {"method": "aggregate-seeded"},
    }


@dataclass(frozen=True, kw_only=True)
class Table:
    """The values of each column, "" being a missing one, and how rows of their codes are drawn."""

    labels: Mapping[str, tuple[str, ...]]
    draw: Callable[[np.random.Generator, int], Codes]

    def blocks(self, rows: int) -> Iterator[pa.Table]:
        """The rows, a block at a time."""
        rng = np.random.default_rng(rows)
        for start in range(0, rows, BLOCK):
            codes = self.draw(rng, min(BLOCK, rows - start))
            pairs = zip(codes, self.labels.items(), strict=True)
            yield pa.table(
                {name: pa.array(values).take(pa.array(c)) for c, (name, values) in pairs}
            )

    def write_parquet(self, folder: Path, rows: int) -> Path:
        """A folder of Parquet parts."""
        folder.mkdir()
        writer: pq.ParquetWriter | None = None
        for number, block in enumerate(self.blocks(rows)):
            if number % PART == 0:
                if writer is not None:
                    writer.close()
                writer = pq.ParquetWriter(
                    folder / f"part-{number // PART:05}.parquet", block.schema
                )
            assert writer is not None
            writer.write_table(block)
        assert writer is not None
        writer.close()
        return folder

    def write_csv(self, path: Path, rows: int) -> Path:
        """One CSV file."""
        schema = pa.schema([(name, pa.string()) for name in self.labels])
        with pc.CSVWriter(path, schema) as writer:
            for block in self.blocks(rows):
                writer.write(block)
        return path

    def configuration(self, source: Path, rows: int, sections: Mapping[str, Any]) -> dict[str, Any]:
        """A release of the table: epsilon 4, delta 1 / (n ln n), all domains public, the rest by `sections` or as it comes."""
        columns = {
            n: {"type": "category", "values": [v for v in values if v]}
            for n, values in self.labels.items()
        }
        return {
            "dataset": "scale",
            "source": str(source),
            "privacy": {"epsilon": 4.0, "delta": 1 / (rows * math.log(rows)), "unit": "row"},
            "missing": [""],
            "columns": columns,
            **sections,
        }


def adult(perturbed: float = PERTURBED) -> Table:
    """Rows of adult_cat.csv (14 columns), drawn with replacement; of their values a share comes from other rows."""
    labels, source = _adult()

    def draw(rng: np.random.Generator, rows: int) -> Codes:
        drawn = rng.integers(0, len(source[0]), rows)
        return [_perturb(column[drawn], column, perturbed, rng) for column in source]

    return Table(labels=labels, draw=draw)


def wide() -> Table:
    """60 columns: adult's 14 again and again, each time of the same row of it or, as often, of another one."""
    return _repeated(WIDE)


def wider() -> Table:
    """200 columns of the same kind."""
    return _repeated(WIDER)


def _repeated(columns: int) -> Table:
    labels, source = _adult()
    copies = math.ceil(columns / len(source))
    names = [f"{name}-{copy}" for copy in range(copies) for name in labels][:columns]

    def draw(rng: np.random.Generator, rows: int) -> Codes:
        first, codes = rng.integers(0, len(source[0]), rows), []
        for _ in range(copies):
            drawn = np.where(
                rng.random(rows) < TOGETHER, first, rng.integers(0, len(source[0]), rows)
            )
            codes += [column[drawn] for column in source]
        return codes[:columns]

    return Table(labels={name: tuple(labels[name.rsplit("-", 1)[0]]) for name in names}, draw=draw)


def valued() -> Table:
    """10 columns of 5,000 values each, by Zipf's law; half of the values of a row are neighbors of its first."""
    ranks = _zipf(VALUES)

    def draw(rng: np.random.Generator, rows: int) -> Codes:
        first = ranks(rng, rows)
        near = [(first + j) % VALUES for j in range(1, VALUED)]
        return [first, *(np.where(rng.random(rows) < TOGETHER, n, ranks(rng, rows)) for n in near)]

    values = tuple(f"v{value:04}" for value in range(VALUES))
    return Table(labels={f"c{j}": values for j in range(VALUED)}, draw=draw)


def coded() -> Table:
    """A column of 100,000 codes by Zipf's law, and five that it has some part in, of 4 to 64 values."""
    ranks, sizes = _zipf(CODES), [4 * 2**j for j in range(FINER)]

    def draw(rng: np.random.Generator, rows: int) -> Codes:
        code = ranks(rng, rows)
        return [
            code,
            *(
                np.where(rng.random(rows) < TOGETHER, code % n, rng.integers(0, n, rows))
                for n in sizes
            ),
        ]

    labels = {"code": tuple(f"{value:05}" for value in range(CODES))}
    return Table(labels=labels | {f"c{n}": tuple(map(str, range(n))) for n in sizes}, draw=draw)


def _zipf(values: int) -> Callable[[np.random.Generator, int], NDArray[np.int64]]:
    weights = np.arange(1, values + 1) ** -EXPONENT
    cumulative = np.cumsum(weights / weights.sum())
    return lambda rng, rows: np.minimum(np.searchsorted(cumulative, rng.random(rows)), values - 1)


def _perturb(
    codes: NDArray[Any], column: NDArray[Any], share: float, rng: np.random.Generator
) -> NDArray[Any]:
    changed = (
        np.flatnonzero(rng.random(len(codes), np.float32) < share)
        if share
        else np.zeros(0, np.int64)
    )
    codes[changed] = column[rng.integers(0, len(column), len(changed))]
    return codes


def _adult() -> tuple[dict[str, tuple[str, ...]], Codes]:
    """The public values of each column, and the codes of the rows by column."""
    folder = DATA / "adult"
    if not folder.is_dir():
        raise SystemExit(
            "the adult table is not here; MARGINWEAVE_TEST_DATA names the folder of the test tables"
        )
    domain = json.loads((folder / "adult_domain.json").read_text(encoding="utf-8"))
    with (folder / "adult_cat.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    labels = {name: tuple(domain[name]) for name in header}
    numbers = [{value: code for code, value in enumerate(values)} for values in labels.values()]
    columns = zip(*rows, strict=True)
    return labels, [
        np.array([n[v] for v in c], np.uint8) for n, c in zip(numbers, columns, strict=True)
    ]
