"""Measures of association against scipy and scikit-learn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import normalized_mutual_info_score

from marginweave.domain.labels import Domain
from marginweave.evaluate.association import cramers_v, normalized_mutual_information, spearman
from marginweave.evaluate.cells import Records
from marginweave.evaluate.metrics import evaluate_internal, evaluate_release
from tests.support.known import known
from tests.support.noisy_counts import SIZES, aggregates_of, domain_of, tally

TABLES = st.lists(st.lists(st.integers(0, 6), min_size=5, max_size=5), min_size=3, max_size=3).map(
    np.array
)


def cells(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows, columns = np.nonzero(table)
    return rows, columns, table[rows, columns].astype(np.float64)


@settings(max_examples=25)
@given(TABLES)
def test_measures_are_those_of_the_libraries(table: np.ndarray) -> None:
    """Cramér's V without correction, mutual information over the geometric mean of entropies, ties at their mean rank."""
    filled = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    if not filled.size:
        assert (
            cramers_v(*cells(table))
            is normalized_mutual_information(*cells(table))
            is spearman(*cells(table))
            is None
        )
        return
    rows, columns, counts = cells(table)
    x, y = (np.repeat(codes, counts.astype(int)) for codes in (rows, columns))
    if min(filled.shape) < 2:
        assert cramers_v(rows, columns, counts) == 0
        assert spearman(rows, columns, counts) is None
        return
    assert cramers_v(rows, columns, counts) == pytest.approx(
        stats.contingency.association(filled, "cramer"), abs=1e-9
    )
    assert spearman(rows, columns, counts) == pytest.approx(
        stats.spearmanr(x, y).statistic, abs=1e-9
    )
    mutual = normalized_mutual_info_score(x, y, average_method="geometric")
    assert normalized_mutual_information(rows, columns, counts) == pytest.approx(mutual, abs=1e-9)


def test_independence_is_zero_and_a_function_is_one() -> None:
    """The two ends of the scale, exactly: also where rounding could leave the root of a small number."""
    even = np.outer([3, 6, 9], [1, 5, 2, 8])
    assert cramers_v(*cells(even)) == pytest.approx(0, abs=1e-12)
    assert spearman(*cells(even)) == pytest.approx(0, abs=1e-12)
    diagonal = cells(np.diag([5, 1, 7]))
    assert (cramers_v(*diagonal), spearman(*diagonal)) == (pytest.approx(1), pytest.approx(1))
    assert normalized_mutual_information(*diagonal) == pytest.approx(1)


def test_released_pairs_say_what_complete_records_say() -> None:
    """Exact counts as a release give the matrices of the table itself, of attributes that are never missing."""
    table = np.random.default_rng(4).integers(0, np.array(SIZES), (500, 4))
    table[:, 3] = (table[:, 1] + table[:, 3]) % SIZES[3]
    made = np.random.default_rng(5).permuted(table, axis=0)
    counts = aggregates_of(tally(table, 2), record_count=500, length=2)
    released = evaluate_release(
        Records([made.T], counts.domain), counts, ordered=(1, 3)
    ).association
    internal = evaluate_internal(table.T, made.T, domain_of(), ordered=(1, 3)).association
    for name in ("cramers_v", "mutual_information", "spearman"):
        ours, exact = getattr(released, name), getattr(internal, name)
        assert ours.mean_difference == pytest.approx(exact.mean_difference)
        assert ours.names == exact.names
        for side in ("reference", "synthetic"):
            assert np.array(getattr(ours, side)) == pytest.approx(np.array(getattr(exact, side)))
    assert released.spearman.names == ("c1", "c3")
    assert known(released.cramers_v.mean_difference) > 0.01


def test_pairs_that_are_not_known_have_no_number() -> None:
    """Of marginals, those that were measured; of suppressed counts, none."""
    table = np.random.default_rng(6).integers(0, np.array(SIZES), (90, 4))
    some = {t: n for t, n in tally(table, 2).items() if len(t) == 1 or (t[0][0], t[1][0]) != (0, 1)}
    made = Records([table.T], domain_of())
    matrix = evaluate_release(
        made, aggregates_of(some, record_count=90, length=2)
    ).association.cramers_v
    assert matrix.reference[0][1] is matrix.reference[1][0] is None
    assert matrix.synthetic[0][1] is not None
    assert matrix.reference[0][2] == pytest.approx(matrix.synthetic[2][0])
    assert matrix.mean_difference == pytest.approx(0)
    single = evaluate_release(made, aggregates_of(tally(table, 1), length=1)).association
    assert single.cramers_v.names == single.spearman.names == ()
    assert single.cramers_v.mean_difference is None


def test_an_attribute_of_one_value_has_no_pair_where_missing_is_none() -> None:
    """Against released counts it could only seem to be independent of everything; internally missing is its other value."""
    codes = [
        np.array([0, 1, 0, 1, 2, 0]),
        np.array([0, 0, 1, 1, 1, 0]),
        np.array([0, 2, 1, 0, 1, 2]),
    ]
    domain = Domain(names=("a", "b", "c"), labels=(("x", "y"), ("y",), ("x", "y", "z")))
    counted = replace(
        aggregates_of(tally(np.stack(codes, axis=1), 2), record_count=6, length=2), domain=domain
    )
    assert evaluate_release(Records([codes], domain), counted).association.cramers_v.names == (
        "a",
        "c",
    )
    internal = evaluate_internal(codes, codes, domain).association.cramers_v
    assert internal.names == ("a", "b", "c")
    assert internal.reference[0][1] == pytest.approx(np.sqrt(2 / 9))  # chi^2 is 4/3, of 6 records


def test_released_pairs_leave_missing_values_out() -> None:
    """Released counts have no missing values, so the records' are left out as well: exact counts are no distance away."""
    table = np.random.default_rng(7).integers(0, np.array(SIZES) + 1, (200, 4))
    made = Records([table.T], domain_of())
    found = evaluate_release(
        made, aggregates_of(tally(table, 2), record_count=200, length=2)
    ).association
    assert found.cramers_v.mean_difference == pytest.approx(0)
    assert found.mutual_information.mean_difference == pytest.approx(0)
