"""The initial components of a fit: records sampled along a tree of informative pairs, each spread a little over all values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.arrays import Integers
from marginweave.schemas.released.measurements import CensoredMeasurement, Clique, Measurement
from marginweave.tasks.estimate.mixture.model import Block
from marginweave.tasks.estimate.rounding import project_simplex

Array = NDArray[np.float64]


def spanning_tree(attributes: int, pairs: Mapping[Clique, Array]) -> tuple[Clique, ...]:
    """The maximum spanning forest of the pairs by mutual information (Chow and Liu 1968; Kruskal).

    A pair without any information stays out. DP: post-processing.
    """
    information = {pair: mutual_information(counts) for pair, counts in pairs.items()}
    tree: list[Clique] = []
    group = list(range(attributes))
    for a, b in sorted(information, key=lambda pair: (-information[pair], pair)):
        if information[a, b] > 0 and group[a] != group[b]:
            tree.append((a, b))
            joined = group[b]
            group = [group[a] if g == joined else g for g in group]
    return tuple(tree)


def mutual_information(counts: Array) -> float:
    """Mutual information in nats of a pair's counts, none below 0; 0 for an empty table. DP: post-processing."""
    total = float(counts.sum())
    if total <= 0:
        return 0.0
    joint = counts / total
    apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    full = joint > 0
    return float((joint[full] * np.log(joint[full] / apart[full])).sum())


_NEVER = 0.5
"""Records of a value that nothing was counted of, so that a fit can find some."""


class TreeStart:
    """Components around records that follow the pairs of blocks with the most mutual information (Chow and Liu 1968).

    Own method; evidence: docs/accuracy.md. From there a fit needs few changes, and it invents less of what more than two
    attributes have in common than from random components.
    """

    def __init__(
        self, measurements: Sequence[Measurement], blocks: Sequence[Block], sizes: Sequence[int], total: float
    ) -> None:
        self._blocks = blocks
        self._sources = _Sources(measurements, total)
        one_way = [self._sources.table((a,)) + _NEVER for a in range(len(sizes))]
        self.base = [_cells(block, one_way) for block in blocks]
        pairs: dict[Clique, tuple[Clique, Array]] = {}
        for one, other in combinations(range(len(blocks)), 2):
            tables = {pair: self._sources.table(pair) for pair in self._sources.pairs(blocks[one], blocks[other])}
            for pair in spanning_tree(len(sizes), tables)[:1]:
                pairs[one, other] = (pair, tables[pair])
        self._pairs = pairs
        self._tree = spanning_tree(len(blocks), {edge: table for edge, (_, table) in pairs.items()})

    def shares(self, components: int, anchor_weight: float, generator: np.random.Generator) -> list[Array]:
        """For each block, shape (components, cells): `anchor_weight` on the cell of a record, the rest as if independent."""
        records = self._records(components, generator)
        shares = []
        for base, cells in zip(self.base, records, strict=True):
            mixed = np.tile((1 - anchor_weight) * base, (components, 1))
            mixed[np.arange(components), cells] += anchor_weight
            shares.append(mixed)
        return shares

    def _records(self, number: int, generator: np.random.Generator) -> list[Integers]:
        """The cell of each block in each record, from the root of every tree down."""
        found: dict[int, Integers] = {}
        for block, parent in _downwards(len(self._blocks), self._tree):
            cells = np.zeros(number, np.int64)
            if parent is None:
                cells = _draw(self.base[block], number, generator)
            else:
                values, rows = self._given(block, parent, found[parent])
                for value in np.unique(values):
                    here = np.flatnonzero(values == value)
                    cells[here] = _draw(rows[value], len(here), generator)
            found[block] = cells
        return [found[block] for block in range(len(self._blocks))]

    def _given(self, block: int, parent: int, cells: Integers) -> tuple[Integers, Array]:
        """The value that decides in each parent's cell, and by it the shares of the cells of `block`."""
        pair, table = self._pairs[min(block, parent), max(block, parent)]
        mine = next(a for a in pair if a in self._blocks[block].attributes)
        other = next(a for a in pair if a != mine)
        values = self._blocks[parent].cells[cells, self._blocks[parent].attributes.index(other)]
        own = self._blocks[block].cells[:, self._blocks[block].attributes.index(mine)]
        rows = table if pair.index(other) == 0 else table.T
        within = self.base[block] / np.bincount(own, weights=self.base[block])[own]
        given = rows[:, own] * within
        shares: Array = np.where(given.any(axis=1, keepdims=True), given, self.base[block])
        return values, shares


class _Sources:
    """Nonnegative tables of single attributes and pairs, each from the measurement that knows it best."""

    def __init__(self, measurements: Sequence[Measurement], total: float) -> None:
        self._total = total
        self._best: dict[Clique, tuple[float, Measurement]] = {}
        for m in measurements:
            for size in (1, 2):
                for part in combinations(m.attributes, size):
                    kept = np.prod([m.counts.shape[m.attributes.index(a)] for a in part])
                    variance = m.deviation**2 * m.counts.size / float(kept)
                    if part not in self._best or variance < self._best[part][0]:
                        self._best[part] = (variance, m)

    def pairs(self, one: Block, other: Block) -> list[Clique]:
        """The pairs of attributes of two blocks of which a table is known."""
        both = [(min(a, b), max(a, b)) for a in one.attributes for b in other.attributes]
        return sorted(pair for pair in both if pair in self._best)

    def table(self, attributes: Clique) -> Array:
        """The nearest counts that are not negative and add up to the total; what was not counted shares the rest."""
        best = self._best[attributes][1]
        counts = best.counts.astype(np.float64)
        if isinstance(best, CensoredMeasurement) and not best.released.all():
            counts = np.where(best.released, counts, 0.0)
            counts[~best.released] = max(self._total - counts.sum(), 0.0) / np.count_nonzero(~best.released)
        others = tuple(axis for axis, a in enumerate(best.attributes) if a not in attributes)
        return project_simplex(counts.sum(axis=others), self._total)


def _cells(block: Block, one_way: Sequence[Array]) -> Array:
    """Shares of the cells of a block if its attributes were independent but for the structural zeros."""
    shares = np.ones(len(block.cells))
    for place, attribute in enumerate(block.attributes):
        counts = one_way[attribute]
        shares *= (counts / counts.sum())[block.cells[:, place]]
    normal: Array = shares / shares.sum()
    return normal


def _draw(shares: Array, number: int, generator: np.random.Generator) -> Integers:
    """Cells as often as their shares say, up to rounding, in random order: systematic sampling."""
    reached = np.cumsum(shares)
    points = (generator.permutation(number) + generator.random()) * (reached[-1] / number)
    last = int(np.flatnonzero(shares)[-1])
    cells: Integers = np.minimum(np.searchsorted(reached, points, side="right"), last).astype(np.int64)
    return cells


def _downwards(blocks: int, tree: Sequence[Clique]) -> Iterator[tuple[int, int | None]]:
    """Every block once, with the one that it hangs on, which comes before it."""
    near: list[list[int]] = [[] for _ in range(blocks)]
    for a, b in tree:
        near[a].append(b)
        near[b].append(a)
    seen: set[int] = set()
    for root in range(blocks):
        waiting: list[tuple[int, int | None]] = [] if root in seen else [(root, None)]
        while waiting:
            block, parent = waiting.pop()
            seen.add(block)
            yield block, parent
            waiting.extend((child, block) for child in near[block] if child not in seen)
