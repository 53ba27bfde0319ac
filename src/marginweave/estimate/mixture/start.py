"""Initial components of a fit: records sampled along a tree of informative pairs, each spread a little over all values."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence, Set
from itertools import combinations, product

import numpy as np

from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.domain.masks import Clique
from marginweave.estimate.mixture.blocks import Block
from marginweave.estimate.mixture.interactions import tables_beyond_pairs
from marginweave.estimate.rounding import project_simplex
from marginweave.observations.tables import CensoredObservation, Observation


def spanning_tree(attributes: int, pairs: Mapping[Clique, Floats]) -> tuple[Clique, ...]:
    """Return the maximum spanning forest of the pairs by mutual information (Chow and Liu 1968; Kruskal).

    A pair without any information is left out. DP: post-processing.
    """
    information = {pair: mutual_information(counts) for pair, counts in pairs.items()}
    tree: list[Clique] = []
    group = list(range(attributes))
    for a, b in sorted(information, key=lambda pair: (-information[pair], pair)):
        if information[a, b] > 0 and group[a] != group[b]:
            tree.append((a, b))
            joined_group = group[b]
            group = [group[a] if g == joined_group else g for g in group]
    return tuple(tree)


def mutual_information(counts: Floats) -> float:
    """Return the mutual information in nats of a pair's counts, none below 0; 0 for an empty table. DP: post-processing."""
    total = float(counts.sum())
    if total <= 0:
        return 0.0
    joint = counts / total
    rows = joint.sum(axis=1)
    columns = joint.sum(axis=0)
    independent = np.outer(rows, columns)
    is_positive = joint > 0
    # sum p log(p / q)
    p = joint[is_positive]
    q = independent[is_positive]
    return float((p * np.log(p / q)).sum())


_NEVER = 0.5  # records of a value of which nothing was counted, so that a fit can find some
# Share of an initial component that is on one record: the smaller, the closer the fit remains to independence where the counts
# say little.
_ANCHOR_WEIGHT = 0.2
# The same of attributes whose record is drawn from a table that pairs do not explain: near independence there is a saddle,
# which no pass leaves.
_TABLE_WEIGHT = 0.8


class TreeStart:
    """Initial components around records that follow the pairs of blocks with the most mutual information (Chow and Liu 1968).

    Own method; evidence: docs/accuracy.md. From these components a fit needs few changes. It also invents less dependence of
    more than two attributes than from random components. Where a measured table has such dependence (`tables_beyond_pairs`),
    records follow that table first.
    """

    def __init__(
        self,
        measurements: Sequence[Observation],
        blocks: Sequence[Block],
        sizes: Sequence[int],
        total: float,
    ) -> None:
        self._blocks = blocks
        best = _best_sources(measurements)
        self.one_way = []
        for a in range(len(sizes)):
            counts = _table(best[a,], (a,), total)
            self.one_way.append(counts + _NEVER)
        self._base = [_cells(block, self.one_way) for block in blocks]
        pairs: dict[
            Clique, tuple[Clique, Floats]
        ] = {}  # of blocks: the most informative pair of attributes, and its counts
        for first, second in combinations(range(len(blocks)), 2):
            measured_pairs = _pairs_across(
                blocks[first],
                blocks[second],
                best.keys(),
            )
            tables = {pair: _table(best[pair], pair, total) for pair in measured_pairs}
            for pair in spanning_tree(len(sizes), tables)[:1]:
                pairs[first, second] = (pair, tables[pair])
        self._pairs = pairs
        self._tables = tables_beyond_pairs(measurements)
        self._total = total
        tables_of_blocks = {edge: table for edge, (_, table) in pairs.items()}
        # the neighbors of each block in the tree
        self._near: list[list[int]] = [[] for _ in blocks]
        for first, second in spanning_tree(len(blocks), tables_of_blocks):
            self._near[first].append(second)
            self._near[second].append(first)

    def within(self, supports: Sequence[Flags]) -> TreeStart:
        """Return the start for records inside one box; `supports` are the cells of each block that are in it."""
        inside = copy.copy(self)
        shares = []
        for base, support in zip(self._base, supports, strict=True):
            shares.append(base * support / (base @ support))
        inside._base = shares  # noqa: SLF001 - its own
        return inside

    def shares(
        self,
        components: int,
        generator: np.random.Generator,
    ) -> Floats:
        """Return initial shares, shape (components, cells of all blocks).

        `_ANCHOR_WEIGHT`, or `_TABLE_WEIGHT`, is on the cell of a record; the remaining weight is as if attributes were
        independent. DP: post-processing.
        """
        records = dict[int, Integers]()
        for table in self._tables:
            self._follow_table(table, records, components, generator)
        weights = [_ANCHOR_WEIGHT] * len(self._blocks)
        for block in records:
            weights[block] = _TABLE_WEIGHT
        self._follow_tree(records, components, generator)
        shares = list[Floats]()
        rows = np.arange(components)
        for block, (base, weight) in enumerate(zip(self._base, weights, strict=True)):
            block_shares = np.tile((1 - weight) * base, (components, 1))
            block_shares[rows, records[block]] += weight
            shares.append(block_shares)
        return np.concatenate(shares, axis=1)

    def _follow_table(
        self,
        table: Observation,
        records: dict[int, Integers],
        number: int,
        generator: np.random.Generator,
    ) -> None:
        """Draw the blocks of a table that `records` do not have, given those that they have. DP: post-processing."""
        touched = [
            b for b, block in enumerate(self._blocks) if {*block.attributes} & {*table.attributes}
        ]
        new = [block for block in touched if block not in records]
        axes = {block: self._axes(block, table) for block in touched}
        known_axes = [axis for block in touched if block in records for axis in axes[block]]
        new_axes = [axis for block in new for axis in axes[block]]
        counts = project_simplex(table.counts.astype(np.float64), self._total).transpose(
            known_axes + new_axes
        )
        new_shape = counts.shape[len(known_axes) :]
        shares = counts.reshape(-1, math.prod(new_shape))
        rows = np.zeros(number, np.int64)
        for block in touched:
            if block in records:
                places, cells = self._places(block, table)
                rows = rows * cells + places[records[block]]
        everywhere = shares.sum(axis=0)
        drawn = np.zeros(number, np.int64)
        for row in np.unique(rows):
            members = np.flatnonzero(rows == row)
            row_shares = shares[row] if shares[row].any() else everywhere
            drawn[members] = _draw(row_shares, len(members), generator)
        for block in reversed(new):
            places, cells = self._places(block, table)
            drawn, wanted = np.divmod(drawn, cells)
            records[block] = self._cells_at(block, places, wanted, generator)

    def _axes(self, block: int, table: Observation) -> list[int]:
        """Return the axes of a table that have attributes of a block."""
        attributes = self._blocks[block].attributes
        return [axis for axis, a in enumerate(table.attributes) if a in attributes]

    def _places(self, block: int, table: Observation) -> tuple[Integers, int]:
        """Return the flat cell, over the axes of a table, of each cell of a block, and the number of such flat cells."""
        axes = self._axes(block, table)
        sizes = {table.attributes[axis]: table.counts.shape[axis] for axis in axes}
        places = self._blocks[block].places([*sizes], sizes, table.coarser)
        return places, math.prod(sizes.values())

    def _cells_at(
        self,
        block: int,
        places: Integers,
        wanted: Integers,
        generator: np.random.Generator,
    ) -> Integers:
        """Draw for each record a cell of a block, of those at the wanted place, or of all. DP: post-processing."""
        base = self._base[block]
        cells = np.zeros(len(wanted), np.int64)
        for place in np.unique(wanted):
            members = np.flatnonzero(wanted == place)
            shares = base * (places == place)
            cells[members] = _draw(shares if shares.any() else base, len(members), generator)
        return cells

    def _follow_tree(
        self,
        records: dict[int, Integers],
        number: int,
        generator: np.random.Generator,
    ) -> None:
        """Draw the blocks that `records` do not have, from those that they have, and from the root of every other tree, down.

        DP: post-processing.
        """
        for root in [*records, *range(len(self._blocks))]:
            if root not in records:
                records[root] = _draw(self._base[root], number, generator)
            waiting = [(child, root) for child in self._near[root]]
            while waiting:
                block, parent = waiting.pop()
                if block in records:
                    continue
                records[block] = self._child_cells(block, parent, records[parent], generator)
                children = [child for child in self._near[block] if child not in records]
                waiting.extend((child, block) for child in children)

    def _child_cells(
        self,
        block: int,
        parent: int,
        cells: Integers,
        generator: np.random.Generator,
    ) -> Integers:
        """Draw the cell of `block` in each record, given the cells of its parent. DP: post-processing."""
        values, shares = self._conditional_shares(block, parent, cells)
        child_cells = np.zeros(len(cells), np.int64)
        for value in np.unique(values):
            records = np.flatnonzero(values == value)
            child_cells[records] = _draw(shares[value], len(records), generator)
        return child_cells

    def _conditional_shares(
        self,
        block: int,
        parent: int,
        cells: Integers,
    ) -> tuple[Integers, Floats]:
        """Return the deciding value in each of the parent's cells, and for each value the shares of the cells of `block`."""
        edge = min(block, parent), max(block, parent)
        pair, table = self._pairs[edge]
        attributes = self._blocks[block].attributes
        if pair[0] in attributes:
            attribute, parent_attribute = pair
            rows = table.T
        else:
            parent_attribute, attribute = pair
            rows = table
        parent_block = self._blocks[parent]
        values = parent_block.cells[cells, parent_block.attributes.index(parent_attribute)]
        codes = self._blocks[block].cells[:, attributes.index(attribute)]
        base = self._base[block]
        sums = np.bincount(codes, weights=base)[codes]
        within_code = np.divide(
            base,
            sums,
            out=np.zeros(len(codes)),
            where=sums > 0,
        )
        shares = rows[:, codes] * within_code
        is_measured = shares.any(axis=1, keepdims=True)
        return values, np.where(is_measured, shares, base)


def _pairs_across(
    first: Block,
    second: Block,
    measured: Set[Clique],
) -> list[Clique]:
    """Return the pairs of an attribute of each block that are in `measured`, in order."""
    across = set()
    for a, b in product(first.attributes, second.attributes):
        across.add((min(a, b), max(a, b)))
    return sorted(measured & across)


def _best_sources(measurements: Sequence[Observation]) -> dict[Clique, Observation]:
    """Return, for every attribute and pair inside the measurements, the one whose sums over it have the least noise."""
    best: dict[Clique, Observation] = {}
    for m in measurements:
        finest = [a for a in m.attributes if a not in m.coarser]
        for part in (*combinations(finest, 1), *combinations(finest, 2)):
            if part not in best or _variance(m, part) < _variance(best[part], part):
                best[part] = m
    return best


def _variance(m: Observation, part: Clique) -> float:
    """Return the variance of a sum of the measurement's cells over some of its attributes."""
    axes = [m.attributes.index(a) for a in part]
    sums = np.prod([m.counts.shape[axis] for axis in axes])
    return m.deviation**2 * m.counts.size / float(sums)


def _table(
    best: Observation,
    attributes: Clique,
    total: float,
) -> Floats:
    """Return the nearest counts that are not negative and add up to the total; uncounted cells share the remaining records."""
    counts = best.counts.astype(np.float64)
    if isinstance(best, CensoredObservation) and not best.released.all():
        counts = np.where(best.released, counts, 0.0)
        remaining = max(total - counts.sum(), 0.0)
        counts[~best.released] = remaining / np.count_nonzero(~best.released)
    summed_axes = tuple(axis for axis, a in enumerate(best.attributes) if a not in attributes)
    return project_simplex(counts.sum(axis=summed_axes), total)


def _cells(block: Block, one_way: Sequence[Floats]) -> Floats:
    """Return shares of the cells of a block if its attributes were independent but for the structural zeros."""
    shares = np.ones(len(block.cells))
    for attribute, codes in zip(block.attributes, block.cells.T, strict=True):
        code_shares = one_way[attribute] / one_way[attribute].sum()
        shares *= code_shares[codes]
    return np.asarray(shares / shares.sum())


def _draw(
    shares: Floats,
    number: int,
    generator: np.random.Generator,
) -> Integers:
    """Return cells as often as their shares say, up to rounding, in random order: systematic sampling. DP: post-processing."""
    running_sum = np.cumsum(shares)
    step = running_sum[-1] / number
    points = (generator.permutation(number) + generator.random()) * step
    last = int(np.flatnonzero(shares)[-1])
    cells = np.searchsorted(running_sum, points, side="right")
    return np.asarray(np.minimum(cells, last), np.int64)
