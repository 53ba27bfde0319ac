"""Coarser bins in which larger sets of columns are counted: neighboring bins of numbers and dates become one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
    """

    sizes: tuple[int, ...]
    of: tuple[BinLevel, ...] = ()

    @classmethod
    def make(
        cls, sizes: Sequence[int], attributes: Sequence[Attribute], *, coarsens: bool = True
    ) -> Self:
        """Return the levels of attributes with these numbers of codes.

        Each level halves the bins of the level before it, as long as there are many. There are no levels without `coarsens`.
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
        return cls(sizes=tuple(all_sizes), of=tuple(levels))

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
        for number, level in enumerate(self.of, self.attributes):
            if level.place in coarser_levels:
                coarser_levels[level.place].append(number)
        while any(coarser_levels.values()):
            candidates = [i for i, place in enumerate(places) if coarser_levels[place]]
            widest = max(candidates, key=lambda i: self.sizes[chosen[i]])
            chosen[widest] = coarser_levels[places[widest]].pop(0)
            yield tuple(sorted(chosen))

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
