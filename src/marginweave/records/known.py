"""Changes records so that exact known tables hold: as few as possible move to another combination of the tables' columns.

Own method (controlled rounding by reassignment; Cox and Ernst 1982 round tables of fractions so that margins hold). Whatever
gives a combination n records in place of m changes |n - m| at least, half of that over all combinations; no more are changed
here. A record keeps everything that no table and no structural zero speaks of.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from marginweave.base.arrays import Codes, Flags, Integers
from marginweave.base.errors import StageError
from marginweave.estimate.totals import ExactPart

Holds = Callable[[Sequence[Codes]], Flags]
_MOST_CHANGED = 2  # columns that a record changes, if such a change is looked for


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactCounts:
    """The number of all records that have each combination of an exact part; shape of `counts` (cells,)."""

    part: ExactPart
    counts: Integers

    @classmethod
    def of(cls, part: ExactPart, codes: Sequence[Codes], records: int) -> ExactCounts:
        """Return counts for `records` records, close to those of `codes`; in shares, if the tables have another total.

        DP: post-processing.
        """
        total = round(part.tables[0].total)
        cells = cells_of(part, codes)
        counts = np.bincount(cells, minlength=int(np.prod(part.sizes)))
        scale = total / max(len(cells), 1)
        scaled_to_total = np.asarray(counts * scale, np.float64)
        known_counts = part.counts(scaled_to_total)
        # round(sum * records / total) of each running sum, in Python's integers: products go beyond 64 bits
        scaled_sums = [0]
        for running_sum in np.cumsum(known_counts):
            twice_scaled = 2 * int(running_sum) * records + total
            scaled_sums.append(twice_scaled // (2 * total))
        differences = np.diff(np.array(scaled_sums))
        return cls(part=part, counts=np.asarray(differences, np.int64))

    def in_shard(self, shard: int, shards: int) -> Integers:
        """Return the counts of a shard: records are dealt to the shards in turn, so each shard and all of them add up."""
        running_sums = np.cumsum(self.counts)
        dealt = (running_sums + shard) // shards
        return np.diff(dealt, prepend=0)

    def hold(
        self,
        codes: Sequence[Codes],
        wanted: Integers,
        is_allowed: Holds,
        generator: np.random.Generator,
    ) -> None:
        """Move records, in place, so that every combination has its `wanted` number of them; which ones is chance.

        Args:
            codes: of each attribute, shape (records,), or (records, width) for a set; all records are allowed.
            wanted: shape (cells,), as many in total as there are records.
            is_allowed: which of some records keep all structural zeros.
            generator: public choices. DP: post-processing.

        Raises:
            StageError: structural zeros that leave no record of a combination, or none that is found.
        """
        sizes = self.part.sizes
        cells = cells_of(self.part, codes)
        excess = np.bincount(cells, minlength=len(wanted)) - wanted
        surplus = np.maximum(excess, 0)
        lacking = np.maximum(-excess, 0)
        # the first records of a combination move, in an order by chance
        order = _grouped(cells, generator.permutation(len(cells)))
        ordered_cells = cells[order]
        is_moved = _ranks(ordered_cells) < surplus[ordered_cells]
        movers = order[is_moved]
        places = np.repeat(np.arange(len(wanted)), lacking)
        new_cells = _paired(cells[movers], places, sizes)
        cells[movers] = new_cells
        new_codes = np.unravel_index(new_cells, sizes)
        for a, new_column in zip(self.part.attributes, new_codes, strict=True):
            codes[a][movers] = new_column
        codes_of_movers = [column[movers] for column in codes]
        broken = movers[~is_allowed(codes_of_movers)]
        self._mend(codes, cells, broken, generator)

    def _mend(
        self,
        codes: Sequence[Codes],
        cells: Integers,
        broken: Integers,
        generator: np.random.Generator,
    ) -> None:
        """Copy what rules tie to a combination to each broken record, from a random unbroken record with the combination."""
        is_sound = np.ones(len(cells), np.bool_)
        is_sound[broken] = False
        sound = _grouped(cells, np.flatnonzero(is_sound))
        # the sound records of a broken one's combination are sound[first] … sound[stop - 1]
        first = np.searchsorted(cells[sound], cells[broken], "left")
        stop = np.searchsorted(cells[sound], cells[broken], "right")
        steps = np.floor(generator.random(len(broken)) * (stop - first))
        drawn = first + steps.astype(np.int64)
        has_sound = stop > first
        copies = broken[has_sound]
        originals = sound[drawn[has_sound]]
        for a in self.part.tied:
            codes[a][copies] = codes[a][originals]
        without_original = broken[~has_sound]
        cells_of_these = cells[without_original]
        for cell in np.unique(cells_of_these).tolist():
            witness = self.part.witness(cell)
            if not witness:
                raise StageError(
                    "synthesize: structural zeros leave no record of a known combination"
                )
            rows = without_original[cells_of_these == cell]
            for a, code in witness.items():
                codes[a][rows] = code


def cells_of(part: ExactPart, codes: Sequence[Codes]) -> Integers:
    """Return the number of the combination that each record has, shape (records,)."""
    places = [codes[a].astype(np.int64) for a in part.attributes]
    return np.asarray(np.ravel_multi_index(places, part.sizes), np.int64)


def _grouped(cells: Integers, records: Integers) -> Integers:
    """Return records in the order of their cells; those of a cell keep their order."""
    order = np.argsort(cells[records], kind="stable")
    return records[order]


def _ranks(ordered: Integers) -> Integers:
    """Return for each entry of an ascending array the number of equal ones before it."""
    first_equal = np.searchsorted(ordered, ordered)
    return np.arange(len(ordered)) - first_equal


def _paired(cells: Integers, places: Integers, sizes: Sequence[int]) -> Integers:
    """Return a separate place for every cell, as many as there are cells, so that few codes change, and by few steps.

    First those are paired that differ in one attribute, then in two, then the others, each time in the order of their codes.
    """
    paired = np.zeros_like(cells)
    waiting = np.arange(len(cells))
    free = np.arange(len(places))
    for axes in _unchanged_axes(len(sizes)):
        waiting, cell_keys = _ordered_keys(cells, waiting, axes, sizes, len(cells) + 1)
        free, place_keys = _ordered_keys(places, free, axes, sizes, len(cells) + 1)
        _, matched, matched_places = np.intersect1d(
            cell_keys, place_keys, assume_unique=True, return_indices=True
        )
        paired[waiting[matched]] = places[free[matched_places]]
        waiting = np.delete(waiting, matched)
        free = np.delete(free, matched_places)
    return paired


def _unchanged_axes(number: int) -> Iterator[tuple[int, ...]]:
    """Yield sets of axes whose codes a pair shares: all but one of `number`, then all but two, at last none."""
    for changed in range(1, min(_MOST_CHANGED + 1, number)):
        yield from itertools.combinations(range(number), number - changed)
    yield ()


def _ordered_keys(
    cells: Integers,
    waiting: Integers,
    axes: Sequence[int],
    sizes: Sequence[int],
    base: int,
) -> tuple[Integers, Integers]:
    """Return the waiting cells in order of their codes on `axes` and then of the cell, and their keys.

    Keys differ: the codes come first, then the rank among waiting cells of the same codes, which is less than `base`.
    """
    codes = np.stack(np.unravel_index(cells, sizes))
    group = np.zeros(len(waiting), np.int64)
    for axis in axes:
        group = group * sizes[axis] + codes[axis, waiting]
    order = np.lexsort((cells[waiting], group))
    ordered_groups = group[order]
    keys = ordered_groups * base + _ranks(ordered_groups)
    return waiting[order], keys
