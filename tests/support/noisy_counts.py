"""Released counts written as dictionaries, for the tests of everything after the noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product

import numpy as np
from hypothesis import strategies as st

from marginweave.domain.combinations import Level
from marginweave.domain.labels import Domain
from marginweave.observations.combinations import Aggregates, LevelNoise

Combination = tuple[tuple[int, int], ...]
SIZES = (2, 3, 5, 7)


def domain_of(sizes: tuple[int, ...] = SIZES) -> Domain:
    return Domain(
        names=tuple(f"c{j}" for j in range(len(sizes))),
        labels=tuple(tuple(f"v{j}.{v}" for v in range(size)) for j, size in enumerate(sizes)),
    )


def aggregates_of(
    counts: Mapping[Combination, int],
    record_count: int = 100,
    length: int = 3,
    sizes: tuple[int, ...] = SIZES,
) -> Aggregates:
    levels = []
    for k in range(1, length + 1):
        rows = sorted(
            (tuple(c for c, _ in t), tuple(v for _, v in t), n)
            for t, n in counts.items()
            if len(t) == k
        )
        columns = np.array([row[0] for row in rows], np.int64).reshape(-1, k)
        values = np.array([row[1] for row in rows], np.int64).reshape(-1, k)
        levels.append(
            Level(
                length=k,
                columns=columns,
                values=values,
                counts=np.array([r[2] for r in rows], np.int64),
            )
        )
    return Aggregates(
        domain=domain_of(sizes),
        record_count=record_count,
        record_deviation=1.0,
        levels=tuple(levels),
        noise=(),
    )


def counts_of(aggregates: Aggregates) -> dict[Combination, int]:
    return {
        tuple(zip(columns, values, strict=True)): count
        for level in aggregates.levels
        for columns, values, count in zip(
            level.columns.tolist(), level.values.tolist(), level.counts.tolist(), strict=True
        )
    }


def parts(combination: Combination, proper: bool = True) -> list[Combination]:
    top = len(combination) - 1 if proper else len(combination)
    return [part for k in range(1, top + 1) for part in combinations(combination, k)]


def tally(
    records: Iterable[Iterable[int]], length: int, sizes: tuple[int, ...] = SIZES
) -> Counter[Combination]:
    """Counts of all combinations of lengths 1..length without missing values."""
    counter: Counter[Combination] = Counter()
    for record in records:
        present = [(j, int(v)) for j, v in enumerate(record) if v < sizes[j]]
        for k in range(1, length + 1):
            counter.update(combinations(present, k))
    return counter


def every_combination(length: int = 3, sizes: tuple[int, ...] = SIZES) -> list[Combination]:
    return [
        tuple(zip(columns, values, strict=True))
        for k in range(1, length + 1)
        for columns in combinations(range(len(sizes)), k)
        for values in product(*(range(sizes[c]) for c in columns))
    ]


def noisy_counts(
    low: int = -3, high: int = 40, size: int = 40
) -> st.SearchStrategy[dict[Combination, int]]:
    return st.dictionaries(
        st.sampled_from(every_combination()), st.integers(low, high), max_size=size
    )


def collect(
    names: tuple[str, ...],
    labels: tuple[tuple[str, ...], ...],
    record_count: int,
    record_deviation: float,
    levels: Sequence[Level],
    noise: Sequence[LevelNoise],
) -> Aggregates:
    """One set of aggregates from the draws; a record count below 0 is told as 0.

    DP: post-processing.
    """
    return Aggregates(
        domain=Domain(names=names, labels=labels),
        record_count=max(0, record_count),
        record_deviation=record_deviation,
        levels=tuple(levels),
        noise=tuple(noise),
    )
