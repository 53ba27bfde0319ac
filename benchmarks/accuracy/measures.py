"""Distances of marginals between a table and synthetic records."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.tables import Table

SAMPLE = 300  # marginals of three columns and more
ALL = 10**9
MEASURES = {
    "tvd1": "TVD 1-way",
    "tvd2": "TVD 2-way",
    "tvd3": "TVD 3-way",
    "l1_2": "L1 2-way",
    "l1_3": "L1 3-way",
}


def mean_l1(
    real: NDArray[np.int64], made: NDArray[np.int64], sizes: tuple[int, ...], length: int, most: int
) -> float:
    """Mean L1 distance of relative frequencies over all marginals of a length, or the seeded sample of `most` of them."""
    cliques = list(itertools.combinations(range(len(sizes)), length))
    if len(cliques) > most:
        order = np.random.default_rng(20240117).permutation(len(cliques))
        cliques = [cliques[i] for i in order[:most]]
    both = np.concatenate([real, made])
    total = 0.0
    for clique in cliques:
        cells = occurring(both, clique, sizes)
        one, other = (
            np.bincount(part, minlength=cells.max() + 1) / part.size
            for part in np.split(cells, [len(real)])
        )
        total += float(np.abs(one - other).sum())
    return total / len(cliques)


def occurring(
    rows: NDArray[np.int64], clique: Sequence[int], sizes: tuple[int, ...]
) -> NDArray[np.intp]:
    """The cell of each row in a marginal, numbered without those that no row is in: five columns have too many of these."""
    cells = np.ravel_multi_index(tuple(rows[:, list(clique)].T), [sizes[a] for a in clique])
    return np.unique(cells, return_inverse=True)[1]


def measure(table: Table, rows: list[list[str]]) -> dict[str, float]:
    """Every one of `MEASURES` of synthetic `rows`.

    TVD is half the L1 distance; of three columns it is the mean of score.py's sample, while L1 is of all marginals. A
    missing value is a value, in every column.
    """
    real, made = table.codes(table.rows), table.codes(rows)
    sizes = tuple(size + 1 for size in table.sizes)
    one, two, three = (mean_l1(real, made, sizes, length, ALL) for length in (1, 2, 3))
    sampled = mean_l1(real, made, sizes, 3, SAMPLE)
    return {"tvd1": one / 2, "tvd2": two / 2, "tvd3": sampled / 2, "l1_2": two, "l1_3": three}
