"""Released k-tuples of made-up tables with missing values, and the configuration of their four columns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from marginweave.configuration.release import Configuration
from marginweave.domain.masks import Clique
from marginweave.estimate.normalize import normalize
from marginweave.observations.combinations import Aggregates, LevelNoise
from tests.support.configurations import configuration
from tests.support.noisy_counts import SIZES, aggregates_of, tally

WITH_MISSING = tuple(size + 1 for size in SIZES)


def released(
    rows: np.ndarray,
    sizes: Sequence[int] = SIZES,
    sd: float = 1e-3,
    thresholds: Sequence[int] = (1, 1, 1),
    seed: int = 0,
) -> Aggregates:
    """k-tuples of a table over codes (a missing value is the size) with noise on every candidate, zero cells included."""
    rng = np.random.default_rng(seed)
    exact = tally(rows.tolist(), len(thresholds), tuple(sizes))
    counts = {}
    for k, threshold in enumerate(thresholds, start=1):
        for columns in itertools.combinations(range(len(sizes)), k):
            for values in itertools.product(*(range(sizes[c]) for c in columns)):
                cell = tuple(zip(columns, values, strict=True))
                parts = [part for part in itertools.combinations(cell, k - 1) if part]
                noisy = exact[cell] + round(rng.normal(0, sd))
                if noisy >= threshold and all(part in counts for part in parts):
                    counts[cell] = noisy
    plain = normalize(aggregates_of(counts, len(rows), len(thresholds), tuple(sizes)))
    return with_noise(plain, sd, thresholds)


def with_noise(aggregates: Aggregates, sd: float, thresholds: Sequence[int]) -> Aggregates:
    noise = tuple(
        LevelNoise(
            length=k,
            contribution_bound=1,
            deviation=sd,
            threshold=t,
            private_threshold=0,
            candidates=None,
        )
        for k, t in enumerate(thresholds, start=1)
    )
    return replace(aggregates, noise=noise)


def random_rows(
    seed: int, rows: int, sizes: Sequence[int] = SIZES, missing: float = 0.2
) -> np.ndarray:
    """Skewed columns, the second depending on the third, some values missing."""
    rng = np.random.default_rng(seed)
    columns = [rng.choice(n, rows, p=rng.dirichlet(np.full(n, 0.7))) for n in sizes]
    columns[1] = np.where(rng.random(rows) < 0.7, columns[2] % sizes[1], columns[1])
    table = np.stack(columns, axis=1)
    return np.where(rng.random(table.shape) < missing, np.array(sizes), table)


def marginal(rows: np.ndarray, clique: Clique, sizes: Sequence[int]) -> np.ndarray:
    counts = np.zeros([sizes[a] for a in clique])
    np.add.at(counts, tuple(rows[:, a] for a in clique), 1)
    return counts


def four_columns(method: str = "gum", **synthesize: Any) -> Configuration:
    """Columns with as many values as SIZES says."""
    columns = {f"c{j}": {"type": "category", "values": list(range(n))} for j, n in enumerate(SIZES)}
    return configuration(columns=columns, synthesize={"method": method, **synthesize})
