"""Privacy laws of one draw, measured on the shipped code: thresholds, domains, zero cells, contribution and scale of noise.

Many trials fit one draw: records whose combinations are disjoint are independent trials, because every cell has noise of its
own. Statistical tests compare Clopper-Pearson bounds at level 1e-6 (both sides together) with exact normal probabilities.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri
from scipy.stats import beta

from marginweave.schemas.aggregates import Level
from marginweave.schemas.configuration import Configuration
from marginweave.tasks.aggregate.bounded_counts import BoundedCounts, bounded_counts, contributions
from marginweave.tasks.aggregate.candidates import CandidateSet, Mask
from marginweave.tasks.aggregate.level import LevelMechanism, draw_level, plan_level
from marginweave.tasks.aggregate.released import recode, released_values, to_released
from marginweave.tasks.budget.mechanisms import deviation
from marginweave.tasks.budget.randomness import KeyedBits
from marginweave.tasks.budget.split import plan_budget
from marginweave.tasks.encode.codes import EncodedTable, code_type
from tests.support.configurations import configuration
from tests.support.seeded_bits import SeededBits
from tests.support.tables import encoded, level_from

FALSE_ALARM = 1e-6
DELTA = 0.1
PRIVATE = {"type": "category", "domain": "private"}


def clopper_pearson(hits: int, trials: int) -> tuple[float, float]:
    """Bounds of a probability; each is wrong with probability at most FALSE_ALARM / 2."""
    low = 0.0 if hits == 0 else float(beta.ppf(FALSE_ALARM / 2, hits, trials - hits + 1))
    high = 1.0 if hits == trials else float(beta.isf(FALSE_ALARM / 2, hits + 1, trials - hits))
    return low, high


def category(size: int) -> dict[str, Any]:
    """A public domain of `size` values."""
    return {"type": "category", "values": [f"v{v}" for v in range(size)]}


def table_of(columns: Sequence[Sequence[int]], sizes: Sequence[int]) -> EncodedTable:
    """An encoded table from columns of codes."""
    codes = tuple(np.array(c, code_type(size)) for c, size in zip(columns, sizes, strict=True))
    return EncodedTable(codes=codes, labels=tuple(tuple(f"v{v}" for v in range(size)) for size in sizes))


def bounded(table: EncodedTable, candidates: CandidateSet, bound: int) -> BoundedCounts:
    """Bounded counts under a fixed key."""
    held = contributions(table.codes, candidates)
    return bounded_counts(table.codes, candidates, held, bound, KeyedBits(key=bytes(range(32)), purpose="test"))


def planned(
    config: Configuration, candidates: CandidateSet, bound: int, sd: Fraction, survivors: int = 0
) -> LevelMechanism:
    """The mechanism of a level with the large test delta."""
    return plan_level(
        config,
        candidates=candidates,
        survivors_before=survivors,
        contribution_bound=bound,
        deviation=sd,
        delta_threshold=DELTA,
    )


# --- thresholds of private domains ---------------------------------------------------------------------------------

UNIQUE = 60_000


def records_of_their_own(private: int) -> tuple[Configuration, EncodedTable, CandidateSet]:
    """UNIQUE records, each with a value in every one of `private` columns that no other record has, and one public value."""
    columns = {"sex": category(2), **{f"private{j}": PRIVATE for j in range(private)}}
    alone = list(range(UNIQUE))
    table = table_of([[0] * UNIQUE, *[alone] * private], [2, *[UNIQUE] * private])
    return configuration(columns=columns), table, CandidateSet(length=1, sizes=table.sizes)


def exposed(level: Level) -> int:
    """How many of those records have at least one value of their own published."""
    return len(np.unique(level.values[level.columns[:, 0] > 0]))


@pytest.mark.parametrize("sd", [Fraction(1), Fraction(3, 2), Fraction(30)], ids=str)
def test_private_values_of_one_record_are_published_with_probability_delta_at_most(sd: Fraction) -> None:
    """A record alone with 3 values, Delta_1 = 4: P(any is published) <= delta = 0.1, and near it where integers are fine.

    60,000 trials, false alarm 1e-6. `noisy > rho_1` gives 0.19 at sd 1, no + 1 or no root more at every sd.
    """
    config, table, candidates = records_of_their_own(3)
    mechanism = planned(config, candidates, 4, sd)
    low, high = clopper_pearson(exposed(draw_level(bounded(table, candidates, 4), candidates, mechanism)), UNIQUE)
    assert low <= DELTA
    # One step of the threshold changes the probability by at most the factor 1 - e^(-z / sd), z = 1.8.
    assert high >= DELTA * math.exp(-2.5 / float(sd)) * 0.9 or sd < 2


def test_the_threshold_counts_the_values_that_the_bound_admits() -> None:
    """With Delta_1 = 2 a record of 5 private values shows at most two: the threshold pays for 2, and delta still holds.

    60,000 trials, false alarm 1e-6; a threshold for 5 would be needlessly high, one for 1 publishes 0.19.
    """
    config, table, candidates = records_of_their_own(5)
    mechanism = planned(config, candidates, 2, Fraction(30))
    low, high = clopper_pearson(exposed(draw_level(bounded(table, candidates, 2), candidates, mechanism)), UNIQUE)
    # The public value takes one of the two places in 2 of 6 records: 1.67 private values a record on average.
    mean = 1 - (2 / 3) * (1 - DELTA) - (1 / 3) * math.sqrt(1 - DELTA)
    assert low <= mean <= DELTA
    assert high >= mean * 0.9


def test_the_domain_is_formed_after_bounding() -> None:
    """Values that bounding dropped are no candidates; the domain of unbounded records would publish beyond delta.

    60,000 records of 5 values of their own, Delta_1 = 1; false alarm 1e-6 each way (SDS defect 3c-1).
    """
    config, table, candidates = records_of_their_own(5)
    mechanism = planned(config, candidates, 1, Fraction(30))
    kept = bounded(table, candidates, 1)
    level = draw_level(kept, candidates, mechanism)
    for j in range(1, 6):
        assert set(level.values[level.columns[:, 0] == j, 0].tolist()) <= set(kept.cells[j].tolist())
    assert sum(len(cells) for cells in kept.cells[1:]) <= UNIQUE
    assert clopper_pearson(exposed(level), UNIQUE)[0] <= DELTA

    everything = bounded(table, candidates, 6)
    counts = tuple(
        kept.dense(j, candidates.mask(c).size)[cells]
        for j, (c, cells) in enumerate(zip(everything.column_sets, everything.cells, strict=True))
    )
    uncorrected = replace(everything, counts=counts)
    assert clopper_pearson(exposed(draw_level(uncorrected, candidates, mechanism)), UNIQUE)[0] > DELTA


# --- zero cells ----------------------------------------------------------------------------------------------------


def tail(least: int, sd: Fraction) -> float:
    """P(X >= least) of the rounded Gaussian."""
    return float(ndtr(-(least - 0.5) / float(sd)))


def assert_survivors(level: Level, cells: int, probability: float) -> None:
    """As many empty cells survived as the tail says."""
    low, high = clopper_pearson(len(level), cells)
    assert low <= probability <= high


@pytest.mark.parametrize("fixed", [None, 12], ids=["no threshold", "fixed 12"])
def test_empty_values_of_public_domains_survive_as_the_tail_says(fixed: int | None) -> None:
    """40,003 values of two public columns that no record has: the surviving share is P(X >= T); false alarm 1e-6.

    Skipping zero cells or suppressing by exact counts leaves none of them.
    """
    sizes = (40_000, 3)
    thresholds = "uncontrolled" if fixed is None else {"fixed": {1: fixed}}
    columns = {"a": category(sizes[0]), "b": category(sizes[1])}
    config = configuration(columns=columns, aggregate={"thresholds": thresholds})
    candidates = CandidateSet(length=1, sizes=sizes)
    sd = Fraction(10)
    level = draw_level(
        bounded(table_of([[], []], sizes), candidates, 2), candidates, planned(config, candidates, 2, sd)
    )
    assert_survivors(level, sum(sizes), tail(1 if fixed is None else fixed + 1, sd))


def surviving_values(sizes: Sequence[int]) -> Level:
    """A level of single values in which all of them survived."""
    return level_from({((j, v),): 1 for j, size in enumerate(sizes) for v in range(size)}, 1)


@pytest.mark.parametrize(
    ("thresholds", "share"),
    [("uncontrolled", None), ({"adaptive": {2: 0.1}}, 0.05), ({"adaptive": {2: 0.1}, "rule": "paper"}, None)],
    ids=["uncontrolled", "sds", "paper"],
)
@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_empty_pairs_of_survivors_survive_as_the_tail_says(
    thresholds: Any, share: float | None, neighbors: Any
) -> None:
    """All 42,000 empty pairs of survivors get noise of sd sigma sqrt(Delta_2), and thresholds hold that sd: eta/2 survive.

    False alarm 1e-6 each; noise or a threshold with sqrt(Delta_1) in it is off by sqrt(3), zero-cell skipping leaves none.
    """
    sizes, bound, multiplier = (200, 210), 3, 12.0
    config = configuration(
        columns={"a": category(sizes[0]), "b": category(sizes[1])}, aggregate={"thresholds": thresholds}
    )
    below = surviving_values(sizes)
    candidates = CandidateSet.above(below, sizes)
    sd = deviation(multiplier, bound, neighbors)
    mechanism = planned(config, candidates, bound, sd, survivors=len(below))
    real = multiplier * math.sqrt(bound * (2 if neighbors == "replace-one" else 1))
    assert mechanism.private_threshold == 0
    level = draw_level(bounded(table_of([[], []], sizes), candidates, bound), candidates, mechanism)
    assert_survivors(level, math.prod(sizes), float(ndtr(-(mechanism.threshold - 0.5) / real)))
    if share is not None:
        low, high = clopper_pearson(len(level), math.prod(sizes))
        assert low <= share * 1.05 and high >= share * 0.9
    elif thresholds != "uncontrolled":  # Gopi et al.: about eta |S_1| empty cells in expectation
        low, high = clopper_pearson(len(level), math.prod(sizes))
        assert low <= 0.1 * len(below) / math.prod(sizes) * 1.05


def test_noise_is_added_before_the_threshold() -> None:
    """Values with the exact count 40 and a threshold of 40: half fall below, so nothing is kept or dropped by exact counts.

    5,000 values, sd 10, false alarm 1e-6.
    """
    size = 5_000
    config = configuration(
        columns={"a": category(size)}, aggregate={"reporting_length": 1, "thresholds": {"fixed": {1: 39}}}
    )
    candidates = CandidateSet(length=1, sizes=(size,))
    table = table_of([np.repeat(np.arange(size), 40).tolist()], (size,))
    level = draw_level(bounded(table, candidates, 1), candidates, planned(config, candidates, 1, Fraction(10)))
    assert_survivors(level, size, tail(0, Fraction(10)))


# --- which threshold holds where -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fixed", [0, 3, 10_000])
def test_a_fixed_threshold_only_raises_the_private_one(fixed: int) -> None:
    """Length 1: public values need more than `fixed`; private ones the larger of that and what pays for their discovery."""
    columns = {"sex": category(2), "county": PRIVATE, "town": PRIVATE}
    candidates = CandidateSet(length=1, sizes=(2, 3, 5))
    sd = Fraction(30)
    plain = planned(configuration(columns=columns), candidates, 3, sd)
    raised = planned(configuration(columns=columns, aggregate={"thresholds": {"fixed": {1: fixed}}}), candidates, 3, sd)
    assert plain.threshold == 1 < plain.private_threshold
    assert raised.threshold == fixed + 1
    assert raised.private_threshold == max(plain.private_threshold, fixed + 1)
    assert raised.private_columns == {1, 2}


def test_public_domains_and_longer_combinations_have_no_private_threshold() -> None:
    """Where nothing is discovered nothing is suppressed for it."""
    public = configuration(columns={"a": category(2), "b": category(3)})
    private = configuration(columns={"a": category(2), "b": PRIVATE})
    first = CandidateSet(length=1, sizes=(2, 3))
    second = CandidateSet.above(surviving_values((2, 3)), (2, 3))
    for mechanism in (planned(public, first, 2, Fraction(9)), planned(private, second, 1, Fraction(9), survivors=5)):
        assert (mechanism.threshold, mechanism.private_threshold) == (1, 0)
        assert mechanism.private_columns == frozenset()


# --- the privacy loss as a whole -----------------------------------------------------------------------------------

TRIALS, REPEATS = 400, 150
SHIFT = (0, 2, 5)
DOMAINS = tuple(2 * TRIALS + shift for shift in SHIFT)


@dataclass(frozen=True, kw_only=True)
class Pinned(CandidateSet):
    """Candidates of which only the canaries' cells are drawn: V_k pinned, and nothing but what the audit scores."""

    def mask(self, columns: tuple[int, ...]) -> Mask:
        mask = np.zeros(tuple(self.sizes[j] + 1 for j in columns), np.bool_)
        mask[tuple(np.arange(2 * TRIALS) + SHIFT[j] for j in columns)] = True
        return mask

    def column_sets(self) -> Any:
        yield from itertools.combinations(range(3), self.length)


def canaries(first: int) -> EncodedTable:
    """TRIALS records that share no combination with each other, nor with those of another `first`."""
    return table_of([[first + i + shift for i in range(TRIALS)] for shift in SHIFT], DOMAINS)


def scores(level: Level, sd: Fraction) -> np.ndarray:
    """For each of the 2 TRIALS possible canaries, the sum of its noisy counts over sd^2; all of its cells must survive."""
    trial = level.values[:, 0] - np.array(SHIFT)[level.columns[:, 0]]
    assert len(level) == 2 * TRIALS * math.comb(3, level.length)
    return np.bincount(trial, weights=level.counts, minlength=2 * TRIALS) / float(sd) ** 2


def total_scores(config: Configuration, table: EncodedTable) -> np.ndarray:
    """Scores over lengths 1 and 2, each drawn REPEATS times; shape (REPEATS, 2 TRIALS)."""
    total = np.zeros((REPEATS, 2 * TRIALS))
    for length in (1, 2):
        candidates = Pinned(length=length, sizes=DOMAINS)
        bound = math.comb(3, length)
        multiplier = plan_budget(config).draw(f"level-{length}").parameter
        sd = deviation(multiplier, bound, config.privacy.neighbors)
        # No threshold: what is not published would be a loss of power, not of privacy.
        mechanism = replace(planned(config, candidates, bound, sd), threshold=-(10**6))
        counts = bounded(table, candidates, bound)
        for repeat in range(REPEATS):
            total[repeat] += scores(draw_level(counts, candidates, mechanism), sd)
    return total


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_the_measured_privacy_loss_is_the_claimed_one(neighbors: Any) -> None:
    """mu of lengths 1 and 2 as an optimal test measures it: not above the claim, not below 0.9 of it; false alarm 2e-6.

    60,000 pairs. A missing sqrt(Delta_k), half the sigma, or replace-one with add-remove noise measure 1.4 to 2 mu; 20 %
    too much noise measures 0.83 mu.
    """
    columns = {f"c{j}": category(size) for j, size in enumerate(DOMAINS)}
    config = configuration(
        columns=columns,
        privacy={"epsilon": 10.0, "delta": 1e-6, "unit": "row", "neighbors": neighbors},
        aggregate={"reporting_length": 2, "percentile": "none"},
    )
    plan = plan_budget(config)
    claimed = math.sqrt(sum(plan.draw(f"level-{k}").cost.mu2 for k in (1, 2)))
    with_one = total_scores(config, canaries(0))
    if neighbors == "replace-one":
        with_other = total_scores(config, canaries(TRIALS))
        present, absent = (s[:, :TRIALS] - s[:, TRIALS:] for s in (with_one, with_other))
        cut = 0.0
    else:
        with_none = total_scores(config, table_of([[], [], []], DOMAINS))
        present, absent = with_one[:, :TRIALS], with_none[:, :TRIALS]
        cut = claimed**2 / 2
    true_low, true_high = clopper_pearson(int((present > cut).sum()), present.size)
    false_low, false_high = clopper_pearson(int((absent > cut).sum()), absent.size)
    assert ndtri(true_low) - ndtri(false_high) <= claimed
    assert ndtri(true_high) - ndtri(false_low) >= 0.9 * claimed


# --- what must not depend on the data ------------------------------------------------------------------------------

MIXED = configuration(
    columns={
        "sex": {"type": "category", "values": ["f", "m"]},
        "county": PRIVATE,
        "age": {"type": "number", "bounds": [0, 100], "bins": [0, 18, 30, 50, 65, 100], "decimals": 0},
        "grade": {"type": "category", "values": [1, 2, 3, 4, 5, 6, 7]},
    }
)
ROW = st.tuples(
    st.sampled_from(["f", "m", ""]),
    st.sampled_from(["kent", "essex", "devon", "", "rutland"]),
    st.sampled_from(["3", "18", "40", "99", ""]),
    st.sampled_from(["1", "4", "7", ""]),
)
NOTHING = st.tuples(
    st.sampled_from(["", " ", "x"]),
    st.sampled_from(["", "  "]),
    st.sampled_from(["", "old", "1e999", "nan"]),
    st.just("8"),
)


def two_levels(rows: Sequence[Sequence[str]], sd: Fraction) -> tuple[Any, ...]:
    """Everything that two draws show, with repeatable noise: mechanisms, column sets, masks, released labels, levels."""
    table = encoded(rows, MIXED)
    bits = SeededBits(5)
    first = CandidateSet(length=1, sizes=table.sizes)
    mechanism = planned(MIXED, first, 4, sd)
    drawn = draw_level(bounded(table, first, 4), first, mechanism, bits)
    released = released_values(drawn, table, sorted(mechanism.private_columns))
    level = to_released(drawn, table, released)
    table = recode(table, released)
    second = CandidateSet.above(level, table.sizes)
    again = planned(MIXED, second, 6, sd, survivors=len(level))
    pairs = draw_level(bounded(table, second, 6), second, again, bits)
    masks = [(c, second.mask(c).tolist()) for c in second.column_sets()]
    arrays = [getattr(item, part).tolist() for item in (level, pairs) for part in ("columns", "values", "counts")]
    return mechanism, again, released, masks, arrays


@given(st.lists(ROW, max_size=30), st.lists(NOTHING, max_size=3), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=40)
def test_neither_row_order_nor_empty_records_show(
    rows: list[tuple[str, ...]], nothing: list[tuple[str, ...]], order: Any
) -> None:
    """Under the same noise, shuffled rows and records without a valid value change nothing: no candidate, set or threshold."""
    changed = [*rows, *nothing]
    order.shuffle(changed)
    assert two_levels(changed, Fraction(2)) == two_levels(rows, Fraction(2))


@given(st.lists(ROW, max_size=60), st.integers(0, 1000))
@settings(deadline=None, max_examples=60)
def test_private_labels_leave_only_if_they_survived(rows: list[tuple[str, ...]], seed: int) -> None:
    """Released labels are those with a published count, under their own counts; all others are missing from length 2 on."""
    table = encoded(rows, MIXED)
    first = CandidateSet(length=1, sizes=table.sizes)
    mechanism = planned(MIXED, first, 4, Fraction(4))
    drawn = draw_level(bounded(table, first, 4), first, mechanism, SeededBits(seed))
    counts = {table.labels[1][v]: n for (j, v), n in zip(_cells(drawn), drawn.counts.tolist(), strict=True) if j == 1}
    released = released_values(drawn, table, [1])
    assert released == {1: tuple(sorted(counts))}
    assert all(n >= mechanism.private_threshold > 1 for n in counts.values())
    assert set(counts) <= {row[1] for row in rows} - {""}

    level, coded = to_released(drawn, table, released), recode(table, released)
    renamed = {coded.labels[1][v]: n for (j, v), n in zip(_cells(level), level.counts.tolist(), strict=True) if j == 1}
    assert renamed == counts
    assert [cell for cell in _cells(level) if cell[0] != 1] == [cell for cell in _cells(drawn) if cell[0] != 1]
    assert coded.labels[1] == released[1]
    shown = [*coded.labels[1], None]
    assert [shown[v] for v in coded.codes[1].tolist()] == [row[1] if row[1] in counts else None for row in rows]

    second = CandidateSet.above(level, coded.sizes)
    for columns in second.column_sets():
        assert 1 not in columns or counts
        mask = second.mask(columns)
        for axis, j in enumerate(columns):
            alive = {v for c, v in _cells(level) if c == j}
            assert set(np.unique(np.nonzero(mask)[axis]).tolist()) <= alive


def _cells(level: Level) -> list[tuple[int, int]]:
    """(column, value) of the rows of a level of length 1."""
    return list(zip(level.columns[:, 0].tolist(), level.values[:, 0].tolist(), strict=True))
