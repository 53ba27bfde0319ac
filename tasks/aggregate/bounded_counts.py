"""Counts of candidate combinations with every record's contribution bounded.

Two passes over the records, tile by tile: how many candidates a record holds, and the counts, to which a record that holds more
than the bound gives a uniform choice of exactly that many (selection sampling: Knuth, TAOCP 2, 3.4.2, Algorithm S). A record
holds one combination of a set of columns, unless sets of values are among them: then one for every choice of a value of each.

A record chooses by its secret word, in a public order of its candidates: what it gives is a function of that record and that
word alone, whatever stands in the others, however the table is cut into blocks and tiles, whichever cores and machines count.
Sums are of integers, so that neither do they depend on these.

Coupling: a record's word is that of its number, so one more record in the middle gives all after it other numbers and other
words. But words are secret, and uniform and independent of each other and of the table: which of them a record gets has no
influence on the distribution. Two tables that differ in one record can be given the same word for each record that they share,
the words being moved along with the records. Both then have the counts of independent choices, as each table has by itself,
and differ in what the one record gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from marginweave.tasks.aggregate.candidates import CandidateSet
from marginweave.tasks.aggregate.kernels import (
    Choice,
    Flags,
    Held,
    Tile,
    add_counts,
    add_held,
    choose,
    merge_counts,
    take_back,
)
from marginweave.tasks.aggregate.layout import Blocks, Layout, Span, flat_keys, lay_out, spans
from marginweave.tasks.aggregate.sparse_counts import SortedCounts, SparseCounts
from marginweave.tasks.budget.randomness import NumberedWords
from marginweave.tasks.engine.local import Engine

Counts = NDArray[np.int64]

# Cells that all cores together count densely, and keys that wait to be sorted on one of them.
_ALL_DENSE = 1 << 27
_WAITING = 1 << 23


@dataclass(frozen=True, kw_only=True)
class BoundedCounts:
    """Sparse exact counts of one level: private.

    `cells[i]` and `counts[i]` are the flat positions (in the dense array of `column_sets[i]`) and counts of the cells that
    occur, by increasing position; every other candidate has the count 0.
    """

    column_sets: tuple[tuple[int, ...], ...]
    cells: tuple[NDArray[np.int64], ...]
    counts: tuple[Counts, ...]

    def dense(self, index: int, size: int) -> Counts:
        """All counts of column set `index`, zero cells included; shape (size,)."""
        counts = np.zeros(size, np.int64)
        counts[self.cells[index]] = self.counts[index]
        return counts


def contribution_histogram(blocks: Blocks, candidates: CandidateSet, cap: int, engine: Engine) -> Counts:
    """Number of records that hold c candidates, w_u = |M_k(X_u) ∩ V_k|, for c = 0 … cap, clipped to the public cap.

    Shape (cap + 1,). Private.
    """
    layout = lay_out(blocks, candidates)
    job = _Contributions(blocks, candidates, layout, cap)
    total = np.zeros(cap + 1, np.int64)
    for part in engine.map(job, spans(blocks, _parts(candidates, layout, engine))):
        total += part
    return total


def bounded_counts(
    blocks: Blocks, candidates: CandidateSet, bound: int, words: NumberedWords, engine: Engine
) -> BoundedCounts:
    """Count candidates with at most `bound` a record.

    A record that holds more keeps a uniformly chosen subset of `bound` of them, by randomness of its own (word u of `words`
    for record u). Under the coupling above, adding or removing one record changes at most `bound` counts by one each: L0 and
    squared L2 sensitivity `bound`, Linf 1 (twice the L0 under replace-one). What holds for any fixed words of coupled tables
    holds on average over them. Null or outside values hold nothing. Private.
    """
    layout = lay_out(blocks, candidates)
    job = _BoundedCounts(blocks, candidates, layout, bound, words)
    dense, sparse = _sum(engine.map(job, spans(blocks, _parts(candidates, layout, engine))))
    found: dict[tuple[int, ...], SortedCounts] = dict(zip(layout.sparse, sparse, strict=True))
    for columns, (start, stop) in zip(layout.dense, pairwise(layout.places), strict=True):
        occurring = np.flatnonzero(dense[start:stop])
        found[columns] = occurring, dense[start:stop][occurring]
    sets = tuple(candidates.column_sets())
    return BoundedCounts(
        column_sets=sets,
        cells=tuple(found[columns][0] for columns in sets),
        counts=tuple(found[columns][1] for columns in sets),
    )


@dataclass(frozen=True)
class _Contributions:
    """One part of the first pass."""

    blocks: Blocks = field(repr=False)
    candidates: CandidateSet = field(repr=False)
    layout: Layout = field(repr=False)
    cap: int = field(repr=False)

    def __call__(self, span: Span) -> Counts:
        """The histogram of the records of a span."""
        histogram = np.zeros(self.cap + 1, np.int64)
        for _, tile in self.layout.tiles(self.blocks, span):
            held = np.zeros(tile.shape[1], np.int32)
            add_held(tile, self.layout.steps, self.layout.valid, held)
            _add_sparse(self.layout, self.candidates, tile, held)
            histogram += np.bincount(np.minimum(held, self.cap), minlength=self.cap + 1)
        return histogram


@dataclass(frozen=True)
class _BoundedCounts:
    """One part of the second pass."""

    blocks: Blocks = field(repr=False)
    candidates: CandidateSet = field(repr=False)
    layout: Layout = field(repr=False)
    bound: int = field(repr=False)
    words: NumberedWords = field(repr=False)

    def __call__(self, span: Span) -> tuple[Counts, list[SortedCounts]]:
        """The counts of the records of a span: of the dense sets in one array, of each other set by sorted keys."""
        layout = self.layout
        cells = layout.valid.astype(np.int64)
        sparse = [SparseCounts() for _ in layout.sparse]
        waiting = 0
        for first, tile in layout.tiles(self.blocks, span):
            held = np.zeros(tile.shape[1], np.int32)
            add_counts(tile, layout.steps, cells, held)
            kept = _add_sparse(layout, self.candidates, tile, held)
            self._bound(first, tile, cells, held, kept)
            waiting += _add_keys(layout, self.candidates, tile, kept, sparse)
            if waiting > _WAITING:
                waiting = 0
                for counts in sparse:
                    counts.settle()
        cells >>= 1
        cells *= layout.valid
        return cells, [counts.sorted() for counts in sparse]

    def _bound(self, first: int, tile: Tile, cells: Counts, held: Held, kept: list[Flags]) -> None:
        """Let the records of a tile that hold more than the bound choose, and take out what they do not keep."""
        over = np.flatnonzero(held > self.bound)
        if not len(over):
            return
        choice = Choice(
            left=held[over],
            needed=np.full(len(over), self.bound, np.int32),
            seeds=self.words.words_at(first, len(held))[over],
        )
        take_back(np.ascontiguousarray(tile[:, over]), self.layout.steps, cells, choice)
        for flags in kept:
            flags[over] = choose(flags[over], choice)


def _add_sparse(layout: Layout, candidates: CandidateSet, tile: Tile, held: Held) -> list[Flags]:
    """Which records hold a candidate of each step that is not dense; adds them to `held`."""
    flags = []
    for index, slots in layout.sparse_steps:
        values = np.stack([tile[slot] for slot in slots], axis=1).astype(np.int64)
        flags.append(candidates.contains(layout.sparse[index], values))
        held += flags[-1]
    return flags


def _add_keys(
    layout: Layout, candidates: CandidateSet, tile: Tile, kept: list[Flags], sparse: list[SparseCounts]
) -> int:
    """Give the cells that the records of a tile keep to the counts of their sets; how many."""
    added = 0
    for (index, slots), flags in zip(layout.sparse_steps, kept, strict=True):
        sizes = tuple(candidates.sizes[j] + 1 for j in layout.sparse[index])
        keys = flat_keys(tile, slots, sizes)[flags]
        sparse[index].add(keys)
        added += len(keys)
    return added


def _sum(parts: Iterator[tuple[Counts, list[SortedCounts]]]) -> tuple[Counts, list[SortedCounts]]:
    """The counts of all parts, added up."""
    dense, sparse = next(parts)
    for more_dense, more_sparse in parts:
        dense += more_dense
        sparse = [merge_counts(*counts, *more) for counts, more in zip(sparse, more_sparse, strict=True)]
    return dense, sparse


def _parts(candidates: CandidateSet, layout: Layout, engine: Engine) -> int:
    """In how many parts a pass is made: as many as there are cores, if their dense cells are not too many together.

    How many cells there are is private at length 1, so that there it counts for nothing.
    """
    room = _ALL_DENSE // max(1, len(layout.valid))
    return engine.cores if candidates.length == 1 else max(1, min(engine.cores, room))
