"""What is measured beyond marginals of three columns: classifiers, marginals of four and five, associations and subgroups."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.measures import SAMPLE, mean_l1, occurring
from benchmarks.accuracy.small_measures import Codes, boosting, classified, cramers_v, logistic
from benchmarks.accuracy.tables import table

MEASURES = {
    "gb_auc": "boosting: AUC",
    "gb_f1": "F1",
    "lr_auc": "logistic: AUC",
    "lr_f1": "F1",
    "tvd4": "TVD 4-way",
    "tvd5": "TVD 5-way",
    "v": "error of V",
    "groups": "TVD in groups",
    "small": "in the smallest",
    "counts": "counts of these",
}
SEED, PAIRS, LEAST = 20240117, 20, 20
"""Of the sample of pairs of columns whose values make groups; and the fewest rows of a group."""


def measure_beyond(name: str, rows: list[list[str]]) -> dict[str, float]:
    """Every one of `MEASURES` of synthetic `rows` of a sample; classifiers are tested on the rows outside it."""
    sample = table(name)
    real, made, outside = (sample.codes(part) for part in (sample.rows, rows, sample.outside))
    sizes = tuple(size + 1 for size in sample.sizes)
    found = {}
    for short, kind in (("gb", boosting), ("lr", logistic)):
        found[f"{short}_auc"], found[f"{short}_f1"] = classified(name, made, outside, kind)
    for length in (4, 5):
        found[f"tvd{length}"] = mean_l1(real, made, sizes, length, SAMPLE) / 2
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    found["v"] = float(
        np.mean([abs(cramers_v(real, p, sizes) - cramers_v(made, p, sizes)) for p in pairs])
    )
    return found | subgroups(real, made, sizes)


def subgroups(real: Codes, made: Codes, sizes: tuple[int, ...]) -> dict[str, float]:
    """Errors in groups of rows that have the same values of two columns, and in the smallest tenth of the groups.

    The error in a group is the mean TVD of the other columns, 1 where no record is in it. That of counts is the sum of
    their distances, shares of records taken as shares of the rows, over the sum of rows.
    """
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    chosen = np.random.default_rng(SEED).permutation(len(pairs))[:PAIRS]
    parts = zip(*(_in_groups(real, made, pairs[i], sizes) for i in chosen), strict=True)
    held, expected, distances = (np.concatenate(part) for part in parts)
    smallest = np.argsort(held, kind="stable")[: -(-len(held) // 10)]
    counts = np.abs(held - expected)[smallest].sum() / held[smallest].sum()
    means = {"groups": float(distances.mean()), "small": float(distances[smallest].mean())}
    return means | {"counts": float(counts)}


def _in_groups(
    real: Codes, made: Codes, pair: tuple[int, int], sizes: tuple[int, ...]
) -> tuple[NDArray[Any], ...]:
    """Of each group of at least `LEAST` rows: its rows, how many the records let expect, and the mean TVD of other columns."""
    groups = np.split(occurring(np.concatenate([real, made]), pair, sizes), [len(real)])
    number = 1 + max(int(part.max()) for part in groups)
    held, had = (np.bincount(part, minlength=number) for part in groups)
    kept = held >= LEAST
    total = np.zeros(number)
    others = [column for column in range(len(sizes)) if column not in pair]
    for column in others:
        one, other = (
            np.bincount(
                group * sizes[column] + rows[:, column], minlength=number * sizes[column]
            ).reshape(number, -1)
            / np.maximum(1, size)[:, None]
            for group, rows, size in zip(groups, (real, made), (held, had), strict=True)
        )
        total += np.where(had == 0, 1.0, np.abs(one - other).sum(axis=1) / 2)
    return held[kept], had[kept] * len(real) / len(made), total[kept] / len(others)
