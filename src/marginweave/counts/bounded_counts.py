"""Counts of candidate combinations with every record's contribution bounded.

Two passes over the records, tile by tile: how many candidates a record has, and the counts, to which a record that has more
than the bound gives a uniform choice of exactly that many (selection sampling: Knuth, TAOCP 2, 3.4.2, Algorithm S). A record
has one combination of a set of columns, unless sets of values are among them: then one for every choice of a value of each.

A record chooses by its secret word, in a public order of its candidates: its choice is a function of that record and that word
alone, whatever other records contain, however the table is cut into blocks and tiles, whichever cores and machines count.
Sums are of integers, so that they do not depend on these either. Nor do they depend on how much memory there is: it decides
which cells are in dense arrays and which keys are written to files, not which record chooses what.

Coupling: a record's word is that of its number, so one more record in the middle gives all after it other numbers and other
words. But words are secret, and uniform and independent of each other and of the table: which of them a record gets has no
influence on the distribution. Two tables that differ in one record can be given the same word for each record that they share,
the words being moved along with the records. Both then have the counts of independent choices, as each table has by itself,
and differ in what the one record gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from marginweave.base.arrays import Counts, Flags
from marginweave.base.parallel import Engine
from marginweave.counts import kernels
from marginweave.counts.candidates import CandidateSet, Columns, flat_keys
from marginweave.counts.count_runs import (
    CountRun,
    MemoryBudget,
    SortedCounts,
    SparseCounts,
    add_runs,
)
from marginweave.counts.kernels import Choice, Contributions, Tile
from marginweave.counts.layout import Blocks, Layout, Span, lay_out, spans
from marginweave.mechanisms.randomness import NumberedWords

# Cells of a dense array that are examined at once.
_STRETCH = 1 << 18


@dataclass(frozen=True, kw_only=True)
class BoundedCounts:
    """Exact counts of one level: private.

    For each of the `column_sets`, `dense` has the counts of all cells, or `run` has those of the cells that occur, under the
    set's number in `sparse`. Cells are flat positions; only candidates have a count that is not 0. Its memory and folder are
    open.
    """

    column_sets: tuple[Columns, ...]
    dense: Mapping[Columns, Counts] = field(repr=False)
    sparse: Mapping[Columns, int]
    run: CountRun = field(repr=False)

    def pieces(self, columns: Columns) -> Iterator[SortedCounts]:
        """Yield the cells that occur, ascending over all pieces, and their counts; raises MachineError if the disk refuses."""
        if columns in self.sparse:
            yield from self.run.of(self.sparse[columns])
            return
        counts = self.dense.get(columns, ())
        for first in range(0, len(counts), _STRETCH):
            cells = np.flatnonzero(counts[first : first + _STRETCH]) + first
            if len(cells):
                yield cells, counts[cells]


def contribution_histogram(
    blocks: Blocks,
    candidates: CandidateSet,
    cap: int,
    engine: Engine,
    memory: MemoryBudget,
) -> Counts:
    """Count the records that have c candidates, w_u = |M_k(X_u) ∩ V_k|, for c = 0 … cap, clipped to the public cap.

    Shape (cap + 1,). Private.
    """
    layout, parts = _divided(blocks, candidates, engine, memory)
    job = _Contributions(blocks, candidates, layout, cap)
    total = np.zeros(cap + 1, np.int64)
    for part in engine.map(job, spans(blocks, parts)):
        total += part
    return total


def bounded_counts(
    blocks: Blocks,
    candidates: CandidateSet,
    bound: int,
    words: NumberedWords,
    engine: Engine,
    memory: MemoryBudget,
) -> BoundedCounts:
    """Count candidates, at most `bound` of each record.

    A record that has more keeps a uniformly chosen subset of `bound` of them, by its own randomness (word u of `words`
    for record u). Under the coupling above, adding or removing one record changes at most `bound` counts by one each: L0 and
    squared L2 sensitivity `bound`, Linf 1 (twice the L0 under replace-one). What holds for any fixed words of coupled tables
    holds on average over them. Null or outside values are in no candidate. Private.

    Raises:
        MachineError: the disk refuses what memory does not hold.
    """
    layout, parts = _divided(blocks, candidates, engine, memory)
    job = _BoundedCounts(
        blocks, candidates, layout, bound, words, memory.sparse_cells // parts, memory
    )
    dense = np.zeros(len(layout.valid), np.int64)
    runs: list[CountRun] = []
    for counts, part_runs in engine.map(job, spans(blocks, parts)):
        dense += counts
        runs += part_runs
    places = zip(layout.dense, pairwise(layout.places), strict=True)
    return BoundedCounts(
        column_sets=tuple(candidates.column_sets()),
        dense={columns: dense[start:stop] for columns, (start, stop) in places},
        sparse={columns: index for index, columns in enumerate(layout.sparse)},
        run=add_runs(runs, memory),
    )


@dataclass(frozen=True, repr=False)
class _Pass:
    """The input of both passes, which is sent to the workers of a cluster."""

    blocks: Blocks
    candidates: CandidateSet
    layout: Layout

    def add_sparse(self, tile: Tile, contributions: Contributions) -> list[Flags]:
        """Return which records have a candidate of each step that is not dense; adds them to `contributions`."""
        flags_of_steps = []
        for index, slots in self.layout.sparse_steps:
            rows = [tile[slot] for slot in slots]
            values = np.stack(rows, axis=1).astype(np.int64)
            flags = self.candidates.contains(self.layout.sparse[index], values)
            contributions += flags
            flags_of_steps.append(flags)
        return flags_of_steps


@dataclass(frozen=True, repr=False)
class _Contributions(_Pass):
    """One part of the first pass."""

    cap: int

    def __call__(self, span: Span) -> Counts:
        """Return the histogram of the records of a span."""
        histogram = np.zeros(self.cap + 1, np.int64)
        for _, tile in self.layout.tiles(self.blocks, span):
            contributions = np.zeros(tile.shape[1], np.int32)
            kernels.add_contributions(tile, self.layout.steps, self.layout.valid, contributions)
            self.add_sparse(tile, contributions)
            clipped = np.minimum(contributions, self.cap)
            histogram += np.bincount(clipped, minlength=self.cap + 1)
        return histogram


@dataclass(frozen=True, repr=False)
class _BoundedCounts(_Pass):
    """One part of the second pass."""

    bound: int
    words: NumberedWords
    most: int
    memory: MemoryBudget

    def __call__(self, span: Span) -> tuple[Counts, list[CountRun]]:
        """Return the counts of the records of a span: of the dense sets in one array, of the others in runs."""
        layout = self.layout
        cells = layout.valid.astype(np.int64)
        sparse = SparseCounts(len(layout.sparse), self.most, self.memory)
        for first, tile in layout.tiles(self.blocks, span):
            contributions = np.zeros(tile.shape[1], np.int32)
            kernels.add_counts(tile, layout.steps, cells, contributions)
            flags_of_steps = self.add_sparse(tile, contributions)
            self._bound(first, tile, cells, contributions, flags_of_steps)
            for (index, slots), flags in zip(layout.sparse_steps, flags_of_steps, strict=True):
                shape = self.candidates.shape(layout.sparse[index])
                keys = flat_keys([tile[slot] for slot in slots], shape)
                sparse.add(index, keys[flags])
        cells >>= 1
        cells *= layout.valid
        return cells, sparse.runs()

    def _bound(
        self,
        first: int,
        tile: Tile,
        cells: Counts,
        contributions: Contributions,
        flags_of_steps: list[Flags],
    ) -> None:
        """Let the records of a tile that have more than the bound choose, and remove the candidates that they drop."""
        over = np.flatnonzero(contributions > self.bound)
        if not len(over):
            return
        choice = Choice(
            remaining=contributions[over],
            needed=np.full(len(over), self.bound, np.int32),
            seeds=self.words.words_at(first, len(contributions))[over],
        )
        tile_over = np.ascontiguousarray(tile[:, over])
        kernels.take_back(tile_over, self.layout.steps, cells, choice)
        for flags in flags_of_steps:
            flags[over] = kernels.choose(flags[over], choice)


def _divided(
    blocks: Blocks,
    candidates: CandidateSet,
    engine: Engine,
    memory: MemoryBudget,
) -> tuple[Layout, int]:
    """Return the layout of a pass and its number of parts: one for each core, if memory has space for their dense cells.

    The number of cells is private at length 1: there each core has its share of memory, and the number of parts is that
    of cores.
    """
    if candidates.length == 1:
        return lay_out(blocks, candidates, memory.dense_cells // engine.cores), engine.cores
    layout = lay_out(blocks, candidates, memory.dense_cells)
    fitting = memory.dense_cells // max(1, len(layout.valid))
    return layout, max(1, min(engine.cores, fitting))
