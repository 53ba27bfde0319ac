"""Coverage laws of what is said about the error of a release, measured on simulated releases by the shipped mechanisms.

Noise is seeded, so that a test passes or fails for good; the false-alarm rates are those over seeds. OpenDP's choice of a
percentile cannot be seeded.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import binom

from marginweave.base.budget import Stability
from marginweave.counts.candidates import CandidateSet
from marginweave.domain.combinations import Level
from marginweave.domain.labels import Domain
from marginweave.estimate.intervals import (
    Intervals,
    censored_bound,
    count_interval,
    marginal_intervals,
    selected_interval,
)
from marginweave.estimate.marginals import compression_of, marginal_counts, normalize_marginals
from marginweave.evaluate.bounds import (
    combination_bounds,
    distance_bound,
    marginal_bounds,
    most_cut_records,
)
from marginweave.evaluate.cells import Records
from marginweave.measurements.levels import LevelMechanism, draw_level, level_noise
from marginweave.measurements.marginals import measure_marginals
from marginweave.measurements.thresholds import level_threshold
from marginweave.mechanisms.gaussian import add_noise, select_percentile
from marginweave.mechanisms.noise_table import noise_table
from marginweave.mechanisms.randomness import KeyedBits, fresh_bits
from marginweave.observations.combinations import Aggregates
from marginweave.observations.compression import compress_codes
from marginweave.observations.tables import Marginals
from marginweave.prepare.codes import EncodedTable, code_type
from tests.support.configurations import configuration
from tests.support.counting import WholeCounts, count_bounded, count_marginal, histogram
from tests.support.draws import GAUSSIAN
from tests.support.seeded_bits import SeededBits

FALSE_ALARM = 1e-6
SIZES = (2, 3, 5, 7)
EVERYTHING = -(10**6)
ROW = Stability(records=1, neighbors="add-remove")


def covered(intervals: Intervals, truth: NDArray[np.int64] | int) -> NDArray[np.bool_]:
    """Whether each interval has the true count inside."""
    return np.asarray((intervals.low <= truth) & (truth <= intervals.high))


def assert_nominal(hits: int, trials: int) -> None:
    """Between 93 and 99 %; a coverage of 95 to 98 fails it with probability below FALSE_ALARM over this many trials."""
    assert (
        binom.cdf(math.floor(0.93 * trials), trials, 0.95) + binom.sf(0.99 * trials, trials, 0.98)
        < FALSE_ALARM
    )
    assert 0.93 <= hits / trials <= 0.99


def most_failures(trials: int, rate: float = 0.05) -> int:
    """How many of `trials` statements at level 1 - rate may fail before the level is in doubt at FALSE_ALARM."""
    return int(binom.isf(FALSE_ALARM, trials, rate))


def people(records: int = 3000) -> EncodedTable:
    """Skewed values of four columns, some missing, so that the contribution bound cuts and many combinations are empty."""
    rng = np.random.default_rng(11)
    codes = tuple(
        np.minimum(rng.geometric(0.5, records) - 1, size).astype(code_type(size)) for size in SIZES
    )
    return EncodedTable(
        codes=codes, labels=tuple(tuple(f"v{v}" for v in range(size)) for size in SIZES)
    )


def every_level(length: int) -> CandidateSet:
    """All combinations as candidates."""
    found = CandidateSet(length=1, sizes=SIZES)
    for k in range(1, length):
        columns, values = [], []
        for c in found.column_sets():
            cells = np.argwhere(found.mask(c))
            values.append(cells)
            columns.append(np.broadcast_to(np.array(c), cells.shape))
        counts = np.ones(sum(len(v) for v in values), np.int64)
        level = Level(
            length=k, columns=np.concatenate(columns), values=np.concatenate(values), counts=counts
        )
        found = CandidateSet.above(level, SIZES)
    return found


def bounded(table: EncodedTable, candidates: CandidateSet, bound: int) -> WholeCounts:
    """Counts with at most `bound` a record."""
    assert histogram(table, candidates, bound + 1)[bound + 1] > 0
    return count_bounded(table, candidates, bound, KeyedBits(key=bytes(range(32)), purpose="test"))


def true_counts(counts: WholeCounts, candidates: CandidateSet, level: Level) -> NDArray[np.int64]:
    """The bounded counts without noise of every combination of a level."""
    truth = np.empty(len(level), np.int64)
    place = {columns: i for i, columns in enumerate(counts.column_sets)}
    for columns, rows in level.by_columns():
        mask = candidates.mask(columns)
        dense = counts.vector(place[columns], mask.size).reshape(mask.shape)
        truth[rows] = dense[tuple(level.values[rows].T)]
    return truth


def mechanism(length: int, bound: int, sd: Fraction, threshold: int) -> LevelMechanism:
    return LevelMechanism(length=length, contribution_bound=bound, sigma=sd, threshold=threshold)


@pytest.mark.parametrize("sd", [Fraction(3, 2), Fraction(30)], ids=str)
@pytest.mark.parametrize(("length", "bound"), [(1, 2), (2, 3), (3, 2)])
def test_over_all_candidates_the_nominal_interval_has_its_level(
    length: int, bound: int, sd: Fraction
) -> None:
    """Bounded counts of every candidate before thresholding, over 6,000 cells of simulated releases; false alarm 1e-6.

    Intervals with z = 1.645, or at sd 3/2 without the 1/2 of rounding, cover .90.
    """
    candidates = every_level(length)
    counts, hits, trials = bounded(people(), candidates, bound), 0, 0
    while trials < 6_000:
        level = draw_level(
            counts, candidates, mechanism(length, bound, sd, EVERYTHING), SeededBits(length, trials)
        )
        inside = covered(
            count_interval(level.counts, float(sd)), true_counts(counts, candidates, level)
        )
        hits, trials = hits + int(inside.sum()), trials + len(level)
    assert_nominal(hits, trials)


def survivors(count: int, eta: float, sd: Fraction, seed: int) -> tuple[NDArray[np.int64], int]:
    """10,000 and more noisy counts of a combination with the true `count` that reached the threshold of `eta`, and it."""
    settings = configuration(aggregate={"thresholds": {"adaptive": {2: eta}}}).tuples
    least = level_threshold(settings, 2, sd, 10, 10)
    kept, found = list[NDArray[np.int64]](), 0
    while found < 10_000:
        noisy = add_noise(np.full(1 << 18, count, np.int64), sd, SeededBits(seed, found))
        kept.append(noisy[noisy >= least])
        found += len(kept[-1])
    return np.concatenate(kept), least


@pytest.mark.parametrize(
    ("sd", "cells"), [(Fraction(1, 2), 2), (Fraction(7), 9), (Fraction(1, 2), 1600)], ids=str
)
def test_sums_of_cells_are_covered_at_their_level(sd: Fraction, cells: int) -> None:
    """10,000 sums; false alarm 1e-6. Without the variance of rounding, 1600 cells at sd 1/2 are covered in .917."""
    sums = add_noise(np.full((10_000, cells), 100, np.int64), sd, SeededBits(cells)).sum(axis=1)
    inside = covered(count_interval(sums, float(sd), cells=cells), 100 * cells)
    assert_nominal(int(inside.sum()), len(sums))


@pytest.mark.parametrize("noise", ["rounded-gaussian", "discrete-laplace"])
@pytest.mark.parametrize("deviations", [0, 0.3, 1, 1.9, 5])
def test_a_count_that_noise_made_negative_is_covered_like_any_other(
    noise: Any, deviations: float
) -> None:
    """100,000 counts at sd 20: 95 % are covered (false alarm 1e-6), of those below 0 all up to 1.9 standard deviations.

    With both ends clipped at 0, one standard deviation of records is covered in 84 % of the counts that are below 0.
    """
    sd = Fraction(20)
    truth, bits = (
        np.full(100_000, round(deviations * sd), np.int64),
        SeededBits(9, noise, str(deviations)),
    )
    if noise == "rounded-gaussian":
        noisy = add_noise(truth, sd, bits)
    else:
        p = math.exp(-2 * math.asinh(1 / (math.sqrt(2) * float(sd))))
        rng = np.random.default_rng(9)
        noisy = truth + rng.geometric(1 - p, len(truth)) - rng.geometric(1 - p, len(truth))
    found = count_interval(noisy, float(sd), noise=noise)
    missed, below = ~covered(found, truth), noisy < 0
    assert missed.sum() <= most_failures(len(truth))
    assert deviations > 1.9 or not missed[below].any()
    assert (found.low <= found.measured).all()
    assert (found.high - found.measured >= 1.9 * sd).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 400), st.integers(1, 200), st.sampled_from([0.8, 0.95, 0.99]))
def test_what_was_not_released_is_at_most_the_censored_bound(
    tenths: int, threshold: int, level: float
) -> None:
    """By the table of the noise: the bound is the last count whose noisy one is below T more often than 1 - level."""
    sigma = Fraction(tenths, 10)
    most = censored_bound(threshold, float(sigma), level=level)

    def below(count: int) -> float:
        return float(1 - noise_table(sigma).upper_tail(threshold - count))

    assert below(most + 1) <= 1 - level + 1e-9
    assert most == 0 or below(most) > 1 - level - 1e-9


@pytest.mark.parametrize("deviations", [0, 0.5, 2, 6])
@pytest.mark.parametrize("eta", [0.55, 0.1, 0.01])
def test_among_survivors_the_selected_interval_has_its_level(eta: float, deviations: float) -> None:
    """At sd 20, of combinations that are empty or have a few deviations; at least 10,000 survivors, false alarm 1e-6."""
    sd = Fraction(20)
    count = round(deviations * sd)
    noisy, least = survivors(count, eta, sd, seed=2)
    inside = covered(selected_interval(noisy, least, float(sd)), count)
    assert_nominal(int(inside.sum()), len(noisy))


@pytest.mark.parametrize(("eta", "share"), [(0.55, 0.91), (0.1, 0.5), (0.01, 0.0)])
def test_among_survivors_the_nominal_interval_fails(eta: float, share: float) -> None:
    """Empty combinations that survive are covered in about 91, 50 and 0 % only.

    10,000 and more of them; whole numbers and rounding make up to 4 points, chance 3 (false alarm 1e-6).
    """
    noisy, _ = survivors(0, eta, Fraction(20), seed=3)
    assert covered(count_interval(noisy, 20.0), 0).mean() == pytest.approx(share, abs=0.07)


def test_survivors_of_a_whole_release_are_covered() -> None:
    """Pairs of the table at eta .1, counts of all sizes: 12,000 survivors of simulated releases; false alarm 1e-6."""
    sd, candidates = Fraction(30), every_level(2)
    least = level_threshold(
        configuration(aggregate={"thresholds": {"adaptive": {2: 0.1}}}).tuples, 2, sd, 10, 10
    )
    counts, hits, trials = bounded(people(), candidates, 3), 0, 0
    while trials < 12_000:
        level = draw_level(counts, candidates, mechanism(2, 3, sd, least), SeededBits(8, trials))
        inside = covered(
            selected_interval(level.counts, least, float(sd)),
            true_counts(counts, candidates, level),
        )
        hits, trials = hits + int(inside.sum()), trials + len(level)
    assert_nominal(hits, trials)


# --- marginals -------------------------------------------------------------------------------------------------------

SETTINGS = configuration(
    aggregate={"method": "marginals", "cliques": [["sex", "region"], ["region", "age", "grade"]]}
)
CLIQUES = ((0, 1), (1, 2, 3))


def measured(table: EncodedTable, seed: int, config: Any = SETTINGS) -> tuple[Marginals, Any]:
    """Marginals of the table under seeded noise, rare values measured together; and the compression."""
    sizes = tuple(size + 1 for size in SIZES)
    alone = tuple((a,) for a in range(len(SIZES)))
    exact = [count_marginal(table.codes, sizes, c) for c in alone]
    one_way = tuple(
        measure_marginals(
            GAUSSIAN, exact, alone, [Fraction(6)] * len(alone), SeededBits(seed, "one-way")
        )
    )
    labels = tuple(attribute.labels for attribute in config.attributes)
    domain = Domain(names=tuple(attribute.name for attribute in config.attributes), labels=labels)
    compression = compression_of(Marginals(domain=domain, one_way=one_way, larger=()), config)[1]
    merged = compress_codes(table.codes, compression)
    exact = [count_marginal(merged, compression.sizes, c) for c in CLIQUES]
    larger = tuple(
        measure_marginals(
            GAUSSIAN, exact, CLIQUES, [Fraction(4), Fraction(9)], SeededBits(seed, "larger")
        )
    )
    return Marginals(domain=domain, one_way=one_way, larger=larger), compression


def test_counts_from_marginals_are_covered_where_they_are_not_too_few_to_tell() -> None:
    """Told counts of at least 50 records (10 deviations and more): 2,000 of them in 60 releases; false alarm below 1e-6.

    A pair that sums cells has the noise of all of them: with that of one it is covered in 70 %. Cells with merged values
    reach from 0 to the count of all that were merged.
    """
    table, hits, trials = people(), [0, 0], [0, 0]
    for seed in range(60):
        marginals, _ = measured(table, seed)
        told = marginal_counts(normalize_marginals(marginals, SETTINGS), SETTINGS)
        for level, inside in zip(
            told.levels, marginal_intervals(told, marginals, SETTINGS), strict=True
        ):
            truth = np.empty(len(level), np.int64)
            for columns, rows in level.by_columns():
                sizes = tuple(size + 1 for size in SIZES)
                truth[rows] = count_marginal(table.codes, sizes, columns)[
                    tuple(level.values[rows].T)
                ]
            for kind, these in enumerate((truth >= 50, truth < 50)):
                hits[kind] += int(covered(inside, truth)[these].sum())
                trials[kind] += int(these.sum())
    assert trials[0] >= 2000
    assert_nominal(hits[0], trials[0])
    # the rare ones were told only if consistency left something of them
    assert hits[1] / trials[1] >= 0.9


def records_near(marginals: Marginals, seed: int) -> tuple[NDArray[np.uint16], ...]:
    """Synthetic codes that keep the noisy one-way counts, noise and all."""
    rng = np.random.default_rng(seed)
    made = []
    for one in marginals.one_way:
        shares = np.maximum(one.counts, 0.0)
        made.append(rng.choice(len(shares), 3000, p=shares / shares.sum()).astype(np.uint16))
    return tuple(made)


def test_the_bound_of_marginals_holds_and_is_not_vacuous() -> None:
    """100 releases: each bound at 95 % fails no more often than that (false alarm 1e-6), and adds less than N.

    The distance to the noisy counts alone is no bound: it is exceeded in more than a quarter of the cases.
    """
    table, failures, exceeded, trials = people(), 0, 0, 0
    for seed in range(100):
        marginals, compression = measured(table, 1000 + seed)
        made = records_near(marginals, seed)
        weight = max(0.0, sum(m.total for m in marginals.one_way) / 4) / len(made[0])
        for found in marginal_bounds(marginals, Records([made], marginals.domain), SETTINGS):
            columns = tuple(map(marginals.domain.names.index, found.attributes))
            both = [
                compress_codes(codes, compression) if len(columns) > 1 else codes
                for codes in (table.codes, made)
            ]
            sizes = compression.sizes if len(columns) > 1 else tuple(size + 1 for size in SIZES)
            real, synthetic = (count_marginal(codes, sizes, columns) for codes in both)
            distance = float(np.abs(real - weight * synthetic).sum())
            assert found.bound is not None
            failures, trials = failures + (distance > found.bound), trials + 1
            exceeded += distance > found.distance
            assert found.bound - found.distance < 3000
    assert failures <= most_failures(trials)
    assert exceeded > trials / 4


@pytest.mark.parametrize(
    ("sd", "cells", "times"),
    [(Fraction(1, 2), 6, 4.0), (Fraction(4), 40, 2.0), (Fraction(30), 500, 1.7)],
    ids=str,
)
def test_the_noise_term_bounds_the_noise_and_is_near_it(
    sd: Fraction, cells: int, times: float
) -> None:
    """||N||_1 of 2,000 marginals: at most 5 % above (false alarm 1e-6), and the bound within `times` the median.

    For many cells the factor tends to sqrt(2 ln 2)/sqrt(2/pi) = 1.48.
    """
    noise = np.abs(add_noise(np.zeros((2000, cells), np.int64), sd, SeededBits(4))).sum(axis=1)
    bound = distance_bound(0.0, math.sqrt(sd**2 + Fraction(1, 12)), cells)
    assert (noise > bound).sum() <= most_failures(2000)
    assert bound <= times * np.median(noise)


@pytest.mark.parametrize("sd", [0.05, 0.2, 0.35, 0.5, 0.7, 0.8, 1.0, 3.0, 40.0])
def test_rounded_noise_is_sub_gaussian_with_a_twelfth_more_variance(sd: float) -> None:
    """E e^{tX} <= e^{t^2 (sd^2 + 1/12)/2} for t up to 10/sd; without the 1/12 it is false at every sd above .3."""
    reach = np.arange(-math.ceil(50 * sd + 50), math.ceil(50 * sd + 50) + 1)
    cells = ndtr(-(np.abs(reach) - 0.5) / sd) - ndtr(-(np.abs(reach) + 0.5) / sd)
    told, masses = reach[cells > 0], np.log(cells[cells > 0])
    needed = []
    for t in np.linspace(0.02, min(10 / sd, 20), 300):
        needed.append(float(np.logaddexp.reduce(masses + t * told)) / (t * t / 2))
    assert max(needed) <= (sd**2 + 1 / 12) * (1 + 1e-9)
    assert sd < 0.3 or max(needed) > sd**2


def test_the_bound_of_released_combinations_holds_whatever_was_selected() -> None:
    """Pairs of 60 releases at eta .1, against records that keep the noise: fails no more often than 5 % (false alarm 1e-6)."""
    sd, failures, trials = Fraction(30), 0, 0
    first, second = every_level(1), every_level(2)
    config = configuration(aggregate={"reporting_length": 2})
    table = people()
    counts = [bounded(table, first, 2), bounded(table, second, 3)]
    rng = np.random.default_rng(6)
    for release in range(60):
        plans = [mechanism(1, 2, sd, EVERYTHING), mechanism(2, 3, sd, 39)]
        pairs = [(counts[0], first), (counts[1], second)]
        levels = [
            draw_level(c, v, m, SeededBits(6, release, m.length))
            for (c, v), m in zip(pairs, plans, strict=True)
        ]
        labels = tuple(attribute.labels for attribute in config.attributes)
        drawn = Aggregates(
            domain=Domain(names=("sex", "region", "age", "grade"), labels=labels),
            record_count=3000,
            record_deviation=6.0,
            levels=tuple(levels),
            noise=tuple(level_noise(m, v) for (_, v), m in zip(pairs, plans, strict=True)),
        )
        made = tuple(rng.integers(0, size + 1, 2500) for size in SIZES)
        for found in combination_bounds(drawn, Records([made], drawn.domain), config):
            columns = tuple(map(drawn.domain.names.index, found.attributes))
            k = len(columns) - 1
            rows = dict(levels[k].by_columns())[columns]
            truth = true_counts(*pairs[k], levels[k])[rows]
            sizes = tuple(size + 1 for size in SIZES)
            synthetic = count_marginal([m.astype(np.uint8) for m in made], sizes, columns) * (
                3000 / 2500
            )
            kept = synthetic[tuple(levels[k].values[rows].T)]
            assert found.distance == pytest.approx(np.abs(levels[k].counts[rows] - kept).sum())
            assert found.bound is not None
            failures, trials = failures + (np.abs(truth - kept).sum() > found.bound), trials + 1
    assert failures <= most_failures(trials)


# --- what bounding takes ---------------------------------------------------------------------------------------------


SPREAD = (50, 450, 1000, 1500, 1300, 600, 100)


@pytest.mark.parametrize(
    ("percentile", "epsilon", "histogram"),
    [
        (99, 0.07, SPREAD),
        (99, 0.005, SPREAD),  # chosen far off: the share beyond the percentile alone is exceeded
        (95.5, 0.5, SPREAD),
        # chosen well: the error of the rank alone is exceeded
        (90, 0.07, (0, 0, 0, 0, 1, 4500, 499)),
    ],
)
def test_no_more_records_are_cut_than_the_bound_says(
    percentile: float, epsilon: float, histogram: tuple[int, ...]
) -> None:
    """400 choices and noisy record counts: at 95 % the bound fails no more often than 5 %; false alarm 1e-6.

    From epsilon .07 it says something: less than a quarter of the 5,000 records.
    """
    config = configuration(aggregate={"percentile": percentile})
    records = np.array(histogram, np.int64)
    assert config.contribution_cap(2) == 6
    noise, failures, bounds = add_noise(np.zeros(400, np.int64), Fraction(30), SeededBits(7)), 0, []
    for error in noise.tolist():
        chosen = select_percentile(records, percentile, epsilon, ROW, fresh_bits())
        aggregates = Aggregates(
            domain=Domain(names=(), labels=()),
            record_count=5000 + error,
            record_deviation=30.0,
            levels=(),
            noise=(),
        )
        bounds.append(most_cut_records(config, epsilon, aggregates, 2))
        failures += int(records[chosen + 1 :].sum()) > bounds[-1]
    assert failures <= most_failures(400)
    if epsilon >= 0.07:
        assert max(bounds) < 1250


@given(st.floats(0.3, 200.0), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_the_interval_of_laplace_noise_is_the_shortest_that_covers(
    scale: float, level: float
) -> None:
    """Summed from the exact probabilities (1 - p)/(1 + p) p^|x|: within the reach at least `level`, one less would miss it."""
    deviation = 1 / (math.sqrt(2) * math.sinh(1 / (2 * scale)))
    inside = count_interval(np.array([10**6]), deviation, noise="discrete-laplace", level=level)
    reach = int(inside.high[0]) - 10**6
    assert 10**6 - int(inside.low[0]) == reach
    p = math.exp(-1 / scale)
    mass = [(1 - p) / (1 + p) * p ** abs(x) for x in range(-reach, reach + 1)]
    assert math.fsum(mass) >= level * (1 - 1e-9)
    assert reach == 0 or math.fsum(mass[1:-1]) < level
