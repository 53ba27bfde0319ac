"""Finds the measured tables that say more than their pairs do: the parity of three columns, a function of several."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np

from marginweave.base.arrays import Floats
from marginweave.estimate.rounding import project_simplex
from marginweave.observations.tables import CensoredObservation, Observation

# Of the squares of what pairs expect. Of a parity it is 1. Of the triples of affairs, drug_deaths_cat, ma2019_cat and adult_cat
# none had more than .09, with noise of a two thousandth of the rows; of those of adult with each year of age some had .32.
_LEAST_BEYOND = 0.1
_SIGMAS = 6.0
_SWEEPS = 10


def tables_beyond_pairs(measurements: Iterable[Observation]) -> list[Observation]:
    """Return the dense tables of three attributes and more whose pairs do not explain them, the most certain first.

    A table y, whose cells have the deviation sigma, is compared with the table q that has its pairs and nothing else (maximum
    entropy, by iterative proportional fitting: Deming and Stephan 1940). Sum (y - q)^2 - sigma^2 is, but for noise, the sum of
    the squares that pairs do not explain. It has to be `_LEAST_BEYOND` of sum q^2, `_SIGMAS` deviations of its noise, and as
    much as the squares of the noise: where that is most of the table, q is no more than a guess.
    Own method; evidence: tests/laws/test_measured_tables.py. DP: post-processing.
    """
    certain = list[tuple[float, int]]()
    tables = list(measurements)
    for number, table in enumerate(tables):
        if len(table.attributes) < 3 or isinstance(table, CensoredObservation):
            continue
        certainty = _certainty(table)
        if certainty > 0:
            certain.append((-certainty, number))
    return [tables[number] for _, number in sorted(certain)]


def _certainty(table: Observation) -> float:
    """Return by how many deviations of its noise a table differs from what its pairs say; 0 where that is too little."""
    counts = table.counts.astype(np.float64)
    total = float(counts.sum())
    if total <= 0:
        return 0.0
    noise = table.deviation**2 * counts.size
    deviation = table.deviation**2 * math.sqrt(2 * counts.size)
    for length in (1, 2):  # what single attributes explain needs no look at pairs
        expected = _expected(counts, total, [*combinations(range(counts.ndim), length)])
        beyond = float(((counts - expected) ** 2).sum()) - noise
        if beyond < max(_LEAST_BEYOND * float((expected**2).sum()), _SIGMAS * deviation, noise):
            return 0.0
    return beyond / deviation


def _expected(counts: Floats, total: float, cliques: Sequence[tuple[int, ...]]) -> Floats:
    """Return the counts of maximum entropy that have the sums of `counts` over each clique of axes, none below 0."""
    expected = np.full(counts.shape, total / counts.size)
    targets = dict[tuple[int, ...], Floats]()
    for clique in cliques:
        summed_axes = tuple(axis for axis in range(counts.ndim) if axis not in clique)
        sums = counts.sum(axis=summed_axes, keepdims=True)
        targets[summed_axes] = project_simplex(sums, total)
    for _ in range(_SWEEPS if len(cliques[0]) > 1 else 1):
        for summed_axes, target in targets.items():
            sums = expected.sum(axis=summed_axes, keepdims=True)
            expected *= np.divide(target, sums, out=np.zeros(sums.shape), where=sums > 0)
    return expected
