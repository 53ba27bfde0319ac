"""Small tables for tests, encoded through the shipped stages, and slow references for counting."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.schemas.aggregates import Level
from marginweave.schemas.configuration import Configuration
from marginweave.tasks.encode.codes import EncodedTable, encode_table
from marginweave.tasks.preprocess.clean import clean_table


def encoded(rows: Sequence[Sequence[str]], configuration: Configuration) -> EncodedTable:
    """The rows (texts, in the order of the configuration) cleaned and encoded as a run does it."""
    columns = {name: pa.array([row[j] for row in rows], pa.string()) for j, name in enumerate(configuration.names)}
    return encode_table(clean_table(pa.table(columns), configuration), configuration)


def tuple_counts(table: EncodedTable, length: int) -> Counter[tuple[tuple[int, int], ...]]:
    """Counts of all combinations by going through every record: the slow reference."""
    counts: Counter[tuple[tuple[int, int], ...]] = Counter()
    for record in zip(*table.codes, strict=True):
        present = [(j, int(v)) for j, cell in enumerate(record) for v in np.atleast_1d(cell) if v < table.sizes[j]]
        counts.update(t for t in itertools.combinations(present, length) if len({j for j, _ in t}) == length)
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

    def uniform_words(self, count: int) -> NDArray[np.uint64]:
        """The first `count` words of this call's own stream."""
        self._calls += 1
        generator = np.random.default_rng([self._seed, self._calls])
        return generator.integers(0, 2**64, 4096, dtype=np.uint64)[:count]

    def words_at(self, start: int, count: int) -> NDArray[np.uint64]:
        """Words number `start` to `start + count - 1`."""
        return np.random.default_rng(self._seed).integers(0, 2**64, start + count, dtype=np.uint64)[start:]
