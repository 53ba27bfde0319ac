"""What is known of columns together holds in everything that is made: groups, and combinations that cannot be."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.attributes import combinations_of, forbidden_codes
from marginweave.configuration.synthesis import GumSynthesis, MixtureSynthesis, SynthesisSettings
from marginweave.counts.candidates import CandidateSet
from marginweave.domain.labels import Domain
from marginweave.domain.zeros import domain_sizes
from marginweave.estimate.marginals import compression_of, normalize_marginals
from marginweave.estimate.normalize import normalize
from marginweave.evaluate.rules import broken_rules
from marginweave.observations.tables import Marginals, Observation
from marginweave.prepare.codes import EncodedTable
from marginweave.records.decode import decode_table
from tests.support.candidates import named_cells
from tests.support.configurations import configuration
from tests.support.counting import histogram
from tests.support.noisy_counts import collect
from tests.support.noisy_marginals import measure_merged
from tests.support.synthesized import synthesize_codes
from tests.support.tables import level_from

COLUMNS = {
    "sex": {"type": "category", "values": ["f", "m"], "missing": [], "outside": "error"},
    "signs": {"type": "set", "values": ["a", "b", "c"], "max_values": 2},
    "age": {"type": "number", "bins": [0, 15, 50, 100], "missing": [], "outside": "error"},
    "job": {"type": "category", "domain": "private"},
    "grade": {"type": "category", "values": ["1", "2"], "missing": [], "outside": "error"},
}
FORBIDDEN = [
    {"sex": "m", "signs": ["a", "b"]},
    {"age": "[0, 15)", "job": "9"},
    {"grade": "2", "age": "[15, 50)", "sex": "f"},
]
CONFIGURATION = configuration(columns=COLUMNS, structure={"forbidden": FORBIDDEN})
LABELS = (
    ("f", "m"),
    ("a", "b", "c"),
    ("[0, 15)", "[15, 50)", "[50, 100]"),
    ("9.0", "x"),
    ("1", "2"),
)
SIZES = tuple(map(len, LABELS))
CODES = combinations_of(forbidden_codes(CONFIGURATION.forbidden, LABELS))


def test_forbidden_values_are_found_by_label_and_by_spelling():
    """Lists are multiplied out, bins go by their label, a private value by any spelling, an unreleased one needs no rule."""
    assert set(CODES) == {
        ((0, 1), (1, 0)),
        ((0, 1), (1, 1)),
        ((2, 0), (3, 0)),
        ((0, 0), (2, 1), (4, 1)),
    }
    assert combinations_of(
        forbidden_codes(CONFIGURATION.forbidden, (*LABELS[:3], ("x",), LABELS[4]))
    ) == tuple(rule for rule in CODES if (3, 0) not in rule)


def everything(length):
    """V_k when every candidate of the lengths below survived."""
    candidates = CandidateSet(length=1, sizes=SIZES)
    for k in range(1, length):
        survivors = dict.fromkeys(named_cells(candidates), 1)
        candidates = CandidateSet.above(level_from(survivors, k), SIZES, CODES)
    return candidates


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_candidates_are_all_that_holds_no_forbidden_combination(length):
    """V_k is the whole cross-join less what contains a forbidden combination of two or three."""
    cells = {
        tuple(zip(columns, values, strict=True))
        for columns in itertools.combinations(range(5), length)
        for values in itertools.product(*(range(SIZES[j]) for j in columns))
    }
    allowed = {cell for cell in cells if not any(set(rule) <= set(cell) for rule in CODES)}
    assert set(named_cells(everything(length))) == allowed


def test_a_record_holds_no_forbidden_candidate():
    """A row of the table that does hold one contributes everything else, and nothing of it."""
    codes = (np.array([1]), np.array([[0, 2]]), np.array([0]), np.array([0]), np.array([0]))
    table = EncodedTable(codes=codes, labels=tuple(("",) * size for size in SIZES))
    assert histogram(table, everything(1), 20).argmax() == 6
    # sex-a and age-job are forbidden: of e_2(1, 2, 1, 1, 1) = 14 pairs 12 are left
    assert histogram(table, everything(2), 20).argmax() == 12


counts = st.dictionaries(
    st.sampled_from([cell for k in (1, 2) for cell in named_cells(everything(k))]),
    st.integers(1, 40),
    max_size=40,
)


def released(found, length, records):
    levels = [
        level_from({t: n for t, n in found.items() if len(t) == k}, k) for k in range(1, length + 1)
    ]
    names = tuple(a.name for a in CONFIGURATION.attributes)
    return normalize(collect(names, LABELS, records, 0.0, levels, ()))


@settings(max_examples=25, deadline=None)
@given(counts, st.integers(1, 2), st.booleans(), st.booleans(), st.integers(0, 5))
def test_no_record_holds_a_forbidden_combination(found, length, missing, subtract, seed):
    """Whatever was released, relaxed or not, of any length: three together are kept apart at R = 1 as well.

    Columns that cannot be missing are complete all the same.
    """
    options = SynthesisSettings(seed=seed, sample_missing=missing, use_synthetic_counts=subtract)
    made = synthesize_codes(released(found, length, 60), CONFIGURATION, options)
    for rule in CODES:
        held = [(made[j].reshape(60, -1) == v).any(axis=1) for j, v in rule]
        assert not np.logical_and.reduce(held).any()
    for j in (0, 2, 4):
        assert (made[j] < SIZES[j]).all()


def test_forbidding_leaves_the_rest_of_the_law_alone():
    """Of four even pairs one is forbidden: the others come out in proportion to their counts, not to chance."""
    columns = {
        n: {"type": "category", "values": ["0", "1"], "missing": [], "outside": "error"}
        for n in "xy"
    }
    config = configuration(columns=columns, structure={"forbidden": [{"x": "0", "y": "0"}]})
    found = {((0, 0),): 100, ((0, 1),): 300, ((1, 0),): 200, ((1, 1),): 200}
    found |= {((0, 0), (1, 1)): 100, ((0, 1), (1, 0)): 200, ((0, 1), (1, 1)): 100}
    levels = [level_from({t: n for t, n in found.items() if len(t) == k}, k) for k in (1, 2)]
    aggregates = normalize(collect(("x", "y"), (("0", "1"), ("0", "1")), 400, 0.0, levels, ()))
    x, y = synthesize_codes(aggregates, config, SynthesisSettings())
    assert np.bincount(2 * x + y, minlength=4).tolist() == [0, 100, 200, 100]


def test_a_world_without_any_allowed_record_is_a_fault(monkeypatch):
    """Where every combination of two complete columns is forbidden there is nothing to make, and no plan is accepted."""
    columns = {
        n: {"type": "category", "values": ["0", "1"], "missing": [], "outside": "error"}
        for n in "xy"
    }
    forbidden = {"forbidden": [{"x": ["0", "1"], "y": ["0", "1"]}]}
    with pytest.raises(InputError, match="structure"):
        configuration(columns=columns, structure=forbidden)
    # as where the search for a record had to give up
    monkeypatch.setattr("marginweave.configuration.checks.check_records", lambda *_: None)
    config = configuration(columns=columns, structure=forbidden)
    levels = [level_from({((j, v),): 5 for j in (0, 1) for v in (0, 1)}, 1)]
    aggregates = collect(("x", "y"), (("0", "1"), ("0", "1")), 10, 0.0, levels, ())
    with pytest.raises(InputError, match="must allow something"):
        synthesize_codes(aggregates, config, SynthesisSettings())


@pytest.mark.parametrize("counted", [(0,), (0, 2)])
def test_where_every_record_is_led_astray_an_allowed_one_stands_in(counted):
    """All that is counted is x = 0, and z = 0, which leave no y: the records have x = 1, y = 0 and no z."""
    columns = {
        n: {"type": "category", "values": ["0", "1"], "missing": [], "outside": "error"}
        for n in "xy"
    }
    columns["z"] = {"type": "category", "values": ["0", "1", "2"]}
    rules = [{"x": "0", "y": ["0", "1"]}, {"x": "1", "y": "1"}, {"y": "0", "z": ["0", "1"]}]
    config = configuration(columns=columns, structure={"forbidden": rules})
    levels = [level_from({((j, 0),): 5 for j in counted}, 1)]
    aggregates = collect(
        ("x", "y", "z"), (("0", "1"), ("0", "1"), ("0", "1", "2")), 10, 0.0, levels, ()
    )
    x, y, z = synthesize_codes(aggregates, config, SynthesisSettings())
    assert (x.tolist(), y.tolist(), z.tolist()) == ([1] * 10, [0] * 10, [3] * 10)


EARNERS = {
    "age": {"type": "number", "bins": [0, 15, 65, 100], "missing": [], "outside": "error"},
    "income": {"type": "number", "bins": [0, 10, 100], "missing": ["N"]},
    "job": {"type": "category", "values": ["a", "b"], "missing": [""]},
}
# An adult has an income, a child has none, who has an income has a job; who has none has no job b.
NEEDED = [
    {"age": "[15, 65)", "income": "N"},
    {"age": "[0, 15)", "income": ["[0, 10)", "[10, 100]"]},
    {"income": ["[0, 10)", "[10, 100]"], "job": ""},
    {"income": "N", "job": "b"},
]


@pytest.mark.parametrize("method", ["aggregate-seeded", "gum", "mixture"])
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), sd=st.sampled_from([2.0, 60.0]))
def test_a_rule_can_ask_for_a_value(method, seed, sd):
    """A missing value is named by its text; by each method, whatever the counts say, every record keeps such rules."""
    config = configuration(
        columns=EARNERS,
        structure={"forbidden": NEEDED},
        aggregate={"method": "marginals", "cliques": {"all": 2}},
    )
    assert ((0, ("[15, 65)",)), (1, (None,))) in config.forbidden
    rng, labels = np.random.default_rng(seed), tuple(a.labels for a in config.attributes)
    sizes = domain_sizes(config.attributes, labels)
    rows = [rng.integers(0, size, 300) for size in sizes]

    def measured(clique):
        counts = np.zeros([sizes[a] for a in clique], np.int64)
        np.add.at(counts, tuple(rows[a] for a in clique), 1)
        return Observation(
            attributes=clique,
            counts=counts + rng.normal(0, sd, counts.shape).round().astype(np.int64),
            deviation=sd,
        )

    one_way, pairs = (
        [measured((a,)) for a in range(3)],
        [measured(pair) for pair in ((0, 1), (0, 2), (1, 2))],
    )
    counts = Marginals(
        domain=Domain(names=tuple(EARNERS), labels=labels), one_way=tuple(one_way), larger=()
    )
    compression = compression_of(counts, config)[1]
    merged = tuple(measure_merged(pair, compression) for pair in pairs)
    made = {
        "aggregate-seeded": SynthesisSettings(records=60, seed=seed),
        "gum": GumSynthesis(records=60, rounds=4, seed=seed),
        "mixture": MixtureSynthesis(records=60, components=4, fits=1, iterations=4, seed=seed),
    }[method]
    found = synthesize_codes(
        normalize_marginals(replace(counts, larger=merged), config), config, made
    )
    age, income, job = found
    assert not ((age == 1) & (income == 2)).any()
    assert (income[age == 0] == 2).all()
    assert (job[income < 2] < 2).all()
    assert (job[income == 2] != 1).all()
    table = decode_table(found, counts.domain, config, seed)
    assert broken_rules(table, config)[0].records == 0


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"sure": "N", "income": "N"}, "names 'N', which is no value of column 'sure'"),
        (
            {"drawn": "N", "income": "N"},
            "the missing value of column 'drawn', which is never missing",
        ),
        (
            {"town": "N", "income": "N"},
            "the missing value of column 'town', which has a private domain",
        ),
    ],
)
def test_no_rule_names_a_missing_value_that_cannot_be(rule, said):
    columns = {
        "income": EARNERS["income"],
        "sure": EARNERS["age"],
        "drawn": {**EARNERS["income"], "impute": {"distribution": "uniform"}},
        "town": {"type": "category", "domain": "private", "missing": ["N"]},
    }
    with pytest.raises(InputError) as refusal:
        configuration(columns=columns, structure={"forbidden": [rule]})
    assert said in str(refusal.value)


def test_rules_that_leave_neither_a_value_nor_its_lack_are_refused():
    """Among columns that can be missing the search counts the missing value in where a rule forbids it."""
    closed = [
        *NEEDED[:2],
        {"age": "[15, 65)", "income": ["[0, 10)", "[10, 100]"]},
        {"age": "[65, 100]", "income": "N"},
    ]
    configuration(columns=EARNERS, structure={"forbidden": closed})
    with pytest.raises(
        InputError, match="leave no combination of the values of columns age, income"
    ):
        configuration(
            columns=EARNERS,
            structure={
                "forbidden": [
                    *closed,
                    {"age": ["[0, 15)", "[65, 100]"], "income": ["N", "[0, 10)", "[10, 100]"]},
                ]
            },
        )
    with pytest.raises(
        InputError, match=r"names a missing value, which synthesize\.relax: false leaves"
    ):
        configuration(
            columns=EARNERS,
            structure={"forbidden": NEEDED},
            synthesize={"method": "aggregate-seeded", "relax": False},
        )
