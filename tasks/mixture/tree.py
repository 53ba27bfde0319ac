"""The tree of pairs that says most about a table, from noisy counts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.measurements import Clique

Array = NDArray[np.float64]


def project_simplex(values: Array, total: float) -> Array:
    """The nearest point with no negative entry and the sum `total` >= 0: max(values - t, 0), t found by sorting.

    Held, Wolfe and Crowder 1974; O(c log c), exact. Any shape. DP: post-processing.
    """
    if values.size == 0 or total <= 0:
        return np.zeros_like(values)
    shifted = values - values.max()  # changes nothing but the rounding: the largest entry always stays positive
    descending = np.sort(shifted, axis=None)[::-1]
    excess = (np.cumsum(descending) - total) / np.arange(1, descending.size + 1)
    positive = int(np.flatnonzero(descending > excess)[-1])
    nearest: Array = np.maximum(shifted - excess[positive], 0.0)
    return nearest


def spanning_tree(attributes: int, pairs: Mapping[Clique, Array]) -> tuple[Clique, ...]:
    """The maximum spanning forest of the pairs by mutual information (Chow and Liu 1968; Kruskal).

    A pair without any information stays out. DP: post-processing.
    """
    information = {pair: mutual_information(counts) for pair, counts in pairs.items()}
    tree: list[Clique] = []
    group = list(range(attributes))
    for a, b in sorted(information, key=lambda pair: (-information[pair], pair)):
        if information[a, b] > 0 and group[a] != group[b]:
            tree.append((a, b))
            joined = group[b]
            group = [group[a] if g == joined else g for g in group]
    return tuple(tree)


def mutual_information(counts: Array) -> float:
    """Mutual information in nats of a pair's counts, none below 0; 0 for an empty table. DP: post-processing."""
    total = float(counts.sum())
    if total <= 0:
        return 0.0
    joint = counts / total
    apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    full = joint > 0
    return float((joint[full] * np.log(joint[full] / apart[full])).sum())
