"""Classifiers of the internal evaluation: a regression checked by another library, known ends, and repetition to the digit."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from marginweave.evaluate.classifiers import MOST_RECORDS, downstream, fixed_order, indicators, propensity
from marginweave.evaluate.metrics import evaluate_internal
from tests.support.known import known
from tests.support.noisy_counts import domain_of

SIZES = (2, 3, 5)


def table_of(seed: int, rows: int = 1500) -> np.ndarray:
    """Codes of dependent attributes with gaps, shape (3, rows); the last follows the second closely."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, np.array(SIZES) + 1, (rows, 3)).T
    codes[2] = np.where(rng.random(rows) < 0.8, codes[1], codes[2])
    return codes


def test_indicators_are_those_of_pandas() -> None:
    """One column a value but the first, and none for a value that does not occur; of a set one for each value."""
    table = table_of(1, 200)
    table[1][table[1] == 1] = 2
    wanted = pd.concat([pd.get_dummies(codes, drop_first=True) for codes in table], axis=1).to_numpy(float)
    assert (indicators(list(table), SIZES).toarray() == wanted).all()
    sets = np.array([[0, 2, 3], [3, 3, 3], [2, 3, 3]])
    assert indicators([sets], (3,)).toarray().tolist() == [[1, 1], [0, 0], [0, 1]]
    assert indicators([table[0]], (2,)).shape == (200, 2)


def test_the_regression_is_the_unpenalized_one() -> None:
    """pMSE, ratio and standardized pMSE from statsmodels' maximum likelihood, for tables of unequal length."""
    real, made = table_of(2), table_of(3, 900)
    made[0] = np.where(np.random.default_rng(4).random(900) < 0.3, 0, made[0])
    found = known(propensity(real, made, SIZES))
    both = np.concatenate([real, made], axis=1)
    inputs = sm.add_constant(pd.concat([pd.get_dummies(c, drop_first=True) for c in both], axis=1).to_numpy(float))
    scores = sm.Logit(np.repeat([0, 1], [1500, 900]), inputs).fit(disp=0).predict()
    c, n, k = 900 / 2400, 2400, inputs.shape[1]
    pmse = np.mean((scores - c) ** 2)
    assert found.records == n
    assert found.logistic_pmse == pytest.approx(pmse, rel=1e-3)
    expected = (k - 1) * (1 - c) ** 2 * c / n
    assert found.logistic_ratio == pytest.approx(pmse / expected, rel=1e-3)
    deviation = np.sqrt(2 * (k - 1)) * (1 - c) ** 2 * c / n
    assert found.logistic_standardized == pytest.approx((pmse - expected) / deviation, rel=1e-2)


def test_a_right_synthesis_has_ratio_one() -> None:
    """Rows drawn with replacement are right given the table: over 20 draws the mean ratio is chi2(20 (k-1)) / (20 (k-1)).

    With k - 1 = 10 its deviation is sqrt(2 / 200) = 0.1; five of them, and the seeds are fixed. Five folds then see nothing.
    """
    real = table_of(5)
    found = []
    for seed in range(20):
        rows = np.random.default_rng(seed).integers(0, 1500, 1500)
        found.append(known(propensity(real, real[:, rows], SIZES)))
    assert np.mean([p.logistic_ratio for p in found]) == pytest.approx(1, abs=0.5)
    assert abs(np.mean([p.logistic_standardized for p in found])) < 0.5 * np.sqrt(5)
    assert np.mean([p.tree_auc for p in found]) == pytest.approx(0.5, abs=0.05)


def test_a_copy_cannot_be_told_and_other_values_can() -> None:
    """pMSE 0 and c (1 - c)."""
    real = table_of(6)
    copy = known(propensity(real, real, SIZES))
    assert (copy.logistic_pmse, copy.tree_pmse) == (pytest.approx(0, abs=1e-9), pytest.approx(0, abs=1e-9))
    made = real[:, :500].copy()
    real[0], made[0] = 0, 1
    other = known(propensity(real, made, SIZES))
    assert other.logistic_pmse == pytest.approx(0.25 * 0.75, rel=1e-3)
    assert (other.tree_pmse, other.tree_auc) == (pytest.approx(0.25 * 0.75), 1)
    assert propensity(real[:, :3], made, SIZES) is None


def test_prediction_of_a_target() -> None:
    """Trained on rows of the same kind it is as good; on a shuffled target it is a guess; the target may be missing."""
    real, alike = table_of(7, 6000), table_of(8, 6000)
    shuffled = alike.copy()
    shuffled[2] = np.random.default_rng(9).permutation(shuffled[2])
    good, bad = (known(downstream(real, made, SIZES, 2, "c2")) for made in (alike, shuffled))
    assert good.target == "c2"
    assert good.test_records == round(0.3 * (real[2] < 5).sum())
    for model in good.models:
        assert model.trained_on_synthetic.accuracy == pytest.approx(model.trained_on_sensitive.accuracy, abs=0.02)
        assert model.trained_on_synthetic.auc == pytest.approx(model.trained_on_sensitive.auc, abs=0.02)
        assert model.trained_on_sensitive.accuracy > good.majority_accuracy + 0.2
    for model, before in zip(bad.models, good.models, strict=True):
        assert model.trained_on_sensitive == before.trained_on_sensitive
        assert model.trained_on_synthetic.auc == pytest.approx(0.5, abs=0.08)
        assert model.trained_on_synthetic.balanced_accuracy < before.trained_on_synthetic.balanced_accuracy - 0.3


def test_prediction_where_there_is_little_to_learn() -> None:
    """One value alone is learnt as that value; nothing to train on is None; sets of other widths fit together."""
    real, made = table_of(10, 400), table_of(11, 400)
    made[2] = 3
    scores = known(downstream(real, made, SIZES, 2, "c2")).models[0].trained_on_synthetic
    assert scores.auc == 0.5
    assert scores.balanced_accuracy == pytest.approx(0.2)
    made[2] = SIZES[2]
    assert downstream(real, made, SIZES, 2, "c2") is None
    assert downstream(real[:1], made[:1], SIZES[:1], 0, "c0") is None
    one, two = np.full((400, 1), 4), np.stack([real[1] % 3, np.full(400, 4)], axis=1)
    assert len(known(downstream([*real, one], [*real, two], (*SIZES, 4), 2, "c2")).models) == 2
    assert known(propensity([*real, one], [*real, two], (*SIZES, 4))).tree_auc > 0.9


def test_an_evaluation_repeats_to_the_digit() -> None:
    """No number depends on the hour, the threads or the order of anything but the records."""
    real, made = table_of(12), table_of(13)
    again = [evaluate_internal(real, made, domain_of(SIZES), target=2, ordered=(1, 2)) for _ in range(2)]
    assert again[0].to_json() == again[1].to_json()
    order = fixed_order(1000, "x")
    assert sorted(order.tolist()) == list(range(1000))
    assert (order == fixed_order(1000, "x")).all()
    assert (order != fixed_order(1000, "y")).any()
    assert MOST_RECORDS >= 1000


def test_without_scikit_learn_the_rest_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is optional; what is absent is said with what it takes."""
    real, made = table_of(14, 300), table_of(15, 300)
    full = evaluate_internal(real, made, domain_of(SIZES), target=2)
    assert full.absent == ()
    monkeypatch.setitem(sys.modules, "sklearn", None)
    lean = evaluate_internal(real, made, domain_of(SIZES), target=2)
    assert (lean.propensity, lean.downstream) == (None, None)
    assert "pip install 'marginweave[evaluation]'" in lean.absent[0]
    assert lean.model_copy(update={"propensity": full.propensity, "downstream": full.downstream, "absent": ()}) == full
