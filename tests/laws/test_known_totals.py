"""Exact known tables hold in all records of every release, whatever was drawn, and no rule is broken for them."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from marginweave.answers.tables import released_tables
from marginweave.base.arrays import Records
from marginweave.base.errors import InputError
from marginweave.configuration.attributes import forbidden_codes
from marginweave.configuration.release import Configuration
from marginweave.domain.labels import Domain
from marginweave.domain.zeros import broken_records, domain_sizes, structural_masks
from marginweave.estimate.known import contradicted_tables
from marginweave.estimate.marginals import compression_of, normalize_marginals
from marginweave.estimate.normalize import normalize
from marginweave.estimate.totals import dense, exact_parts
from marginweave.observations.tables import Marginals, Observation
from marginweave.records import release
from marginweave.records.known import ExactCounts, cells_of
from marginweave.records.shards import RecordSampler, ShardPlan
from marginweave.runs.limits import check_size
from tests.support.configurations import configuration
from tests.support.noisy_counts import collect
from tests.support.synthesized import synthesize_codes
from tests.support.tables import level_from

COLUMNS: dict[str, Any] = {
    "sex": {"type": "category", "values": ["f", "m"], "missing": []},
    "region": {"type": "category", "values": ["north", "south", "west"]},
    "age": {"type": "number", "bounds": [0, 100], "bins": [0, 15, 50, 100], "missing": []},
    "job": {"type": "category", "values": ["a", "b", "c", "d"]},
    "grade": {"type": "category", "values": [1, 2, 3, 4, 5], "missing": []},
}
RULES: list[dict[str, Any]] = [
    {"age": "[0, 15)", "job": ["a", "b"]},
    {"sex": "m", "region": "north"},
    {"age": "[50, 100]", "job": "", "grade": "5"},
    {"region": "west", "job": "c", "sex": "f"},
]
TABLES = [
    *(
        ["sex"],
        ["age"],
        ["job"],
        ["sex", "region"],
        ["region", "job"],
        ["job", "sex"],
        ["age", "job"],
    ),
    *(["grade", "age"], ["region", "sex", "age"]),
]
METHODS: dict[str, dict[str, Any]] = {
    "gum": {"method": "gum", "rounds": 3},
    "mixture": {"method": "mixture", "components": 4, "fits": 1, "iterations": 3},
    "aggregate-seeded": {"method": "aggregate-seeded"},
}
MARGINALS = {
    "aggregate__method": "marginals",
    "aggregate__cliques": [["sex", "job"], ["region", "age"]],
}


def codes_of(config: Configuration, records: int, seed: int) -> Records:
    """Records of a made-up table that keep all rules."""
    rng = np.random.default_rng(seed)
    labels = [attribute.labels for attribute in config.attributes]
    sizes = domain_sizes(config.attributes, labels)
    made = np.stack(
        [np.minimum(rng.geometric(0.4, 4 * records + 40) - 1, n - 1) for n in sizes], axis=1
    )
    for rule in forbidden_codes(config.forbidden, labels):
        made = made[~np.logical_and.reduce([np.isin(made[:, a], code) for a, code in rule])]
    return made[:records]


def table_of(
    config: Configuration, columns: list[str], records: Records, **more: Any
) -> dict[str, Any]:
    """What a steward would write of these records."""
    names = [attribute.name for attribute in config.attributes]
    places = [names.index(name) for name in columns]
    labels = [(*config.attributes[a].labels, "") for a in places]
    cells, counts = np.unique(records[:, places], axis=0, return_counts=True)
    rows = [
        [*(own[v] for own, v in zip(labels, cell, strict=True)), int(n)]
        for cell, n in zip(cells.tolist(), counts, strict=True)
    ]
    return {
        "columns": columns,
        "table": rows,
        "others": 0,
        "from": "other-source",
        "public": "a census",
    } | more


def noisy(config: Configuration, records: Records, seed: int, sd: float = 3.0) -> Marginals:
    """Marginals of the records as they would be drawn."""
    rng = np.random.default_rng(seed)
    labels = tuple(attribute.labels for attribute in config.attributes)
    sizes = domain_sizes(config.attributes, labels)

    def measured(
        clique: tuple[int, ...], columns: list[NDArray[Any]], shape: tuple[int, ...]
    ) -> Observation:
        counts = rng.normal(0, sd, shape).round().astype(np.int64)
        np.add.at(counts, tuple(columns[a] for a in clique), 1)
        return Observation(attributes=clique, counts=counts, deviation=sd)

    columns = list(records.T)
    one_way = tuple(measured((a,), columns, (n,)) for a, n in enumerate(sizes))
    domain = Domain(names=tuple(a.name for a in config.attributes), labels=labels)
    drawn = Marginals(domain=domain, one_way=one_way, larger=())
    merged = compression_of(drawn, config)[1]
    columns = [new[old] for new, old in zip(merged.codes, columns, strict=True)]
    larger = tuple(
        measured(c, columns, tuple(merged.sizes[a] for a in c)) for c in ((0, 3), (1, 2))
    )
    return normalize_marginals(Marginals(domain=domain, one_way=one_way, larger=larger), config)


@pytest.mark.parametrize("columns", [["sex"], ["region", "job"], ["region", "sex", "age"]])
@pytest.mark.parametrize("sd", [None, 1.0])
def test_a_known_table_of_other_rows_is_told_from_one_of_these(
    columns: list[str], sd: float | None
) -> None:
    """100 draws of the same rows, of others that add up to as many, and of fewer: false alarms 3 in a million each."""
    plain = configuration(columns=COLUMNS, **MARGINALS)
    rows = codes_of(plain, 2_000, 1)
    draws = [noisy(plain, rows, seed).one_way for seed in range(100)]
    other = rows.copy()
    names = [attribute.name for attribute in plain.attributes]
    other[:200, names.index(columns[-1])] = 0
    error = {} if sd is None else {"sd": sd}
    for records, is_told in ((rows, False), (other, True), (rows[:1_900], True)):
        table = table_of(plain, columns, records, **{"from": "these-rows"}, **error)
        config = configuration(columns=COLUMNS, known=[table], **MARGINALS)
        assert {bool(contradicted_tables(config, draw)) for draw in draws} == {is_told}
    elsewhere = configuration(columns=COLUMNS, known=[table | {"from": "other-source"}])
    assert contradicted_tables(elsewhere, draws[0]) == ()


@pytest.mark.parametrize(("beside", "is_public"), [(0, True), (100, False)])
def test_a_known_total_that_counts_contradict_is_not_that_of_the_table(
    beside: int, is_public: bool
) -> None:
    """1,000 records by a known table of these rows: with 100 cells beside it that are not as declared there are 1,100.

    Four columns of noise 3 have a mean total of deviation 3.3 (harmonic): 100 is 30 deviations, 0 is within 5 but for 1e-6.
    """
    known = {
        "columns": ["sex"],
        "table": [["f", 600], ["m", 400]],
        "others": 0,
        "from": "these-rows",
        "public": "a page",
    }
    config = configuration(
        aggregate={"method": "marginals", "cliques": [["sex", "region"]]}, known=[known]
    )
    sizes = domain_sizes(config.attributes, tuple(a.labels for a in config.attributes))
    rng = np.random.default_rng(4)
    columns = [rng.integers(0, size, 1000 + beside) for size in sizes]
    records = np.stack(columns, axis=1).astype(np.int32)
    drawn = noisy(config, records, 5)
    tables, _ = released_tables(drawn, config, config, lambda _: None)
    assert (tables.total == 1000) == is_public
    assert is_public or tables.total is None


def assert_kept(config: Configuration, codes: tuple[NDArray[Any], ...]) -> None:
    """Every exact table, and no forbidden combination."""
    for known in config.totals:
        if known.exact:
            found = np.zeros(known.sizes)
            np.add.at(found, tuple(codes[a] for a in known.attributes), 1)
            assert (found == dense(known)).all()
    for rule in forbidden_codes(config.forbidden, [a.labels for a in config.attributes]):
        held = [codes[a].reshape(len(codes[a]), -1) == code for a, code in rule]
        assert not np.logical_and.reduce([slots.any(axis=1) for slots in held]).any()


cases = st.tuples(
    st.lists(st.sampled_from(TABLES), min_size=1, max_size=3, unique_by=tuple),
    st.lists(st.sampled_from(RULES), max_size=4, unique_by=str),
    st.integers(1, 60),
    st.integers(0, 2**32),
)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=34, deadline=None)
@given(cases)
def test_exact_tables_hold_in_every_release(method: str, case: Any) -> None:
    """1,000 cases in `make test-long`: the drawn counts are of another table, so nothing but assignment keeps the known."""
    columns, rules, number, seed = case
    structure = {"structure": {"forbidden": rules}} if rules else {}
    changes = {"columns": COLUMNS, "synthesize": METHODS[method], **MARGINALS, **structure}
    plain = configuration(**changes)
    published = codes_of(plain, number, seed)
    config = configuration(
        **changes, known=[table_of(plain, names, published) for names in columns]
    )
    check_size(config)
    made = synthesize_codes(
        noisy(config, codes_of(plain, 40, seed + 1), seed + 2), config, config.synthesize
    )
    assert {len(codes) for codes in made} == {len(published)}
    assert_kept(config, made)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 60), st.integers(0, 2**32), st.sampled_from(["k-tuples", "marginals"]))
def test_values_of_sets_that_rules_tie_to_a_table_follow(
    number: int, seed: int, method: str
) -> None:
    """Of k-tuples a set is one attribute of several slots, of marginals each value is one; the cap holds as well."""
    signs = {"type": "set", "values": ["x", "y", "z"], "max_values": 2}
    sex = {"type": "category", "values": ["f", "m"], "missing": []}
    rng = np.random.default_rng(seed)
    men = int(rng.integers(0, number + 1))
    known = {
        "columns": ["sex"],
        "table": [["f", number - men], ["m", men]],
        "from": "other-source",
        "public": "-",
    }
    changes: dict[str, Any] = {
        "columns": {"sex": sex, "signs": signs},
        "structure": {"forbidden": [{"sex": "m", "signs": ["x", "y"]}]},
        "aggregate": {"method": method},
        "synthesize": {"method": "aggregate-seeded"} if method == "k-tuples" else METHODS["gum"],
    }
    config = configuration(**changes, known=[known])
    counts: Any
    if method == "k-tuples":
        one = {((0, 0),): 30, ((1, 0),): 20, ((1, 1),): 25, ((1, 2),): 9}
        pairs = {((0, 0), (1, v)): 9 for v in range(3)}
        levels = [level_from(one, 1), level_from(pairs, 2)]
        counts = normalize(
            collect(("sex", "signs"), (("f", "m"), ("x", "y", "z")), 30, 0.0, levels, ())
        )
    else:
        labels = tuple(attribute.labels for attribute in config.attributes)
        one_way = [
            Observation(attributes=(a,), counts=rng.integers(0, 30, 2), deviation=2.0)
            for a in range(len(labels))
        ]
        domain = Domain(names=tuple(a.name for a in config.attributes), labels=labels)
        counts = normalize_marginals(
            Marginals(domain=domain, one_way=tuple(one_way), larger=()), config
        )
    made = synthesize_codes(counts, config, config.synthesize)
    assert_kept(config, made)
    if method == "marginals":
        assert np.sum([codes == 0 for codes in made[1:]], axis=0).max() <= 2


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(1, 7))
def test_shards_add_up(counts: list[int], shards: int) -> None:
    """Every shard has as many records as it makes, and all of them together what is known."""
    exact = ExactCounts(part=mock.Mock(), counts=np.array(counts))
    parts = [exact.in_shard(shard, shards) for shard in range(shards)]
    plan = ShardPlan(shards=shards, parts=1)
    assert [part.sum() for part in parts] == [
        plan.records(sum(counts), shard) for shard in range(shards)
    ]
    assert (np.sum(parts, axis=0) == counts).all()
    assert min(part.min() for part in parts) >= 0


@pytest.mark.parametrize("names", [[["sex", "region"]], [["sex", "region"], ["region", "job"]]])
def test_tables_hold_over_many_shards(names: list[list[str]]) -> None:
    changes = {"columns": COLUMNS, "synthesize": METHODS["gum"], **MARGINALS}
    plain = configuration(**changes)
    published = codes_of(plain, 211, 5)
    config = configuration(
        **changes, known=[table_of(plain, columns, published) for columns in names]
    )
    with mock.patch.object(release, "RecordSampler", partial(RecordSampler, most=40)):
        made = synthesize_codes(noisy(config, codes_of(plain, 90, 6), 7), config, config.synthesize)
    assert_kept(config, made)


@pytest.mark.parametrize("method", ["gum", "mixture"])
def test_so_many_times_the_records_have_each_known_count_so_many_times(method: str) -> None:
    changes = {"columns": COLUMNS, "synthesize": METHODS[method], **MARGINALS}
    plain = configuration(**changes)
    known = [table_of(plain, ["sex", "region"], codes_of(plain, 211, 5))]
    config = configuration(
        **(changes | {"synthesize": METHODS[method] | {"records": "3x"}}), known=known
    )
    made = synthesize_codes(noisy(config, codes_of(plain, 90, 6), 7), config, config.synthesize)
    (table,) = config.totals
    found = np.zeros(table.sizes)
    np.add.at(found, (made[0], made[1]), 1)
    assert (found == 3 * dense(table)).all()
    without = configuration(**(changes | {"synthesize": METHODS[method] | {"records": "3x"}}))
    counted = noisy(without, codes_of(plain, 90, 6), 7)
    once = synthesize_codes(counted, without, plain.synthesize)
    thrice = synthesize_codes(counted, without, without.synthesize)
    assert len(thrice[0]) == 3 * len(once[0])


def test_another_number_of_records_has_each_count_in_shares() -> None:
    """500 of a table of 211: every cell is within one of its share, also in sums over the last columns."""
    changes = {"columns": COLUMNS, "synthesize": {**METHODS["gum"], "records": 500}, **MARGINALS}
    plain = configuration(**changes)
    config = configuration(
        **changes, known=[table_of(plain, ["sex", "region"], codes_of(plain, 211, 5))]
    )
    made = synthesize_codes(noisy(config, codes_of(plain, 90, 6), 7), config, config.synthesize)
    (known,) = config.totals
    found = np.zeros(known.sizes)
    np.add.at(found, (made[0], made[1]), 1)
    wanted = dense(known) * 500 / 211
    assert found.sum() == 500
    assert np.abs(found - wanted).max() <= 1
    assert np.abs(found.sum(axis=1) - wanted.sum(axis=1)).max() <= 1


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 80),
    st.integers(0, 2**32),
    st.sampled_from([["job"], ["sex", "region"], ["region", "sex", "age"]]),
)
def test_no_more_records_change_than_have_to(number: int, seed: int, names: list[str]) -> None:
    """Half of the L1 distance of the counts; a record that stays in its combination, and any other column, stays as it was."""
    plain = configuration(columns=COLUMNS)
    published, records = codes_of(plain, number, seed), codes_of(plain, number, seed + 1)
    config = configuration(columns=COLUMNS, known=[table_of(plain, names, published)])
    (part,) = exact_parts(config, [attribute.labels for attribute in config.attributes])
    codes = [column.copy() for column in records.T]
    exact = ExactCounts.of(part, codes, number)
    before = np.bincount(cells_of(part, codes), minlength=len(exact.counts))
    exact.hold(
        codes,
        exact.counts,
        lambda some: np.ones(len(some[0]), np.bool_),
        np.random.default_rng(seed),
    )
    changed = (np.stack(codes, axis=1) != records).any(axis=1)
    assert changed.sum() == np.abs(before - exact.counts).sum() / 2
    assert all((codes[a] == records[:, a]).all() for a in set(range(5)) - {*part.attributes})


def test_several_tables_are_kept_by_the_nearest_counts() -> None:
    """Against all whole tables of 2 x 3 cells that keep both margins: none is nearer (L1) to what there was."""
    plain = configuration(columns=COLUMNS)
    published = codes_of(plain, 9, 3)
    config = configuration(
        columns=COLUMNS, known=[table_of(plain, [name], published) for name in ("sex", "age")]
    )
    labels = [attribute.labels for attribute in config.attributes]
    # nothing ties them
    assert [part.attributes for part in exact_parts(config, labels)] == [(0,), (2,)]
    tied = configuration(
        columns=COLUMNS,
        known=[table_of(plain, names, published) for names in (["sex"], ["age"])],
        structure={
            "forbidden": [
                {"sex": "m", "age": "[50, 100]"},
                {"sex": "f", "age": "[50, 100]", "job": "a"},
            ]
        },
    )
    (part,) = exact_parts(tied, labels)
    sex, age = (dense(known) for known in tied.totals)
    present = np.array([[1.0, 4, 0], [2, 2, 0]])
    found = part.counts(present.ravel()).reshape(2, 3)
    keeping = [
        table
        for cells in itertools.product(range(10), repeat=6)
        if not cells[5]
        for table in [np.array(cells).reshape(2, 3)]
        if (table.sum(axis=1) == sex).all() and (table.sum(axis=0) == age).all()
    ]
    assert any((found == table).all() for table in keeping)
    assert np.abs(found - present).sum() == min(np.abs(table - present).sum() for table in keeping)


SEX, AGES = {"columns": ["sex"], "table": [["f", 4], ["m", 6]]}, {"columns": ["age"], "others": 0}
YOUNG_MEN = {"sex": "m", "age": "[0, 15)"}


@pytest.mark.parametrize(
    ("tables", "rules"),
    [
        ([SEX], [{"sex": "m", "age": ["[0, 15)", "[15, 50)", "[50, 100]"]}]),
        ([SEX, {**AGES, "table": [["[0, 15)", 5], ["[15, 50)", 5]]}], [YOUNG_MEN]),
        (
            [
                {
                    **AGES,
                    "columns": ["sex", "age"],
                    "table": [["m", "[0, 15)", 1], ["f", "[0, 15)", 9]],
                }
            ],
            [YOUNG_MEN],
        ),
    ],
)
def test_what_structural_zeros_leave_no_room_for_is_refused_before_anything_is_charged(
    tables: list[dict[str, Any]], rules: list[dict[str, Any]]
) -> None:
    known = [{**table, "from": "other-source", "public": "-"} for table in tables]
    config = configuration(columns=COLUMNS, known=known, structure={"forbidden": rules})
    with pytest.raises(
        InputError, match="known: no whole numbers of records keep the exact tables of"
    ):
        check_size(config)


def test_tables_of_too_many_combinations_together_are_refused() -> None:
    columns = {
        name: {"type": "category", "values": list(range(200)), "missing": []} for name in "abc"
    }
    table = {"table": [[1, 1, 5]], "others": 0, "from": "other-source", "public": "-"}
    config = configuration(
        columns=columns, known=[{**table, "columns": pair} for pair in (["a", "b"], ["b", "c"])]
    )
    with pytest.raises(
        InputError, match="together over a, b, c, which have 8000000 combinations, more than 32768"
    ):
        check_size(config)


CODES = dict(zip("abcd", (4, 5, 6, 3), strict=True))
CHAIN = {
    name: {"type": "category", "values": list(range(n)), "missing": []} for name, n in CODES.items()
}
PAIRS = ((0, 1), (0, 2), (1, 2), (1, 3), (2, 3))


def chain(records: int) -> NDArray[Any]:
    """Records in which each column depends on the one before it."""
    rng = np.random.default_rng(0)
    made = [rng.choice(4, records, p=[0.4, 0.3, 0.2, 0.1])]
    for size in (5, 6, 3):
        made.append(
            np.where(rng.random(records) < 0.7, made[-1] % size, rng.integers(0, size, records))
        )
    return np.stack(made, axis=1)


def chain_marginals(
    config: Configuration, records: NDArray[Any], seed: int, sd: float = 30.0
) -> Marginals:
    rng, sizes = np.random.default_rng(seed), [*CODES.values()]
    measured = []
    for clique in (*((a,) for a in range(4)), *PAIRS):
        counts = rng.normal(0, sd, [sizes[a] for a in clique]).round().astype(np.int64)
        np.add.at(counts, tuple(records[:, a] for a in clique), 1)
        measured.append(Observation(attributes=clique, counts=counts, deviation=sd))
    domain = Domain(
        names=tuple(CODES), labels=tuple(attribute.labels for attribute in config.attributes)
    )
    return normalize_marginals(
        Marginals(domain=domain, one_way=tuple(measured[:4]), larger=tuple(measured[4:])), config
    )


def distance(records: NDArray[Any], made: tuple[NDArray[Any], ...]) -> float:
    """Mean TVD of the pairs but that of a and b, which is known."""
    found = []
    for one, other in PAIRS[1:]:
        tables = [np.zeros((6, 6)), np.zeros((6, 6))]
        np.add.at(tables[0], (records[:, one], records[:, other]), 1 / len(records))
        np.add.at(tables[1], (made[one], made[other]), 1 / len(made[0]))
        found.append(np.abs(tables[0] - tables[1]).sum() / 2)
    return float(np.mean(found))


@pytest.mark.parametrize(
    ("method", "draws", "sd"),
    [
        ({"method": "gum"}, 40, None),
        ({"method": "gum"}, 40, 5),
        pytest.param({"method": "mixture", "components": 100, "fits": 2}, 80, None, marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_a_known_pair_improves_the_others(
    method: dict[str, Any], draws: int, sd: float | None
) -> None:
    """Mean distance of the other pairs with the same noise, with and without: t of the paired differences is above 6.

    Were a known pair no help, that would have probability 2.6e-7 at most (39 degrees of freedom). The seeds are fixed.
    """
    records = chain(2000)
    changes = {
        "columns": CHAIN,
        "aggregate": {"method": "marginals", "compress": "none"},
        "synthesize": method,
    }
    plain = configuration(**changes)
    known = table_of(plain, ["a", "b"], records) | ({} if sd is None else {"sd": sd})
    gains = []
    for seed in range(draws):
        found = []
        for config in (plain, configuration(**changes, known=[known])):
            settings_ = config.synthesize.model_copy(update={"records": len(records)})
            found.append(
                distance(
                    records,
                    synthesize_codes(chain_marginals(config, records, seed), config, settings_),
                )
            )
        gains.append(found[0] - found[1])
    assert np.mean(gains) > 6 * np.std(gains, ddof=1) / np.sqrt(draws)


@pytest.mark.parametrize("imputed", [True, False])
@pytest.mark.parametrize("forbidden", [["x"], ["y"], ["x", "y"]])
@pytest.mark.parametrize("released", [(), ("x",), ("y",), ("x", "y"), ("x", "z")])
def test_a_known_total_has_records_whatever_values_a_private_domain_releases(
    released: tuple[str, ...], forbidden: list[str], *, imputed: bool
) -> None:
    """Also beside a value whose other values were not released: there it is missing, though a cell without one is imputed."""
    town: dict[str, Any] = {"type": "category", "domain": "private"}
    known = {
        "table": [["f", 500], ["m", 400]],
        "columns": ["sex"],
        "from": "other-source",
        "public": "census",
    }
    config = configuration(
        columns={
            "sex": {"type": "category", "values": ["f", "m"]},
            "town": town | ({"impute": {"weights": {"x": 1}}} if imputed else {}),
        },
        missing=[],
        structure={"forbidden": [{"sex": "f", "town": forbidden}]},
        known=[known],
    )
    labels = (("f", "m"), released)
    (part,) = exact_parts(config, labels)
    assert part.counts().tolist() == [500, 400]
    for sex, left in enumerate([{*released} - {*forbidden}, {*released}]):
        for code in (part.witness(sex) or {}).values():  # none where no rule ties them
            assert not broken_records(
                [np.array([sex]), np.array([code])], structural_masks(config, labels)
            ).any()
            assert code < len(released) or not (left and imputed)
