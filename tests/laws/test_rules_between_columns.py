"""Universes, orders and conditions: what they exclude, by trying every record; and that nothing else comes out."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import GumSynthesis, MixtureSynthesis
from marginweave.domain.labels import Domain
from marginweave.domain.masks import allowed_cells
from marginweave.domain.zeros import broken_records, domain_sizes, structural_masks
from marginweave.estimate.marginals import compression_of, normalize_marginals
from marginweave.evaluate.rules import broken_rules
from marginweave.mechanisms.randomness import KeyedBits, RecordWords
from marginweave.observations.tables import Marginals
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import EncodedTable, code_type, encode_table
from marginweave.prepare.repair import Repair
from marginweave.records.decode import decode_table
from marginweave.records.release import synthesize_blocks
from marginweave.runs.limits import check_size
from tests.support.configurations import configuration
from tests.support.noisy_marginals import METHODS, measure_merged, noisy_counts, synthesized
from tests.support.ruled_table import check_method

SURE = {"type": "category", "missing": [], "outside": "error"}
COLUMNS: dict[str, Any] = {
    "marital": {**SURE, "values": ["single", "married", "N"]},
    "age": {"type": "number", "bins": [0, 3, 15, 65, 100], "decimals": 0, "missing": [], "outside": "error"},
    "housing": {**SURE, "values": ["house", "group"]},
    "income": {"type": "number", "bins": [0, 10, 50], "decimals": 0, "missing": ["N"]},
    "own": {**SURE, "values": ["1", "2", "0"]},
    "leaving": {"type": "date", "bounds": ["2024-01-01", "2024-03-31"], "bins": ["2024-01-01", "2024-02-15", "2024-03-31"]},
    "arrival": {"type": "date", "bounds": ["2024-01-01", "2024-03-31"], "bins": "month", "missing": [], "outside": "error"},
}  # fmt: skip
STRUCTURE: dict[str, Any] = {
    "applies": [
        {"columns": ["marital", "income"], "where": {"age": {"from": 15}}, "otherwise": "N"},
        {"columns": ["own"], "where": {"housing": "house", "age": {"above": 2}}, "otherwise": "0"},
    ],
    "ordered": [{"columns": ["arrival", "leaving"], "ties": False}],
    "forbidden": [{"age": {"from": 65}, "income": {"to": 9}, "marital": {"but": ["single", "N"]}}],
}
CONFIGURATION = configuration(
    columns=COLUMNS, structure=STRUCTURE, aggregate={"method": "marginals"}
)
NAMES = tuple(COLUMNS)
LABELS = tuple(attribute.labels for attribute in CONFIGURATION.attributes)
SIZES = domain_sizes(CONFIGURATION.attributes, LABELS)
EVERY = np.stack(np.unravel_index(np.arange(np.prod(SIZES)), SIZES), axis=1)
MASKS = structural_masks(CONFIGURATION, LABELS)


def keeps(record: tuple[int, ...]) -> bool:
    """The rules in plain words, by code."""
    marital, age, housing, income, own, leaving, arrival = record
    grown = age >= 2
    if grown != (marital != 2) or grown != (income != 2):
        return False
    if (housing == 0 and age >= 1) != (own != 2):
        return False
    if leaving == 0 and arrival == 2:  # January and half of February lie before all of March
        return False
    return not (age == 3 and income == 0 and marital == 1)


def mapped(records: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    codes = tuple(
        column.astype(code_type(len(labels)))
        for column, labels in zip(records.T, LABELS, strict=True)
    )
    words = RecordWords(words=KeyedBits(key=b"k" * 32, purpose="rules"), records=numbers)
    repaired = Repair(CONFIGURATION, LABELS)(EncodedTable(codes=codes, labels=LABELS), words)
    return np.stack(repaired.codes, axis=1).astype(np.int64)


def test_exactly_what_breaks_a_rule_is_excluded() -> None:
    allowed = np.array([keeps(tuple(record)) for record in EVERY.tolist()])
    assert 0 < allowed.sum() < len(allowed)
    assert np.array_equal(broken_records(tuple(EVERY.T), MASKS), ~allowed)


def test_values_that_only_some_rules_tell_apart_are_told_apart() -> None:
    """Two values that one rule names together, and another one names alone."""
    columns = {
        name: {"type": "category", "values": ["x", "y", "z"], "outside": "error", "missing": []}
        for name in "ab"
    }
    config = configuration(
        columns=columns,
        structure={"forbidden": [{"a": ["x", "y"], "b": "z"}, {"a": "x", "b": "y"}]},
    )
    records = np.stack(np.unravel_index(np.arange(9), (3, 3)))
    broken = broken_records(
        [*records], structural_masks(config, [attribute.labels for attribute in config.attributes])
    )
    assert set(np.flatnonzero(broken)) == {1, 2, 5}


def test_pairs_are_excluded_that_no_allowed_record_has() -> None:
    """A married person who owns as a child does; found through age, which rules name beside each of the two."""
    allowed = EVERY[[keeps(tuple(record)) for record in EVERY.tolist()]]
    for pair in itertools.combinations(range(7), 2):
        there = np.zeros([SIZES[a] for a in pair], np.bool_)
        there[tuple(allowed[:, a] for a in pair)] = True
        assert np.array_equal(allowed_cells(pair, there.shape, MASKS), there)


def test_every_record_becomes_an_allowed_one_by_itself() -> None:
    """Total, idempotent, and the same in whatever company: so two tables that differ in a record still differ in that alone."""
    numbers = np.arange(len(EVERY))
    found = mapped(EVERY, numbers)
    assert all(keeps(tuple(record)) for record in found.tolist())
    allowed = ~broken_records(tuple(EVERY.T), MASKS)
    assert np.array_equal(found[allowed], EVERY[allowed])
    assert np.array_equal(mapped(found, numbers[::-1]), found)
    some = np.random.default_rng(1).permutation(len(EVERY))[:300]
    assert np.array_equal(mapped(EVERY[some], numbers[some]), found[some])


def test_rules_that_tie_too_much_are_refused_before_anything_is_charged() -> None:
    """By the plan, from public facts alone."""
    columns = {
        name: {"type": "number", "bounds": [0, 400], "bins": 40, "decimals": 0} for name in "abcde"
    }
    ends = [(i, j) for i in range(10, 100, 10) for j in range(10, 100, 10)]
    forbidden = [{"a": {"from": i}, "b": {"from": j}, "c": {"below": i + j}} for i, j in ends]
    forbidden += [{"d": {"from": i}, "e": {"from": j}, "c": {"below": i + j}} for i, j in ends]
    structure = {"forbidden": forbidden}
    with pytest.raises(
        InputError, match=r"structure ties columns a, b, c, d, e together in more than 4096 ways"
    ):
        check_size(
            configuration(columns=columns, structure=structure, aggregate={"method": "marginals"})
        )


def test_the_first_column_of_a_rule_wins() -> None:
    """Age and housing stay; a married child is a child; who leaves before arriving leaves at the earliest moment there is."""
    found = mapped(EVERY, np.arange(len(EVERY)))
    for stays in (1, 2, 6):
        assert np.array_equal(found[:, stays], EVERY[:, stays])
    children = EVERY[:, 1] < 2
    assert (found[children, 0] == 2).all()
    assert (found[(EVERY[:, 6] == 2) & (EVERY[:, 5] == 0), 5] == 1).all()


@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    sd=st.sampled_from([0.5, 30.0]),
    method=st.sampled_from(("aggregate-seeded", "gum", "mixture")),
)
def test_no_method_makes_a_record_that_breaks_a_rule(seed: int, sd: float, method: str) -> None:
    """From counts of any records, whatever the noise; and values drawn inside bins keep the order, and their bins."""
    rng = np.random.default_rng(seed)
    rows = mapped(EVERY[rng.integers(0, len(EVERY), 400)], np.arange(400))
    codes, domain = synthesized(rows, CONFIGURATION, method, seed, sd)
    assert all(keeps(record) for record in zip(*(code.tolist() for code in codes), strict=True))
    table = decode_table(codes, domain, CONFIGURATION, seed)
    arrivals, departures = table.column("arrival").to_pylist(), table.column("leaving").to_pylist()
    assert all(b is None or a < b for a, b in zip(arrivals, departures, strict=True))
    again = encode_table(clean_table(table, CONFIGURATION), CONFIGURATION)
    assert all(np.array_equal(one, other) for one, other in zip(again.codes, codes, strict=True))
    assert broken_rules(table, CONFIGURATION)[0].records == 0


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10**6), sd=st.sampled_from([0.5, 30.0]))
def test_every_rule_holds_by_every_method(method: str, seed: int, sd: float) -> None:
    """Universes, order, zeros, differences, sums and mappings at once."""
    check_method(METHODS[method].model_copy(update={"seed": seed}), seed, sd)


CHAIN = {
    name: {"type": "date", "bounds": ["2024-01-01", "2024-12-31"], "bins": bins, "missing": [""]}
    for name, bins in (
        ("c", "quarter"),
        ("a", "month"),
        ("b", ["2024-01-01", "2024-05-20", "2024-12-31"]),
    )
}


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), ties=st.booleans())
def test_three_dates_stand_in_order_through_each_other(seed: int, ties: bool) -> None:
    """Bins of three widths, some missing: strictly, or with ties; every value stays in its bin."""
    entries = [{"columns": ["a", "b"], "ties": ties}, {"columns": ["b", "c"]}]
    config = configuration(
        columns=CHAIN, structure={"ordered": entries}, aggregate={"method": "marginals"}
    )
    labels = tuple(attribute.labels for attribute in config.attributes)
    sizes = domain_sizes(config.attributes, labels)
    rng = np.random.default_rng(seed)
    codes = tuple(rng.integers(0, size, 500) for size in sizes)
    kept = ~broken_records(codes, structural_masks(config, labels))
    codes = tuple(code[kept] for code in codes)
    table = decode_table(codes, Domain(names=tuple(CHAIN), labels=labels), config, seed)
    assert table.schema.types == [pa.date32()] * 3
    days = datetime.timedelta(days=0 if ties else 1)
    for c, a, b in zip(*(table.column(name).to_pylist() for name in CHAIN), strict=True):
        assert None in (a, b) or a + days <= b
        assert None in (b, c) or b <= c
        assert None in (a, c) or a + days <= c
    again = encode_table(clean_table(table, config), config)
    assert all(np.array_equal(one, other) for one, other in zip(again.codes, codes, strict=True))


@pytest.mark.parametrize(
    ("structure", "words"),
    [
        ({"applies": [{"columns": ["own"], "where": {"age": {"from": 10}}}]}, "ends inside a bin"),
        ({"applies": [{"columns": ["own"], "where": {"age": {"from": 15}}}]}, "'own', which is never missing; give otherwise"),
        ({"applies": [{"columns": ["own"], "where": {"own": "1"}, "otherwise": "0"}]}, "applies names 'own' twice"),
        ({"applies": [{"columns": ["own"], "where": {"age": {"from": 3, "above": 3}}}]}, "not both of two"),
        ({"applies": [{"columns": ["own"], "where": {"age": {}}}]}, "must have but, or a range"),
        ({"applies": [{"columns": ["gone"], "where": {"age": {"from": 3}}}]}, "names 'gone', which is not among columns"),
        ({"ordered": [{"columns": ["arrival", "age"]}]}, "arrival (date), age (number, decimals: 0), which must be of one"),
        ({"ordered": [{"columns": ["arrival", "leaving"]}, {"columns": ["leaving", "arrival"]}]}, "before itself"),
        ({"forbidden": [{"leaving": {"from": "spring"}, "own": "1"}]}, "which must be a date like 2019-12-31"),
    ],
)  # fmt: skip
def test_a_rule_that_does_not_fit_is_refused_by_name(structure: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as refusal:
        configuration(columns=COLUMNS, structure=structure)
    assert words in str(refusal.value)


def test_a_configuration_with_rules_is_read_back_as_it_was() -> None:
    """As a run records it."""
    again = Configuration.model_validate(CONFIGURATION.model_dump(mode="json"))
    assert again == CONFIGURATION
    assert again.forbidden == CONFIGURATION.forbidden


HUNDRED = {
    "type": "number",
    "bounds": [0, 100],
    "bins": 100,
    "decimals": 0,
    "missing": [],
    "outside": "error",
}
WIDE: dict[str, Any] = dict.fromkeys("abcdef", HUNDRED)
FEW = [
    {
        "a": {"from": 50},
        "b": {"to": 29},
        "c": {"from": 10, "below": 20},
        "d": {"to": 79},
        "e": {"above": 9},
        "f": {"from": 5},
    },
    {
        "a": {"to": 9},
        "b": {"to": 49},
        "c": {"to": 69},
        "d": {"from": 2},
        "e": {"from": 1},
        "f": {"to": 89},
    },
]


TIES: list[dict[str, Any]] = [
    {"forbidden": [{"sex": "m", "region": "north"}]},
    {"forbidden": [{"sex": "m", "region": "north"}, {"region": "north", "age": {"from": 50}}]},
    {"forbidden": [{"sex": "m", "region": ["north", "south", "west"]}]},
    {"forbidden": [{"sex": "m", "region": ["north", "south"]}, {"region": "west", "grade": 1}]},
    {"applies": [{"columns": ["sex"], "where": {"grade": [1, 2]}, "otherwise": "f"}]},
]
GAPS: dict[str, Any] = {
    "applies": [{"columns": ["sex", "age"], "where": {"region": "north"}}],
}


@pytest.mark.parametrize(
    ("structure", "missing"), [*itertools.product(TIES, ([], [""])), (GAPS, [""])]
)
def test_columns_that_rows_may_lose_a_value_of_are_named(
    structure: dict[str, Any], missing: list[str]
) -> None:
    """Of all records, with every gap: no other column changes, and of those that are named only a first one may keep all."""
    declared = configuration(
        structure=structure, missing=missing, aggregate={"method": "marginals"}
    )
    counted = declared.with_undeclared(declared.undeclared)
    labels = tuple(attribute.labels for attribute in counted.attributes)
    sizes = domain_sizes(counted.attributes, labels)
    every = np.stack(np.unravel_index(np.arange(np.prod(sizes)), sizes), axis=0)
    words = RecordWords(
        words=KeyedBits(key=b"k" * 32, purpose="rules"), records=np.arange(every.shape[1])
    )
    codes = tuple(
        column.astype(code_type(size - 1)) for column, size in zip(every, sizes, strict=True)
    )
    repaired = Repair(counted, labels)(EncodedTable(codes=codes, labels=labels), words)
    changed = {
        attribute.column
        for attribute, before, after in zip(counted.attributes, every, repaired.codes, strict=True)
        if (before != after).any()
    }
    assert changed <= set(declared.repaired_columns)
    assert counted.repaired_columns == declared.repaired_columns
    assert len(set(declared.repaired_columns) - changed) <= 1


@pytest.mark.parametrize("method", ["gum", "mixture"])
def test_six_columns_of_a_hundred_values(method: str) -> None:
    """10^12 combinations, of which rules tell a few apart."""
    structure = {"forbidden": FEW}
    config = configuration(columns=WIDE, structure=structure, aggregate={"method": "marginals"})
    labels = tuple(attribute.labels for attribute in config.attributes)
    rng = np.random.default_rng(1)
    rows = np.concatenate(
        [rng.integers(0, 100, (500, 6)), [[60, 5, 15, 50, 40, 30], [5, 5, 5, 50, 40, 30]] * 100]
    )
    broken = [
        (a >= 50 and b < 30 and 10 <= c < 20 and d < 80 and e >= 10 and f >= 5)
        or (a < 10 and b < 50 and c < 70 and d >= 2 and e >= 1 and f < 90)
        for a, b, c, d, e, f in rows.tolist()
    ]
    masks = structural_masks(config, labels)
    assert 200 <= sum(broken) < 300
    assert np.array_equal(broken_records(tuple(rows.T), masks), broken)
    words = RecordWords(
        words=KeyedBits(key=b"k" * 32, purpose="rules"), records=np.arange(len(rows))
    )
    repaired = Repair(config, labels)(
        EncodedTable(codes=tuple(rows.astype(np.uint8).T), labels=labels), words
    )
    assert not broken_records(repaired.codes, masks).any()
    domain = Domain(names=tuple(WIDE), labels=labels)
    counts = Marginals(
        domain=domain, one_way=noisy_counts(rows, (100,) * 6, 1, 9.0, rng), larger=()
    )
    compression = compression_of(counts, config)[1]
    pairs = tuple(
        measure_merged(pair, compression)
        for pair in noisy_counts(rows, (100,) * 6, 2, 9.0, rng)[:4]
    )
    known = normalize_marginals(
        Marginals(domain=domain, one_way=counts.one_way, larger=pairs), config
    )
    made = {
        "gum": GumSynthesis(records=50, rounds=4, seed=1),
        "mixture": MixtureSynthesis(records=50, components=12, fits=1, iterations=4, seed=1),
    }[method]
    (codes,) = synthesize_blocks(known, config, made)
    assert len(codes[0]) == 50
    assert not broken_records(codes, masks).any()


def test_too_many_kinds_are_refused_by_the_plan() -> None:
    fine = [
        {name: f"[{7 * i % 99}, {7 * i % 99 + 1})" for i, name in enumerate("abcdef", start)}
        for start in range(99)
    ]
    config = configuration(
        columns=WIDE, structure={"forbidden": fine}, aggregate={"method": "marginals"}
    )
    with pytest.raises(
        InputError, match="structure ties a, b, c, d, e, f together, which have more than"
    ):
        check_size(config)
    with pytest.raises(InputError, match="known tables list one by one"):
        check_size(
            configuration(
                columns=WIDE, structure={"forbidden": FEW}, aggregate={"method": "k-tuples"}
            )
        )
