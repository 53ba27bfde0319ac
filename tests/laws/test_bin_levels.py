"""Coarser bins in larger marginals: sums of the finest table, measured where public sizes say so, and fitted with fine ones."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.bin_levels import BinLevels
from marginweave.configuration.marginals import AllCliques
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.counts.marginals import count_marginals
from marginweave.domain.labels import Domain
from marginweave.estimate.earlier import read_measurements
from marginweave.estimate.marginals import compression_of, normalize_marginals
from marginweave.estimate.mixture.fit import fit_mixture
from marginweave.measurements.larger_marginals import LargerMarginals
from marginweave.measurements.marginal_rows import by_level
from marginweave.measurements.whole_marginals import counted_sizes, public_sizes
from marginweave.observations.compression import plan_compression
from marginweave.observations.payloads import pack_marginals, unpack_marginals
from marginweave.observations.tables import Marginals, Observation
from marginweave.publish.measured_tables import marginal_facts, measurements_table
from marginweave.records.release import estimation_input
from marginweave.released.earlier import _declarations
from tests.support.configurations import configuration

NEVER: dict[str, Any] = {"missing": [], "outside": "error"}
COLUMNS: dict[str, Any] = {
    "age": {"type": "number", "bins": {"min": 0, "max": 17, "step": 1}, "missing": [""]},
    "sex": {"type": "category", "values": ["f", "m"]} | NEVER,
    "pay": {"type": "number", "bins": {"min": 0, "max": 12, "step": 1}, "codes": {-9: "none"}} | NEVER,
    "town": {"type": "category", "values": [f"t{i}" for i in range(6)]} | NEVER,
}  # fmt: skip


def made(**changes: Any) -> Configuration:
    counted = {"method": "marginals", "cliques": {"all": 3, "coarsen": 150}}
    return configuration(
        **(
            {"columns": COLUMNS, "aggregate": counted, "synthesize": {"method": "mixture"}}
            | changes
        )
    )


def attributes(bins: list[int]) -> list[Attribute]:
    return [
        Attribute(name=f"a{i}", column=f"a{i}", labels=(), bins=number)
        for i, number in enumerate(bins)
    ]


DOMAINS = st.lists(st.tuples(st.integers(0, 21), st.integers(1, 3)), min_size=3, max_size=5)


@settings(max_examples=30)
@given(DOMAINS, st.integers(0, 2**32 - 1), st.integers(2, 300), st.booleans())
def test_a_table_in_coarser_bins_is_the_sum_of_the_finest_one(
    domain: list[tuple[int, int]], seed: int, most: int, merging: bool
) -> None:
    """As it is counted, whatever values were merged before; and a record more adds 1 to one cell of it."""
    rng, bins, sizes = (
        np.random.default_rng(seed),
        [b for b, _ in domain],
        [b + other for b, other in domain],
    )
    levels, rows = (
        BinLevels.make(sizes, attributes(bins)),
        rng.integers(0, 1 << 20, (40, len(sizes))) % sizes,
    )
    one_way = [
        Observation(
            attributes=(a,),
            counts=np.bincount(rows[:, a], minlength=size),
            deviation=1.0 if merging else 1e-9,
        )
        for a, size in enumerate(sizes)
    ]
    compression = plan_compression(one_way)
    codes = levels.codes(compression.codes)
    counted = [compression.codes[a][rows[:, a]] for a in range(len(sizes))]
    counted += [coarse[counted[a]] for a, coarse in codes]
    all_sizes = [*compression.sizes, *(int(coarse.max()) + 1 for _, coarse in codes)]
    cliques = [*AllCliques(all=3, coarsen=most).places(levels)]
    tables = [count_marginals([[c[:n] for c in counted]], all_sizes, cliques) for n in (40, 39)]
    for one, other in zip(*tables, strict=True):
        assert np.abs(one - other).sum() == 1
    drawn = [
        Observation(attributes=c, counts=t, deviation=1.0)
        for c, t in zip(cliques, tables[0], strict=True)
    ]
    finest, coarse = by_level(drawn, codes, len(sizes))
    assert len(finest) + len(coarse) == len(cliques)
    for m in (*finest, *coarse):
        fine = np.zeros([compression.sizes[a] for a in m.attributes], np.int64)
        np.add.at(fine, tuple(counted[a] for a in m.attributes), 1)
        assert m.shape == fine.shape
        for axis, a in enumerate(m.attributes):
            summed = np.zeros(
                [*fine.shape[:axis], m.counts.shape[axis], *fine.shape[axis + 1 :]], np.int64
            )
            for code in range(fine.shape[axis]):
                to = m.coarser[a][code] if a in m.coarser else code
                summed[(slice(None),) * axis + (to,)] += fine[(slice(None),) * axis + (code,)]
            fine = summed
        assert (fine == m.counts).all()


@given(DOMAINS)
def test_a_level_joins_neighboring_bins_alone(domain: list[tuple[int, int]]) -> None:
    """2, 4, 8, … of them; what is no bin stays by itself, and a merged value that lies in several bins of a level, too."""
    sizes = [b + other for b, other in domain]
    levels = BinLevels.make(sizes, attributes([b for b, _ in domain]))
    apart = levels.codes([np.arange(size) for size in sizes])
    for (place, bins, joined), (attribute, codes), size in zip(
        levels.of, apart, levels.sizes[levels.attributes :], strict=True
    ):
        expected = [
            *(code // joined for code in range(bins)),
            *range(math.ceil(bins / joined), size),
        ]
        assert attribute == place
        assert codes.tolist() == expected
        # the first and the last code are one
        ends = [np.arange(size) % max(1, size - 1) for size in sizes]
        number = levels.of.index((place, bins, joined))
        merged = levels.codes(ends)[number][1]
        for code in range(1, len(merged)):
            assert (merged == merged[code]).tolist() == [
                c > 0 and expected[c] == expected[code] for c in range(len(merged))
            ]


@given(DOMAINS, st.integers(1, 400), st.integers(2, 4))
def test_sets_are_as_fine_as_their_cells_allow(
    domain: list[tuple[int, int]], most: int, length: int
) -> None:
    """Each set once, at its finest where that has few enough cells; every pair is at its finest in some marginal."""
    sizes, bins = [b + other for b, other in domain], [b for b, _ in domain]
    levels, length = BinLevels.make(sizes, attributes(bins)), min(length, len(sizes))
    found = [*AllCliques(all=length, coarsen=most).places(levels)]
    sets = [levels.columns(places) for places in found]
    assert set(itertools.combinations(range(len(sizes)), length)) <= set(sets)
    assert len(set(sets)) == len(sets)
    for places, columns in zip(found, sets, strict=True):
        cells, finest = (
            math.prod(levels.sizes[p] for p in places),
            math.prod(sizes[a] for a in columns),
        )
        if finest <= most or len(columns) == 2:
            assert places == columns
        elif cells > most:  # no coarser level is left
            coarsest = {of[0]: place for place, of in enumerate(levels.of, levels.attributes)}
            assert sorted(coarsest.get(a, a) for a in columns) == list(places)
    fine = {
        pair
        for places in found
        for pair in itertools.combinations([p for p in places if p < len(sizes)], 2)
    }
    assert fine == set(itertools.combinations(range(len(sizes)), 2))


def exact(seed: int) -> tuple[tuple[int, ...], tuple[Observation, ...]]:
    """A table of two components, and its finest singles and pair, and a triple in coarser bins, all but without noise."""
    rng, sizes = np.random.default_rng(seed), (9, 3, 12)
    parts = [rng.dirichlet(np.ones(size), 2) for size in sizes]
    table = 1e5 * np.einsum("k,ka,kb,kc->abc", np.array([0.4, 0.6]), *parts)
    levels = (np.arange(9) // 2, None, np.arange(12) // 4)
    coarse = np.add.reduceat(
        np.add.reduceat(table, np.arange(0, 9, 2), axis=0), np.arange(0, 12, 4), axis=2
    )
    singles = [table.sum(axis=tuple(b for b in range(3) if b != a)) for a in range(3)]
    measured = [
        Observation(attributes=(a,), counts=counts, deviation=3.0)
        for a, counts in enumerate(singles)
    ]
    pair = Observation(attributes=(0, 1), counts=table.sum(axis=2), deviation=3.0)
    triple = Observation(attributes=(0, 1, 2), counts=coarse, deviation=3.0, levels=levels)
    return sizes, (*measured, pair, triple)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_fit_reproduces_exact_tables_at_every_level(seed: int) -> None:
    """Off by a thousandth of the records at most, where independence is off by a hundred times as much as the fit."""
    sizes, measured = exact(seed)
    model = fit_mixture(
        measured, sizes, 1e5, [], MixtureSynthesis(components=20, fits=1, iterations=300), noise=0
    )
    whole = model.marginal((0, 1, 2))
    coarse = np.add.reduceat(
        np.add.reduceat(whole, np.arange(0, 9, 2), axis=0), np.arange(0, 12, 4), axis=2
    )
    assert np.abs(coarse - measured[-1].counts).sum() < 100
    assert np.abs(whole.sum(axis=2) - measured[-2].counts).sum() < 100
    assert np.abs(whole.sum(axis=(0, 1)) - measured[2].counts).sum() < 100
    alone = np.einsum("a,b,c->abc", *(m.counts / 1e5 for m in measured[:3])) * 1e5
    apart = np.add.reduceat(
        np.add.reduceat(alone, np.arange(0, 9, 2), axis=0), np.arange(0, 12, 4), axis=2
    )
    assert (
        np.abs(apart - measured[-1].counts).sum() > 100 * np.abs(coarse - measured[-1].counts).sum()
    )


def test_levels_have_the_sizes_of_their_counts() -> None:
    with pytest.raises(InputError, match="must have the sizes of the counts"):
        Observation(attributes=(0,), counts=np.zeros(3), deviation=1.0, levels=(np.arange(8) // 2,))


def test_what_was_merged_and_then_joined_is_counted_by_both() -> None:
    """Every combination of codes is in the cell of its merged and joined ones; an axis whose codes are apart has no level."""
    rng = np.random.default_rng(4)
    merges = [
        np.append(rng.permutation(7), rng.integers(7, size=4)),
        np.arange(5),
        np.array([0, 2, 1, 1]),
    ]
    counts = np.arange(3 * 5 * 3.0).reshape(3, 5, 3)
    joined = Observation(
        attributes=(0, 1, 2), counts=counts, deviation=1.0, levels=(np.arange(7) // 3, None, None)
    )
    found = joined.unmerged(merges)
    assert (found.counts is counts, found.shape) == (True, (11, 5, 4))
    assert found.levels[1] is None
    for cell in itertools.product(*map(range, found.shape)):
        merged = [int(new[code]) for new, code in zip(merges, cell, strict=True)]
        own = tuple(int(codes[code]) for codes, code in zip(found.codes, cell, strict=True))
        assert own == (merged[0] // 3, merged[1], merged[2])
    alone = Observation(attributes=(1,), counts=np.ones(5), deviation=1.0)
    assert alone.unmerged(merges).levels == ()


def test_another_order_of_attributes_moves_counts_and_levels() -> None:
    """Every cell keeps its count, whatever the order of the columns of another release."""
    counts, levels = (
        np.arange(3 * 5 * 2.0).reshape(3, 5, 2),
        (np.arange(7) // 3, None, np.array([1, 0, 0])),
    )
    m = Observation(attributes=(0, 1, 2), counts=counts, deviation=1.0, levels=levels)
    found = m.renumbered([6, 2, 4])
    assert (found.attributes, found.shape) == ((2, 4, 6), (5, 3, 7))
    for a, b, c in itertools.product(range(7), range(5), range(3)):
        there = tuple(codes[code] for codes, code in zip(found.codes, (b, c, a), strict=True))
        assert found.counts[there] == counts[a // 3, b, m.codes[2][c]]


def drawn(config: Configuration) -> Marginals:
    """What a run measures, without noise but of sigma 2, of made-up records with few values of some codes."""
    rng, sizes = np.random.default_rng(5), public_sizes(config)
    rows = [np.minimum(rng.geometric(0.2, 3000) - 1, size - 1) for size in sizes]
    names = tuple(attribute.name for attribute in config.attributes)
    domain = Domain(names=names, labels=tuple(attribute.labels for attribute in config.attributes))
    one_way = tuple(
        Observation(attributes=(a,), counts=np.bincount(r, minlength=n), deviation=2.0)
        for a, (r, n) in enumerate(zip(rows, sizes, strict=True))
    )
    merged = compression_of(Marginals(domain=domain, one_way=one_way, larger=()), config)[1].codes
    codes = config.marginal_settings.levels(sizes, config.attributes).codes(merged)
    counted = [new[r] for new, r in zip(merged, rows, strict=True)]
    counted += [coarse[counted[a]] for a, coarse in codes]
    all_sizes, cliques = [int(c.max()) + 1 for c in counted], LargerMarginals.cliques(config)
    tables = count_marginals([counted], all_sizes, cliques)
    larger = [
        Observation(attributes=c, counts=t, deviation=2.0)
        for c, t in zip(cliques, tables, strict=True)
    ]
    finest, coarse = by_level(larger, codes, len(sizes))
    return Marginals(domain=domain, one_way=one_way, larger=finest, coarse=coarse)


def test_a_release_says_which_bins_are_one_and_reads_its_own_files() -> None:
    """All tables are published with their noise; those in coarser bins come last, tell of no cell of another release, and are
    fitted beside the others."""
    config = made()
    marginals = unpack_marginals(pack_marginals(normalize_marginals(drawn(config), config)))
    facts = marginal_facts(marginals, config)
    assert facts.marginals is not None
    joined = [m.joined for m in facts.marginals]
    assert len(marginals.coarse) == sum(map(bool, joined)) == 4
    assert all(joined[-4:])
    assert {name for some in joined[-4:] for name in some or ()} == {"age", "pay"}
    assert facts.not_measured == ()
    table = measurements_table(marginals, config)
    assert table.num_rows == sum(m.counts.size for m in marginals.drawn)
    last = table.filter(np.array(table.column("marginal")) == len(joined)).to_pylist()
    coarser = [
        i for i, n in enumerate(facts.marginals[-1].attributes, 1) if n in (joined[-1] or ())
    ]
    names = [row[f"value_{i}"] for row in last for i in coarser]
    assert any(" | " in name for name in names if name)
    back = read_measurements(table, facts.marginals, marginals.domain, config)
    assert [m.attributes for m in back.larger] == [m.attributes for m in marginals.larger]
    assert all(
        (a.counts == b.counts).all() for a, b in zip(back.larger, marginals.larger, strict=True)
    )
    known = estimation_input(marginals, config)[0]
    assert sum(bool(m.levels) for m in known.measured()[0]) == 4
    assert not any(m.levels for m in known.consistent())


def test_pairs_are_counted_at_their_finest_and_triples_by_their_cells() -> None:
    config = made()
    sizes, cliques = counted_sizes(config), LargerMarginals.cliques(config)
    assert public_sizes(config) == (18, 2, 13, 6)
    assert {c for c in cliques if max(c) < 4} == {*itertools.combinations(range(4), 2)} - {(1, 3)}
    assert all(math.prod(sizes[a] for a in c) <= 150 for c in cliques if len(c) == 3)
    assert sum(len(c) == 3 for c in cliques) == 4


def test_auto_coarsens_where_there_is_much_noise_and_the_mixture_takes_it() -> None:
    """By public facts alone: columns, rows and epsilon. Other methods count as they did."""
    columns = {
        f"n{i}": COLUMNS["age"] | {"bins": {"min": 0, "max": 40 + i, "step": 1}} for i in range(5)
    }

    def coarsen(rows: int, **changes: Any) -> int | None:
        cliques = configuration(
            **{"columns": columns, "rows": rows, "aggregate": {}} | changes
        ).marginal_settings.cliques
        return cliques.coarsen if isinstance(cliques, AllCliques) else None

    noisy = coarsen(4_000)
    assert noisy is not None
    assert noisy < 40**3
    assert coarsen(5_000) == pytest.approx(noisy * 1.25, rel=0.01)
    assert coarsen(10**7) is None
    assert coarsen(4_000, synthesize={"method": "gum"}) is None
    wide = {
        f"n{i}": COLUMNS["age"] | {"bins": {"min": 0, "max": 40 + i, "step": 1}} for i in range(12)
    }
    # too many cells at their finest
    made_of = configuration(columns=wide, rows=8_000, aggregate={}, synthesize={})
    assert coarsen(8_000, columns=wide) is not None
    assert made_of.synthesize.method == "mixture"
    with pytest.raises(InputError, match="coarsen needs"):
        made(synthesize={"method": "gum"})


def test_an_earlier_release_may_have_been_made_by_another_method() -> None:
    """What its columns are does not depend on what made its records: bins that larger marginals may join are no such thing."""
    pairs = {"method": "marginals", "cliques": {"all": 2}}
    mixture, gum = (
        made(aggregate=pairs, synthesize={"method": method}) for method in ("mixture", "gum")
    )
    assert [attribute.bins for attribute in mixture.attributes] != [
        attribute.bins for attribute in gum.attributes
    ]
    assert _declarations(mixture) == _declarations(gum)
