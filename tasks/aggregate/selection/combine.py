"""Selected pairs that hang together are measured as one larger marginal (PrivSyn, algorithm 2)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from marginweave.schemas.released.measurements import Clique
from marginweave.tasks.aggregate.marginals import cells

_SHARED = 2


def merge_pairs(pairs: Sequence[Clique], sizes: Sequence[int], cell_limit: int, most: int) -> tuple[Clique, ...]:
    """Marginals to measure instead of `pairs`: accepted cliques of their graph, then the pairs inside none of them.

    Cliques are taken from the largest down to three attributes; one is accepted if it has at most `cell_limit` cells and
    shares at most two attributes with those accepted before, and if it and those before have, with all pairs, at most `most`
    cells together. Listing all cliques is exponential on dense graphs: here each
    pair grows, by the attribute that keeps the cells fewest, and it and what it passed through are the candidates.
    DP: post-processing of the selection. The paper's limit is 5000 cells.
    """
    neighbors: dict[int, set[int]] = {}
    for a, b in pairs:
        neighbors.setdefault(a, set()).add(b)
        neighbors.setdefault(b, set()).add(a)
    candidates = {c for pair in pairs for c in _grow(pair, neighbors, sizes, cell_limit)}
    accepted: list[Clique] = []
    covered: set[int] = set()
    room = most - sum(cells(pair, sizes) for pair in pairs)
    for clique in sorted(candidates, key=lambda c: (-len(c), cells(c, sizes), c)):
        if len(covered.intersection(clique)) <= _SHARED and cells(clique, sizes) <= room:
            room -= cells(clique, sizes)
            accepted.append(clique)
            covered.update(clique)
    inside = {pair for clique in accepted for pair in itertools.combinations(clique, 2)}
    return (*accepted, *(pair for pair in pairs if pair not in inside))


def _grow(pair: Clique, neighbors: dict[int, set[int]], sizes: Sequence[int], cell_limit: int) -> list[Clique]:
    """The cliques of three and more attributes that `pair` passes through."""
    clique, found = pair, []
    common = neighbors[pair[0]] & neighbors[pair[1]]
    while common:
        nearest = min(common, key=lambda a: (sizes[a], a))
        clique = tuple(sorted((*clique, nearest)))
        if cells(clique, sizes) > cell_limit:
            break
        found.append(clique)
        common &= neighbors[nearest]
    return found
