"""What synthetic records are worth for a prediction: trained on them, tested on sensitive ones. Internal only."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginweave.tasks.evaluate.cells import FloatArray
from marginweave.tasks.evaluate.features import MOST_RECORDS, code_columns, fixed_order, indicators, stacked, take
from marginweave.tasks.evaluate.numbering import Codes

_TEST_SHARE = 0.3


@dataclass(frozen=True, kw_only=True)
class Scores:
    """How well a classifier predicts the target of the sensitive test records."""

    accuracy: float
    balanced_accuracy: float
    """Mean over the target's values of the share of their records that is predicted right."""
    auc: float | None
    """Mean over the target's values of the area under the ROC curve, each against the rest; None where the test has one."""


@dataclass(frozen=True, kw_only=True)
class ModelScores:
    """One kind of classifier, trained on synthetic records and on sensitive ones, tested on the same sensitive records."""

    model: str
    """`boosting` (of trees on codes, by histograms) or `logistic` (regression on indicators, penalty 1/2 |w|^2)."""
    trained_on_synthetic: Scores
    trained_on_sensitive: Scores


@dataclass(frozen=True, kw_only=True)
class Downstream:
    """Train on synthetic, test on real (C. Esteban, S. Hyland, G. Rätsch, 2017), beside training on real."""

    target: str
    test_records: int
    majority_accuracy: float
    """The share of the commonest value among the test records: what a guess reaches."""
    models: tuple[ModelScores, ...]


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
    for kind, fit in (("boosting", _boosting), ("logistic", _logistic)):
        of_made, of_real = (_fitted(fit, side, test, sizes, target) for side in (made, train))
        models.append(ModelScores(model=kind, trained_on_synthetic=of_made, trained_on_sensitive=of_real))
    commonest = np.bincount(test[target]).max() / len(test[target])
    return Downstream(target=name, test_records=len(test[0]), majority_accuracy=float(commonest), models=tuple(models))


def _known(table: Codes, target: int, missing: int, purpose: str) -> list[NDArray[np.integer]]:
    """The records whose target is not missing, in a fixed order."""
    rows = np.flatnonzero(table[target] != missing)
    return take(table, rows[fixed_order(len(rows), purpose)])


def _fitted(
    fit: Callable[[Inputs], FloatArray], train: Codes, test: Codes, sizes: Sequence[int], target: int
) -> Scores:
    inputs = Inputs(
        table=stacked(train, test, sizes), split=len(train[0]), sizes=sizes, target=target, labels=train[target]
    )
    return _scores(fit(inputs), test[target])


@dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """Training records, up to `split`, and test records after them."""

    table: Codes
    split: int
    sizes: Sequence[int]
    target: int
    labels: NDArray[np.integer]

    def probabilities(self, model: Any, features: Any) -> FloatArray:
        """Of each value of the target for each test record, shape (tests, values); one that training lacks has 0."""
        found = np.zeros((features.shape[0] - self.split, self.sizes[self.target]))
        values = np.unique(self.labels)
        if len(values) == 1:
            found[:, values[0]] = 1.0
        else:
            model.fit(features[: self.split], self.labels)
            found[:, values] = model.predict_proba(features[self.split :])
        return found


def _boosting(inputs: Inputs) -> FloatArray:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    model = HistGradientBoostingClassifier(max_iter=60, early_stopping=False, random_state=0)
    with threadpool_limits(1):  # its threads wait actively: on a machine with other work they cost more than they bring
        return inputs.probabilities(model, code_columns(inputs.table, without=(inputs.target,)))


def _logistic(inputs: Inputs) -> FloatArray:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # close enough after so many steps
        model = LogisticRegression(max_iter=200)
        return inputs.probabilities(model, indicators(inputs.table, inputs.sizes, without=(inputs.target,)))


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
