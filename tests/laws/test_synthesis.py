"""Laws of aggregate-seeded synthesis: the law of a record, exact margins, nothing fabricated, exact lengths."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from marginweave.configuration.synthesis import SynthesisSettings
from marginweave.estimate.normalize import normalize
from marginweave.records import combinations as lattice
from tests.support.noisy_counts import SIZES, aggregates_of, counts_of, noisy_counts, tally
from tests.support.synthesized import synthesize_records

PRINTED = {"records": "exhaust", "sample_missing": False, "relax": False}
EXAMPLE = [(0, 0, 0), (0, 1, 0), (1, 2, 1), (1, 1, 0), (0, 1, 2)]  # the missing value is the size


def printed_weight(released, record, attribute, length, percentile):
    """The extension step as Synthetic Data Showcase prints it; None if the attribute cannot be added."""
    candidate = tuple(sorted((*record, attribute)))
    if len({column for column, _ in candidate}) < len(candidate):
        return None
    if len(candidate) <= length:
        return released.get(candidate)
    parts = [p for k in range(1, length + 1) for p in combinations(candidate, k) if attribute in p]
    if any(part not in released for part in parts):
        return None
    return np.floor(
        np.percentile([released[p] for p in parts], percentile, method="median_unbiased") + 0.5
    )


def record_law(released, length, percentile):
    """Probability of each finished record, over all orders of drawing."""
    attributes = [t[0] for t in released if len(t) == 1]
    law: defaultdict[tuple[tuple[int, int], ...], float] = defaultdict(float)
    growing: dict[tuple[tuple[int, int], ...], float] = {(): 1.0}
    while growing:
        longer: defaultdict[tuple[tuple[int, int], ...], float] = defaultdict(float)
        for record, chance in growing.items():
            weights = {
                a: printed_weight(released, record, a, length, percentile) for a in attributes
            }
            total = sum(w for w in weights.values() if w)
            if not total:
                law[record] += chance
            for attribute, weight in weights.items():
                if weight:
                    longer[tuple(sorted((*record, attribute)))] += chance * weight / total
        growing = longer
    return law


@pytest.mark.parametrize(("length", "percentile"), [(1, 95), (2, 95), (2, 30), (3, 60)])
def test_records_follow_the_printed_law(length, percentile):
    """Chi-square of 30000 independent records against the exact law of one record; false alarms below 1e-6 each."""
    rng = np.random.default_rng(5)
    table = [[int(rng.integers(size)) for size in (2, 3, 2, 3)] for _ in range(14)]
    # Small counts beyond length 1 make the rounding of the weights matter.
    counts = {t: 40_000 * n if len(t) == 1 else n for t, n in tally(table, length).items()}
    aggregates = normalize(aggregates_of(counts, length=length))
    options = {
        **PRINTED,
        "records": 30_000,
        "use_synthetic_counts": False,
        "weight_percentile": percentile,
    }
    records = synthesize_records(aggregates, SynthesisSettings.model_validate(options))
    seen = Counter(tuple((j, int(v)) for j, v in enumerate(r) if v < SIZES[j]) for r in records)
    law = record_law(counts_of(aggregates), length, percentile)
    assert set(seen) <= set(law)
    expected = {record: 30_000 * chance for record, chance in law.items() if 30_000 * chance >= 10}
    statistic = sum((seen[r] - e) ** 2 / e for r, e in expected.items())
    assert len(expected) > 3
    assert statistic < chi2.isf(1e-7, len(expected))


@settings(max_examples=25, deadline=None)
@given(noisy_counts(low=1, size=15), st.booleans(), st.integers(0, 3))
def test_exhausting_uses_every_value_exactly_as_often_as_released(counts, subtract, seed):
    """With `exhaust` the counts of length 1 come out exactly, as printed and with relaxed records."""
    aggregates = normalize(aggregates_of(counts))
    for relax in (False, True):
        options = SynthesisSettings.model_validate(
            {**PRINTED, "relax": relax, "seed": seed, "use_synthetic_counts": subtract}
        )
        made = tally(synthesize_records(aggregates, options), 1)
        assert made == {t: n for t, n in counts_of(aggregates).items() if len(t) == 1}


@settings(max_examples=25, deadline=None)
@given(noisy_counts(low=1, size=15), st.booleans(), st.booleans())
def test_nothing_is_fabricated_without_relaxing(counts, subtract, sample_missing):
    """Every combination of length up to R inside a record is released."""
    aggregates = normalize(aggregates_of(counts, record_count=60))
    options = SynthesisSettings(
        relax=False, use_synthetic_counts=subtract, sample_missing=sample_missing
    )
    assert set(tally(synthesize_records(aggregates, options), 3)) <= set(counts_of(aggregates))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(*(st.integers(0, 1) for _ in SIZES)), min_size=5, max_size=40),
    st.integers(0, 9),
)
def test_synthetic_counts_never_pass_released_ones(table, seed):
    """With `use_synthetic_counts` and R = 2 no pair is used more often than released."""
    aggregates = normalize(aggregates_of(tally(table, 2), length=2))
    made = tally(
        synthesize_records(aggregates, SynthesisSettings.model_validate({**PRINTED, "seed": seed})),
        2,
    )
    released = counts_of(aggregates)
    assert all(n <= released[t] for t, n in made.items())


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(*(st.integers(0, s) for s in SIZES)), min_size=1, max_size=40),
    st.integers(1, 3),
)
def test_exact_counts_give_exact_columns(table, length):
    """From exact counts, as many records as there were have every value, and missing, exactly as often."""
    aggregates = normalize(
        aggregates_of(tally(table, length), record_count=len(table), length=length)
    )
    records = synthesize_records(aggregates, SynthesisSettings())
    for column, made in zip(zip(*table, strict=True), records.T, strict=True):
        assert Counter(column) == Counter(made.tolist())


def test_relaxed_records_are_complete():
    """Where no pair is released, relaxed records still have a value in every column; others have one in all."""
    single = {((j, v),): 50 for j, size in enumerate(SIZES) for v in range(size)}
    aggregates = normalize(aggregates_of(single))
    relaxed = synthesize_records(aggregates, SynthesisSettings(records=20, sample_missing=False))
    strict = synthesize_records(
        aggregates, SynthesisSettings(records=20, sample_missing=False, relax=False)
    )
    assert (relaxed < SIZES).all()
    assert ((strict < SIZES).sum(axis=1) == 1).all()


def test_missing_values_keep_their_company():
    """Columns that are missing exactly together, and beside one value of another column, stay so."""
    table = [(0, 1, 0, 0)] * 300 + [(1, SIZES[1], SIZES[2], 0)] * 200
    aggregates = normalize(aggregates_of(tally(table, 2), record_count=500, length=2))
    records = synthesize_records(aggregates, SynthesisSettings())
    assert sorted(map(tuple, records.tolist())) == sorted(table)


@pytest.mark.parametrize("records", [1, 37, 400])
def test_the_number_of_records_is_the_one_asked_for(records):
    """A number is met exactly: counts begin again when they run out before."""
    aggregates = normalize(aggregates_of(tally(EXAMPLE, 3, (2, 2, 2)), sizes=(2, 2, 2)))
    made = synthesize_records(
        aggregates, SynthesisSettings(records=records, sample_missing=False, relax=False)
    )
    assert made.shape == (records, 3)
    assert (made < 2).any(axis=1).all()


def test_count_and_scale_fix_the_size():
    """`count` makes as many records as the protected count; scale multiplies it and rounds up."""
    counts = tally(EXAMPLE, 3, (2, 2, 2))
    aggregates = normalize(aggregates_of(counts, record_count=5, sizes=(2, 2, 2)))
    assert len(synthesize_records(aggregates, SynthesisSettings())) == 5
    assert len(synthesize_records(aggregates, SynthesisSettings(scale=1.5))) == 8
    scaled = synthesize_records(
        aggregates, SynthesisSettings.model_validate({**PRINTED, "scale": 1.5})
    )
    expected = {t: -(-3 * n // 2) for t, n in counts.items() if len(t) == 1}
    assert tally(scaled, 1, (2, 2, 2)) == expected


def test_nothing_released_makes_empty_records():
    """Without a single count every record is missing throughout, and `exhaust` makes none."""
    aggregates = aggregates_of({}, record_count=4)
    assert (synthesize_records(aggregates, SynthesisSettings()) == SIZES).all()
    assert synthesize_records(aggregates, SynthesisSettings.model_validate(PRINTED)).shape == (0, 4)


@pytest.mark.parametrize("relax", [False, True])
def test_the_table_changes_nothing(relax, monkeypatch):
    """Candidates are looked up in a table where it fits into memory and searched for where not: the records are the same."""
    table = np.random.default_rng(1).integers(0, SIZES, (60, 4))
    aggregates = normalize(aggregates_of(tally(table, 3), record_count=60))
    options = SynthesisSettings(records=200, relax=relax)
    looked_up = synthesize_records(aggregates, options)
    monkeypatch.setattr(lattice, "_TABLE", 0)
    assert np.array_equal(looked_up, synthesize_records(aggregates, options))


def test_a_seed_fixes_the_records():
    """The same seed makes the same records, another one others."""
    table = np.random.default_rng(1).integers(0, SIZES, (200, 4))
    aggregates = normalize(aggregates_of(tally(table, 3), record_count=200))
    first, again, other = (
        synthesize_records(aggregates, SynthesisSettings(seed=s)) for s in (3, 3, 4)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@settings(max_examples=15, deadline=None)
@given(noisy_counts(low=1, size=12), st.tuples(*(st.booleans() for _ in SIZES)), st.integers(0, 3))
def test_a_column_that_cannot_be_missing_never_is(counts, optional, seed):
    """Whatever was released, only columns that can be missing have missing values."""
    aggregates = normalize(aggregates_of(counts, record_count=20))
    records = synthesize_records(aggregates, SynthesisSettings(seed=seed), optional)
    for j, (size, can_be_missing) in enumerate(zip(SIZES, optional, strict=True)):
        assert can_be_missing or (records[:, j] < size).all()
