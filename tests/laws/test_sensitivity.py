"""Sensitivity of everything that gets noise, from raw texts through the shipped stages: one unit comes, goes or gives way.

The coupling of the proof is that of the code: a row's random word is that of its number, and the rows of the unit stand last,
so that every other row has the same words in both tables; one that is replaced keeps its place. Tables have cells of several
values, some longer than their cap, texts outside every domain, gaps, records without any value, repeated values, and rows that
break each rule between columns and all at once; the unit has more rows than are counted.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from marginweave.base.budget import Stability
from marginweave.base.parallel import LocalEngine
from marginweave.columns.number import NumberValues
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.release import Configuration
from marginweave.counts import bounded_counts as counting
from marginweave.counts.candidates import CandidateSet
from marginweave.counts.marginals import all_cliques, count_marginals
from marginweave.counts.released_rows import ReleasedBlocks, count_values, recode
from marginweave.domain.zeros import broken_records, domain_sizes, structural_masks
from marginweave.evaluate.internal import joined_tables
from marginweave.measurements.larger_marginals import LargerMarginals
from marginweave.measurements.one_way import OneWayMarginals
from marginweave.measurements.quantile_bounds import candidate_histogram
from marginweave.measurements.split import plan_budget
from marginweave.measurements.whole_marginals import public_sizes
from marginweave.mechanisms.base import l1_sensitivity
from marginweave.mechanisms.gaussian import count_sigma, marginal_sigma, noise_sigma
from marginweave.mechanisms.percentile import rank_scores, score_sensitivity
from marginweave.mechanisms.randomness import KeyedBits
from marginweave.prepare import rows as preparing
from marginweave.prepare.clean import CleanBlocks, pack_clean
from marginweave.prepare.codes import EncodedBlocks, EncodedTable, pack_blocks
from marginweave.prepare.encode import encode_blocks
from marginweave.prepare.rows import prepare_blocks
from tests.support.configurations import configuration
from tests.support.counting import as_counter, count_blocks, histogram_of
from tests.support.ruled_table import ROWS, SETTINGS, SOURCE
from tests.support.tables import level_from

KEY = bytes(range(32))
ONE_CORE = LocalEngine(1)
COLUMNS: dict[str, Any] = {
    "sex": {"type": "category", "values": ["f", "m"]},
    "town": {"type": "category", "domain": "private"},
    "age": {"type": "number", "bounds": [0, 100], "bins": 5},
    "signs": {"type": "set", "values": ["x", "y", "z"], "max_values": 2},
}
TOWNS = ("kent", "essex")  # what length 1 is taken to have released
UNITS: dict[str, Any] = {
    "row": "row",
    "two rows": {"column": "person", "max_records": 2},
    "three rows": {"column": "person", "max_records": 3, "missing_subject": "own"},
    "joined": {"column": "person", "join": True},
}
Row = tuple[str, ...]
values = st.tuples(
    st.sampled_from(["f", "m", " f", "q", ""]),
    st.sampled_from(["kent", "essex", "devon", ""]),
    st.sampled_from(["7", "99", "1000", "old", ""]),
    st.sampled_from(["x", "y;x", "x;y;z", "z;z", "w", ""]),
)
others_ = st.lists(st.tuples(st.sampled_from(["a", "b", "c", ""]), values), max_size=12)
own = st.lists(values, max_size=5)


@dataclass(frozen=True)
class Neighbors:
    """A configuration and two tables of raw rows that differ in one unit."""

    config: Configuration
    one: list[Row]
    other: list[Row]

    @property
    def stability(self) -> Stability:
        """What is claimed of them."""
        return self.config.stability


def neighbors_of(
    unit: str,
    relation: Any,
    others: list[tuple[str, Row]],
    mine: list[Row],
    theirs: list[Row],
    **changes: Any,
) -> Neighbors:
    """The unit's rows behind the others; without them under add-remove, other ones in their place under replace-one.

    Where a row is the unit there is one, and under replace-one it is there in both.
    """
    if unit == "row":
        mine, theirs = [*mine, ("",) * 4][:1], [*theirs, ("",) * 4][:1]
    config = configuration(
        **{"columns": COLUMNS, **changes}, privacy__unit=UNITS[unit], privacy__neighbors=relation
    )
    kept = [(*cells, who) for who, cells in others]
    tables = [[*kept, *((*cells, "me") for cells in rows)] for rows in (mine, theirs)]
    return Neighbors(config, tables[0], tables[1] if relation == "replace-one" else kept)


def clean_of(
    rows: Sequence[Row], config: Configuration, names: Sequence[str] = (*COLUMNS, "person")
) -> CleanBlocks:
    raw = pa.table(
        {name: pa.array([row[j] for row in rows], pa.string()) for j, name in enumerate(names)}
    )
    with tempfile.TemporaryDirectory() as folder:
        return CleanBlocks(list(pack_clean(prepare_blocks([raw], config, KEY, Path(folder)))))


def blocks_of(rows: list[Row], config: Configuration) -> EncodedBlocks:
    return EncodedBlocks(list(pack_blocks(encode_blocks(clean_of(rows, config), config, KEY))))


def change(counts: Callable[[EncodedBlocks], Counter[Any]], case: Neighbors) -> np.ndarray:
    """By how much each count moves."""
    one, other = (counts(blocks_of(rows, case.config)) for rows in (case.one, case.other))
    one.subtract(other)
    return np.array([abs(moved) for moved in one.values()], np.int64)


# --- combinations --------------------------------------------------------------------------------------------------


def candidates_of(sizes: tuple[int, ...], length: int, forbidden: int) -> CandidateSet:
    """V_k over survivors that are the same for both tables: all of them but every `forbidden`-th."""
    candidates = CandidateSet(length=1, sizes=sizes)
    for k in range(1, length):
        found = [
            tuple(zip(columns, cell, strict=True))
            for columns in candidates.column_sets()
            for cell in np.argwhere(candidates.mask(columns)).tolist()
        ]
        kept = [cell for i, cell in enumerate(found) if (i + 1) % forbidden]
        candidates = CandidateSet.above(level_from(dict.fromkeys(kept, 1), k), sizes)
    return candidates


def combinations(length: int, bound: int, forbidden: int, blocks: EncodedBlocks) -> Counter[Any]:
    """Bounded counts by label: of length 1 over all values that occur, of larger ones over the released domain."""
    released = ReleasedBlocks(blocks, {} if length == 1 else {1: TOWNS})
    candidates = candidates_of(released.sizes, length, forbidden)
    words = KeyedBits(key=KEY, purpose=f"level-{length}")
    counts = as_counter(count_blocks(released, candidates, bound, words, ONE_CORE), released.sizes)
    return Counter(
        {
            tuple((j, released.labels[j][v]) for j, v in zip(columns, cell, strict=True)): n
            for (columns, cell), n in counts.items()
        }
    )


def law_of_combinations(case: Neighbors, length: int, bound: int, forbidden: int) -> None:
    """L0, Linf, L1 and L2 of the vector of counts."""
    moved, theta = (
        change(partial(combinations, length, bound, forbidden), case),
        case.stability.records,
    )
    tables = 2 if case.stability.neighbors == "replace-one" else 1
    assert np.count_nonzero(moved) <= tables * theta * bound
    assert moved.max(initial=0) <= theta
    assert moved.sum() <= tables * theta * bound
    assert math.sqrt((moved**2).sum()) <= noise_sigma(1.0, bound, case.stability)


relations = pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
units = pytest.mark.parametrize("unit", UNITS)


@units
@relations
@given(others_, own, own, st.integers(1, 3), st.integers(1, 6), st.integers(2, 5))
@settings(max_examples=12, deadline=None)
def test_combinations(
    unit: str,
    relation: str,
    others: list[tuple[str, Row]],
    mine: list[Row],
    theirs: list[Row],
    length: int,
    bound: int,
    forbidden: int,
) -> None:
    """L0 and L1 at most theta Delta_k (twice that under replace-one), Linf at most theta, L2 at most `noise_sigma`(1)."""
    law_of_combinations(
        neighbors_of(unit, relation, others, mine, theirs), length, bound, forbidden
    )


FEW = settings(
    max_examples=150, deadline=None, derandomize=True, phases=[Phase.generate], database=None
)


def kept_all(subjects: np.ndarray, *_: Any) -> np.ndarray:
    return np.ones(len(subjects), np.bool_)


def one_word_for_all(self: Any, start: int, count: int) -> np.ndarray:
    """What a choice that looks at the table looks like: the words of all records move with their number."""
    return np.full(count, 0x9E3779B97F4A7C15 * (start + count) & (2**64 - 1), np.uint64)


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "theta is not enforced": lambda patch: patch.setattr(preparing, "kept_rows", kept_all),
    "contributions are not bounded": lambda patch: patch.setattr(
        counting._BoundedCounts, "_bound", lambda *_: None
    ),
    "words depend on the number of records": lambda patch: patch.setattr(
        KeyedBits, "words_at", one_word_for_all
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_the_law_of_combinations_has_power(fault: Callable[[pytest.MonkeyPatch], None]) -> None:
    """Each fault is found by the same law, which holds without it (`test_combinations`)."""

    @given(others_, own, own)
    @FEW
    def law(others: list[tuple[str, Row]], mine: list[Row], theirs: list[Row]) -> None:
        law_of_combinations(neighbors_of("two rows", "add-remove", others, mine, theirs), 2, 1, 5)

    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        with pytest.raises(AssertionError):
            law()


# --- what bounds and sizes are chosen by ---------------------------------------------------------------------------


@units
@relations
@given(others_, own, own, st.integers(1, 3), st.sampled_from([50, 99]))
@settings(max_examples=8, deadline=None)
def test_record_count_and_contributions(
    unit: str,
    relation: str,
    others: list[tuple[str, Row]],
    mine: list[Row],
    theirs: list[Row],
    length: int,
    percentile: float,
) -> None:
    """The count moves by theta at most; the scores of Delta_k by `score_sensitivity`, each record counted once."""
    case = neighbors_of(unit, relation, others, mine, theirs)
    moved = change(lambda blocks: Counter({"n": blocks.records}), case)
    assert moved.max(initial=0) <= count_sigma(1.0, case.stability)

    def scores(rows: list[Row]) -> np.ndarray:
        blocks = ReleasedBlocks(blocks_of(rows, case.config), {} if length == 1 else {1: TOWNS})
        candidates = candidates_of(blocks.sizes, length, 4)
        cap = case.config.contribution_cap(length)
        histogram = histogram_of(blocks, candidates, cap, ONE_CORE)
        assert histogram.sum() == blocks.blocks.records
        return rank_scores(histogram, percentile)

    assert np.abs(scores(case.one) - scores(case.other)).max() <= score_sensitivity(
        percentile, case.stability
    )


@units
@relations
@pytest.mark.parametrize("percentile", [1.0, 99.0])
@given(others_, own, own)
@settings(max_examples=10, deadline=None)
def test_private_bounds(
    unit: str,
    relation: str,
    percentile: float,
    others: list[tuple[str, Row]],
    mine: list[Row],
    theirs: list[Row],
) -> None:
    """The scores of the candidates for a bound move by `score_sensitivity` of the unit in the rows themselves."""
    ages = {"type": "number", "bounds": "private", "within": [0, 120], "bins": 4}
    case = neighbors_of(unit, relation, others, mine, theirs, columns={**COLUMNS, "age": ages})
    column = case.config.columns["age"]
    assert isinstance(column, NumberColumn)

    def scores(rows: list[Row]) -> np.ndarray:
        parts = (
            candidate_histogram(block.table.column("age").combine_chunks(), column.bound_candidates)
            for block in clean_of(rows, case.config)
        )
        return rank_scores(
            sum(parts, np.zeros(len(column.bound_candidates) + 1, np.int64)), percentile
        )

    most = score_sensitivity(percentile, case.config.privacy.stability)
    assert np.abs(scores(case.one) - scores(case.other)).max() <= most


# --- marginals -----------------------------------------------------------------------------------------------------


def check_moves(one: Sequence[np.ndarray], other: Sequence[np.ndarray], unit: Stability) -> None:
    """Linf, L1 and L2 of each marginal."""
    for before, after in zip(one, other, strict=True):
        moved = np.abs(before - after)
        assert moved.max() <= unit.records
        assert moved.sum() <= l1_sensitivity(unit)
        assert math.sqrt((moved**2).sum()) <= marginal_sigma(1.0, unit)


MARGINALS: dict[str, Any] = {"aggregate": {"method": "marginals", "values_share": 0.1}}


@units
@relations
@given(others_, own, own, st.integers(1, 3))
@settings(max_examples=8, deadline=None)
def test_marginals(
    unit: str,
    relation: str,
    others: list[tuple[str, Row]],
    mine: list[Row],
    theirs: list[Row],
    length: int,
) -> None:
    """Each marginal, with sets and missing values: L1 at most `l1_sensitivity`, L2 at most its deviation at 1."""
    case = neighbors_of(unit, relation, others, mine, theirs, **MARGINALS)
    private = [j for j, attribute in enumerate(case.config.attributes) if attribute.private]

    def counted(rows: list[Row]) -> list[np.ndarray]:
        tables = [
            recode(table, dict.fromkeys(private, TOWNS)) for table in blocks_of(rows, case.config)
        ]
        attributes = case.config.attributes
        if length == 1:  # sets have a table more
            attributes = (*attributes, *case.config.indicators)
        labels = tables[0].labels[: len(attributes)]
        sizes = domain_sizes(attributes, labels)
        codes = [table.codes[: len(attributes)] for table in tables]
        return count_marginals(codes, sizes, all_cliques(sizes, length))

    check_moves(counted(case.one), counted(case.other), case.stability)


@units
@relations
@given(others_, own, own)
@settings(max_examples=8, deadline=None)
def test_values_of_private_domains(
    unit: str, relation: str, others: list[tuple[str, Row]], mine: list[Row], theirs: list[Row]
) -> None:
    """Counts of the values of p private attributes: L2 at most the deviation of `discovery` at 1, sqrt(p) theta."""
    two = {**COLUMNS, "sex": {"type": "category", "domain": "private"}}
    case = neighbors_of(unit, relation, others, mine, theirs, columns=two, **MARGINALS)
    private = [j for j, attribute in enumerate(case.config.attributes) if attribute.private]
    assert len(private) == len(case.config.private_columns) == 2

    def counted(blocks: EncodedBlocks) -> Counter[Any]:
        counts = count_values(blocks, private)
        pairs = itertools.chain.from_iterable(
            ((j, v) for v in range(len(counts[j]))) for j in private
        )
        return Counter({(j, blocks.labels[j][v]): int(counts[j][v]) for j, v in pairs})

    moved = change(counted, case)
    assert np.count_nonzero(moved) <= 2 * case.stability.records * (
        2 if relation == "replace-one" else 1
    )
    assert math.sqrt((moved**2).sum()) <= noise_sigma(1.0, 2, case.stability)


def test_the_unit_reaches_its_sensitivity() -> None:
    """The tables above are no easy ones: one unit with theta alike rows moves theta Delta_k in L1 through all the stages."""
    rows = [("f", "kent", "7", "x;y")] * 4
    for unit, theta in (("row", 1), ("two rows", 2), ("three rows", 3), ("joined", 1)):
        case = neighbors_of(unit, "add-remove", [("a", ("m", "", "99", "z"))] * 3, rows, [])
        assert case.stability.records == theta
        moved = change(partial(combinations, 1, 5, 9), case)
        assert sorted(moved[moved > 0].tolist()) == [theta] * 5
        assert (
            math.sqrt((moved**2).sum())
            <= noise_sigma(1.0, 5, case.stability)
            < theta * math.sqrt(5) + 1 / 512
        )


def test_a_domain_read_off_the_table_would_move_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bins up to the largest value of the table move the counts of records that stay: the law of combinations sees it."""

    def by_the_largest(_: NumberValues, cells: pa.Array, _words: object) -> np.ndarray:
        present = cells.to_numpy(zero_copy_only=False)
        share = np.nan_to_num(present) / np.nanmax(present, initial=1.0)
        return np.where(np.isnan(present), 5, np.minimum(4, share * 5)).astype(np.int64)

    others = [("a", ("f", "kent", "30", "")), ("b", ("m", "", "45", "x"))] * 5
    case = neighbors_of("row", "add-remove", others, [("", "", "99", "")], [])
    law_of_combinations(case, 1, 5, 9)
    monkeypatch.setattr(NumberValues, "encode", by_the_largest)
    with pytest.raises(AssertionError):
        law_of_combinations(case, 1, 5, 9)


# --- rules between columns ------------------------------------------------------------------------------------------


def repaired(
    rows: Sequence[Row], config: Configuration, names: Sequence[str] = (*SOURCE, "person")
) -> EncodedTable:
    """The records that are counted; each of them keeps every rule, so that nothing is in a cell that is not measured."""
    table = joined_tables(encode_blocks(clean_of(rows, config, names), config, KEY))
    assert not broken_records(table.codes, structural_masks(config, table.labels)).any()
    return table


def counts_up_to_three(table: EncodedTable, config: Configuration) -> list[np.ndarray]:
    sizes = domain_sizes(config.with_undeclared(config.undeclared).attributes, table.labels)
    cliques = [clique for length in (1, 2, 3) for clique in all_cliques(sizes, length)]
    return count_marginals([table.codes], sizes, cliques)


def test_every_neighbor_of_every_small_table() -> None:
    """All tables of up to two rows, each of which keeps all rules or breaks some of them."""
    rows = [(*row, "") for row in ROWS.values()]
    configs = {
        name: configuration(**SETTINGS, privacy__neighbors=name)
        for name in ("add-remove", "replace-one")
    }
    tables = [
        table for length in range(3) for table in itertools.product(range(len(rows)), repeat=length)
    ]
    config = configs["add-remove"]
    counts = {
        table: counts_up_to_three(repaired([rows[i] for i in table], config), config)
        for table in tables
    }
    for relation, declared in configs.items():
        for one, other in _neighbors(tables[1:], len(rows), relation):
            check_moves(counts[one], counts[other], declared.stability)


FILLED: dict[str, Any] = {
    "columns": {
        "sex": {"type": "category", "values": ["f", "m"], "outside": "error"},
        "dx": {
            "type": "set",
            "values": [f"v{i}" for i in range(10)],
            "max_values": 2,
            "min_values": 1,
            "outside": "error",
        },
    },
    "missing": [],
    "aggregate": {"method": "marginals", "cliques": {"all": 2}},
    "structure": {"forbidden": [{"sex": "m", "dx": ["v7"]}]},
}
"""A set of so many values that no rule lists its cells. Men lose v7, and get another where it was their only one."""


def test_every_neighbor_of_small_tables_with_a_large_set_that_is_never_empty() -> None:
    """All tables of up to two of such rows, of which some have too many values and some break the rule."""
    configs = {
        name: configuration(**FILLED, privacy__neighbors=name)
        for name in ("add-remove", "replace-one")
    }
    rows, config = (
        [("f", "v7"), ("m", "v7"), ("m", "v7;v2"), ("m", "v1;v2;v7;v9")],
        configs["add-remove"],
    )
    tables = [
        table for length in range(3) for table in itertools.product(range(len(rows)), repeat=length)
    ]
    counts = {
        table: counts_up_to_three(repaired([rows[i] for i in table], config, ("sex", "dx")), config)
        for table in tables
    }
    for relation, declared in configs.items():
        for one, other in _neighbors(tables[1:], len(rows), relation):
            check_moves(counts[one], counts[other], declared.stability)


CLIQUES: dict[str, Any] = {
    "all pairs": {"all": 2},
    "sets of several lengths": [
        ["age", "job"],
        ["income", "job"],
        ["born", "stay"],
        ["income", "job", "age"],
    ],
}


@cache
def _small_tables() -> dict[tuple[int, ...], EncodedTable]:
    config, rows = configuration(**SETTINGS), [(*row, "") for row in ROWS.values()]
    tables = (
        table for length in range(3) for table in itertools.product(range(len(rows)), repeat=length)
    )
    return {table: repaired([rows[i] for i in table], config) for table in tables}


@relations
@pytest.mark.parametrize("cliques", CLIQUES)
def test_every_neighbor_moves_all_tables_of_a_draw_by_no_more_than_is_charged(
    cliques: str, relation: Any
) -> None:
    """Together, in units of their noise, between the same tables as above; a record that is removed moves all."""
    aggregate = {"method": "marginals", "cliques": CLIQUES[cliques]}
    config = configuration(**{**SETTINGS, "aggregate": aggregate}, privacy__neighbors=relation)
    plan, sizes = plan_budget(config), public_sizes(config.with_undeclared(config.undeclared))
    records = _small_tables()
    for kind in (OneWayMarginals, LargerMarginals):
        draw = plan.draw(kind)
        measured, sigmas = draw.cliques(config), np.array(draw.sigmas(config), np.float64)
        assert len(measured) == len(set(measured)) == len(sigmas)
        counts = {
            table: count_marginals([found.codes], sizes, measured)
            for table, found in records.items()
        }
        charged, most = float(draw.cost.mu2), 0.0
        for one, other in _neighbors([*records][1:], len(ROWS), relation):
            squares = [
                ((a - b) ** 2).sum() for a, b in zip(counts[one], counts[other], strict=True)
            ]
            most = max(most, moved := float((squares / sigmas**2).sum()))
            assert moved <= charged
            assert relation == "replace-one" or moved == pytest.approx(charged, rel=1e-3)
        assert most > charged / 2


def _neighbors(
    tables: Sequence[tuple[int, ...]], rows: int, relation: str
) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Each table with its last row removed, or with each row replaced by each other."""
    for table in tables:
        if relation == "add-remove":
            yield table, table[:-1]
            continue
        for place, row in itertools.product(range(len(table)), range(rows)):
            yield table, (*table[:place], row, *table[place + 1 :])


rows_ = st.one_of(
    st.sampled_from(list(ROWS.values())),
    st.tuples(*(st.sampled_from(sorted(set(cells))) for cells in zip(*ROWS.values(), strict=True))),
)


@relations
@units
@given(
    st.lists(st.tuples(rows_, st.sampled_from(["a", "b", ""])), max_size=8),
    st.lists(rows_, min_size=1, max_size=4),
    st.lists(rows_, min_size=1, max_size=4),
)
@settings(max_examples=8, deadline=None)
def test_a_unit_changes_as_many_records_as_without_rules(
    unit: str,
    relation: Any,
    others: list[tuple[Row, str]],
    mine: list[Row],
    theirs: list[Row],
) -> None:
    """Theta records come, or give way to theta others, and all others stay as they are: so counts of any kind are bounded."""
    config = configuration(**SETTINGS, privacy__unit=UNITS[unit], privacy__neighbors=relation)
    most = 1 if unit == "row" else 4
    kept = [(*row, person) for row, person in others]
    one = repaired([*kept, *((*row, "me") for row in mine[:most])], config)
    replaced = [(*row, "me") for row in theirs[:most]] if relation == "replace-one" else []
    other = repaired([*kept, *replaced], config)
    check_moves(
        counts_up_to_three(one, config), counts_up_to_three(other, config), config.stability
    )
    before, after = (
        Counter(zip(*(code.tolist() for code in t.codes), strict=True)) for t in (one, other)
    )
    assert (before - after).total() <= config.stability.records
    assert (after - before).total() <= config.stability.records * (relation == "replace-one")


def test_a_unit_of_broken_records_reaches_the_sensitivity() -> None:
    """The tables above are no easy ones: theta records that break every rule, and are repaired, move a count by theta."""
    mine = [(*ROWS["breaks all"], "me")] * 4
    others = [(*ROWS["what is forbidden"], "")] * 3
    for unit, theta in (("row", 1), ("two rows", 2), ("three rows", 3), ("joined", 1)):
        config = configuration(**SETTINGS, privacy__unit=UNITS[unit])
        assert theta == config.stability.records
        tables = ([*others, *mine[: 1 if unit == "row" else 4]], others)
        one, other = (counts_up_to_three(repaired(table, config), config) for table in tables)
        assert max(int(np.abs(a - b).max()) for a, b in zip(one, other, strict=True)) == theta
