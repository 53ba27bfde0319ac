"""Whether a classifier can tell synthetic records from sensitive ones. Exact functions of sensitive rows: internal only."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginweave.tasks.evaluate.cells import FloatArray
from marginweave.tasks.evaluate.features import MOST_RECORDS, code_columns, fixed_order, indicators, stacked, take
from marginweave.tasks.evaluate.numbering import Codes

_FOLDS = 5
_DEPTH = 5


@dataclass(frozen=True, kw_only=True)
class Propensity:
    """How far the propensity scores p_i of N records, sensitive and synthetic, are from c = n_synthetic / N.

    pMSE is 1/N sum (p_i - c)^2, 0 where nothing tells the tables apart and c (1 - c) where everything does (M. Woo et al.,
    Global Measures of Data Utility for Microdata Masked for Disclosure Limitation, 2009).
    """

    records: int
    """N: at most 50000 of each table."""
    logistic_pmse: float
    """p_i from an unpenalized logistic regression on the main effects of all attributes."""
    logistic_ratio: float | None
    """pMSE / E, with E = (k - 1) (1 - c)^2 c / N its expectation where the synthesis is right: 1 is best. k is the number of
    coefficients (J. Snoke et al., General and Specific Utility Measures for Synthetic Data, 2018, Theorem 1)."""
    logistic_standardized: float | None
    """(pMSE - E) / (sqrt(2 (k - 1)) (1 - c)^2 c / N), of mean 0 and deviation 1 where the synthesis is right (likewise)."""
    tree_pmse: float
    """p_i from a classification tree of depth 5 on the records that it was grown from, as SDNist prints it (its tree takes the
    columns as numbers, as ours the codes)."""
    tree_auc: float
    """Area under the ROC curve of such a tree on records that it was not grown from, in five folds: 0.5 is best."""


def propensity(sensitive: Codes, records: Codes, sizes: Sequence[int]) -> Propensity | None:
    """Fit the classifiers; None where a table has fewer records than there are folds.

    Args:
        sensitive: Codes of the sensitive records, one array an attribute.
        records: Codes of the synthetic records, likewise.
        sizes: Number of values of each attribute.

    Returns:
        The measures. DP: none: for `internal/` only.
    """
    from sklearn.tree import DecisionTreeClassifier

    sides = [
        take(table, fixed_order(len(table[0]), f"propensity {side}")[:MOST_RECORDS])
        for side, table in (("sensitive", sensitive), ("synthetic", records))
    ]
    if min(len(side[0]) for side in sides) < _FOLDS:
        return None
    table = stacked(sides[0], sides[1], sizes)
    made = np.repeat([0, 1], [len(side[0]) for side in sides])
    numbers = code_columns(table)
    grown = DecisionTreeClassifier(max_depth=_DEPTH, random_state=0).fit(numbers, made)
    share = float(made.mean())
    pmse, expected, deviation = _logistic(indicators(table, sizes), made, share)
    return Propensity(
        records=len(made),
        logistic_pmse=pmse,
        logistic_ratio=pmse / expected if expected > 0 else None,
        logistic_standardized=(pmse - expected) / deviation if deviation > 0 else None,
        tree_pmse=_pmse(grown.predict_proba(numbers)[:, 1], share),
        tree_auc=_held_out_auc(numbers, made),
    )


def _pmse(scores: FloatArray, share: float) -> float:
    return float(np.mean((scores - share) ** 2))


def _logistic(inputs: Any, made: NDArray[np.int64], share: float) -> tuple[float, float, float]:
    """Of the regression: pMSE, its expectation, and its deviation."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if not inputs.shape[1]:
        return 0.0, 0.0, 0.0
    with warnings.catch_warnings():
        # A value that one table lacks has no finite estimate; its scores are close to 0 or 1 long before.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(C=np.inf, max_iter=500, tol=1e-6).fit(inputs, made)
    unit = (1 - share) ** 2 * share / len(made)
    coefficients = inputs.shape[1]  # k - 1: all but the constant
    pmse = _pmse(model.predict_proba(inputs)[:, 1], share)
    return pmse, coefficients * unit, math.sqrt(2 * coefficients) * unit


def _held_out_auc(numbers: NDArray[np.float32], made: NDArray[np.int64]) -> float:
    from sklearn.metrics import roc_auc_score
    from sklearn.tree import DecisionTreeClassifier

    fold = np.empty(len(made), np.int64)
    for side in (0, 1):
        rows = np.flatnonzero(made == side)
        fold[rows[fixed_order(len(rows), f"folds {side}")]] = np.arange(len(rows)) % _FOLDS
    aucs = []
    for i in range(_FOLDS):
        tree = DecisionTreeClassifier(max_depth=_DEPTH, random_state=0).fit(numbers[fold != i], made[fold != i])
        aucs.append(roc_auc_score(made[fold == i], tree.predict_proba(numbers[fold == i])[:, 1]))
    return float(np.mean(aucs))
