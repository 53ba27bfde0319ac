"""Levels that larger sets of columns are counted at: those that are declared, and neighboring bins of numbers and dates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from marginweave.configuration.attributes import Attribute

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# No level has fewer bins than half of that: what is left of a number then says little.
_MANY_BINS = 5


def declared_levels(attributes: Sequence[Attribute]) -> dict[int, int]:
    """For the place of each attribute that is a level the place of the one that it is of."""
    places = {attribute.name: place for place, attribute in enumerate(attributes)}
    return {place: places[a.level_of] for place, a in enumerate(attributes) if a.level_of is not None}


@dataclass(frozen=True, kw_only=True)
class BinLevels:
    """The counted attributes, and behind them, numbered on, each level of those that have bins and no declared level.

    `sizes` are the codes of attributes and levels. `of` has for each level of bins its attribute, how many bins this has, and
    how many neighboring ones are one bin of the level: 2, 4, 8, …. Other codes than bins stay as they are. `declared` has for
    each attribute that is a level of another the place of this one.
    """

    sizes: tuple[int, ...]
    of: tuple[tuple[int, int, int], ...] = ()
    declared: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def make(cls, sizes: Sequence[int], attributes: Sequence[Attribute], *, coarsens: bool = True) -> Self:
        """The levels of attributes that have so many codes: each halves the bins of the one before it, while there are many.

        Without `coarsens` only those that are declared.
        """
        of, found, declared = list[tuple[int, int, int]](), list(sizes), declared_levels(attributes)
        for place, attribute in enumerate(attributes):
            joined, bins = 1, attribute.bins if coarsens and place not in declared.values() else 0
            while bins >= _MANY_BINS:
                joined, bins = 2 * joined, -(-bins // 2)
                of.append((place, attribute.bins, joined))
                found.append(sizes[place] - attribute.bins + bins)
        return cls(sizes=tuple(found), of=tuple(of), declared=declared)

    @property
    def attributes(self) -> int:
        """How many attributes there are."""
        return len(self.sizes) - len(self.of)

    @property
    def finest(self) -> tuple[int, ...]:
        """The attributes that are no level of another."""
        return tuple(place for place in range(self.attributes) if place not in self.declared)

    def columns(self, places: Sequence[int]) -> tuple[int, ...]:
        """The attributes that some attributes and levels are of, in order."""
        return tuple(sorted(self.of[p - self.attributes][0] if p >= self.attributes else p for p in places))

    def within(self, places: Sequence[int], most: float, *, declared: bool = False) -> tuple[int, ...]:
        """These attributes at the finest levels that have at most `most` cells together, else at the coarsest.

        The one of the most codes gets the next coarser level, the first of several; of levels that are `declared`, if so.
        DP: arithmetic on public sizes.
        """
        found = list(places)
        steps = {
            p: sorted((a for a, of in self.declared.items() if of == p), key=lambda a: -self.sizes[a]) for p in places
        }
        for level, (place, _, _) in enumerate(() if declared else self.of, self.attributes):
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
