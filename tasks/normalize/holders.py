"""Which of many sets of attributes hold some others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from marginweave.schemas.released.measurements import Clique


def bits(attributes: Iterable[int]) -> int:
    """A set of attributes as a number, one bit each: where many sets are compared, numbers are compared fastest."""
    return sum(1 << attribute for attribute in attributes)


class Holders:
    """Finds the sets among `cliques` that have all of some attributes: it looks at those only that have the rarest of them."""

    def __init__(self, cliques: Sequence[Clique]) -> None:
        self._all = range(len(cliques))
        self._with: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for place, clique in enumerate(cliques):
            mine = bits(clique)
            for attribute in clique:
                self._with[attribute].append((place, mine))

    def of(self, attributes: Clique) -> list[int]:
        """Places of the sets that have all of these, in order; of no attributes, all places."""
        if not attributes:
            return list(self._all)
        wanted = bits(attributes)
        fewest = min((self._with.get(a, []) for a in attributes), key=len)
        return [place for place, mine in fewest if mine & wanted == wanted]
