"""Privacy laws of one draw, measured on the shipped code: thresholds, domains, zero cells, contribution and scale of noise.

Many trials fit one draw: records whose combinations are disjoint are independent trials, because every cell has noise of its
own. Statistical tests compare Clopper-Pearson bounds, at level 1e-6 a test, with exact normal probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from marginweave.base.budget import Stability
from marginweave.configuration.release import Configuration
from marginweave.counts.candidates import CandidateSet
from marginweave.counts.released_rows import recode, released_level
from marginweave.domain.combinations import Level
from marginweave.measurements.levels import draw_level
from marginweave.mechanisms.gaussian import noise_sigma
from marginweave.mechanisms.randomness import fresh_bits
from marginweave.prepare.codes import EncodedTable
from tests.support.configurations import PRIVATE, configuration
from tests.support.level_draws import (
    DELTA,
    bounded,
    category,
    clopper_pearson,
    planned,
    surviving_values,
    table_of,
)
from tests.support.seeded_bits import SeededBits
from tests.support.tables import encoded

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
def test_private_values_of_one_record_are_published_with_probability_delta_at_most(
    sd: Fraction,
) -> None:
    """A record alone with 3 values, Delta_1 = 4: P(any is published) <= delta = 0.1, and near it where integers are fine.

    60,000 trials, false alarm 1e-6. `noisy > rho_1` gives 0.19 at sd 1, no + 1 or no root more at every sd.
    """
    config, table, candidates = records_of_their_own(3)
    mechanism = planned(config, candidates, 4, sd)
    low, high = clopper_pearson(
        exposed(draw_level(bounded(table, candidates, 4), candidates, mechanism, fresh_bits())),
        UNIQUE,
    )
    assert low <= DELTA
    # One step of the threshold changes the probability by at most the factor 1 - e^(-z / sd), z = 1.8.
    assert high >= DELTA * math.exp(-2.5 / float(sd)) * 0.9 or sd < 2


def test_the_threshold_counts_the_values_that_the_bound_admits() -> None:
    """With Delta_1 = 2 a record of 5 private values shows at most two: the threshold pays for 2, and delta still holds.

    60,000 trials, false alarm 1e-6; a threshold for 5 would be needlessly high, one for 1 publishes 0.19.
    """
    config, table, candidates = records_of_their_own(5)
    mechanism = planned(config, candidates, 2, Fraction(30))
    low, high = clopper_pearson(
        exposed(draw_level(bounded(table, candidates, 2), candidates, mechanism, fresh_bits())),
        UNIQUE,
    )
    # The public value takes one of the two places in 2 of 6 records: 1.67 private values a record on average.
    mean = 1 - (2 / 3) * (1 - DELTA) - (1 / 3) * math.sqrt(1 - DELTA)
    assert low <= mean <= DELTA
    assert high >= mean * 0.9


def test_the_domain_is_formed_after_bounding() -> None:
    """Values that bounding dropped are no candidates; the domain of unbounded records would publish beyond delta.

    60,000 records of 5 values of their own, Delta_1 = 1; false alarm 1e-6 (SDS defect 3c-1).
    """
    config, table, candidates = records_of_their_own(5)
    mechanism = planned(config, candidates, 1, Fraction(30))
    kept = bounded(table, candidates, 1)
    level = draw_level(kept, candidates, mechanism, fresh_bits())
    for j in range(1, 6):
        assert set(level.values[level.columns[:, 0] == j, 0].tolist()) <= set(
            kept.cells[j].tolist()
        )
    assert sum(len(cells) for cells in kept.cells[1:]) <= UNIQUE
    assert clopper_pearson(exposed(level), UNIQUE)[0] <= DELTA

    everything = bounded(table, candidates, 6)
    counts = tuple(
        kept.vector(j, candidates.mask(c).size)[cells]
        for j, (c, cells) in enumerate(zip(everything.column_sets, everything.cells, strict=True))
    )
    uncorrected = replace(everything, counts=counts)
    assert (
        clopper_pearson(
            exposed(draw_level(uncorrected, candidates, mechanism, fresh_bits())), UNIQUE
        )[0]
        > DELTA
    )


# --- zero cells ----------------------------------------------------------------------------------------------------


def tail(least: int, sd: Fraction) -> float:
    """P(X >= least) of the rounded Gaussian."""
    return float(ndtr(-(least - 0.5) / float(sd)))


def assert_survivors(level: Level, cells: int, probability: float) -> None:
    """As many empty cells survived as the tail says."""
    low, high = clopper_pearson(len(level), cells)
    assert low <= probability <= high


@pytest.mark.parametrize("fixed", [None, 12], ids=["no threshold", "fixed 12"])
@pytest.mark.parametrize("beside", [category(3), PRIVATE], ids=["public", "private"])
def test_empty_values_of_public_domains_survive_as_the_tail_says(
    beside: dict[str, Any], fixed: int | None
) -> None:
    """40,000 values of a public column that no record has: the surviving share is P(X >= T); false alarm 1e-6.

    A private column beside it has a threshold of its own and, without a record, no candidate at all. Skipping zero cells or
    suppressing by exact counts leaves none; the private threshold on public values a hundredth of them.
    """
    size = 40_000
    thresholds = None if fixed is None else {"fixed": {1: fixed}}
    config = configuration(
        columns={"a": category(size), "b": beside}, aggregate={"thresholds": thresholds}
    )
    sizes = (size, 0 if beside is PRIVATE else 3)
    candidates = CandidateSet(length=1, sizes=sizes)
    mechanism = planned(config, candidates, 2, Fraction(10))
    level = draw_level(
        bounded(table_of([[], []], sizes), candidates, 2), candidates, mechanism, fresh_bits()
    )
    assert_survivors(level, sum(sizes), tail(1 if fixed is None else fixed + 1, Fraction(10)))


@pytest.mark.parametrize(
    ("thresholds", "share"),
    [(None, None), ({"adaptive": {2: 0.1}}, 0.05), ({"adaptive": {2: 0.1}, "rule": "paper"}, None)],
    ids=["none", "sds", "paper"],
)
@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_empty_pairs_of_survivors_survive_as_the_tail_says(
    thresholds: Any, share: float | None, neighbors: Any
) -> None:
    """All 42,000 empty pairs of survivors get noise of sd sigma sqrt(Delta_2), and thresholds hold that sd: eta/2 survive.

    False alarm 1e-6; noise or a threshold with sqrt(Delta_1) in it is off by sqrt(3), zero-cell skipping leaves none.
    """
    sizes, bound, multiplier = (200, 210), 3, 12.0
    config = configuration(
        columns={"a": category(sizes[0]), "b": category(sizes[1])},
        aggregate={"thresholds": thresholds},
    )
    below = surviving_values(sizes)
    candidates = CandidateSet.above(below, sizes)
    sd = noise_sigma(multiplier, bound, Stability(records=1, neighbors=neighbors))
    mechanism = planned(config, candidates, bound, sd, survivors=len(below))
    real = multiplier * math.sqrt(bound * (2 if neighbors == "replace-one" else 1))
    assert mechanism.private_threshold == 0
    level = draw_level(
        bounded(table_of([[], []], sizes), candidates, bound), candidates, mechanism, fresh_bits()
    )
    assert_survivors(level, math.prod(sizes), float(ndtr(-(mechanism.threshold - 0.5) / real)))
    if share is not None:
        low, high = clopper_pearson(len(level), math.prod(sizes))
        assert low <= share * 1.05
        assert high >= share * 0.9
    elif thresholds is not None:  # Gopi et al.: about eta |S_1| empty cells in expectation
        low, high = clopper_pearson(len(level), math.prod(sizes))
        assert low <= 0.1 * len(below) / math.prod(sizes) * 1.05


def test_noise_is_added_before_the_threshold() -> None:
    """Values with the exact count 40 and a threshold of 40: half fall below, so nothing is kept or dropped by exact counts.

    5,000 values, sd 10, false alarm 1e-6.
    """
    size = 5_000
    config = configuration(
        columns={"a": category(size)},
        aggregate={"reporting_length": 1, "thresholds": {"fixed": {1: 39}}},
    )
    candidates = CandidateSet(length=1, sizes=(size,))
    table = table_of([np.repeat(np.arange(size), 40).tolist()], (size,))
    level = draw_level(
        bounded(table, candidates, 1),
        candidates,
        planned(config, candidates, 1, Fraction(10)),
        fresh_bits(),
    )
    assert_survivors(level, size, tail(0, Fraction(10)))


# --- which threshold holds where -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fixed", [0, 3, 10_000])
def test_a_fixed_threshold_only_raises_the_private_one(fixed: int) -> None:
    """Length 1: public values need more than `fixed`; private ones the larger of that and what pays for their discovery."""
    columns = {"sex": category(2), "county": PRIVATE, "town": PRIVATE}
    candidates = CandidateSet(length=1, sizes=(2, 3, 5))
    sd = Fraction(30)
    plain = planned(configuration(columns=columns), candidates, 3, sd)
    raised = planned(
        configuration(columns=columns, aggregate={"thresholds": {"fixed": {1: fixed}}}),
        candidates,
        3,
        sd,
    )
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
    for mechanism in (
        planned(public, first, 2, Fraction(9)),
        planned(private, second, 1, Fraction(9), survivors=5),
    ):
        assert (mechanism.threshold, mechanism.private_threshold) == (1, 0)
        assert mechanism.private_columns == frozenset()


# --- what must not depend on the data ------------------------------------------------------------------------------

MIXED = configuration(
    columns={
        "sex": {"type": "category", "values": ["f", "m"]},
        "county": PRIVATE,
        "age": {
            "type": "number",
            "bounds": [0, 100],
            "bins": [0, 18, 30, 50, 65, 100],
            "decimals": 0,
        },
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
    st.sampled_from(["", "old", "1_0", "nan"]),
    st.just("8"),
)


def two_levels(rows: Sequence[Sequence[str]], sd: Fraction) -> tuple[Any, ...]:
    """Everything that two draws show, with repeatable noise: mechanisms, column sets, masks, released labels, levels."""
    table = encoded(rows, MIXED)
    first = CandidateSet(length=1, sizes=table.sizes)
    mechanism = planned(MIXED, first, 4, sd)
    drawn = draw_level(bounded(table, first, 4), first, mechanism, SeededBits(5, 1))
    level, released = released_level(drawn, table.labels, sorted(mechanism.private_columns))
    table = recode(table, released)
    second = CandidateSet.above(level, table.sizes)
    again = planned(MIXED, second, 6, sd, survivors=len(level))
    pairs = draw_level(bounded(table, second, 6), second, again, SeededBits(5, 2))
    masks = [(c, second.mask(c).tolist()) for c in second.column_sets()]
    arrays = [
        getattr(item, part).tolist()
        for item in (level, pairs)
        for part in ("columns", "values", "counts")
    ]
    return mechanism, again, released, masks, arrays


@given(st.lists(ROW, max_size=30), st.lists(NOTHING, max_size=3), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=20)
def test_neither_row_order_nor_empty_records_show(
    rows: list[tuple[str, ...]], nothing: list[tuple[str, ...]], order: Any
) -> None:
    """Under the same noise, shuffled rows and records without a valid value change nothing: no candidate, set or threshold."""
    changed = [*rows, *nothing]
    order.shuffle(changed)
    same = two_levels(changed, Fraction(2)) == two_levels(rows, Fraction(2))
    assert same  # spelt so: a difference of whole masks would take minutes to print


@given(st.lists(ROW, max_size=60), st.sampled_from([1, 1, 20]), st.integers(0, 1000))
@settings(deadline=None, max_examples=25)
def test_private_labels_leave_only_if_they_survived(
    rows: list[tuple[str, ...]], times: int, seed: int
) -> None:
    """Released labels are those with a published count, under their own counts; all others are missing from length 2 on."""
    rows = rows * times  # of many rows most labels survive, of few none or some
    table = encoded(rows, MIXED)
    first = CandidateSet(length=1, sizes=table.sizes)
    mechanism = planned(MIXED, first, 4, Fraction(4))
    drawn = draw_level(bounded(table, first, 4), first, mechanism, SeededBits(seed))
    counts = {
        table.labels[1][v]: n
        for (j, v), n in zip(_cells(drawn), drawn.counts.tolist(), strict=True)
        if j == 1
    }
    level, released = released_level(drawn, table.labels, [1])
    assert released == {1: tuple(sorted(counts))}
    assert all(n >= mechanism.private_threshold > 1 for n in counts.values())
    assert set(counts) <= {row[1] for row in rows} - {""}

    coded = recode(table, released)
    renamed = {
        coded.labels[1][v]: n
        for (j, v), n in zip(_cells(level), level.counts.tolist(), strict=True)
        if j == 1
    }
    assert renamed == counts
    assert [cell for cell in _cells(level) if cell[0] != 1] == [
        cell for cell in _cells(drawn) if cell[0] != 1
    ]
    assert coded.labels[1] == released[1]
    shown = [*coded.labels[1], None]
    assert [shown[v] for v in coded.codes[1].tolist()] == [
        row[1] if row[1] in counts else None for row in rows
    ]

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
