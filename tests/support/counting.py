"""Counting by the shipped code on small tables, and the slow reference: one record, one candidate after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Counts
from marginweave.base.parallel import Engine, LocalEngine
from marginweave.counts.bounded_counts import BoundedCounts, bounded_counts, contribution_histogram
from marginweave.counts.candidates import CandidateSet
from marginweave.counts.count_runs import CountRun, MemoryBudget, SortedCounts
from marginweave.counts.layout import Blocks
from marginweave.counts.marginals import count_marginals
from marginweave.domain.masks import Clique
from marginweave.mechanisms.randomness import NumberedWords
from marginweave.prepare.codes import Codes, EncodedBlocks, EncodedTable, pack_blocks
from marginweave.prepare.nested import NestedCodes

Cell = tuple[tuple[int, ...], tuple[int, ...]]
_MASK = (1 << 64) - 1
AMPLE = 2_000_000_000


def blocks_of(table: EncodedTable, records: int | None = None) -> EncodedBlocks:
    """The table in blocks of at most `records` records, packed as a checkpoint holds them."""
    size = records or max(1, table.records)
    starts = range(0, max(1, table.records), size)
    parts = (
        EncodedTable(
            codes=tuple(c[i : i + size] for c in table.codes),
            labels=table.labels,
            nested=tuple(_of_records(rows, i, i + size) for rows in table.nested),
        )
        for i in starts
    )
    return EncodedBlocks(list(pack_blocks(parts)))


def _of_records(rows: NestedCodes, start: int, end: int) -> NestedCodes:
    """The rows that some of the records hold."""
    is_chosen = (rows.owners >= start) & (rows.owners < end)
    return NestedCodes(
        lengths=rows.lengths[start:end], codes=tuple(codes[is_chosen] for codes in rows.codes)
    )


@dataclass(frozen=True, kw_only=True)
class WholeCounts(BoundedCounts):
    """Bounded counts of a small table, all of them in memory, in up to three pieces."""

    dense: Mapping[tuple[int, ...], NDArray[np.int64]] = field(default_factory=dict, repr=False)
    sparse: Mapping[tuple[int, ...], int] = field(default_factory=dict)
    run: CountRun = field(
        default_factory=lambda: CountRun(pieces=(), first=(0,), cells=0), repr=False
    )
    cells: tuple[NDArray[np.int64], ...]
    counts: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(cls, bounded: BoundedCounts) -> Self:
        """The same counts."""
        none = np.zeros(0, np.int64)
        found = [[(none, none), *bounded.pieces(columns)] for columns in bounded.column_sets]
        cells, counts = (
            [np.concatenate([piece[i] for piece in pieces]) for pieces in found] for i in (0, 1)
        )
        return cls(column_sets=bounded.column_sets, cells=tuple(cells), counts=tuple(counts))

    def pieces(self, columns: tuple[int, ...]) -> Iterator[SortedCounts]:
        """See `BoundedCounts`."""
        for found, cells, counts in zip(self.column_sets, self.cells, self.counts, strict=True):
            if found == columns:
                edges = sorted({0, min(1, len(cells)), len(cells) // 3, len(cells)})
                for begin, end in pairwise(edges):
                    yield cells[begin:end], counts[begin:end]

    @cached_property
    def occurring(self) -> int:
        """See `BoundedCounts`."""
        return sum(map(len, self.cells))

    def vector(self, index: int, size: int) -> NDArray[np.int64]:
        """All counts of column set `index`, zero cells included; shape (size,)."""
        counts = np.zeros(size, np.int64)
        counts[self.cells[index]] = self.counts[index]
        return counts


def count_blocks(
    blocks: Blocks,
    candidates: CandidateSet,
    bound: int,
    words: NumberedWords,
    engine: Engine,
    memory: int = AMPLE,
) -> WholeCounts:
    """Bounded counts of a table in blocks, with so many bytes of memory."""
    with TemporaryDirectory() as folder:
        room = MemoryBudget(memory, Path(folder))
        return WholeCounts.of(bounded_counts(blocks, candidates, bound, words, engine, room))


def count_bounded(
    table: EncodedTable,
    candidates: CandidateSet,
    bound: int,
    words: NumberedWords,
    memory: int = AMPLE,
) -> WholeCounts:
    """Bounded counts of a table that is one block."""
    return count_blocks(blocks_of(table), candidates, bound, words, LocalEngine(1), memory)


def histogram(
    table: EncodedTable, candidates: CandidateSet, cap: int, memory: int = AMPLE
) -> NDArray[np.int64]:
    """How many records hold c candidates, of a table that is one block."""
    return histogram_of(blocks_of(table), candidates, cap, LocalEngine(1), memory)


def histogram_of(
    blocks: Blocks, candidates: CandidateSet, cap: int, engine: Engine, memory: int = AMPLE
) -> NDArray[np.int64]:
    """The same of a table in blocks; nothing of it is set aside."""
    return contribution_histogram(
        blocks, candidates, cap, engine, MemoryBudget(memory, Path("nowhere"))
    )


def as_counter(bounded: WholeCounts, sizes: Sequence[int]) -> Counter[Cell]:
    """The counts by columns and values."""
    counts: Counter[Cell] = Counter()
    for columns, cells, values in zip(
        bounded.column_sets, bounded.cells, bounded.counts, strict=True
    ):
        assert (np.diff(cells) > 0).all()
        places = np.stack(np.unravel_index(cells, [sizes[j] + 1 for j in columns]), axis=1)
        counts.update(
            {(columns, tuple(v)): n for v, n in zip(places.tolist(), values.tolist(), strict=True)}
        )
    return counts


def held_candidates(
    table: EncodedTable,
    candidates: CandidateSet,
    record: int,
    order: Sequence[tuple[int, ...]] | None = None,
) -> Iterator[Cell]:
    """The candidates of one record, set of columns by set of columns, by the masks."""
    cells = [np.atleast_1d(codes[record]).tolist() for codes in table.codes]
    for columns in candidates.column_sets() if order is None else order:
        mask = candidates.mask(columns)
        for values in product(*(cells[j] for j in columns)):
            if mask[values]:
                yield columns, values


def contributions(codes: Sequence[Codes], candidates: CandidateSet) -> NDArray[np.int64]:
    """How many candidates each record holds, by the slow reference."""
    table = EncodedTable(
        codes=tuple(codes), labels=tuple(("",) * size for size in candidates.sizes)
    )
    return np.array(
        [sum(1 for _ in held_candidates(table, candidates, i)) for i in range(table.records)],
        np.int64,
    )


def reference_counts(
    table: EncodedTable,
    candidates: CandidateSet,
    bound: int,
    words: NumberedWords,
    order: Sequence[tuple[int, ...]] | None = None,
) -> Counter[Cell]:
    """Bounded counts by the slow reference, with the choices of the shipped code."""
    counts: Counter[Cell] = Counter()
    for record, seed in enumerate(words.words_at(0, table.records).tolist()):
        held = list(held_candidates(table, candidates, record, order))
        left, needed = len(held), min(bound, len(held))
        for cell in held:
            if len(held) <= bound or _word(seed, left) * left >> 64 < needed:
                needed -= 1
                counts[cell] += 1
            left -= 1
        assert needed == 0
    return counts


def _word(seed: int, number: int) -> int:
    """SplitMix64, in Python's integers."""
    word = (seed + number * 0x9E3779B97F4A7C15) & _MASK
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) & _MASK
    return word ^ word >> 31


def same_counts(one: WholeCounts, other: WholeCounts) -> bool:
    """Whether two results are identical."""
    return one.column_sets == other.column_sets and all(
        np.array_equal(a, b)
        for a, b in zip((*one.cells, *one.counts), (*other.cells, *other.counts), strict=True)
    )


def count_marginal(codes: Sequence[NDArray[Any]], sizes: Sequence[int], clique: Clique) -> Counts:
    """The exact marginal of one set of attributes in one block of rows."""
    return count_marginals([codes], sizes, [clique])[0]
