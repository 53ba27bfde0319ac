"""Sets under marginals: each declared value is an attribute of its own, counted beside the others, and one cell again."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from marginweave.base.arrays import Records
from marginweave.configuration.attributes import forbidden_codes
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.counts.marginals import all_cliques
from marginweave.domain.labels import Domain
from marginweave.domain.masks import Mask
from marginweave.domain.zeros import broken_records, domain_sizes
from marginweave.estimate.intervals import marginal_intervals
from marginweave.estimate.marginals import compression_of, marginal_counts, normalize_marginals
from marginweave.observations.tables import Marginals, Observation
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import encode_table
from marginweave.publish.best import distributions
from marginweave.publish.measured_tables import measurements_table
from marginweave.publish.reader import PublishedRelease, record_codes, show_records
from marginweave.records.decode import decode_table
from marginweave.records.sets import cap_values, spread_values
from marginweave.released.statement import PrivacyStatement
from tests.support.configurations import configuration
from tests.support.counting import count_marginal
from tests.support.noisy_counts import counts_of
from tests.support.samples import every
from tests.support.synthesized import synthesize_codes
from tests.support.tables import FixedWords, completed, encoded

VALUES = ("a", "b", "c", "d", "e")
COLUMNS: dict[str, Any] = {
    "sex": {"type": "category", "values": ["f", "m"], "missing": [], "outside": "error"},
    "signs": {"type": "set", "values": list(VALUES), "max_values": 3},
    "age": {"type": "category", "values": [1, 2, 3]},
}
MARGINALS: dict[str, Any] = {"aggregate__method": "marginals", "aggregate__cliques": {"all": 2}}
# exact counts come out exactly
CONFIGURATION = configuration(columns=COLUMNS, synthesize__method="gum", **MARGINALS)
NAMES = ("sex", *(f"signs={value}" for value in VALUES), "age")
DOMAIN = Domain(
    names=NAMES, labels=tuple(attribute.labels for attribute in CONFIGURATION.attributes)
)
SIZES = domain_sizes(CONFIGURATION.attributes, DOMAIN.labels)
SIGNS = range(1, 6)

CELL = st.lists(st.sampled_from([*VALUES, " a ", "zz"]), max_size=7)
ROW = st.tuples(st.sampled_from("fm"), CELL.map(";".join), st.sampled_from(["1", "2.0", "3", ""]))


def measured(
    rows: list[tuple[str, str, str]], config: Any = CONFIGURATION, sd: float = 1e-6
) -> Marginals:
    """Exact marginals of all pairs of a table, called nearly free of noise, made consistent."""
    table = encoded(rows, config)
    labels = tuple(attribute.labels for attribute in config.attributes)
    sizes = domain_sizes(config.attributes, labels)

    def exact(length: int, codes: Any, sizes: Any) -> tuple[Observation, ...]:
        return tuple(
            Observation(attributes=c, counts=count_marginal(codes, sizes, c), deviation=sd)
            for c in all_cliques(sizes, length)
        )

    plain = Marginals(
        domain=Domain(names=NAMES, labels=labels), one_way=exact(1, table.codes, sizes), larger=()
    )
    compression = compression_of(plain, config)[1]
    small = [new[codes] for new, codes in zip(compression.codes, table.codes, strict=True)]
    whole = Marginals(
        domain=plain.domain, one_way=plain.one_way, larger=exact(2, small, compression.sizes)
    )
    return normalize_marginals(whole, config)


def test_every_declared_value_is_an_attribute_with_two_codes() -> None:
    assert tuple(attribute.name for attribute in CONFIGURATION.attributes) == NAMES
    assert SIZES == (2, 2, 2, 2, 2, 2, 4)
    assert configuration(columns=COLUMNS).attributes[1].is_set, (
        "k-tuples count a set as one attribute"
    )
    other = configuration(columns={"s": {**COLUMNS["signs"], "outside": "other"}}, **MARGINALS)
    assert other.attributes[-1].name == "s=other"


@settings(max_examples=30)
@given(st.lists(ROW, max_size=12))
def test_a_code_says_whether_the_cell_holds_the_value(rows: list[tuple[str, str, str]]) -> None:
    """By hand, cell by cell; what is not declared is no value; without words no cell is cut."""
    table = encoded(rows, CONFIGURATION)
    for i, (_, cell, _) in enumerate(rows):
        held = {part.strip() for part in cell.split(";")}
        assert [table.codes[j][i] for j in SIGNS] == [int(value not in held) for value in VALUES]


@settings(max_examples=25)
@given(st.lists(ROW, max_size=12), st.integers(0, 9))
def test_a_decoded_table_encodes_to_its_codes_and_cells_keep_the_declared_order(
    rows: list[tuple[str, str, str]], seed: int
) -> None:
    """After the cap, which keeps some of the values of a cell and at most three; a set without any is missing."""
    clean = clean_table(_raw(rows), CONFIGURATION)
    table = encode_table(clean, CONFIGURATION, FixedWords(seed))
    made = decode_table(table.codes, DOMAIN, CONFIGURATION, seed)
    for (_, cell, _), text in zip(rows, made.column("signs").to_pylist(), strict=True):
        held = {part.strip() for part in cell.split(";")} & set(VALUES)
        kept = [] if text is None else text.split(";")
        assert kept == sorted(kept)
        assert set(kept) <= held
        assert len(kept) == min(3, len(held))
    again = encode_table(clean_table(made, CONFIGURATION), CONFIGURATION)
    assert all(
        np.array_equal(one, other) for one, other in zip(again.codes, table.codes, strict=True)
    )


@settings(max_examples=25)
@given(st.lists(ROW, max_size=8), ROW, st.integers(0, 9))
def test_one_record_more_adds_one_to_one_cell_of_every_marginal(
    rows: list[tuple[str, str, str]], one: tuple[str, str, str], seed: int
) -> None:
    """Marginals inside one set included: the sensitivity is that of any other attribute."""
    tables = [
        encode_table(clean_table(_raw(r), CONFIGURATION), CONFIGURATION, FixedWords(seed))
        for r in ([*rows, one], rows)
    ]
    for clique in (*all_cliques(SIZES, 1), *all_cliques(SIZES, 2), (1, 2, 3, 6)):
        more, less = (count_marginal(table.codes, SIZES, clique) for table in tables)
        assert sorted((more - less).ravel().tolist())[-2:] == [0, 1]
        assert np.abs(more - less).sum() == 1


def test_added_records_of_a_resized_table_have_no_value() -> None:
    imputed = {
        name: {**COLUMNS[name], "impute": {"distribution": "uniform"}} for name in ("sex", "age")
    }
    config = configuration(columns={**COLUMNS, **imputed}, resize={"records": 50}, **MARGINALS)
    table = completed(encoded([("f", "a;b", "1")] * 7, config), config, lambda _: FixedWords(1))
    assert table.records == 50
    assert [int((table.codes[j] == 0).sum()) for j in SIGNS] == [7, 7, 0, 0, 0]


def test_values_keep_the_company_of_each_other_and_of_other_columns() -> None:
    """a and b always together, c never with them, d with one sex alone: all pairs are measured, so all of it is kept."""
    rows = (
        [("f", "a;b;d", "1")] * 300
        + [("f", "c", "2")] * 200
        + [("m", "", "3")] * 100
        + [("m", "a;b", "")] * 150
    )
    codes = synthesize_codes(measured(rows), CONFIGURATION, CONFIGURATION.synthesize)
    made = Counter(zip(*(column.tolist() for column in codes), strict=True))
    assert made == Counter(
        zip(*(column.tolist() for column in encoded(rows, CONFIGURATION).codes), strict=True)
    )


def test_no_record_has_more_values_than_the_cap() -> None:
    """Drawn by themselves, values at 60 % would give a third of the records four or five; noisy pairs do it as well."""
    rng = np.random.default_rng(2)
    rows = [("f", ";".join(rng.choice(VALUES, 3, replace=False)), "1") for _ in range(400)]
    single = configuration(columns=COLUMNS, **{**MARGINALS, "aggregate__cliques": {"all": 1}})
    marginals = measured(rows, single)
    alone = Marginals(domain=marginals.domain, one_way=marginals.one_way, larger=())
    codes = synthesize_codes(normalize_marginals(alone, single), single, single.synthesize)
    held = np.sum([codes[j] == 0 for j in SIGNS], axis=0)
    assert held.max() == 3
    assert len(held) == 400


def test_what_the_cap_keeps_is_a_uniform_choice() -> None:
    """Of five values three, 20000 times: each of the 10 subsets a tenth of the time (chi-square, false alarm 1e-6)."""
    n = 20_000
    records = np.zeros((2 * n, 7), np.int32)
    records[n:, 1:6] = [1, 0, 1, 0, 0]
    records[:, 6] = 2
    cap_values(records, CONFIGURATION, np.random.default_rng(7))
    assert np.unique(records[n:], axis=0).tolist() == [[0, 1, 0, 1, 0, 0, 2]]
    kept, seen = np.unique(records[:n], axis=0, return_counts=True)
    assert len(kept) == len(list(itertools.combinations(VALUES, 3)))
    assert (kept[:, 1:6] == 0).sum(axis=1).tolist() == [3] * 10
    assert ((seen - n / 10) ** 2 / (n / 10)).sum() < chi2.isf(1e-6, 9)


ODDS = np.array([0.6, 0.5, 0.4, 0.3, 0.3])
"""Of the signs of a female record; of a male one in the other order. One record in ten has more than three."""


def drawn_signs(rows: int, rng: np.random.Generator) -> Records:
    """Records that have each sign or not as a model of the single signs draws them, without a look at the cap."""
    records = rng.integers(0, 2, (rows, 7)).astype(np.int32)
    odds = np.where(records[:, :1] == 0, ODDS, ODDS[::-1])
    records[:, 1:6] = rng.random((rows, 5)) >= odds
    return records


def test_the_cap_leaves_each_value_as_frequent_as_it_was_drawn() -> None:
    """And with each sex nearly, 0.6 % apart: cutting alone takes 5 %, and 1 % forget the sex where they move at random."""
    rng = np.random.default_rng(11)
    drawn = drawn_signs(20_000, rng)
    assert ((drawn[:, 1:6] == 0).sum(axis=1) > 3).mean() > 0.09
    records = drawn.copy()
    spread_values(records, CONFIGURATION, [], rng)
    cap_values(records, CONFIGURATION, rng)
    assert (records[:, 1:6] == 0).sum(axis=1).max() == 3
    assert (records == 0).sum(axis=0).tolist() == (drawn == 0).sum(axis=0).tolist()
    assert (records[:, [0, 6]] == drawn[:, [0, 6]]).all()
    with_sex, before = ((one[one[:, 0] == 0, 1:6] == 0).sum(axis=0) for one in (records, drawn))
    assert np.abs(with_sex - before).sum() < 0.0075 * before.sum()


def test_values_of_a_model_stay_as_frequent_as_they_were_measured() -> None:
    """Of 20,000 records of a mixture of single counts; each share is within seven deviations (false alarm 1e-11)."""
    config = configuration(columns=COLUMNS, **MARGINALS)
    rows = 20_000
    shares = np.array([0.6, 0.55, 0.5, 0.45, 0.4])
    one_way = tuple(
        Observation(attributes=(a,), counts=np.rint(counts).astype(np.int64), deviation=1e-6)
        for a, counts in enumerate(
            [
                np.array([rows / 2, rows / 2]),
                *(np.array([share, 1 - share]) * rows for share in shares),
                np.array([rows / 4] * 4),
            ]
        )
    )
    counts = normalize_marginals(Marginals(domain=DOMAIN, one_way=one_way, larger=()), config)
    settings = MixtureSynthesis(records=rows, components=4, fits=1, iterations=20)
    codes = synthesize_codes(counts, config, settings)
    held = np.stack([codes[j] == 0 for j in SIGNS])
    assert held.sum(axis=0).max() == 3
    assert np.abs(held.mean(axis=1) - shares).max() < 7 * np.sqrt(0.25 / rows)


def test_a_value_moves_to_no_record_that_a_rule_forbids_it() -> None:
    """No male record may have a or b, and no record of age 1 lack c; what can move all the same does."""
    rng = np.random.default_rng(12)
    drawn = drawn_signs(5_000, rng)
    drawn[drawn[:, 0] == 1, 1:3] = 1
    drawn[drawn[:, 6] == 0, 3] = 0
    not_male = np.array([[True, True], [False, True]])
    masks = [Mask(attributes=(0, sign), allowed=not_male) for sign in (1, 2)]
    needs_c = np.array([[True, True, True, True], [False, True, True, True]])
    masks.append(Mask(attributes=(3, 6), allowed=needs_c))
    assert not broken_records(tuple(drawn.T), masks).any()
    over = ((drawn[:, 1:6] == 0).sum(axis=1) > 3).sum()
    records = drawn.copy()
    spread_values(records, CONFIGURATION, masks, rng)
    assert not broken_records(tuple(records.T), masks).any()
    assert (records == 0).sum(axis=0).tolist() == (drawn == 0).sum(axis=0).tolist()
    assert ((records[:, 1:6] == 0).sum(axis=1) > 3).sum() < over / 20


def test_forbidden_values_of_a_set_are_never_made() -> None:
    """sex m with a or b: rules over two attributes each, which the records keep whatever the counts say."""
    config = configuration(
        columns=COLUMNS, structure={"forbidden": [{"signs": ["b", "a"], "sex": "m"}]}, **MARGINALS
    )
    rules = forbidden_codes(config.forbidden, DOMAIN.labels)
    assert {tuple(sorted(rule)) for rule in rules} == {
        ((0, (1,)), (1, (0,))),
        ((0, (1,)), (2, (0,))),
    }
    rng = np.random.default_rng(3)
    rows = [(str(rng.choice(["f", "m"])), ";".join(rng.choice(VALUES, 2)), "1") for _ in range(300)]
    codes = synthesize_codes(measured(rows, config), config, config.synthesize)
    assert (codes[0] == 1).any()
    assert not ((codes[0] == 1) & ((codes[1] == 0) | (codes[2] == 0))).any()


def test_counts_and_measurements_name_the_value() -> None:
    """A value that a set lacks is a missing value: no combination of aggregates.csv, a null of measurements.parquet."""
    marginals = measured([("f", "a;c", "1")] * 20 + [("m", "", "2")] * 30)
    counts = marginal_counts(marginals, CONFIGURATION)
    pairs = counts_of(counts)
    assert pairs[(1, 0), (3, 0)] == 20
    assert not any(place == 2 for pair in pairs for place, _ in pair), "nobody has b"
    table = measurements_table(marginals, CONFIGURATION).to_pylist()
    cells = [
        (row["value_1"], row["count"])
        for row in table
        if row["column_1"] == "signs=a" and row["column_2"] is None
    ]
    assert cells == [("a", 20), (None, 30)]


def test_the_report_has_one_section_for_a_set() -> None:
    """Its values together; a record without any of them has no value."""
    rows = [("f", "a;c", "1")] * 20 + [("m", "", "2")] * 30
    marginals = measured(rows)
    counts = marginal_counts(marginals, CONFIGURATION)
    codes = record_codes(_raw(rows), counts.domain, CONFIGURATION)
    intervals = marginal_intervals(counts, marginals, CONFIGURATION)
    none = cast("PrivacyStatement", None)
    published = PublishedRelease(
        configuration=CONFIGURATION, aggregates=counts, intervals=intervals, statement=none
    )
    sections = distributions(
        published, show_records([codes], len(rows), counts.domain, CONFIGURATION), 1.0
    )
    assert [(section.name, section.kind) for section in sections] == [
        ("sex", "category"),
        ("signs", "set"),
        ("age", "category"),
    ]
    assert [value.synthetic for value in sections[1].values] == [20, 0, 20, 0, 0]
    assert [value.reported for value in sections[1].values] == [20, None, 20, None, None]
    assert sections[1].missing == 30


@pytest.mark.parametrize(
    ("records", "method"), every(3, itertools.product([0, 1], ["gum", "mixture"]))
)
def test_an_empty_table_of_sets_is_made_and_decoded(records: int, method: str) -> None:
    config = configuration(
        columns=COLUMNS,
        structure={"forbidden": [{"signs": "a", "sex": "m"}]},
        synthesize={"method": method, "records": records},
        **MARGINALS,
    )
    codes = synthesize_codes(measured([("f", "a", "1")] * 5, config), config, config.synthesize)
    assert decode_table(codes, DOMAIN, config, 0).num_rows == records


def _raw(rows: list[tuple[str, str, str]]) -> pa.Table:
    return pa.table(
        {name: pa.array([row[j] for row in rows], pa.string()) for j, name in enumerate(COLUMNS)}
    )
