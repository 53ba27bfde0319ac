"""Answers have the estimate and the variance of generalised least squares, and intervals that cover as often as they say."""

from __future__ import annotations

import itertools
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2

from marginweave.answers.cells import cell_tables
from marginweave.answers.codes import ValueRange
from marginweave.answers.intervals import Reach, count_interval_of, quantile_bins, ratio_interval
from marginweave.answers.least_squares import Estimates, LeastSquares, NotMeasuredError
from marginweave.answers.marginals import MarginalAnswers
from marginweave.answers.merged import count_between
from marginweave.answers.quantities import mean_of, share_of, sum_of
from marginweave.estimate.intervals import count_interval
from marginweave.mechanisms.laplace import DiscreteLaplace
from tests.support.dense_least_squares import Survey, random_weights

FALSE_ALARM = 1e-6
SIGMAS = st.sampled_from([0.7, 2.0, 5.0, 30.0])
SMALL = Survey(
    sizes=(3, 5, 4),
    sets=(
        *(((a,), sigma, False) for a, sigma in enumerate((3.0, 5.0, 8.0))),
        *(
            ((0, 1), 4.0, False),
            ((1, 2), 6.0, False),
            ((0, 1, 2), 12.0, False),
            ((0, 1), 9.0, False),
        ),
    ),
    merged=((0, 1, 2), (0, 1, 2, 3, 4), (0, 1, 2, 3)),
)


@st.composite
def surveys(draw: st.DrawFn) -> Survey:
    """Two to four attributes of different sizes, every one measured alone, some sets of them, values merged in the sets."""
    sizes = tuple(draw(st.permutations([2, 3, 4, 5]))[: draw(st.integers(2, 4))])
    merged = tuple(
        tuple(np.minimum(np.arange(s), draw(st.integers(1, s)) - 1).tolist()) for s in sizes
    )
    attributes = range(len(sizes))
    larger = [
        c for k in range(2, len(attributes) + 1) for c in itertools.combinations(attributes, k)
    ]
    chosen = draw(st.lists(st.sampled_from(larger), min_size=1, max_size=5))
    sets = [((a,), draw(SIGMAS), False) for a in range(len(sizes))] + [
        (c, draw(SIGMAS), True) for c in chosen
    ]
    return Survey(sizes=sizes, sets=tuple(sets), merged=merged)


def compare(survey: Survey, seed: int, *, known: bool) -> None:
    """Every single attribute and every measured set, given the number of records, against the dense system, and this number."""
    rng = np.random.default_rng(seed)
    table = rng.poisson(40, survey.cells).astype(np.float64)
    squares = survey.measure(table, rng, known=known)
    asked: list[dict[int, Any]] = [
        {},
        *(random_weights(survey, [a], rng, merged=False) for a in range(len(survey.cells))),
    ]
    for clique, _, merges in survey.sets:
        if len(clique) > 1:
            asked.append(random_weights(survey, clique, rng, merged=merges))
    products = [survey.products(weights) for weights in asked]
    solved = [(squares.solve(weights), own) for weights, own in zip(asked, products, strict=True)]
    records, variance = (float(table.sum()), 0.0) if known else mean_of_totals(squares)
    assert np.allclose(squares.total, (records, variance))
    # groups of one query each, which have weights in common
    first = [{axis: vectors[:1] for axis, vectors in weights.items()} for weights in asked]
    singles = [
        {axis: weights[axis] for axis in axes}
        for weights in first
        for length in range(len(weights) + 1)
        for axes in itertools.combinations(weights, length)
    ]
    single_products = np.concatenate([survey.products(weights) for weights in singles])
    joint = (squares.solve_jointly(asked), np.concatenate(products))
    here, more = survey.dense(squares, records), survey.dense(squares, records + 1)
    for found, own in (*solved, joint, (squares.solve_jointly(singles), single_products)):
        values, covariance = here.answer(own)
        of_more = own @ (more.cells - here.cells)
        covariance = covariance + np.outer(of_more, of_more) * variance
        scale = max(float(np.abs(covariance).max()), 1e-3)
        assert np.allclose(found.values, values, rtol=1e-7, atol=1e-5)
        assert np.allclose(found.covariance, covariance, rtol=1e-6, atol=1e-6 * scale)


def mean_of_totals(squares: LeastSquares) -> tuple[float, float]:
    """The mean of what each table adds up to by its precision, and its variance: whatever is merged, none is selected."""
    tables = squares.measured.tables
    precision = np.array([1 / (table.counts.size * table.variance) for table in tables])
    return float(precision @ [table.counts.sum() for table in tables] / precision.sum()), float(
        1 / precision.sum()
    )


@given(survey=surveys(), seed=st.integers(0, 2**32 - 1), known=st.booleans())
@settings(max_examples=40, deadline=None)
def test_estimate_and_variance_are_those_of_the_dense_system(
    survey: Survey, seed: int, known: bool
) -> None:
    """Overlapping sets, unequal noise, merged values, the number of records noisy or known: the least variance there is."""
    compare(survey, seed, known=known)


def test_what_is_in_no_set_or_merged_is_not_answered() -> None:
    survey = Survey(
        sizes=(2, 4, 3),
        sets=(*(((a,), 2.0, False) for a in range(3)), ((0, 1), 2.0, True)),
        merged=((0, 1), (0, 1, 2, 2), (0, 1, 2)),
    )
    squares = survey.measure(np.ones(survey.cells), np.random.default_rng(1))
    ones = {a: np.ones((1, size)) for a, size in enumerate(survey.sizes)}
    for weights, merged in (
        ({0: ones[0], 2: ones[2]}, False),
        ({0: ones[0], 1: np.array([[0.0, 0, 0, 1]])}, True),
    ):
        with pytest.raises(NotMeasuredError) as refusal:
            squares.solve(weights)
        assert refusal.value.merged == merged
    assert squares.solve({0: ones[0], 1: np.array([[0.0, 0, 1, 1]])}).values.shape == (1,)


def _repeated(
    count: int, sigma_scale: float = 1.0
) -> tuple[list[LeastSquares], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(11)
    table = rng.poisson(6, SMALL.cells).astype(np.float64)
    survey = Survey(
        sizes=SMALL.sizes,
        merged=SMALL.merged,
        sets=tuple((c, s * sigma_scale, m) for c, s, m in SMALL.sets),
    )
    return [survey.measure(table, rng) for _ in range(count)], table


def test_unclipped_errors_have_the_variance_that_is_stated() -> None:
    """400 releases, one cell of a triple: the sum of squared errors by the variance is chi^2; false alarms 1e-6."""
    releases, table = _repeated(400)
    weights = {a: np.eye(size)[[1]] for a, size in enumerate(SMALL.sizes)}
    solved = [squares.solve(weights) for squares in releases]
    errors = sum((one.values[0] - table[1, 1, 1]) ** 2 / one.covariance[0, 0] for one in solved)
    assert chi2.ppf(FALSE_ALARM / 2, len(solved)) < errors < chi2.isf(FALSE_ALARM / 2, len(solved))


@pytest.mark.parametrize("scale", [0.1, 0.3, 1.0])
def test_counts_as_shown_cover_at_least_what_they_say(scale: float) -> None:
    """300 releases, one count each, chosen by turns among cells of a pair: whole, clipped at 0; false alarms 1e-6."""
    releases, table = _repeated(300, scale)
    hits, pairs = 0, table.sum(axis=2)
    for number, squares in enumerate(releases):
        a, b = number % SMALL.sizes[0], number % SMALL.sizes[1]
        found = squares.solve({0: np.eye(SMALL.sizes[0])[[a]], 1: np.eye(SMALL.sizes[1])[[b]]})
        shown = count_interval_of(
            float(found.values[0]), float(found.covariance[0, 0]), Reach(level=0.95)
        )
        assert shown.low == int(shown.low) >= 0
        hits += shown.low <= pairs[a, b] <= shown.high
    assert hits >= binom.ppf(FALSE_ALARM, len(releases), 0.95)


@given(
    count=st.integers(-200, 5000),
    sigma=st.floats(0.05, 500),
    level=st.sampled_from([0.8, 0.95, 0.999]),
)
@settings(max_examples=300, deadline=None)
def test_a_count_from_one_cell_covers_what_the_exact_interval_does(
    count: int, sigma: float, level: float
) -> None:
    """That of `evaluate.intervals`, which is exact, lies inside, and the ends are at most one record further out."""
    exact = count_interval(np.array([count]), sigma, level=level)
    found = count_interval_of(float(count), sigma**2 + 1 / 12, Reach(level=level))
    assert found.low <= exact.low[0] <= found.low + 1
    assert found.high - 1 <= exact.high[0] <= found.high


def test_sums_of_laplace_noise_are_covered() -> None:
    """One cell and a sum of three with discrete Laplace noise at two levels: 4,000 draws each; false alarms 1e-6."""
    rng, sigma = np.random.default_rng(5), 4.0
    p = np.exp(-2 * np.arcsinh(1 / (np.sqrt(2) * sigma)))
    for cells, level in itertools.product((1, 3), (0.95, 0.99)):
        noise = (rng.geometric(1 - p, (4000, cells)) - rng.geometric(1 - p, (4000, cells))).sum(
            axis=1
        )
        half = Reach(level=level, tails=frozenset({"discrete-laplace"})).of(sigma * cells**0.5)
        assert (np.abs(noise) <= half + 0.5).sum() >= binom.ppf(FALSE_ALARM, 4000, level)
        assert half >= DiscreteLaplace.reach(sigma * cells**0.5, level)


@pytest.mark.parametrize("records", [25.0, 400.0])
def test_ratios_are_covered_however_noisy_their_denominator_is(records: float) -> None:
    """4,000 draws of a share of .3 with correlated noise; an unbounded set covers all. False alarms 1e-6."""
    rng = np.random.default_rng(7)
    covariance = np.array([[60.0, 40.0], [40.0, 100.0]])
    truth, hits = np.array([0.3 * records, records]), 0
    for values in rng.multivariate_normal(truth, covariance, 4000):
        found = ratio_interval(values, covariance, Reach(level=0.95), (0.0, 1.0))
        hits += found is None or found[0] <= 0.3 <= found[1]
    assert binom.ppf(FALSE_ALARM, 4000, 0.95) <= hits
    assert records < 100 or hits <= binom.isf(FALSE_ALARM, 4000, 0.95)


@pytest.mark.parametrize(("beyond", "at"), [(-60.0, 0.0), (190.0, 100.0)])
def test_a_ratio_beyond_its_limits_has_the_interval_of_the_limit(beyond: float, at: float) -> None:
    """No interval is narrower, or empty, because noise took a count further from what is possible."""
    covariance, reach = np.array([[60.0, 40.0], [40.0, 100.0]]), Reach(level=0.8)
    found, wanted = (
        ratio_interval(np.array([n, 100.0]), covariance, reach, (0.0, 1.0)) for n in (beyond, at)
    )
    assert found is not None
    assert found == wanted
    assert found[1] - found[0] > 0.05


def test_shares_of_a_population_are_covered() -> None:
    """Tables of 300 are drawn, a share of .2, then noise: 4,000 times; without the sampling variance it fails."""
    rng, hits, narrow = np.random.default_rng(8), 0, 0
    covariance = np.array([[9.0, 0.0], [0.0, 9.0]])
    for _ in range(4000):
        table = np.array([rng.binomial(300, 0.2), 300.0])
        values = table + rng.normal(0, 3, 2)
        wide = ratio_interval(
            values, covariance, Reach(level=0.95), (0.0, 1.0), (0.0, values[1], -values[1])
        )
        alone = ratio_interval(values, covariance, Reach(level=0.95), (0.0, 1.0))
        assert wide is not None
        assert alone is not None
        hits += wide[0] <= 0.2 <= wide[1]
        narrow += alone[0] <= 0.2 <= alone[1]
    assert binom.ppf(FALSE_ALARM, 4000, 0.94) <= hits <= binom.isf(FALSE_ALARM, 4000, 0.97)
    assert narrow < binom.ppf(FALSE_ALARM, 4000, 0.95)


POPULATIONS = {
    "a rare large value": ([0, 1, 50], [0.695, 0.3, 0.005], 400),
    "a rare small value": ([-50, -1, 0], [0.005, 0.3, 0.695], 400),
    "a share": ([0, 1], [0.99, 0.01], 400),
    "a tail": (
        [0, 15, 40, 75, 150, 600, 1000],
        [0.916, 0.03, 0.02, 0.02, 0.01, 0.0005, 0.0035],
        1000,
    ),
    "ages": (list(range(17, 90)), np.exp(-(((np.arange(17, 90) - 38) / 20) ** 2)).tolist(), 400),
}


def _means(case: str, draws: int) -> list[tuple[tuple[float, float], tuple[float, float], float]]:
    """Of samples of a population, with noise of one record: the interval of the mean, that of the largest value's share, sd."""
    values, weights, records = POPULATIONS[case]
    shares, numbers = np.array(weights) / np.sum(weights), np.array(values, np.float64)
    rng, found = np.random.default_rng(21), []
    range_of, reach = ValueRange(place=0, low=numbers, high=numbers), Reach(level=0.95)
    for _ in range(draws):
        counts = rng.multinomial(records, shares) + np.rint(rng.normal(0, 1, len(values)))

        def solve(queries: Any, counts: Any = counts) -> Estimates:
            asked = np.stack([np.prod([own for _, own in one], axis=0) for one in queries])
            return Estimates(values=asked @ counts, covariance=asked @ asked.T * (1 + 1 / 12))

        mean, _ = mean_of(solve, [], range_of, reach, sampled=True)
        whole = np.ones(len(values))
        share, _ = share_of(
            solve([[(0, numbers == numbers[-1])], [(0, whole)]]), reach, sampled=True
        )
        apart = (numbers - shares @ numbers) ** 2
        sd = float(np.sqrt(shares @ apart / records + (1 + 1 / 12) * apart.sum() / records**2))
        found.append(((mean.low, mean.high), (share.low, share.high), sd))
    return found


@pytest.mark.parametrize("case", POPULATIONS)
def test_means_of_a_population_are_covered_also_where_rare_values_decide(case: str) -> None:
    """1,000 samples each: what is too rare for a sample counts, at the end of what values can be. False alarms 1e-6."""
    values, weights, _ = POPULATIONS[case]
    truth, found = float(np.average(values, weights=weights)), _means(case, 1000)
    assert sum(low <= truth <= high for (low, high), _, _ in found) >= binom.ppf(
        FALSE_ALARM, len(found), 0.95
    )
    if case == "ages":
        assert np.mean([high - low for (low, high), _, _ in found]) < 1.15 * 2 * 1.96 * found[0][2]


def test_the_mean_of_zeros_and_ones_is_a_share() -> None:
    for mean, share, _ in _means("a share", 50):
        assert mean == pytest.approx(share)


def test_sums_are_covered_wherever_in_its_bin_a_value_lies() -> None:
    """600 noisy tables, values at the lower or at the upper ends of their bins, and what is no number; false alarms 1e-6."""
    rng, table = (
        np.random.default_rng(10),
        np.random.default_rng(2).poisson(30, SMALL.cells).astype(np.float64),
    )
    numbers = ValueRange(
        place=1, low=np.array([-3.0, 1, 2, 7, np.nan]), high=np.array([1.0, 2, 7, 9, np.nan])
    )
    inside = (0, np.array([1.0, 0, 1]))
    counts = table[[0, 2]].sum(axis=(0, 2))
    hits = {"low": 0, "high": 0}
    for _ in range(600):
        answers = MarginalAnswers(
            squares=SMALL.measure(table, rng), codes=cast("Any", None), measured_together=()
        )
        found, _ = sum_of(answers.solve, [inside], numbers, Reach(level=0.95), np.inf)
        for end, values in (("low", numbers.low), ("high", numbers.high)):
            hits[end] += found.low <= float(counts @ np.nan_to_num(values)) <= found.high
    for hit in hits.values():  # each end by itself is missed on one side only
        assert binom.ppf(FALSE_ALARM, 600, 0.975) <= hit <= binom.isf(FALSE_ALARM, 600, 0.975)


@pytest.mark.parametrize("q", [0.5, 0.9])
def test_quantiles_are_covered(q: float) -> None:
    """4,000 draws of noisy counts of 12 values: the quantile is among those that are left; false alarms 1e-6."""
    rng, sigma = np.random.default_rng(9), 6.0
    counts = np.array([3, 8, 20, 31, 40, 44, 39, 30, 18, 9, 5, 1], np.float64)
    truth = int(np.searchsorted(np.cumsum(counts), q * counts.sum()))
    contrast = np.tril(np.ones((12, 12))) - q
    sigmas = np.sqrt((contrast**2).sum(axis=1)) * sigma
    below = (counts + rng.normal(0, sigma, (4000, 12))) @ contrast.T
    found = [quantile_bins(one, sigmas, Reach(level=0.95)) for one in below]
    assert sum(bool(one[truth]) for one in found) >= binom.ppf(FALSE_ALARM, 4000, 0.95)
    assert np.mean([one.sum() for one in found]) < 5


@given(survey=surveys(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_a_whole_table_has_what_each_cell_has_by_itself(survey: Survey, seed: int) -> None:
    """Estimates, variances, and covariances with the sums that shares are of; unknown where a question is refused."""
    compare_tables(survey, seed)


def test_of_two_readings_of_a_cell_the_less_noisy_one() -> None:
    """One set measured twice: finely with much noise, and merged with little; some cells can be read in both."""
    sets = (*(((a,), 3.0, False) for a in range(2)), ((0, 1), 30.0, False), ((0, 1), 2.0, True))
    for seed in range(3):
        compare_tables(Survey(sizes=(3, 4), sets=sets, merged=((0, 1, 1), (0, 1, 2, 2))), seed)


REACH = Reach(level=0.95)


def compare_tables(survey: Survey, seed: int) -> None:
    rng = np.random.default_rng(seed)
    squares = survey.measure(rng.poisson(40, survey.cells).astype(np.float64), rng)
    for table in cell_tables(squares.measured, survey.sizes, 10**6, [REACH, REACH.each]):
        shape = [survey.sizes[a] for a in table.attributes]
        assert (
            table.estimates.shape
            == table.variances.shape
            == table.is_measured.shape
            == tuple(shape)
        )
        for cell in itertools.product(*map(range, shape)):
            own = {
                a: np.arange(survey.sizes[a]) == v
                for a, v in zip(table.attributes, cell, strict=True)
            }
            weights = {axis: codes[None].astype(np.float64) for axis, codes in own.items()}
            try:
                solved = squares.solve(weights)
            except NotMeasuredError:
                assert not table.is_measured[cell]
                assert table.merged is not None
                for merged, reach in zip(table.merged, (REACH, REACH.each), strict=True):
                    expected = count_between(squares, weights, reach)
                    ends = [expected.estimate or 0, expected.low, expected.high]
                    assert np.allclose(merged[(..., *cell)], ends, atol=1)
                continue
            assert table.is_measured[cell]
            assert np.isclose(table.estimates[cell], solved.values[0], rtol=1e-9, atol=1e-7)
            assert np.isclose(table.variances[cell], solved.covariance[0, 0], rtol=1e-8, atol=1e-9)
