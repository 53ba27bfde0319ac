"""What a unit of privacy can move: by construction, through the shipped stages, with all other choices coupled.

Every test fails where theta, the number of rows of one subject that are counted, is forgotten in one place.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.budget import Neighbors, Stability
from marginweave.configuration.preparation import ResizeSettings
from marginweave.configuration.release import Configuration
from marginweave.counts.candidates import CandidateSet
from marginweave.measurements.levels import draw_level
from marginweave.measurements.rows_beyond_cap import RowsBeyondCap, beyond_cap
from marginweave.measurements.thresholds import private_threshold
from marginweave.mechanisms.gaussian import RoundedGaussian, count_sigma, noise_sigma
from marginweave.mechanisms.noise_table import noise_table
from marginweave.mechanisms.percentile import rank_scores, score_sensitivity
from marginweave.mechanisms.randomness import fresh_bits
from marginweave.prepare.clean import CleanBlocks, pack_clean
from marginweave.prepare.encode import sampled_rows
from marginweave.prepare.rows import kept_rows, prepare_blocks
from tests.support.candidates import SIZES, all_candidates, from_codes
from tests.support.configurations import configuration
from tests.support.counting import count_bounded, histogram
from tests.support.level_draws import DELTA, bounded, clopper_pearson, planned, table_of
from tests.support.tables import FixedWords, encoded, prepare_rows

RELATIONS: tuple[Neighbors, ...] = ("add-remove", "replace-one")


class RowWords:
    """One word a row, by the row's own name: two tables give the rows that they share the same words."""

    def __init__(self, names: list[Any], seed: int) -> None:
        self._names, self._seed = names, seed

    def words_of(self, records: np.ndarray, slots: np.ndarray | int = 0) -> np.ndarray:
        """The word of each row, of the copy `slots` of it."""
        return np.array([self._word(self._names[i], slots) for i in records.tolist()], np.uint64)

    def _word(self, name: Any, copy: Any) -> int:
        return int(
            np.random.default_rng([self._seed, copy, *name]).integers(0, 2**64, dtype=np.uint64)
        )


# --- theta rows of a subject ---------------------------------------------------------------------------------------

rows = st.lists(st.integers(0, 3), max_size=14)  # the subject of each row


@given(rows, st.lists(st.integers(0, 14), max_size=6), st.integers(1, 3), st.integers(0, 9))
@settings(deadline=None, max_examples=25)
def test_a_subject_changes_at_most_theta_rows_and_all_its_own(
    others: list[int], places: list[int], most: int, seed: int
) -> None:
    """A subject with any number of rows, anywhere in the table, comes: the other subjects keep the same rows."""
    named: list[tuple[int, int]] = [(subject, i) for i, subject in enumerate(others)]
    more = list(named)
    for i, place in enumerate(places):
        more.insert(place, (9, 100 + i))
    before, after = (kept_names(table, most, seed) for table in (named, more))
    assert [name for name in after if name[0] != 9] == before
    assert sum(name[0] == 9 for name in after) == min(most, len(places))


LEFT_OUT = RowsBeyondCap.priced(RoundedGaussian, 1.0)


@given(rows, st.lists(st.just(4), max_size=12), st.integers(1, 4))
@settings(deadline=None, max_examples=40)
def test_a_subject_moves_what_is_left_out_by_at_most_its_bound(
    others: list[int], own: list[int], theta: int
) -> None:
    """Both numbers are those of the definition, through blocks and checkpoints, and who comes moves them as far as is stated.

    A subject without rows is one that is not there, so that any other number of its rows is a replacement of it as well.
    """
    config = configuration(privacy__unit={"column": "id", "max_records": theta})
    most, stated = LEFT_OUT.most(config), LEFT_OUT.sensitivity(config)
    without, whole = left_out(others, config), left_out([*others[:3], *own, *others[3:]], config)
    for counted, subjects in ((without, others), (whole, [*others, *own])):
        beyond = [min(held - theta, most) for held in Counter(subjects).values() if held > theta]
        assert counted.tolist() == [most * len(beyond), sum(beyond)]
    moved = whole - without
    assert moved.sum() <= stated.l1
    assert (moved**2).sum() <= stated.l2_squared


def test_a_subject_with_many_rows_moves_what_is_left_out_as_far_as_is_stated() -> None:
    config = configuration(privacy__unit={"column": "id", "max_records": 3})
    stated, moved = LEFT_OUT.sensitivity(config), left_out([0] * 9, config)
    assert (moved.sum(), (moved**2).sum()) == (stated.l1, stated.l2_squared)


def left_out(subjects: list[int], config: Configuration) -> np.ndarray:
    """What is counted of the rows that are left out, of a table in blocks of four rows."""
    names = [*config.source_names]
    cells = {
        name: pa.array([str(s) if name == "id" else "" for s in subjects], pa.string())
        for name in names
    }
    table = pa.table(cells)
    raw = [table.slice(start, 4) for start in range(0, max(len(subjects), 1), 4)]
    with tempfile.TemporaryDirectory() as folder:
        packed = list(pack_clean(prepare_blocks(raw, config, bytes(32), Path(folder))))
    return beyond_cap(CleanBlocks(packed), LEFT_OUT.cap(config), LEFT_OUT.most(config))


def kept_names(table: list[tuple[int, int]], most: int, seed: int) -> list[tuple[int, int]]:
    """The rows that stay."""
    subjects = np.array([subject for subject, _ in table], np.int64)
    kept = kept_rows(subjects, most, RowWords(table, seed))
    return [name for name, stays in zip(table, kept, strict=True) if stays]


cells = st.tuples(st.sampled_from(["f", "m", ""]), st.sampled_from(["1", "2", "3", ""]))


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c", ""]), cells), max_size=12),
    st.lists(cells, min_size=1, max_size=4),
    st.sampled_from(["drop", "own"]),
)
@settings(deadline=None, max_examples=25)
def test_a_joined_subject_changes_one_record(
    others: list[tuple[str, tuple[str, str]]], mine: list[tuple[str, str]], missing: str
) -> None:
    """A subject with any rows comes, after the others or before: one record more, every other record the same."""
    config = configuration(
        columns={
            "sex": {"type": "category", "values": ["f", "m"]},
            "signs": {"type": "set", "values": [1, 2, 3], "max_values": 2},
        },
        privacy__unit={"column": "id", "join": True, "missing_subject": missing},
    )
    added = [("z", cell) for cell in mine]
    before = joined(others, config)
    for table in ([*others, *added], [*added, *others]):
        change = joined(table, config)
        change.subtract(before)
        assert sorted(value for value in change.values() if value) == [1]


def joined(table: list[tuple[str, tuple[str, str]]], config: Any) -> Counter[str]:
    """The records, as a multiset."""
    columns = {
        "sex": [sex for _, (sex, _) in table],
        "signs": [sign for _, (_, sign) in table],
        "id": [subject for subject, _ in table],
    }
    raw = pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
    return Counter(map(repr, prepare_rows(raw, config).to_pylist()))


# --- resize --------------------------------------------------------------------------------------------------------


@given(
    st.integers(0, 9),
    st.integers(1, 3),
    st.integers(1, 25),
    st.sampled_from([0.4, 0.75, 1.0, 1.5, 2.7]),
    st.integers(0, 9),
)
@settings(deadline=None, max_examples=50)
def test_a_unit_replaces_at_most_c_theta_records_of_a_resized_table(
    others: int, theta: int, records: int, proportion: float, seed: int
) -> None:
    """theta rows come: with the words of all other copies coupled, the samples, filled up alike, differ in c theta places."""
    config = ResizeSettings(records=records, proportion=proportion)
    unit = Stability(records=theta, neighbors="add-remove")
    before, after = (
        [(0, i) for i in range(others)],
        [(0, i) for i in range(others)] + [(1, i) for i in range(theta)],
    )
    assert replaced(before, after, config, seed) <= config.stability(unit).records


@given(
    st.integers(0, 9),
    st.integers(1, 3),
    st.integers(1, 25),
    st.sampled_from([0.4, 0.75, 1.0, 1.5, 2.7]),
    st.integers(0, 9),
)
@settings(deadline=None, max_examples=40)
def test_a_replaced_unit_replaces_at_most_c_theta_records_of_a_resized_table(
    others: int, theta: int, records: int, proportion: float, seed: int
) -> None:
    """replace-one: theta rows give way to as many, or to fewer, as where a row is left empty."""
    config, shared = (
        ResizeSettings(records=records, proportion=proportion),
        [(0, i) for i in range(others)],
    )
    unit = Stability(records=theta, neighbors="replace-one")
    for left in range(theta + 1):
        before, after = (
            [*shared, *((who, i) for i in range(n))] for who, n in ((1, theta), (2, left))
        )
        assert replaced(before, after, config, seed) <= config.stability(unit).records


@given(st.integers(0, 9), st.sampled_from([0.01, 0.4, 0.75, 1.0, 1.5, 2.7]), st.integers(0, 9))
@settings(deadline=None, max_examples=40)
def test_a_copy_is_sampled_whatever_other_rows_there_are(
    others: int, proportion: float, seed: int
) -> None:
    """What amplification needs: the others' part of the sample is the same with a row, without it, and with another one."""
    config, shared = (
        ResizeSettings(records=100, proportion=proportion),
        [(0, i) for i in range(others)],
    )
    parts = []
    for names in (shared, [*shared, (1, 0)], [*shared, (2, 0)], [(1, 0), *shared]):
        sample = [names[row] for row in sampled_rows(len(names), config, RowWords(names, seed))]
        parts.append(sorted(name for name in sample if not name[0]))
    assert all(part == parts[0] for part in parts)


def replaced(
    before: list[tuple[int, int]], after: list[tuple[int, int]], config: ResizeSettings, seed: int
) -> int:
    """How many records of the resized tables are not common, when the records that fill them up are."""
    samples = []
    for names in (before, after):
        sample = sampled_rows(len(names), config, RowWords(names, seed))
        filled = [("filled", i) for i in range(len(sample), config.records)]
        samples.append(Counter([*(names[row] for row in sample), *filled]))
    assert samples[0].total() == samples[1].total() == config.records
    return (samples[1] - samples[0]).total()


# --- sensitivities -------------------------------------------------------------------------------------------------

records_ = st.tuples(*(st.integers(0, size) for size in SIZES))
UNITS = [Stability(records=n, neighbors=relation) for n in (1, 2, 5) for relation in RELATIONS]


def change_of(
    one: list[tuple[int, ...]], other: list[tuple[int, ...]], length: int, bound: int, seed: int
) -> np.ndarray:
    """How the bounded counts over the full candidate space move."""
    vectors = []
    for table in map(from_codes, (one, other)):
        candidates = all_candidates(table, length)
        counts = count_bounded(table, candidates, bound, FixedWords(seed))
        masks = enumerate(counts.column_sets)
        vectors.append(
            np.concatenate([counts.vector(i, candidates.mask(c).size) for i, c in masks])
        )
    return vectors[0] - vectors[1]


@given(
    st.lists(records_, max_size=12),
    st.lists(records_, max_size=5),
    st.lists(records_, max_size=5),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(0, 9),
)
@settings(deadline=None)
def test_counts_move_by_no_more_than_the_noise_is_made_for(
    others: list[tuple[int, ...]],
    mine: list[tuple[int, ...]],
    theirs: list[tuple[int, ...]],
    length: int,
    bound: int,
    seed: int,
) -> None:
    """Up to 5 rows of a subject come, or give way to 5 others: |change| in L2 is at most the deviation at multiplier 1."""
    added = change_of([*others, *mine], others, length, bound, seed)
    one = Stability(records=max(1, len(mine)), neighbors="add-remove")
    assert math.sqrt((added**2).sum()) <= noise_sigma(1.0, bound, one)
    # the rest first: every row of a pair has the words of its place
    changed = change_of([*others, *mine], [*others, *theirs], length, bound, seed)
    other = Stability(records=max(1, len(mine), len(theirs)), neighbors="replace-one")
    assert math.sqrt((changed**2).sum()) <= noise_sigma(1.0, bound, other)


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_alike_rows_of_a_subject_attain_every_sensitivity(unit: Stability, length: int) -> None:
    """theta full rows alike, against none or theta others: L2 equals the deviation at multiplier 1, the count moves by theta.

    A sensitivity without theta, or with its root, is too small; one with its square too large.
    """
    bound = math.comb(len(SIZES), length)
    full, opposite = tuple(0 for _ in SIZES), tuple(1 for _ in SIZES)
    others = [opposite] * 3
    added = unit.neighbors == "add-remove"
    table = [*others, *[full] * unit.records]
    neighbor = others if added else [*others, *[opposite] * unit.records]
    moved = math.sqrt((change_of(table, neighbor, length, bound, 0) ** 2).sum())
    assert moved <= noise_sigma(1.0, bound, unit) < moved + 1 / 512
    assert count_sigma(1.0, unit) == unit.records


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("percentile", [50, 99])
def test_alike_rows_of_a_subject_attain_the_sensitivity_of_the_percentile(
    unit: Stability, percentile: float
) -> None:
    """theta records with no combination come, or give way to theta with all: the scores move by their sensitivity.

    The histogram is that of `contribution_histogram`; with the sensitivity of one record epsilon would be theta times as much.
    """
    table = from_codes([tuple(0 for _ in SIZES)] * 40 + [SIZES] * 60)
    candidates = all_candidates(table, 1)
    cap = len(SIZES)
    scores = []
    for most, least in (
        (40, 60),
        (40 + unit.records, 60 - (unit.neighbors == "replace-one") * unit.records),
    ):
        changed = from_codes([tuple(0 for _ in SIZES)] * most + [SIZES] * least)
        scores.append(rank_scores(histogram(changed, candidates, cap), percentile))
        changed = from_codes([tuple(0 for _ in SIZES)] * 40 + [SIZES] * (60 + most - 40))
        scores.append(rank_scores(histogram(changed, candidates, cap), percentile))
    first, added, second, nothing_added = scores
    moved = max(np.abs(second - first).max(), np.abs(nothing_added - added).max())
    assert moved == score_sensitivity(percentile, unit)


# --- discovery of private values -----------------------------------------------------------------------------------


def held_by_one(theta: int, contributions_: int) -> list[tuple[int, ...]]:
    """Counts of the values that only one subject has, in every way that theta rows of D values each can make them."""
    found = []
    for values in range(1, theta * contributions_ + 1):
        for counts in itertools.combinations_with_replacement(range(1, theta + 1), values):
            if sum(counts) <= theta * contributions_:
                found.append(counts)
    return found


@pytest.mark.parametrize("sd", [Fraction(1, 2), Fraction(3, 2), Fraction(6)], ids=str)
@pytest.mark.parametrize(("theta", "held"), [(1, 3), (2, 2), (3, 1), (3, 2), (4, 1)])
@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-9])
def test_no_way_to_hold_values_is_worse_than_the_two_extremes(
    sd: Fraction, theta: int, held: int, delta: float
) -> None:
    """Every way at once, by the exact table: P(any is published) is at most delta at T, and above it for one at T - 1."""
    table = noise_table(sd)
    least = private_threshold(sd, held, theta, delta)

    def worst(threshold: int) -> Fraction:
        hidden = {c: 1 - table.upper_tail(threshold - c) for c in range(1, theta + 1)}
        return max(
            1 - math.prod((hidden[c] for c in counts), start=Fraction(1))
            for counts in held_by_one(theta, held)
        )

    assert worst(least) <= Fraction(delta)
    assert least == 1 or worst(least - 1) > Fraction(delta)


SUBJECTS = 40_000
THETA = 3


@pytest.mark.parametrize(
    "alike", [False, True], ids=["theta D values of count 1", "D values of count theta"]
)
@pytest.mark.parametrize("sd", [Fraction(3, 2), Fraction(12)], ids=str)
def test_values_of_one_subject_are_published_with_probability_delta_at_most(
    sd: Fraction, alike: bool
) -> None:
    """40,000 subjects of 3 rows with two private columns, in both extremes: P(any of their values is out) <= delta = 0.1.

    False alarm 1e-6. With the threshold of one row it is 0.27 for different values and above 0.5 for alike ones at sd 1.5.
    """
    owner = np.repeat(np.arange(SUBJECTS), THETA)
    values = owner if alike else np.arange(SUBJECTS * THETA)
    size = int(values.max()) + 1
    private = {"type": "category", "domain": "private"}
    config = configuration(
        columns={"town": private, "job": private},
        privacy__unit={"column": "id", "max_records": THETA},
    )
    table = table_of([values.tolist()] * 2, [size] * 2)
    candidates = CandidateSet(length=1, sizes=table.sizes)
    mechanism = planned(config, candidates, 2, sd)
    level = draw_level(bounded(table, candidates, 2), candidates, mechanism, fresh_bits())
    shown = np.unique(level.values[:, 0] if alike else owner[level.values[:, 0]])
    low, high = clopper_pearson(len(shown), SUBJECTS)
    assert low <= DELTA
    extremes = [noise_table(sd).upper_tail(mechanism.private_threshold - c) for c in (1, THETA)]
    exact = [
        1 - (1 - tail) ** (2 * THETA if c == 1 else 2)
        for tail, c in zip(extremes, (1, THETA), strict=True)
    ]
    assert low <= exact[alike] <= high
    assert max(exact) <= DELTA


@pytest.mark.parametrize(
    "unit", ["row", {"column": "id", "max_records": 4}, {"column": "id", "join": True}], ids=str
)
@pytest.mark.parametrize("resize", [None, 0.5, 1.5, 2.5])
@pytest.mark.parametrize("neighbors", RELATIONS)
def test_a_configuration_has_one_stability(
    unit: Any, resize: float | None, neighbors: Neighbors
) -> None:
    """theta rows of the unit, times the copies of a resized table, whose relation is replacement."""
    theta = 4 if isinstance(unit, dict) and "max_records" in unit else 1
    changes: dict[str, Any] = {
        "columns": {"sex": {"type": "category", "values": ["f", "m"], "impute": UNIFORM}}
    }
    if resize is not None:
        changes["resize"] = {"records": 50, "proportion": resize}
    config = configuration(**changes, privacy__unit=unit, privacy__neighbors=neighbors)
    expected = Stability(records=theta, neighbors=neighbors)
    if resize is not None:
        expected = Stability(records=theta * math.ceil(resize), neighbors="replace-one")
    assert config.stability == expected
    assert config.privacy.stability == Stability(records=theta, neighbors=neighbors)
    assert encoded([], config).records == 0


UNIFORM = {"distribution": "uniform"}
