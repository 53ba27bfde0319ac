"""The tree of pairs that says most about a table, from noisy counts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.released.measurements import Clique

Array = NDArray[np.float64]


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
