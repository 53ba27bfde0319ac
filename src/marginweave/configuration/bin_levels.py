"""Coarser bins in which larger sets of columns are counted: neighboring bins of numbers and dates become one."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from marginweave.configuration.attributes import Attribute

if TYPE_CHECKING:
    from marginweave.base.arrays import Integers  # numpy

# No level has fewer bins than half of this number: fewer bins say little about a number.
_MANY_BINS = 5


class BinLevel(NamedTuple):
    """A level of an attribute with bins."""

    place: int  # of its attribute
    bins: int  # of that attribute
    bins_joined: int  # how many neighboring bins form one bin of the level (2, 4, 8, …)


@dataclass(frozen=True, kw_only=True)
class BinLevels:
    """The counted attributes, followed by every level of the attributes that have bins, numbered consecutively.

    `sizes` has the number of codes of each attribute and of each level, `of` the levels. Codes that are not bins do not change.
    The `targets` are attributes that a table shall predict, by their numbers. Behind all other levels of `of` there is then one
    of two bins for each of the other attributes with more than two (`halves`).
    """

    sizes: tuple[int, ...]
    of: tuple[BinLevel, ...] = ()
    targets: tuple[int, ...] = ()
    halves: int = 0

    @classmethod
    def make(
        cls,
        sizes: Sequence[int],
        attributes: Sequence[Attribute],
        *,
        coarsens: bool = True,
        targets: Collection[str] = (),
    ) -> Self:
        """Return the levels of attributes with these numbers of codes.

        Each level halves the bins of the level before it, as long as there are many; there are none of these without
        `coarsens`. With `targets`, the names of attributes, the levels of two bins are behind them.
        """
        levels = list[BinLevel]()
        all_sizes = list(sizes)
        for place, attribute in enumerate(attributes if coarsens else ()):
            joined = 1
            bins = attribute.bins
            while bins >= _MANY_BINS:
                joined *= 2
                bins = -(-bins // 2)  # half of them, rounded up
                levels.append(BinLevel(place, attribute.bins, joined))
                other_codes = sizes[place] - attribute.bins
                all_sizes.append(other_codes + bins)
        halves = 0
        for place, attribute in enumerate(attributes if targets else ()):
            if attribute.name not in targets and attribute.bins > 2:
                levels.append(BinLevel(place, attribute.bins, -(-attribute.bins // 2)))
                all_sizes.append(sizes[place] - attribute.bins + 2)
                halves += 1
        numbers = tuple(a for a, attribute in enumerate(attributes) if attribute.name in targets)
        return cls(sizes=tuple(all_sizes), of=tuple(levels), targets=numbers, halves=halves)

    @property
    def attributes(self) -> int:
        """Number of attributes, without their levels."""
        return len(self.sizes) - len(self.of)

    def columns(self, places: Sequence[int]) -> tuple[int, ...]:
        """Return the attributes to which these attributes and levels belong, in increasing order."""
        return tuple(sorted(map(self.attribute_of, places)))

    def attribute_of(self, place: int) -> int:
        """Return the attribute of a level, or the attribute itself."""
        if place < self.attributes:
            return place
        return self.of[place - self.attributes].place

    def within(self, places: Sequence[int], most: float) -> tuple[int, ...]:
        """Return these attributes at the finest levels that have at most `most` cells in all, otherwise at the coarsest.

        DP: arithmetic on public sizes.
        """
        chosen = tuple(sorted(places))
        for coarser in self.coarser(places):
            if self.cells(chosen) <= most:
                break
            chosen = coarser
        return chosen

    def cells(self, places: Sequence[int]) -> int:
        """Return the number of cells of a table of attributes and levels."""
        return math.prod(self.sizes[place] for place in places)

    def coarser(self, places: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield these attributes at coarser and coarser levels.

        In each step the attribute with the most codes (the first of several) that has a coarser level gets its next one.
        DP: arithmetic on public sizes.
        """
        chosen = list(places)
        coarser_levels: dict[int, list[int]] = {place: [] for place in places}
        of_lengths = self.of[: len(self.of) - self.halves]
        for number, level in enumerate(of_lengths, self.attributes):
            if level.place in coarser_levels:
                coarser_levels[level.place].append(number)
        while any(coarser_levels.values()):
            candidates = [i for i, place in enumerate(places) if coarser_levels[place]]
            widest = max(candidates, key=lambda i: self.sizes[chosen[i]])
            chosen[widest] = coarser_levels[places[widest]].pop(0)
            yield tuple(sorted(chosen))

    def beside_targets(self, most: int) -> tuple[int, ...]:
        """Return all attributes as one set, those that are no target in two bins where they have bins.

        Empty without targets, or if the set has more than `most` cells. DP: arithmetic on public sizes.
        """
        if not self.targets:
            return ()
        chosen = list(range(self.attributes))
        for number in range(len(self.sizes) - self.halves, len(self.sizes)):
            chosen[self.attribute_of(number)] = number
        return tuple(sorted(chosen)) if self.cells(chosen) <= most else ()

    def codes(self, merged: Sequence[Integers]) -> tuple[tuple[int, Integers], ...]:
        """Return for each level its attribute, and the code at the level of each merged code of that attribute.

        `merged[place][code]` is the code into which a code of the attribute was merged. A merged code whose values have
        different codes at the level gets a separate code, behind the others.
        """
        import numpy as np

        levels = []
        for place, bins, joined in self.of:
            fine = np.arange(self.sizes[place])
            merged_codes = merged[place]
            coarse = np.where(fine < bins, fine // joined, fine - bins - (-bins // joined))
            # The least and the largest code at the level of the values of each merged code; they differ where it straddles.
            size = int(merged_codes.max()) + 1
            low = np.full(size, len(fine))
            high = np.full(size, -1)
            np.minimum.at(low, merged_codes, coarse)
            np.maximum.at(high, merged_codes, coarse)
            separate_codes = len(fine) + np.arange(size)
            level_codes = np.where(low == high, low, separate_codes)
            _, numbered = np.unique(level_codes, return_inverse=True)
            levels.append((place, numbered.astype(np.int64)))
        return tuple(levels)
