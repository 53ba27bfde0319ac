"""Distances of marginals of one, two and three columns between a table and synthetic records."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.accuracy.tables import Table

SAMPLE = 300  # three-way marginals
ALL = 10**9
MEASURES = {"tvd1": "TVD 1-way", "tvd2": "TVD 2-way", "tvd3": "TVD 3-way", "l1_2": "L1 2-way", "l1_3": "L1 3-way"}


def mean_l1(real: NDArray[np.int64], made: NDArray[np.int64], sizes: tuple[int, ...], length: int, most: int) -> float:
    """Mean L1 distance of relative frequencies over all marginals of a length, or the seeded sample of `most` of them."""
    cliques = list(itertools.combinations(range(len(sizes)), length))
    if len(cliques) > most:
        order = np.random.default_rng(20240117).permutation(len(cliques))
        cliques = [cliques[i] for i in order[:most]]
    total = 0.0
    for clique in cliques:
        shape = [sizes[a] for a in clique]
        flat = [np.ravel_multi_index(tuple(rows[:, clique].T), shape) for rows in (real, made)]
        one, other = (np.bincount(f, minlength=math.prod(shape)) / f.size for f in flat)
        total += float(np.abs(one - other).sum())
    return total / len(cliques)


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
