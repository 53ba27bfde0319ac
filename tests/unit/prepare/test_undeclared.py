"""Where nothing is declared missing, a cell without a value is counted as not as declared, and nothing is drawn for it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.budget import Stability
from marginweave.configuration.columns.base import MISSING, NOT_DECLARED
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import (
    AnySynthesis,
    GumSynthesis,
    MixtureSynthesis,
    SynthesisSettings,
)
from marginweave.counts.marginals import all_cliques, count_marginals
from marginweave.domain.zeros import (
    broken_records,
    domain_sizes,
    one_way_sizes,
    structural_masks,
    with_undeclared_code,
)
from marginweave.estimate.marginals import normalize_marginals
from marginweave.measurements.one_way import OneWayMarginals
from marginweave.measurements.split import plan_budget
from marginweave.mechanisms.base import l1_sensitivity
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import EncodedTable
from marginweave.records.decode import decode_table
from tests.support import noisy_marginals
from tests.support.column_kinds import KINDS
from tests.support.configurations import configuration
from tests.support.synthesized import synthesize_codes
from tests.support.tables import completed, encoded, fixed_streams, with_sets

SEX = {"type": "category", "values": ["f", "m"]}
COUNTED = [name for name in KINDS if "set" not in name and name not in {"private", "other"}]
GROUP = {
    "name": "place",
    "columns": ["town", "zone"],
    "combinations": [["A", "1"], ["B", "1"], ["B", "2"]],
}
TOWNS = {
    "town": {"type": "category", "values": ["A", "B"]},
    "zone": {"type": "category", "values": [1, 2]},
}


def counted(config: Configuration) -> Configuration:
    """As tables are counted."""
    return config.with_undeclared(config.undeclared)


@pytest.mark.parametrize("name", COUNTED)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_cell_without_a_value_has_a_code_of_its_own(name: str, data: st.DataObject) -> None:
    """Empty, unreadable or outside; a value stays. Nothing that is planned or decided knows the code."""
    column, texts = KINDS[name]
    cells = data.draw(st.lists(texts, min_size=1, max_size=12))
    config = configuration(columns={"x": column}, missing=[])
    (attribute,), table = config.attributes, encoded([[cell] for cell in cells], config)
    size = len(attribute.labels)
    assert (attribute.optional, config.can_be_missing("x"), config.undeclared) == (
        False,
        False,
        ("x",),
    )
    assert domain_sizes(config.attributes, table.labels) == (size,)
    assert domain_sizes(counted(config).attributes, table.labels) == (size + 1,)
    there = np.array([config.columns["x"].accepts(cell.strip()) for cell in cells])
    found = completed(table, config, fixed_streams).codes[0]
    assert found.tolist() == np.where(there, table.codes[0], size).tolist()


ORDERED = {
    name: {"type": "number", "bounds": [0, 3], "bins": [0, 1, 2, 3], "decimals": 0}
    for name in "abc"
}
RULED: dict[str, Any] = {
    "ordered": {"columns": ORDERED, "structure": {"ordered": [{"columns": ["a", "b", "c"]}]}},
    "applies": {
        "columns": {"a": SEX, "b": {"type": "category", "values": ["no", 1, 2]}, "c": SEX},
        "structure": {"applies": [{"columns": ["b"], "where": {"a": "f"}, "otherwise": "no"}]},
    },
    "forbidden": {
        "columns": {"a": SEX, "b": SEX, "c": SEX},
        "structure": {"forbidden": [{"a": "f", "b": "m"}, {"b": "f", "c": "m"}]},
    },
    # beside what is not as declared in one column there is no value of another
    "applies and forbidden": {
        "columns": {"a": SEX, "b": {"type": "category", "values": ["f", "m", "x"]}, "c": SEX},
        "structure": {
            "applies": [{"columns": ["b"], "where": {"a": "m"}, "otherwise": "x"}],
            "forbidden": [{"a": "m", "b": "m"}, {"b": "x", "c": "m"}],
        },
    },
}


MARGINALS: dict[str, Any] = {"aggregate": {"method": "marginals"}}
TUPLES: dict[str, Any] = {"aggregate": {"method": "k-tuples"}}
NUMBER = {"type": "number", "bounds": [0, 2], "bins": [0, 1, 2], "decimals": 0, "missing": ["none"]}
GAPS: dict[str, Any] = {
    "a category that does not always apply": {
        "columns": {
            "a": SEX,
            "b": {"type": "category", "values": [1, 2], "missing": ["none"]},
            "c": SEX,
        },
        "structure": {"applies": [{"columns": ["b"], "where": {"a": "f"}, "otherwise": "none"}]},
        **MARGINALS,
    },
    "a number that does not always apply, of which more is forbidden": {
        "columns": {"a": SEX, "b": NUMBER, "c": SEX},
        "structure": {
            "applies": [{"columns": ["b"], "where": {"a": "f"}}],
            "forbidden": [{"a": "f", "c": "m"}],
        },
        **MARGINALS,
    },
    "a missing value that is forbidden": {
        "columns": {"a": SEX, "b": NUMBER, "c": SEX},
        "structure": {"forbidden": [{"a": "f", "b": "none"}, {"a": "m", "b": {"from": 0}}]},
        **MARGINALS,
    },
}
"""Rules by which `b` has a value beside `a = f`, and none beside `a = m`."""


def _rows(config: Configuration) -> list[tuple[str, ...]]:
    cells = [
        [
            *(label.split(" ")[0].strip("[,)") for label in column.labels),
            "?",
            *config.missing_texts(name),
        ]
        for name, column in config.columns.items()
    ]
    return list(itertools.product(*cells))


@pytest.mark.parametrize("rule", RULED)
def test_rules_are_kept_by_the_other_cells(rule: str) -> None:
    """A cell that is not as declared stays so, no other becomes so, and what is left keeps the rules."""
    config = configuration(**RULED[rule], missing=[])
    before = encoded(_rows(config), config)
    after = completed(before, config, fixed_streams)
    for one, other, size in zip(before.codes, after.codes, before.sizes, strict=True):
        assert ((one == size) == (other == size)).all()
    masks = structural_masks(counted(config), before.labels)
    assert broken_records(before.codes, masks).any(), "rows that break the rule are among them"
    assert not broken_records(after.codes, masks).any()
    declared = np.logical_and.reduce(
        [c < size for c, size in zip(after.codes, after.sizes, strict=True)]
    )
    assert not broken_records(
        [c[declared] for c in after.codes], structural_masks(config, before.labels)
    ).any()


@pytest.mark.parametrize("rule", GAPS)
def test_no_value_is_made_up_where_a_rule_wants_one(rule: str) -> None:
    """A cell that is missing there, or cannot be read, is not as declared; where the column does not apply it is missing."""
    config = configuration(**GAPS[rule], missing=[])
    assert config.undeclared == ("a", "b", "c")
    before = encoded(_rows(config), config)
    after = completed(before, config, fixed_streams)
    (asks, cells, _), (decides, found, _), size = before.codes, after.codes, before.sizes[1]
    assert (asks == decides).all()
    expected = np.where(asks == 0, np.where(cells == size, size + 1, cells), cells)
    expected = np.where(asks == 1, size, expected)
    assert found.tolist() == expected.tolist()
    sizes = domain_sizes(counted(config).attributes, before.labels)
    assert sizes[1] == size + 2
    assert not broken_records(after.codes, structural_masks(counted(config), before.labels)).any()
    for one, other, values in zip(before.codes, after.codes, before.sizes, strict=True):
        assert (one != values)[other < values].all()


@pytest.mark.parametrize("rule", GAPS)
def test_the_rules_tell_why_a_cell_of_a_record_is_empty(rule: str) -> None:
    """Records have one empty cell for both; where a rule wants a value it is not as declared."""
    config = configuration(**GAPS[rule], missing=[])
    before = encoded(_rows(config), config)
    after = completed(before, config, fixed_streams)
    recorded = [
        np.minimum(codes, size) for codes, size in zip(after.codes, after.sizes, strict=True)
    ]
    assert not broken_records(
        recorded, structural_masks(counted(config).as_recorded, before.labels)
    ).any()
    assert broken_records(recorded, structural_masks(counted(config), before.labels)).any()
    found = with_undeclared_code(recorded, counted(config), before.labels)
    assert [codes.tolist() for codes in found] == [codes.tolist() for codes in after.codes]


def test_missing_stays_missing_in_k_tuples_whatever_rules_say() -> None:
    """It has no count, so that nothing more is counted; and no value is made up for it."""
    rule = GAPS["a category that does not always apply"]
    config = configuration(**{**rule, **TUPLES}, missing=[])
    before = encoded(_rows(config), config)
    after = completed(before, config, fixed_streams)
    assert "b" in config.undeclared
    assert domain_sizes(counted(config).attributes, before.labels)[1] == 3
    assert after.codes[1].tolist() == np.where(before.codes[0] == 1, 2, before.codes[1]).tolist()


def _moved(one: EncodedTable, other: EncodedTable, config: Configuration) -> int:
    sizes = domain_sizes(counted(config).attributes, one.labels)
    cliques = [clique for length in (1, 2, 3) for clique in all_cliques(sizes, length)]
    tables = (count_marginals([table.codes], sizes, cliques) for table in (one, other))
    return max(int(np.abs(before - after).sum()) for before, after in zip(*tables, strict=True))


@pytest.mark.parametrize("rule", [*RULED, *GAPS])
def test_a_neighbor_moves_no_marginal_by_more_than_before(rule: str) -> None:
    """All rows of a table of three columns, each removed, and each replaced by each other: 1 and 2 in L1."""
    config = configuration(**(RULED | GAPS)[rule], missing=[])
    rows = _rows(config)
    tables = {
        row: completed(encoded([rows[0], row], config), config, fixed_streams) for row in rows
    }
    alone = completed(encoded([rows[0]], config), config, fixed_streams)
    assert {_moved(table, alone, config) for table in tables.values()} == {
        l1_sensitivity(Stability(records=1, neighbors="add-remove"))
    }
    most = max(
        _moved(one, other, config) for one, other in itertools.combinations(tables.values(), 2)
    )
    assert most == l1_sensitivity(Stability(records=1, neighbors="replace-one"))


SIGNS: dict[str, Any] = {"type": "set", "values": ["a", "b"], "max_values": 1}
EQUAL: dict[str, Any] = {
    "missing": ["none"],
    "aggregate": {"method": "marginals", "allocation": "equal"},
}
WITH_SET = configuration(columns={"signs": SIGNS, "sex": SEX}, **EQUAL)
CELLS = ["", "none", "a", "?", "a;b", "b;?", "?;!", "a;b;?;?"]


def _counted_sets(rows: list[tuple[str, str]]) -> list[np.ndarray]:
    """Every table of single attributes, and of more, of rows that were counted as a run does it."""
    table = completed(with_sets(rows, WITH_SET), WITH_SET, fixed_streams)
    sizes = one_way_sizes(counted(WITH_SET), table.labels[: len(WITH_SET.attributes)])
    larger = [clique for length in (2, 3) for clique in all_cliques(sizes[:3], length)]
    return count_marginals([table.codes], sizes, [*all_cliques(sizes, 1), *larger])


def test_a_set_has_one_table_more_that_counts_what_is_not_declared() -> None:
    """By hand; one record is counted once, however many of its values are not declared, and whatever the cap leaves out."""
    assert [one.name for one in WITH_SET.indicators] == ["signs"]
    assert _counted_sets([(cell, "f") for cell in CELLS])[3].tolist() == [4, 4]
    assert [_counted_sets([(cell, "f")])[3].tolist()[1] for cell in CELLS] == [
        "?" in cell for cell in CELLS
    ]


@pytest.mark.parametrize(
    ("neighbors", "pairs"),
    [
        (
            "add-remove",
            [((before, ()), (before, (cell,))) for cell in CELLS for before in ("a;?", "b")],
        ),
        (
            "replace-one",
            [((cell, ()), (other, ())) for cell, other in itertools.permutations(CELLS, 2)],
        ),
    ],
)
def test_a_neighbor_moves_the_table_of_a_set_as_any_other(neighbors: Any, pairs: Any) -> None:
    """Every cell of a set that a unit can add, lose or change; each table by itself, as each has its part of the draw."""
    moved = []
    for one, other in pairs:
        tables = ([(cell, "f") for cell in (first, *more)] for first, more in (one, other))
        before, after = map(_counted_sets, tables)
        moved.append([int(np.abs(a - b).sum()) for a, b in zip(before, after, strict=True)])
    assert (
        max(table[3] for table in moved)
        == max(map(max, moved))
        == l1_sensitivity(Stability(records=1, neighbors=neighbors))
    )


def test_the_tables_of_sets_share_the_draw_of_single_attributes() -> None:
    """It costs what it did, what is reserved counts them, and three tables have the noise of four."""
    left_out = {"signs": {**SIGNS, "outside": "null"}, "sex": SEX}
    without = configuration(columns=left_out, **EQUAL)
    plans = [plan_budget(config) for config in (WITH_SET, without)]
    draws = [plan.draw(OneWayMarginals) for plan in plans]
    assert [
        draw.terms(config)["marginals"]
        for draw, config in zip(draws, (WITH_SET, without), strict=True)
    ] == [4, 3]
    assert draws[0].parameter == draws[1].parameter
    more, fewer = draws[0].sigmas(WITH_SET), draws[1].sigmas(without)
    assert len(more) == len(fewer) == 3
    assert float(more[0]) / float(fewer[0]) == pytest.approx(math.sqrt(4 / 3), rel=0.01)


METHODS: dict[str, AnySynthesis] = {
    "gum": GumSynthesis(records=40, rounds=3),
    "mixture": MixtureSynthesis(records=40, components=4, fits=1, iterations=3),
    "aggregate-seeded": SynthesisSettings(records=40),
}


@pytest.mark.parametrize("method", METHODS)
def test_no_cell_is_empty_in_a_hundred_releases(method: str) -> None:
    """Under noise of a tenth of the table, by three methods in turn: what has no level gets no record, whatever has one."""
    changes: dict[str, Any] = {"missing": [], "columns__grade__missing": ["-9"]}
    config, gaps = noisy_marginals.config(**changes), 0
    assert config.optional == (False, False, False, True)
    for seed in range(list(METHODS).index(method), 100, len(METHODS)):
        counts = normalize_marginals(noisy_marginals.marginals(config, seed, sd=90.0), config)
        made = METHODS[method].model_copy(update={"seed": seed})
        table = decode_table(synthesize_codes(counts, config, made), counts.domain, config, seed)
        assert [table.column(name).null_count for name in ("sex", "region", "age")] == [0, 0, 0]
        gaps += table.column("grade").null_count
    assert gaps > 0


APPLIES = {"applies": [{"columns": ["sex"], "where": {"region": "north"}}]}
FEMALE = {"applies": [{"columns": ["sex"], "where": {"region": "north"}, "otherwise": "f"}]}
ALWAYS = {"forbidden": [{"sex": "9", "region": "north"}]}
CODED = {**SEX, "missing": ["9"]}
# What `docs/configuration.md` says: of a column and a cell that nothing declares, what becomes of it. True: it is missing as it
# is declared, False: it never is.
DECISIONS: dict[str, tuple[dict[str, Any], bool, bool]] = {
    "nothing said": ({"columns__sex": SEX}, False, True),
    "missing declared": ({"columns__sex": {**SEX, "missing": ["9"]}}, True, False),
    "outside: null": ({"columns__sex": {**SEX, "outside": "null"}}, True, False),
    "outside: other": ({"columns__sex": {**SEX, "outside": "other"}}, False, False),
    "outside: error": ({"columns__sex": {**SEX, "outside": "error"}}, False, False),
    "impute": ({"columns__sex": {**SEX, "impute": {"distribution": "uniform"}}}, False, False),
    "private": ({"columns__sex": {"type": "category", "domain": "private"}}, True, False),
    "set": ({"columns__sex": SIGNS, "aggregate": {"method": "marginals"}}, True, False),
    "set, k-tuples": ({"columns__sex": SIGNS, "aggregate": {"method": "k-tuples"}}, True, False),
    "k-tuples": ({"columns__sex": SEX, "aggregate": {"method": "k-tuples"}}, False, True),
    "applies": ({"columns__sex": CODED, "structure": APPLIES}, True, True),
    "applies, one of its values": ({"columns__sex": SEX, "structure": FEMALE}, False, True),
    "applies, outside: null": (
        {"columns__sex": {**CODED, "outside": "null"}, "structure": APPLIES},
        True,
        True,
    ),
    "missing forbidden": ({"columns__sex": CODED, "structure": ALWAYS, **MARGINALS}, True, True),
    "missing forbidden, k-tuples": (
        {"columns__sex": CODED, "structure": ALWAYS, **TUPLES},
        True,
        False,
    ),
    "applies, k-tuples": ({"columns__sex": CODED, "structure": APPLIES, **TUPLES}, True, True),
    "joined": ({"columns__sex": SEX, "privacy__unit": {"column": "id", "join": True}}, True, False),
    "resize": ({"columns": {"sex": SEX}, "resize": {"records": 100}}, False, True),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_what_becomes_of_a_cell_is_decided_by_the_configuration(name: str) -> None:
    """Each line of the table of decisions, and the same of the resolved form."""
    changes, optional, undeclared = DECISIONS[name]
    config = configuration(**{"missing": [], **changes})
    for one in (config, Configuration.from_canonical(config.canonical())):
        attribute = one.attributes[0]
        assert (attribute.optional, attribute.name in one.undeclared) == (optional, undeclared)
        assert optional or one.marginals is not None or one.percentile is None, (
            "nothing is bought for such cells"
        )
        assert one.indicated_sets == (("sex",) if name == "set" else ())


# The same of a column of a linked table that is counted.
LINKED_DECISIONS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "nothing said": ({}, (NOT_DECLARED,)),
    "missing declared": ({"missing": [""]}, (MISSING, NOT_DECLARED)),
    "outside: null": ({"outside": "null"}, (MISSING,)),
    "outside: other": ({"outside": "other"}, (MISSING,)),
}


@pytest.mark.parametrize("name", LINKED_DECISIONS)
def test_what_becomes_of_a_linked_cell_is_decided_by_the_configuration(name: str) -> None:
    """The line of linked tables in the table of decisions, and the same of the resolved form."""
    changes, gaps = LINKED_DECISIONS[name]
    kind = {"type": "category", "values": ["planned", "emergency"], **changes}
    config = configuration(
        missing=[],
        aggregate={"method": "marginals"},
        privacy__unit={"column": "id", "max_records": 1},
        tables={"stays": {"source": "stays.csv", "columns": {"kind": kind}, "at_most": 3}},
    )
    for one in (config, Configuration.from_canonical(config.canonical())):
        attribute = (one.tables or {})["stays"].attribute("kind", one.missing)
        assert attribute.gaps == gaps
        assert ("other" in attribute.labels) == (changes.get("outside") == "other")


@pytest.mark.parametrize("outside", ["null", "other", "error"])
def test_of_a_set_nothing_is_counted_where_its_outside_is_declared(outside: str) -> None:
    """It is left out, a value, or stops the run: on purpose."""
    columns = {"signs": {**SIGNS, "outside": outside}, "sex": SEX}
    assert configuration(columns=columns, aggregate={"method": "marginals"}).indicated_sets == ()


def test_what_can_be_missing_all_the_same_says_so() -> None:
    """A private domain has a level for what is not released; rows of a subject can disagree; a set can be empty."""
    private = {"type": "category", "domain": "private"}
    config = configuration(columns={"town": private, "sex": SEX}, missing=[])
    assert config.optional == (True, False)
    table = encoded([["", "f"], ["x", "m"], [" ", "f"]], config)
    assert table.labels[0] == ("x",), "an empty cell is a value"
    assert table.codes[0].tolist() == [1, 0, 1]
    assert (
        configuration(privacy__unit={"column": "id", "join": True}, missing=[]).optional
        == (True,) * 4
    )
    assert configuration(
        columns={"s": {"type": "set", "values": ["a"], "max_values": 1}}, missing=[]
    ).optional == (True,)


def test_outside_becomes_missing_where_missing_is_declared() -> None:
    """The default of `outside` follows from `missing`."""
    assert configuration(columns__sex__missing=["", "-9"]).optional[0]
    other = configuration(columns__sex={**SEX, "missing": [], "outside": "other"})
    assert (
        clean_table(pa.table({n: ["", "x"] for n in other.names}), other).column("sex").to_pylist()
        == ["other"] * 2
    )
