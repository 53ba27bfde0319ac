"""The initial components of a fit: records sampled along a tree of informative pairs, each spread a little over all values."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import combinations, product

import numpy as np

from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.domain.masks import Clique
from marginweave.estimate.mixture.blocks import Block
from marginweave.estimate.rounding import project_simplex
from marginweave.observations.tables import CensoredObservation, Observation


def spanning_tree(attributes: int, pairs: Mapping[Clique, Floats]) -> tuple[Clique, ...]:
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


def mutual_information(counts: Floats) -> float:
    """Mutual information in nats of a pair's counts, none below 0; 0 for an empty table. DP: post-processing."""
    total = float(counts.sum())
    if total <= 0:
        return 0.0
    joint = counts / total
    apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    full = joint > 0
    return float((joint[full] * np.log(joint[full] / apart[full])).sum())


_NEVER = 0.5  # records of a value that nothing was counted of, so that a fit can find some
# Share of an initial component that lies on one record: the smaller, the closer the fit stays to independence where the counts
# say little.
_ANCHOR_WEIGHT = 0.2


class TreeStart:
    """Components around records that follow the pairs of blocks with the most mutual information (Chow and Liu 1968).

    Own method; evidence: docs/accuracy.md. From there a fit needs few changes, and it invents less of what more than two
    attributes have in common than from random components.
    """

    def __init__(
        self, measurements: Sequence[Observation], blocks: Sequence[Block], sizes: Sequence[int], total: float
    ) -> None:
        self._blocks = blocks
        best = _best_sources(measurements)
        self.one_way = [_table(best[a,], (a,), total) + _NEVER for a in range(len(sizes))]
        self._base = [_cells(block, self.one_way) for block in blocks]
        pairs: dict[Clique, tuple[Clique, Floats]] = {}
        for one, other in combinations(range(len(blocks)), 2):
            across = product(blocks[one].attributes, blocks[other].attributes)
            known = sorted(best.keys() & {(min(a, b), max(a, b)) for a, b in across})
            tables = {pair: _table(best[pair], pair, total) for pair in known}
            for pair in spanning_tree(len(sizes), tables)[:1]:
                pairs[one, other] = (pair, tables[pair])
        self._pairs = pairs
        self._near: list[list[int]] = [[] for _ in blocks]  # the blocks next to each in the tree
        for one, other in spanning_tree(len(blocks), {edge: table for edge, (_, table) in pairs.items()}):
            self._near[one].append(other)
            self._near[other].append(one)

    def within(self, supports: Sequence[Flags]) -> TreeStart:
        """The same for records that lie in one box: of each block the cells that do, shapes (cells,)."""
        inside = copy.copy(self)
        inside._base = [b * s / (b @ s) for b, s in zip(self._base, supports, strict=True)]  # noqa: SLF001 - its own
        return inside

    def shares(self, components: int, generator: np.random.Generator) -> Floats:
        """Shape (components, cells of all blocks): `_ANCHOR_WEIGHT` on the cell of a record, the rest as if independent.

        DP: post-processing.
        """
        records = self._records(components, generator)
        shares = [np.tile((1 - _ANCHOR_WEIGHT) * base, (components, 1)) for base in self._base]
        for mixed, cells in zip(shares, records, strict=True):
            mixed[np.arange(components), cells] += _ANCHOR_WEIGHT
        return np.concatenate(shares, axis=1)

    def _records(self, number: int, generator: np.random.Generator) -> list[Integers]:
        """The cell of each block in each record, from the root of every tree down. DP: post-processing."""
        found: dict[int, Integers] = {}
        for root in range(len(self._blocks)):
            waiting: list[tuple[int, int | None]] = [] if root in found else [(root, None)]
            while waiting:
                block, parent = waiting.pop()
                if parent is None:
                    found[block] = _draw(self._base[block], number, generator)
                else:
                    values, rows = self._given(block, parent, found[parent])
                    found[block] = np.zeros(number, np.int64)
                    for value in np.unique(values):
                        here = np.flatnonzero(values == value)
                        found[block][here] = _draw(rows[value], len(here), generator)
                waiting.extend((child, block) for child in self._near[block] if child not in found)
        return [found[block] for block in range(len(self._blocks))]

    def _given(self, block: int, parent: int, cells: Integers) -> tuple[Integers, Floats]:
        """The value that decides in each parent's cell, and by it the shares of the cells of `block`."""
        pair, table = self._pairs[min(block, parent), max(block, parent)]
        mine = next(a for a in pair if a in self._blocks[block].attributes)
        other = next(a for a in pair if a != mine)
        values = self._blocks[parent].cells[cells, self._blocks[parent].attributes.index(other)]
        own = self._blocks[block].cells[:, self._blocks[block].attributes.index(mine)]
        rows = table if pair.index(other) == 0 else table.T
        sums = np.bincount(own, weights=self._base[block])[own]
        within = np.divide(self._base[block], sums, out=np.zeros(len(own)), where=sums > 0)
        given = rows[:, own] * within
        return values, np.where(given.any(axis=1, keepdims=True), given, self._base[block])


def _best_sources(measurements: Sequence[Observation]) -> dict[Clique, Observation]:
    """For every attribute and pair inside the measurements the one whose sums over it have the least noise."""

    def variance(m: Observation, part: Clique) -> float:
        kept = np.prod([m.counts.shape[m.attributes.index(a)] for a in part])
        return m.deviation**2 * m.counts.size / float(kept)

    found: dict[Clique, Observation] = {}
    for m in measurements:
        finest = [a for a in m.attributes if a not in m.coarser]
        for part in (*combinations(finest, 1), *combinations(finest, 2)):
            if part not in found or variance(m, part) < variance(found[part], part):
                found[part] = m
    return found


def _table(best: Observation, attributes: Clique, total: float) -> Floats:
    """The nearest counts that are not negative and add up to the total; what was not counted shares the rest."""
    counts = best.counts.astype(np.float64)
    if isinstance(best, CensoredObservation) and not best.released.all():
        counts = np.where(best.released, counts, 0.0)
        counts[~best.released] = max(total - counts.sum(), 0.0) / np.count_nonzero(~best.released)
    others = tuple(axis for axis, a in enumerate(best.attributes) if a not in attributes)
    return project_simplex(counts.sum(axis=others), total)


def _cells(block: Block, one_way: Sequence[Floats]) -> Floats:
    """Shares of the cells of a block if its attributes were independent but for the structural zeros."""
    shares = np.ones(len(block.cells))
    for attribute, codes in zip(block.attributes, block.cells.T, strict=True):
        shares *= (one_way[attribute] / one_way[attribute].sum())[codes]
    return np.asarray(shares / shares.sum())


def _draw(shares: Floats, number: int, generator: np.random.Generator) -> Integers:
    """Cells as often as their shares say, up to rounding, in random order: systematic sampling. DP: post-processing."""
    reached = np.cumsum(shares)
    points = (generator.permutation(number) + generator.random()) * (reached[-1] / number)
    last = int(np.flatnonzero(shares)[-1])
    return np.asarray(np.minimum(np.searchsorted(reached, points, side="right"), last), np.int64)
