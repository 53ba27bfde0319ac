"""Records that exact known tables hold in: as few as possible are moved to another combination of the tables' columns.

Own method (controlled rounding by reassignment; Cox and Ernst 1982 round tables of fractions so that margins hold). Whatever
gives a combination n records in place of m changes |n - m| at least, half of that over all combinations; no more are changed
here. A record keeps everything that no table and no structural zero speaks of.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from marginweave.base.arrays import Codes, Flags, Integers
from marginweave.base.errors import StageError
from marginweave.estimate.totals import ExactPart

Holds = Callable[[Sequence[Codes]], Flags]
_MOST_CHANGED = 2  # of records that change more of the columns than so many, which change is not looked for


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactCounts:
    """How many of all records have each combination of an exact part; shape of `counts` (cells,)."""

    part: ExactPart
    counts: Integers

    @classmethod
    def of(cls, part: ExactPart, codes: Sequence[Codes], records: int) -> ExactCounts:
        """For so many records in all, near to some of them; in shares, where the tables add up to another number.

        DP: post-processing.
        """
        total = round(part.tables[0].total)
        made = np.bincount(cells_of(part, codes), minlength=int(np.prod(part.sizes)))
        present = np.asarray(made * (total / max(len(codes[0]), 1)), np.float64)
        reached = [int(sum_) for sum_ in np.cumsum(part.counts(present))]  # products go beyond 64 bits
        scaled = [(2 * sum_ * records + total) // (2 * total) for sum_ in reached]
        return cls(part=part, counts=np.asarray(np.diff(np.array([0, *scaled])), np.int64))

    def in_shard(self, shard: int, shards: int) -> Integers:
        """Those of a shard: records are dealt to the shards in turn, so that the shards add up, and so does each of them."""
        return np.diff((np.cumsum(self.counts) + shard) // shards, prepend=0)

    def hold(self, codes: Sequence[Codes], wanted: Integers, is_allowed: Holds, generator: np.random.Generator) -> None:
        """Move records, in place, so that every combination has its `wanted` number of them; which ones is chance.

        Args:
            codes: of each attribute, shape (records,), or (records, width) for a set; all records are allowed.
            wanted: shape (cells,), as many together as there are records.
            is_allowed: which of some records keep all structural zeros.
            generator: public choices. DP: post-processing.

        Raises:
            StageError: structural zeros that leave no record of a combination, or none that is found.
        """
        cells = cells_of(self.part, codes)
        excess = np.bincount(cells, minlength=len(wanted)) - wanted
        order = _grouped(cells, generator.permutation(len(cells)))
        movers = order[_ranks(cells[order]) < np.maximum(excess, 0)[cells[order]]]
        places = np.repeat(np.arange(len(wanted)), np.maximum(-excess, 0))
        cells[movers] = _paired(cells[movers], places, self.part.sizes)
        for a, new in zip(self.part.attributes, np.unravel_index(cells[movers], self.part.sizes), strict=True):
            codes[a][movers] = new
        broken = movers[~is_allowed([code[movers] for code in codes])]
        self._mend(codes, cells, broken, generator)

    def _mend(self, codes: Sequence[Codes], cells: Integers, broken: Integers, generator: np.random.Generator) -> None:
        """Give broken records what rules tie to their combination, of a random other record that has it."""
        others = np.ones(len(cells), np.bool_)
        others[broken] = False
        sound = _grouped(cells, np.flatnonzero(others))
        first, last = (np.searchsorted(cells[sound], cells[broken], side) for side in ("left", "right"))
        drawn = first + np.floor(generator.random(len(broken)) * (last - first)).astype(np.int64)
        found = last > first
        for a in self.part.tied:
            codes[a][broken[found]] = codes[a][sound[drawn[found]]]
        for cell in np.unique(cells[broken[~found]]).tolist():
            witness = self.part.witness(cell)
            if not witness:
                raise StageError("synthesize: structural zeros leave no record of a known combination")
            for a, code in witness.items():
                codes[a][broken[~found & (cells[broken] == cell)]] = code


def cells_of(part: ExactPart, codes: Sequence[Codes]) -> Integers:
    """The number of the combination that each record has, shape (records,)."""
    places = [codes[a].astype(np.int64) for a in part.attributes]
    return np.asarray(np.ravel_multi_index(places, part.sizes), np.int64)


def _grouped(cells: Integers, records: Integers) -> Integers:
    """Records in the order of their cells, those of a cell in the order they had."""
    return records[np.argsort(cells[records], kind="stable")]


def _ranks(ordered: Integers) -> Integers:
    """For each entry of an ascending array how many equal ones stand before it."""
    return np.arange(len(ordered)) - np.searchsorted(ordered, ordered)


def _paired(cells: Integers, places: Integers, sizes: Sequence[int]) -> Integers:
    """A place of its own for every cell, as many as there are cells, so that few of the codes change, and by few steps.

    First those are paired that differ in one attribute, then in two, then the others, each time in the order of their codes.
    """
    found, left, free = np.zeros_like(cells), np.arange(len(cells)), np.arange(len(places))
    was, will = np.stack(np.unravel_index(cells, sizes)), np.stack(np.unravel_index(places, sizes))
    axes, changed = range(len(sizes)), range(1, min(_MOST_CHANGED + 1, len(sizes)))
    for same in (*(kept for few in changed for kept in itertools.combinations(axes, len(sizes) - few)), ()):
        keys = []
        for codes, waiting, flat in ((was, left, cells), (will, free, places)):
            key = np.zeros(len(waiting), np.int64)
            for axis in same:
                key = key * sizes[axis] + codes[axis, waiting]
            order = np.lexsort((flat[waiting], key))
            keys.append((waiting[order], key[order] * (len(cells) + 1) + _ranks(key[order])))
        (left, one), (free, other) = keys
        _, mine, theirs = np.intersect1d(one, other, assume_unique=True, return_indices=True)
        found[left[mine]] = places[free[theirs]]
        left, free = np.delete(left, mine), np.delete(free, theirs)
    return found
