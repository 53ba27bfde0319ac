"""Finds the sets of attributes that include others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from marginweave.domain.masks import Clique


class Holders:
    """An index that finds the sets among `cliques` that include some attributes, without a look at every set."""

    def __init__(self, cliques: Sequence[Clique]) -> None:
        self._all = range(len(cliques))
        self._with: dict[int, set[int]] = defaultdict(set)
        for place, clique in enumerate(cliques):
            for attribute in clique:
                self._with[attribute].add(place)

    def of(self, attributes: Clique) -> list[int]:
        """Return the places of the sets that include all of `attributes`, in order; all places for no attributes."""
        if not attributes:
            return list(self._all)
        places = [self._with.get(a, set()) for a in attributes]
        return sorted(set.intersection(*places))
