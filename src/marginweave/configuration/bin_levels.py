"""Levels that larger sets of columns are counted at: neighboring bins of numbers and dates as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from marginweave.configuration.attributes import Attribute

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# No level has fewer bins than half of that: what is left of a number then says little.
_MANY_BINS = 5


@dataclass(frozen=True, kw_only=True)
class BinLevels:
    """The counted attributes, and behind them, numbered on, each level of those that have bins.

    `sizes` are the codes of attributes and levels. `of` has for each level of bins its attribute, how many bins this has, and
    how many neighboring ones are one bin of the level: 2, 4, 8, …. Other codes than bins stay as they are.
    """

    sizes: tuple[int, ...]
    of: tuple[tuple[int, int, int], ...] = ()

    @classmethod
    def make(cls, sizes: Sequence[int], attributes: Sequence[Attribute], *, coarsens: bool = True) -> Self:
        """The levels of attributes that have so many codes: each halves the bins of the one before it, while there are many.

        None without `coarsens`.
        """
        of, found = list[tuple[int, int, int]](), list(sizes)
        for place, attribute in enumerate(attributes if coarsens else ()):
            joined, bins = 1, attribute.bins
            while bins >= _MANY_BINS:
                joined, bins = 2 * joined, -(-bins // 2)
                of.append((place, attribute.bins, joined))
                found.append(sizes[place] - attribute.bins + bins)
        return cls(sizes=tuple(found), of=tuple(of))

    @property
    def attributes(self) -> int:
        """How many attributes there are."""
        return len(self.sizes) - len(self.of)

    def columns(self, places: Sequence[int]) -> tuple[int, ...]:
        """The attributes that some attributes and levels are of, in order."""
        return tuple(sorted(self.of[p - self.attributes][0] if p >= self.attributes else p for p in places))

    def within(self, places: Sequence[int], most: float) -> tuple[int, ...]:
        """These attributes at the finest levels that have at most `most` cells together, else at the coarsest.

        The one of the most codes gets the next coarser level, the first of several.
        DP: arithmetic on public sizes.
        """
        found = list(places)
        steps: dict[int, list[int]] = {place: [] for place in places}
        for level, (place, _, _) in enumerate(self.of, self.attributes):
            steps.get(place, []).append(level)
        while math.prod(self.sizes[p] for p in found) > most and any(steps.values()):
            widest = max((i for i, p in enumerate(places) if steps[p]), key=lambda i: self.sizes[found[i]])
            found[widest] = steps[places[widest]].pop(0)
        return tuple(sorted(found))

    def codes(self, merged: Sequence[NDArray[np.int64]]) -> tuple[tuple[int, NDArray[np.int64]], ...]:
        """Of each level its attribute, and the code there of each code that those of this one were `merged` into.

        A merged code whose values have different codes at the level has one of its own, behind the others.
        """
        import numpy as np

        found = []
        for place, bins, joined in self.of:
            fine, new = np.arange(self.sizes[place]), merged[place]
            coarse = np.where(fine < bins, fine // joined, fine - bins - (-bins // joined))
            low, high = np.full(int(new.max()) + 1, len(fine)), np.full(int(new.max()) + 1, -1)
            np.minimum.at(low, new, coarse)
            np.maximum.at(high, new, coarse)
            apart = np.where(low == high, low, len(fine) + np.arange(len(low)))
            found.append((place, np.unique(apart, return_inverse=True)[1].astype(np.int64)))
        return tuple(found)
