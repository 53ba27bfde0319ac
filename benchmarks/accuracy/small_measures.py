"""What is measured of small tables: marginals of two and three columns, associations, and what a classifier learns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from benchmarks.accuracy.measures import ALL, SAMPLE, mean_l1
from benchmarks.accuracy.tables import table

MEASURES = {
    "tvd2": "TVD 2-way",
    "tvd3": "TVD 3-way",
    "v3": "error of V, 3 strongest",
    "v10": "error of V, 10 strongest",
    "auc": "AUC",
}
# The column that a classifier predicts, and the values that count as yes.
TARGETS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "affairs": ("affairs", ("0 to 0.001",)),
    "drug_deaths_cat": ("Heroin", ("Y",)),
    "ma2019_cat": ("OWN_RENT", ("1",)),
    "adult_cat": ("income", (">50K",)),
    "adult": ("income>50K", ("1",)),
    "anes96": ("vote", ("1",)),
}
_TESTED = 5000  # rows outside the sample, at most
Codes = NDArray[np.int64]


def measure_small(name: str, rows: list[list[str]]) -> dict[str, float]:
    """Every one of `MEASURES` of synthetic `rows` of a sample; no AUC where no rows are outside it."""
    sample = table(name)
    real, made = sample.codes(sample.rows), sample.codes(rows)
    sizes = tuple(size + 1 for size in sample.sizes)
    two, three = mean_l1(real, made, sizes, 2, ALL), mean_l1(real, made, sizes, 3, SAMPLE)
    errors = [abs(v - cramers_v(made, pair, sizes)) for pair, v in strongest(name)]
    found = {
        "tvd2": two / 2,
        "tvd3": three / 2,
        "v3": sum(errors[:3]) / 3,
        "v10": sum(errors) / len(errors),
    }
    if sample.outside:
        found["auc"] = classified(name, made, sample.codes(sample.outside[:_TESTED]), logistic)[0]
    return found


@cache
def strongest(name: str) -> tuple[tuple[tuple[int, int], float], ...]:
    """The ten pairs of columns of a table with the largest Cramér's V, which follow it."""
    sample = table(name)
    real, sizes = sample.codes(sample.rows), tuple(size + 1 for size in sample.sizes)
    pairs = itertools.combinations(range(len(sizes)), 2)
    return tuple(
        sorted(
            ((p, cramers_v(real, p, sizes)) for p in pairs), key=lambda found: (-found[1], found[0])
        )[:10]
    )


def cramers_v(rows: Codes, pair: tuple[int, int], sizes: tuple[int, ...]) -> float:
    """Cramér's V of two columns, between 0 and 1, of the values that occur; 0 of a column with one value."""
    a, b = pair
    counts = np.bincount(rows[:, a] * sizes[b] + rows[:, b], minlength=sizes[a] * sizes[b]).reshape(
        sizes[a], sizes[b]
    )
    counts = counts[counts.any(axis=1)][:, counts.any(axis=0)]
    if min(counts.shape) < 2:
        return 0.0
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / len(rows)
    squared = float(((counts - expected) ** 2 / expected).sum())
    return math.sqrt(squared / len(rows) / (min(counts.shape) - 1))


def logistic(sizes: Sequence[int]) -> Any:
    """A logistic regression on indicators of every value of columns of these sizes."""
    values: Any = [np.arange(size) for size in sizes]  # stubs know of texts alone
    return make_pipeline(OneHotEncoder(categories=values), LogisticRegression(max_iter=1000))


def boosting(_: Sequence[int]) -> Any:
    """scikit-learn's gradient boosting as it comes, on codes as numbers."""
    return HistGradientBoostingClassifier(random_state=0)


def classified(
    name: str, made: Codes, tested: Codes, kind: Callable[[Sequence[int]], Any]
) -> tuple[float, float]:
    """Area under the ROC curve, and F1 of the rarer class, of a classifier that learned from `made`.

    .5 and 0 where that has one class alone.
    """
    of = table(name)
    column, values = TARGETS[name.split("/", maxsplit=1)[0]]
    place = of.header.index(column)
    yes = [of.domain[column].index(value) for value in values]
    classes, truth = np.isin(made[:, place], yes), np.isin(tested[:, place], yes)
    if classes.all() or not classes.any() or truth.all() or not truth.any():
        return 0.5, 0.0
    learned, asked = (np.delete(rows, place, axis=1) for rows in (made, tested))
    model = kind([size + 1 for i, size in enumerate(of.sizes) if i != place]).fit(learned, classes)
    likely = model.predict_proba(asked)[:, 1]
    rarer = truth.mean() <= 0.5
    return float(roc_auc_score(truth, likely)), float(
        f1_score(truth == rarer, (likely > 0.5) == rarer)
    )
