"""Classifiers as judges: telling synthetic records from sensitive ones, and predicting from them. Internal only."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from marginweave.evaluate.cells import FloatArray
from marginweave.evaluate.tallies import Codes
from marginweave.mechanisms.randomness import KeyedBits
from marginweave.prepare.codes import joined_codes, value_slots
from marginweave.released.evaluation import Downstream, ModelScores, Propensity, Scores

MOST_RECORDS = 50_000
"""So many records of a table are enough for a classifier."""

_PUBLIC_KEY = bytes(32)


def has_scikit_learn() -> bool:
    """Whether the extra `evaluation` is installed."""
    return find_spec("sklearn") is not None


def fixed_order(records: int, purpose: str) -> NDArray[np.intp]:
    """A permutation of the records that depends on their number and the purpose only, shape (records,).

    An evaluation repeats to the digit. No choice of it is released, so its key may be public. DP: none of its own.
    """
    return np.argsort(KeyedBits(key=_PUBLIC_KEY, purpose=purpose).words_at(0, records), kind="stable")


def take(table: Codes, rows: NDArray[np.intp]) -> list[NDArray[np.integer]]:
    """The chosen records of a table."""
    return [codes[rows] for codes in table]


def stacked(one: Codes, other: Codes, sizes: Sequence[int]) -> list[NDArray[np.integer]]:
    """Both tables' records, one after the other."""
    return [joined_codes(sides, size) for sides, size in zip(zip(one, other, strict=True), sizes, strict=True)]


def code_columns(table: Codes) -> NDArray[np.float32]:
    """Codes as numbers, for trees: a column a slot, shape (n, slots); missing is the largest."""
    return np.stack([slot for codes in table for slot in value_slots(codes)], axis=1).astype(np.float32)


def indicators(table: Codes, sizes: Sequence[int]) -> sparse.csr_array:
    """One column of zeros and ones a value, for linear models, sparse, shape (n, columns).

    The first value of an attribute is the base and has none; missing is a value. Of a set every value has one and missing
    none. Columns without a one are left out.
    """
    blocks = []
    for codes, size in zip(table, sizes, strict=True):
        rows = np.concatenate([np.arange(len(codes)) for _ in value_slots(codes)])
        columns = np.concatenate(list(value_slots(codes))).astype(np.int64)
        kept = columns > 0 if codes.ndim == 1 else columns < size
        ones = np.ones(kept.sum())
        blocks.append(sparse.csr_array((ones, (rows[kept], columns[kept])), shape=(len(codes), size + 1)))
    joined = sparse.csr_array(sparse.hstack(blocks, format="csr"))
    return joined[:, np.flatnonzero(np.asarray(joined.sum(axis=0)))]


def fit_quietly(model: Any, features: Any, labels: NDArray[np.integer]) -> Any:
    """The model, fitted. A regression may stop before it has converged: that is close enough.

    A value that one table lacks has no finite estimate; its scores are close to 0 or 1 long before.
    """
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(features, labels)


_FOLDS = 5
_DEPTH = 5


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
        tree_pmse=_pmse(np.asarray(grown.predict_proba(numbers))[:, 1], share),
        tree_auc=_held_out_auc(numbers, made),
    )


def _pmse(scores: FloatArray, share: float) -> float:
    return float(np.mean((scores - share) ** 2))


def _logistic(inputs: Any, made: NDArray[np.int64], share: float) -> tuple[float, float, float]:
    """Of the regression: pMSE, its expectation, and its deviation."""
    from sklearn.linear_model import LogisticRegression

    if not inputs.shape[1]:
        return 0.0, 0.0, 0.0
    model = fit_quietly(LogisticRegression(C=np.inf, max_iter=500, tol=1e-6), inputs, made)
    unit = (1 - share) ** 2 * share / len(made)
    coefficients = inputs.shape[1]  # k - 1: all but the constant
    pmse = _pmse(np.asarray(model.predict_proba(inputs))[:, 1], share)
    return pmse, coefficients * unit, math.sqrt(2 * coefficients) * unit


def _held_out_auc(numbers: NDArray[np.float32], made: NDArray[np.int64]) -> float:
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.tree import DecisionTreeClassifier

    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
    tree = DecisionTreeClassifier(max_depth=_DEPTH, random_state=0)
    return float(np.mean(cross_val_score(tree, numbers, made, scoring="roc_auc", cv=folds)))


_TEST_SHARE = 0.3


def downstream(sensitive: Codes, records: Codes, sizes: Sequence[int], target: int, name: str) -> Downstream | None:
    """Train both ways; None where there is nothing to train on or to test.

    Of the sensitive records with a target 30 % are the test and the others train; at most 50000 of each.

    Args:
        sensitive: Codes of the sensitive records, one array an attribute.
        records: Codes of the synthetic records, likewise.
        sizes: Number of values of each attribute.
        target: The attribute that is predicted from all others.
        name: Its name.

    Returns:
        The scores. DP: none: for `internal/` only.
    """
    real, made = (_known(table, target, sizes[target], "downstream") for table in (sensitive, records))
    tested = round(_TEST_SHARE * len(real[0]))
    test = take(real, np.arange(tested)[:MOST_RECORDS])
    train = take(real, np.arange(tested, len(real[0]))[:MOST_RECORDS])
    made = take(made, np.arange(len(made[0]))[:MOST_RECORDS])
    if len(sizes) < 2 or not (len(test[0]) and len(train[0]) and len(made[0])):
        return None
    models = []
    for kind in ("boosting", "logistic"):
        of_made, of_real = (_fitted(kind, side, test, sizes, target) for side in (made, train))
        models.append(ModelScores(model=kind, trained_on_synthetic=of_made, trained_on_sensitive=of_real))
    commonest = np.bincount(test[target]).max() / len(test[target])
    return Downstream(target=name, test_records=len(test[0]), majority_accuracy=float(commonest), models=tuple(models))


def _known(table: Codes, target: int, missing: int, purpose: str) -> list[NDArray[np.integer]]:
    """The records whose target is not missing, in a fixed order."""
    rows = np.flatnonzero(table[target] != missing)
    return take(table, rows[fixed_order(len(rows), purpose)])


def _fitted(kind: str, train: Codes, test: Codes, sizes: Sequence[int], target: int) -> Scores:
    """Of a classifier that learned from `train`, on the records of `test`; a value that training lacks has probability 0."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    others = [j for j in range(len(sizes)) if j != target]
    kept, labels, split = [sizes[j] for j in others], train[target], len(train[0])
    table = stacked([train[j] for j in others], [test[j] for j in others], kept)
    model: Any
    features: Any
    if kind == "boosting":
        early: Any = False  # scikit-learn's own types lack a bool here
        model = HistGradientBoostingClassifier(max_iter=60, random_state=0, early_stopping=early)
        features = code_columns(table)
    else:
        model, features = LogisticRegression(max_iter=200), indicators(table, kept)
    probabilities, values = np.zeros((len(test[0]), sizes[target])), np.unique(labels)
    if len(values) == 1:
        probabilities[:, values[0]] = 1.0
    else:
        # threads of boosting wait actively: on a machine with other work they cost more than they bring
        with threadpool_limits(1 if kind == "boosting" else None):
            fitted = fit_quietly(model, features[:split], labels)
            probabilities[:, values] = fitted.predict_proba(features[split:])
    return _scores(probabilities, test[target])


def _scores(probabilities: FloatArray, truth: NDArray[np.integer]) -> Scores:
    """Scores of the likeliest value, and of the probabilities."""
    from sklearn.metrics import roc_auc_score

    right = probabilities.argmax(axis=1) == truth
    values = np.unique(truth)
    aucs = [roc_auc_score(truth == value, probabilities[:, value]) for value in values] if len(values) > 1 else []
    return Scores(
        accuracy=float(right.mean()),
        balanced_accuracy=float(np.mean([right[truth == value].mean() for value in values])),
        auc=float(np.mean(aucs)) if aucs else None,
    )
