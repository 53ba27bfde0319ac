"""Levels: a coarser column is a function of the finer one in every count and record, and each set has one level of a column."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.bin_levels import BinLevels
from marginweave.configuration.marginals import AllCliques
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import GumSynthesis, MixtureSynthesis, SynthesisSettings
from marginweave.counts.marginals import all_cliques, count_marginals
from marginweave.counts.noise import planned_cliques
from marginweave.counts.selection import scored_pairs, selected_cliques
from marginweave.domain.levels import level_codes
from marginweave.domain.zeros import domain_sizes, structural_masks
from marginweave.estimate.marginals import compression_of, marginal_counts, normalize_marginals
from marginweave.estimate.mixture.blocks import tie
from marginweave.evaluate.rules import broken_rules
from marginweave.measurements.combinations import Domain
from marginweave.measurements.plan import DrawKind
from marginweave.measurements.tables import Marginals, Measurement
from marginweave.mechanisms.randomness import KeyedBits, RecordWords
from marginweave.planning.split import plan_budget
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import EncodedTable, code_type, encode_table
from marginweave.prepare.repair import Repair
from marginweave.records.decode import decode_table
from marginweave.records.release import synthesize_blocks
from marginweave.released.earlier import _declarations
from tests.support.configurations import configuration
from tests.support.noisy_marginals import measure_merged

INDUSTRIES = [f"{sector}{number}" for sector, size in (("a", 5), ("b", 1), ("c", 4)) for number in range(size)]
COLUMNS: dict[str, Any] = {
    "band": {"type": "category", "values": ["old", "young", "middle"], "missing": [], "outside": "error"},
    "sector": {"type": "category", "values": ["c", "a", "b"], "missing": [""]},
    "sex": {"type": "category", "values": ["f", "m"], "missing": [], "outside": "error"},
    "industry": {"type": "category", "values": INDUSTRIES, "missing": ["", "N"]},
    "age": {"type": "number", "bins": [0, 5, 15, 40, 65, 100], "decimals": 0, "missing": [], "outside": "error"},
}
BANDS = {"[0, 5)": "young", "14": "young", "100": "old"}
LEVELS: dict[str, Any] = {
    "levels": [
        {"column": "sector", "by": "industry", "mapping": {i: i[0] for i in INDUSTRIES}},
        {"column": "band", "by": "age", "mapping": BANDS, "default": "middle"},
    ]
}
APPLIES = {"applies": [{"columns": ["industry"], "where": {"age": {"from": 15}}}]}


def made(**changes: Any) -> Configuration:
    keys: dict[str, Any] = {"columns": COLUMNS, "structure": LEVELS | APPLIES, "aggregate": {"method": "marginals"}}
    return configuration(**(keys | changes))


CONFIGURATION = made()
NAMES = tuple(COLUMNS)
LABELS = tuple(attribute.labels for attribute in CONFIGURATION.attributes)
SIZES = domain_sizes(CONFIGURATION.attributes, LABELS)
SECTOR = np.array([{"c": 0, "a": 1, "b": 2}[i[0]] for i in INDUSTRIES] + [3])
BAND = np.array([1, 1, 2, 2, 0])


def records(rows: int, seed: int) -> np.ndarray:
    """Records that keep all rules."""
    rng = np.random.default_rng(seed)
    age, industry = rng.integers(0, 5, rows), rng.integers(0, 10, rows)
    industry[age < 2] = 10
    return np.stack([BAND[age], SECTOR[industry], rng.integers(0, 2, rows), industry, age], axis=1)


def test_a_level_is_counted_beside_its_column_in_marginals_alone() -> None:
    """It is read in neither; in k-tuples it is computed in the output, and no combination has both."""
    assert [attribute.name for attribute in CONFIGURATION.attributes] == list(COLUMNS)
    assert [attribute.optional for attribute in CONFIGURATION.attributes] == [False, True, False, True, False]
    assert CONFIGURATION.finer_places == {0: 4, 1: 3}
    assert CONFIGURATION.source_names == ("sex", "industry", "age")
    tuples = made(aggregate={"method": "k-tuples"})
    assert [attribute.name for attribute in tuples.attributes] == ["sex", "industry", "age"]
    assert CONFIGURATION.output_names == tuples.output_names == NAMES
    assert Configuration.model_validate(CONFIGURATION.model_dump(mode="json")) == CONFIGURATION
    assert {coarse: codes.tolist() for coarse, _, codes in level_codes(CONFIGURATION)} == {
        0: [*BAND.tolist(), 3],
        1: SECTOR.tolist(),
    }


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_every_row_has_the_level_of_its_own_column(seed: int) -> None:
    """Whatever was there before, and whatever rules make of the finer column; and counts of levels are sums of finer counts."""
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.integers(0, size, 200) for size in SIZES], axis=1)
    codes = tuple(column.astype(code_type(len(labels))) for column, labels in zip(rows.T, LABELS, strict=True))
    words = RecordWords(words=KeyedBits(key=b"k" * 32, purpose="rules"), records=np.arange(200))
    found = Repair(CONFIGURATION, LABELS)(EncodedTable(codes=codes, labels=LABELS), words).codes
    assert np.array_equal(found[0], BAND[found[4]])
    assert np.array_equal(found[1], SECTOR[found[3]])
    assert np.array_equal(found[4], rows[:, 4])
    coarse, fine = count_marginals([found], SIZES, [(1, 2, 4), (2, 3, 4)])
    summed = np.zeros_like(coarse)
    np.add.at(summed, SECTOR, fine.swapaxes(0, 1))
    assert np.array_equal(coarse, summed)
    assert coarse.sum() == 200  # a record is in one cell


def test_raw_rows_become_records_with_levels() -> None:
    """The source has none, or a wrong one, which `check` counts."""
    raw = pa.table({"sex": ["f", "m", "m"], "industry": ["a3", "N", "c0"], "age": ["17", "9", "70"]})
    table = encode_table(clean_table(raw, CONFIGURATION), CONFIGURATION)
    assert [code.tolist() for code in table.codes] == [[2, 1, 0], [1, 3, 0], [0, 1, 1], [3, 10, 6], [2, 1, 4]]
    wrong = raw.append_column("sector", pa.array(["a", "b", ""])).append_column(
        "band", pa.array(["middle", "young", "old"])
    )
    found = {rule.subject: rule.records for rule in broken_rules(wrong, CONFIGURATION) if rule.rule == "levels"}
    assert found == {"sector": 2, "band": 0}


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    sd=st.sampled_from([0.5, 20.0]),
    method=st.sampled_from(("aggregate-seeded", "gum", "mixture")),
)
def test_records_have_the_level_of_their_column_whatever_makes_them(seed: int, sd: float, method: str) -> None:
    rng = np.random.default_rng(seed)
    rows = records(300, seed)

    def noisy(clique: tuple[int, ...]) -> Measurement:
        counts = count_marginals([list(rows.T)], SIZES, [clique])[0]
        drawn = rng.normal(0, sd, counts.shape).round().astype(np.int64)
        return Measurement(attributes=clique, counts=counts + drawn, deviation=sd)

    domain = Domain(names=NAMES, labels=LABELS)
    plain = Marginals(domain=domain, one_way=tuple(noisy((a,)) for a in range(5)), larger=())
    compression = compression_of(plain, CONFIGURATION)[1]
    larger = tuple(measure_merged(noisy(clique), compression) for clique in ((0, 1, 2), (1, 4), (2, 3)))
    known = normalize_marginals(Marginals(domain=domain, one_way=plain.one_way, larger=larger), CONFIGURATION)
    both = next(m for m in known.consistent if m.attributes == (1, 3))  # a column and its level agree
    for place, axis in ((1, 1), (3, 0)):
        assert np.allclose(both.counts.sum(axis=axis), known.consistent[place].counts, atol=0.5 + 0.01 * 300)
    settings_of = {
        "aggregate-seeded": SynthesisSettings(records=50, seed=seed),
        "gum": GumSynthesis(records=50, rounds=4, seed=seed),
        "mixture": MixtureSynthesis(records=50, components=8, fits=1, iterations=3, seed=seed),
    }
    (codes,) = synthesize_blocks(known, CONFIGURATION, settings_of[method])
    assert np.array_equal(codes[1], SECTOR[codes[3]])
    assert np.array_equal(codes[0], BAND[codes[4]])
    table = decode_table(codes, domain, CONFIGURATION, seed)
    assert {rule.records for rule in broken_rules(table, CONFIGURATION)} == {0}
    for row in table.to_pylist():
        assert row["sector"] == (row["industry"] and row["industry"][0])
        assert row["band"] == ("young" if row["age"] < 15 else "middle" if row["age"] < 65 else "old")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("sd", "rules"), [(2.0, True), (60.0, True), (60.0, False)])
def test_adjusted_counts_of_a_level_are_sums_of_those_of_its_column(seed: int, sd: float, rules: bool) -> None:
    """Up to rounding; where nothing is clipped, they have least squares: each measurement weighs once."""
    config = made(**({} if rules else {"structure": LEVELS}), aggregate={"method": "marginals", "compress": "none"})
    rng, rows = np.random.default_rng(seed), records(4000, seed)

    def noisy(clique: tuple[int, ...]) -> Measurement:
        exact = count_marginals([list(rows.T)], SIZES, [clique])[0] * (1 if rules else 50)
        drawn = rng.normal(0, sd, exact.shape).round().astype(np.int64)
        return Measurement(attributes=clique, counts=exact + drawn, deviation=sd)

    one_way = tuple(noisy((a,)) for a in range(5))
    larger = (noisy((1, 2)), noisy((2, 3)), noisy((2, 4)), noisy((0, 2))) if rules else ()
    drawn = Marginals(domain=Domain(names=NAMES, labels=LABELS), one_way=one_way, larger=larger)
    known = normalize_marginals(drawn, config)
    single = marginal_counts(known, config).levels[0]
    tables = {columns: (single.values[held], single.counts[held]) for columns, held in single.by_columns()}
    for fine, coarse, codes in (((3,), (1,), SECTOR), ((4,), (0,), BAND)):
        values, numbers = tables[fine]
        summed = np.bincount(codes[values[:, 0]], weights=numbers, minlength=SIZES[coarse[0]])
        level = np.bincount(tables[coarse][0][:, 0], weights=tables[coarse][1], minlength=SIZES[coarse[0]])
        assert np.abs(summed - level)[: len(LABELS[coarse[0]])].max() <= (len(codes) + 1) / 2
        if not rules:
            parts = np.eye(SIZES[coarse[0]])[:, codes]
            design = np.vstack([np.eye(len(codes)), parts, 1e4 * np.ones((1, len(codes)))])
            given = np.hstack([one_way[fine[0]].counts, one_way[coarse[0]].counts, 1e4 * known.consistent[0].total])
            best = np.linalg.lstsq(design, given, rcond=None)[0]
            assert np.allclose(known.consistent[fine[0]].counts, best, atol=3)
            assert np.allclose(known.consistent[coarse[0]].counts, parts @ best, atol=3)


def test_a_level_adds_no_cells_to_the_model() -> None:
    """A column and its level are one block of as many cells as the column has, in one box, however few levels there are."""
    alone = made(structure=LEVELS)
    ties = tie(SIZES, structural_masks(alone, LABELS))
    assert {block.attributes: len(block.cells) for block in ties.blocks} == {(0, 4): 5, (1, 3): 11, (2,): 2}
    assert not ties.across


def test_rare_values_are_merged_inside_their_level() -> None:
    plain = Marginals(
        domain=Domain(names=NAMES, labels=LABELS),
        one_way=tuple(Measurement(attributes=(a,), counts=np.zeros(n, np.int64), deviation=9.0) for a, n in enumerate(SIZES)),
        larger=(),
    )  # fmt: skip
    merged = compression_of(plain, made(structure=LEVELS))[1].codes[3]
    assert all(len(set(SECTOR[merged == code])) == 1 for code in merged)
    assert merged.max() + 1 == 4


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(2, 30), min_size=3, max_size=6),
    of=st.dictionaries(st.integers(0, 5), st.integers(0, 5), max_size=3),
    binned=st.sets(st.integers(0, 5)),
    coarsen=st.integers(1, 3000),
    longest=st.integers(2, 3),
)
def test_each_set_of_columns_has_one_level(
    sizes: list[int], of: dict[int, int], binned: set[int], coarsen: int, longest: int
) -> None:
    """Each once, with no more cells than may be, or at the coarsest; every pair of columns is in one of them."""
    finer = {a: b for a, b in of.items() if a < len(sizes) and b < len(sizes) and b not in of and sizes[a] <= sizes[b]}
    names = [f"a{place}" for place in range(len(sizes))]
    attributes = [
        Attribute(name=name, column=name, labels=(), bins=size if a in binned and a not in finer else 0,
                  level_of=names[finer[a]] if a in finer else None)
        for a, (name, size) in enumerate(zip(names, sizes, strict=True))
    ]  # fmt: skip
    levels = BinLevels.make(sizes, attributes)
    assert levels.declared == finer
    assert not {a for a, _, _ in levels.of} & {*finer, *finer.values()}  # what has a declared level has no other ones
    options = {a: [a, *(b for b in finer if finer[b] == a)] for a in levels.finest}
    for level, (a, _, _) in enumerate(levels.of, len(sizes)):
        options[a].append(level)
    root = {level: a for a, own in options.items() for level in own}
    found = list(AllCliques(all=longest, coarsen=coarsen).places(levels))
    assert len(set(found)) == len(found)
    columns = len(levels.finest)
    for clique in found:
        mine = sorted(root[a] for a in clique)
        assert len(set(mine)) == len(mine) == len(clique)
        is_pair, length = len(mine) == 2, min(longest, columns)
        most = coarsen * math.sqrt(math.comb(columns, length) / math.comb(columns, len(mine)))
        own = [[a for a in options[b] if not is_pair or a < len(sizes)] for b in mine]
        cells = math.prod(levels.sizes[a] for a in clique)
        assert cells <= most or cells == math.prod(min(levels.sizes[a] for a in some) for some in own)
        if math.prod(sizes[a] for a in mine) <= most:
            assert sorted(clique) == mine  # the finest
    pairs = {tuple(sorted(root[a] for a in pair)) for clique in found for pair in itertools.combinations(clique, 2)}
    assert pairs == set(itertools.combinations(levels.finest, 2))


@pytest.mark.parametrize("cliques", [None, {"all": 2}, "adaptive"])
def test_a_column_and_its_level_are_no_pair(cliques: Any) -> None:
    """All of the budget is for single columns, as without the level; nothing is chosen, and no column is measured twice."""
    columns = {name: COLUMNS[name] for name in ("band", "age")}
    counted = {} if cliques is None else {"method": "marginals", "cliques": cliques}
    leveled = made(columns=columns, structure={"levels": LEVELS["levels"][1:]}, aggregate=counted)
    assert [draw.kind for draw in plan_budget(leveled).draws] == [DrawKind.ONE_WAY]
    assert leveled.longest == 1


def test_an_earlier_release_may_have_been_made_by_another_method() -> None:
    """What its columns are does not depend on what made its records."""
    one, other = (_declarations(made(synthesize={"method": method})) for method in ("mixture", "gum"))
    assert one == other


def test_no_set_has_two_levels_of_a_column() -> None:
    """Of those that are scored or chosen in rounds; of two columns one pair is selected."""
    finer = {0: 4, 1: 3}
    for clique in all_cliques(SIZES, 3, None, finer):
        assert len({finer.get(a, a) for a in clique}) == 3
    draw = plan_budget(CONFIGURATION).draw(DrawKind.MARGINALS)
    pairs = scored_pairs(SIZES, draw, finer)
    assert len(pairs) == 8
    chosen = selected_cliques(
        CONFIGURATION.marginal_settings, SIZES, np.full(8, 1e12), draw, CONFIGURATION.stability, finer=finer
    )
    assert len(chosen) == len({tuple(sorted(finer.get(a, a) for a in pair)) for pair in chosen}) == 3


@pytest.mark.parametrize("method", ["mixture", "gum"])
def test_all_sets_are_at_levels_by_public_facts(method: str) -> None:
    """Little noise has the finer columns, much the coarser ones, whatever makes the records."""

    def sets(rows: int) -> set[frozenset[str]]:
        counted = {"method": "marginals", "cliques": {"all": 2}}
        config = made(aggregate=counted, synthesize={"method": method}, rows=rows)
        return {frozenset(NAMES[a] for a in clique) for clique in planned_cliques(config, DrawKind.MARGINALS)}

    assert sets(10**7) == {frozenset(p) for p in itertools.combinations(("sex", "industry", "age"), 2)}
    assert sets(1) == {frozenset(p) for p in itertools.combinations(("sex", "sector", "band"), 2)}


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"column": "age", "by": "industry", "mapping": {"a0": "1"}}, "must be a category or boolean"),
        ({"column": "band", "by": "sector", "mapping": {"a": "old"}}, "and no level itself"),
        ({"column": "band", "by": "age", "mapping": {"x": "old"}}, "no value or bin"),
        ({"column": "band", "by": "age", "mapping": {"1": "ancient"}}, "does not declare"),
        ({"column": "band", "by": "age", "mapping": {"1": "old", "[0, 5)": "young"}}, "to two values; keep one"),
        (
            {"column": "band", "by": "age", "mapping": {"1": "old", "2": "old"}, "default": "young"},
            "names 2 numbers of the bin",
        ),
        (
            {"column": "band", "by": "age", "mapping": {"1": "young"}, "default": "old"},
            "has middle; leave out what nothing has",
        ),
    ],
)
def test_levels_that_do_not_fit_are_refused(rule: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, ValueError), match=message):
        made(structure={"levels": [LEVELS["levels"][0], rule]})
