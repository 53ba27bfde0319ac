"""Small tables for tests, encoded through the shipped stages, and slow references for counting."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.configuration.release import Configuration
from marginweave.domain.combinations import Level
from marginweave.evaluate.internal import joined_tables
from marginweave.mechanisms.randomness import CellWords, KeyedBits
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import (
    EncodedTable,
    encode_table,
    encoded_labels,
    with_indicators,
    with_labels,
)
from marginweave.prepare.encode import complete_blocks
from marginweave.prepare.rows import prepare_blocks


def encoded(rows: Sequence[Sequence[str]], configuration: Configuration) -> EncodedTable:
    """The rows (texts, in the order of the configuration) cleaned and encoded as a run does it."""
    clean = cleaned(rows, configuration)
    return encode_table(with_labels(clean, encoded_labels([clean], configuration)), configuration)


def cleaned(rows: Sequence[Sequence[str]], configuration: Configuration) -> pa.Table:
    """The rows cleaned as a run does it."""
    columns = {
        name: pa.array([row[j] for row in rows], pa.string())
        for j, name in enumerate(configuration.names)
    }
    return clean_table(pa.table(columns), configuration)


def with_sets(rows: Sequence[Sequence[str]], configuration: Configuration) -> EncodedTable:
    """The rows encoded as a run counts them: the indicators of sets behind the attributes."""
    return with_indicators(
        encoded(rows, configuration), cleaned(rows, configuration), configuration
    )


def completed(
    table: EncodedTable, configuration: Configuration, streams: Callable[[str], CellWords]
) -> EncodedTable:
    """The table imputed and resized as a run does it, with the words of each purpose in the order of records."""
    numbers = np.arange(table.records)
    blocks = complete_blocks(
        [(table, numbers)], lambda: [numbers], configuration, lambda purpose, _: streams(purpose)
    )
    return joined_tables(blocks)


def prepare_rows(raw: pa.Table, configuration: Configuration, key: bytes = bytes(32)) -> pa.Table:
    """Clean records of a raw table, all of it one block."""
    with tempfile.TemporaryDirectory() as folder:
        (block,) = prepare_blocks([raw], configuration, key, Path(folder))
    return block.table


def tuple_counts(table: EncodedTable, length: int) -> Counter[tuple[tuple[int, int], ...]]:
    """Counts of all combinations by going through every record: the slow reference."""
    counts: Counter[tuple[tuple[int, int], ...]] = Counter()
    for record in zip(*table.codes, strict=True):
        present = [
            (j, int(v))
            for j, cell in enumerate(record)
            for v in np.atleast_1d(cell)
            if v < table.sizes[j]
        ]
        counts.update(
            t for t in itertools.combinations(present, length) if len({j for j, _ in t}) == length
        )
    return counts


def level_from(counts: dict[tuple[tuple[int, int], ...], int], length: int) -> Level:
    """A level with the given combinations, in canonical order."""
    if not counts:
        return Level.empty(length)
    ordered = sorted(counts, key=lambda t: ([c for c, _ in t], [v for _, v in t]))
    return Level(
        length=length,
        columns=np.array([[c for c, _ in t] for t in ordered], np.int64),
        values=np.array([[v for _, v in t] for t in ordered], np.int64),
        counts=np.array([counts[t] for t in ordered], np.int64),
    )


class FixedWords:
    """Words that depend only on the call or the number, so that two runs can be coupled record by record."""

    def __init__(self, seed: int) -> None:
        self._seed, self._calls = seed, 0

    def words_at(self, start: int, count: int) -> NDArray[np.uint64]:
        """Words number `start` to `start + count - 1`."""
        return np.random.default_rng(self._seed).integers(0, 2**64, start + count, dtype=np.uint64)[
            start:
        ]

    def words_of(
        self,
        records: NDArray[np.int64],
        slots: NDArray[np.int64] | int = 0,  # noqa: ARG002
    ) -> NDArray[np.uint64]:
        """The first words of this call's own stream, one a record."""
        self._calls += 1
        generator = np.random.default_rng([self._seed, self._calls])
        return generator.integers(0, 2**64, 4096, dtype=np.uint64)[: len(records)]


def fixed_streams(purpose: str) -> KeyedBits:
    """Words under a fixed key: tests of them give the same numbers every time."""
    return KeyedBits(key=bytes(range(32)), purpose=purpose)
