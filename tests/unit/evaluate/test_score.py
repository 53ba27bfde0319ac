"""The score of a release: worked by hand, monotone in what is lost, and near that of the true distances."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.evaluate.association import distance_from_independence
from marginweave.evaluate.score import dependences, quality_score
from marginweave.evaluate.verdict import verdict
from marginweave.released.evaluation import Association, MarginalBound, Measure

_SHARES = st.floats(0, 1)
_PAIRS = [*itertools.combinations("abcd", 2)]


@pytest.mark.parametrize(
    ("errors", "dependence", "score"),
    [
        # all of a dependence is lost, and all of it is kept
        ({("a", "b"): 0.3}, {("a", "b"): 0.3}, 0),
        ({("a", "b"): 0.0}, {("a", "b"): 0.3}, 100),
        # 1 - .1 / .4
        ({("a", "b"): 0.1}, {("a", "b"): 0.4}, 75),
        # a pair without dependence is compared with .05: 1 - .01 / .05
        ({("a", "b"): 0.01}, {}, 80),
        # worse than independent columns: 0, never below
        ({("a", "b"): 0.5}, {("a", "b"): 0.3}, 0),
        # pairs count by what they could lose: 1 - (.04 + .05) / (.4 + .05)
        ({("a", "b"): 0.04, ("a", "c"): 0.05}, {("a", "b"): 0.4}, 80),
        # a pair of which nothing is known counts as lost, and as much as the other: a half
        ({("a", "b"): 0.0, ("a", "c"): None}, {("a", "b"): 0.2}, 50),
        # one of three, of which a fourth is lost
        ({("a", "b"): 0.1, ("a", "c"): None, ("b", "c"): None}, {("a", "b"): 0.4}, 25),
        ({("a", "b"): None}, {}, 0),
        # columns and triples are no pairs
        ({("a",): 0.4, ("a", "b", "c"): 0.4}, {}, None),
    ],
)
def test_the_score_of_worked_tables(
    errors: dict[tuple[str, ...], float | None],
    dependence: dict[tuple[str, ...], float],
    score: int | None,
) -> None:
    assert quality_score(errors, dependence) == score


@given(
    errors=st.dictionaries(st.sampled_from(_PAIRS), st.none() | _SHARES, min_size=1),
    dependence=st.dictionaries(st.sampled_from(_PAIRS), _SHARES),
    worse=st.sampled_from(_PAIRS),
    by=_SHARES,
)
def test_a_larger_distance_never_makes_the_score_better(
    errors: dict[tuple[str, ...], float | None],
    dependence: dict[tuple[str, ...], float],
    worse: tuple[str, ...],
    by: float,
) -> None:
    """It lies between 0 and 100, and falls, or stays, where any pair is farther from the table."""
    score = quality_score(errors, dependence)
    assert score is not None
    assert 0 <= score <= 100
    error = errors.get(worse)
    if error is not None:
        lower = quality_score({**errors, worse: min(1.0, error + by)}, dependence)
        assert lower is not None
        assert lower <= score


def _distance(table: np.ndarray) -> float:
    """The distance of a table from independent columns, from all of its cells."""
    rows, columns = np.indices(table.shape).reshape(2, -1)
    counts = table.ravel().astype(float)
    occupied = counts > 0
    distance = distance_from_independence(rows[occupied], columns[occupied], counts[occupied])
    assert distance is not None
    return distance


def test_the_distance_from_independence_is_the_share_of_records_that_would_have_to_change() -> None:
    """Of two even columns that are always equal half; cells of nobody count; 0 where shares multiply."""
    assert _distance(np.diag([50, 50])) == pytest.approx(0.5)
    assert _distance(np.diag([25, 25, 25, 25])) == pytest.approx(0.75)
    assert _distance(np.outer([3, 1], [10, 30, 60])) == pytest.approx(0)


@pytest.mark.parametrize("sigma", [5.0, 20.0])
@pytest.mark.parametrize("true", [0.0, 0.1])
def test_noise_is_taken_off_the_dependence(sigma: float, true: float) -> None:
    """Mean over 200 noisy tables of 10,000 records, 64 cells: within .015 of the true distance; as drawn .045 is told of 0.

    One D varies by less than .01: a mean of 200 is .015 off with probability below 1e-20.
    """
    rng = np.random.default_rng(5)
    sign = np.kron([[1, -1], [-1, 1]], np.ones((4, 4)))
    shares = 1 / 64 + sign * true / 32
    noise = np.sqrt(2 / np.pi) * sigma * shares.size
    found = []
    for _ in range(200):
        drawn = 10_000 * shares + np.rint(rng.normal(0, sigma, shares.shape))
        distance = _distance(np.maximum(drawn, 0))
        matrix = ((1.0, distance), (distance, 1.0))
        measure = Measure(
            names=("a", "b"), reference=matrix, synthetic=matrix, mean_difference=None
        )
        association = Association(
            cramers_v=measure,
            mutual_information=measure,
            spearman=measure,
            from_independence=measure,
        )
        bound = MarginalBound(attributes=("b", "a"), distance=0.0, bound=None, noise=noise)
        found.append(dependences(association, [bound], 10_000)["a", "b"])
    assert np.mean(found) == pytest.approx(true, abs=0.015)


@pytest.mark.parametrize(
    ("error", "dependence", "said"),
    [(0.04, 0.01, "little"), (0.001, 0.01, ""), (0.2, 0.3, "lost"), (0.2, 0.04, "little")],
)
def test_a_low_score_is_explained(error: float, dependence: float, said: str) -> None:
    """Beside "good for single columns" it is of pairs alone; of independent columns there is little to keep."""
    errors = {("a",): 0.01, ("b",): 0.01, ("a", "b"): error}
    graded = verdict(errors, {}, 1000.0, dependence={("a", "b"): dependence})
    assert graded.score is not None
    assert any("columns have in common" in sentence for sentence in graded.says) is bool(said)
    assert any("Here that is little" in sentence for sentence in graded.says) is (said == "little")
