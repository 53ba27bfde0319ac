"""How marginals hang together: what is drawn at the end, and what is apart."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marginweave.schemas.released.measurements import Clique


@dataclass(frozen=True, kw_only=True)
class Graph:
    """The order of synthesis: GUM over `cliques` inside each component, then `appended` attributes one by one.

    `component[a]` numbers the component of attribute a. An appended attribute comes with the one it hangs on.
    """

    cliques: tuple[Clique, ...]
    component: tuple[int, ...]
    appended: tuple[tuple[int, int], ...]


def plan_graph(attributes: int, cliques: Sequence[Clique], bound: Sequence[Clique]) -> Graph:
    """Clip attributes that hang on one pair only, layer by layer, and number the components of what is left.

    An attribute in a single marginal, and that a pair, is drawn from it at the end, exactly (PrivSyn: attribute appending).
    Components share no marginal and are updated apart. `bound` are sets of attributes that structural zeros tie together:
    they are never clipped and never parted. DP: post-processing.
    """
    tied = {a for group in bound for a in group}
    left = [c for c in cliques if len(c) > 1]
    appended: list[tuple[int, int]] = []
    while True:
        degree = np.bincount([a for c in left for a in c], minlength=attributes)
        leaf = next(((c, a) for c in left if len(c) == 2 for a in c if degree[a] == 1 and a not in tied), None)
        if leaf is None:
            break
        clique, attribute = leaf
        left.remove(clique)
        appended.append((attribute, next(b for b in clique if b != attribute)))
    return Graph(
        cliques=tuple(left),
        component=tuple(_components(attributes, [*left, *bound])),
        appended=tuple(reversed(appended)),
    )


def maximal(cliques: Sequence[Clique]) -> tuple[Clique, ...]:
    """The distinct cliques that lie in no other one, in order."""
    distinct = sorted(set(cliques))
    longer = {n: [set(c) for c in distinct if len(c) > n] for n in {len(c) for c in distinct}}
    return tuple(c for c in distinct if not any(other.issuperset(c) for other in longer[len(c)]))


def _components(attributes: int, cliques: Sequence[Clique]) -> list[int]:
    group = list(range(attributes))
    for clique in cliques:
        for a, b in itertools.pairwise(clique):
            kept, joined = group[a], group[b]
            group = [kept if g == joined else g for g in group]
    return group
