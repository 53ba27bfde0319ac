"""What `synthesize.method: auto` stands for: a function of public facts, and of nothing else."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.default_records import automatic_method, fitting_seconds
from marginweave.configuration.marginals import AllCliques
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import MixtureSynthesis
from tests.support.configurations import configuration

MARGINALS = {"aggregate__method": "marginals"}
TUPLES = {"aggregate__method": "k-tuples"}
AUTO = {"aggregate": {"method": "auto"}}
TRIPLES = {**MARGINALS, "aggregate__cliques": {"all": 3}}
PRIVATE = {"columns__sex": {"type": "category", "domain": "private"}}
ZERO = {"structure": {"forbidden": [{f"c{i}": "1" for i in range(4)}]}}
PRIVATE_SET = {"type": "set", "domain": "private", "max_values": 2}
SETS = {"columns__signs": {"type": "set", "values": ["a", "b", "c"], "max_values": 2}}


def columns(number: int, values: int) -> dict[str, Any]:
    """So many columns of so many values, which cannot be missing."""
    column = {"type": "category", "values": list(range(values)), "missing": [], "outside": "error"}
    return {"columns": {f"c{i}": column for i in range(number)}}


def wide_pair(values: int) -> dict[str, Any]:
    """Two columns of many values, whose triples with others take too long, beside eight of four."""
    wide, narrow = columns(10, values)["columns"], columns(8, 4)["columns"]
    return {"privacy__epsilon": 9.0, "columns": wide | narrow}


SAID: dict[str, dict[str, Any]] = {
    "": {},
    **{m: {"synthesize__method": m} for m in ("auto", "mixture")},
}
CHOSEN: list[tuple[str, dict[str, Any], str]] = [
    ("k-tuples", {}, "mixture"),
    ("marginals", MARGINALS, "mixture"),
    ("k-tuples of sets", SETS, "aggregate-seeded"),
    ("marginals of the values of sets", {**MARGINALS, **SETS}, "mixture"),
    ("k-tuples of private domains", PRIVATE, "aggregate-seeded"),
    ("marginals of private domains", {**MARGINALS, **PRIVATE}, "mixture"),
    ("k-tuples of sets with a private domain", {"columns__signs": PRIVATE_SET}, "aggregate-seeded"),
    ("triples of 20 columns", columns(20, 2), "mixture"),
    ("triples of 31 columns", columns(31, 4), "mixture"),
    ("triples of more columns than pairs fit", {**columns(135, 10), **TUPLES}, "aggregate-seeded"),
    (
        "pairs that are chosen in rounds where all do not fit",
        {**columns(135, 10), "aggregate": None},
        "mixture",
    ),
    (
        "quadruples of 60 columns",
        {**columns(60, 2), "aggregate__reporting_length": 4},
        "aggregate-seeded",
    ),
    ("pairs of 200 columns", {**columns(200, 2), "aggregate__reporting_length": 2}, "mixture"),
    (
        "too many pairs to look at",
        {**columns(1600, 2), "aggregate__reporting_length": 2},
        "aggregate-seeded",
    ),
    ("pairs that may be selected of 30 columns", {**columns(30, 2), **MARGINALS}, "mixture"),
    ("large pairs of 30 columns", {**columns(30, 200), **MARGINALS}, "gum"),
    (
        "small pairs of 30 columns",
        {**columns(30, 200), **MARGINALS, "aggregate__cliques": {"all": 2, "max_cells": 9}},
        "mixture",
    ),
    (
        "one pair of 30 columns",
        {**columns(30, 200), **MARGINALS, "aggregate__cliques": [["c0", "c1"]]},
        "mixture",
    ),
    (
        "rounds of 100 columns",
        {**columns(100, 9), **MARGINALS, "aggregate__cliques": "adaptive"},
        "mixture",
    ),
    (
        "rounds of large tables",
        {**columns(10, 30), **MARGINALS, "aggregate__cliques": {"adaptive": 4, "max_cells": 10**6}},
        "gum",
    ),
    (
        "few candidates of rounds, however many these are",
        {
            **columns(3, 60),
            **MARGINALS,
            "aggregate__cliques": {"adaptive": 3, "rounds": 100, "max_cells": 10**6},
        },
        "mixture",
    ),
    ("too many values", {**columns(30, 400), **MARGINALS, "aggregate__cliques": {"all": 1}}, "gum"),
]


@pytest.mark.parametrize(
    ("changes", "method"), [row[1:] for row in CHOSEN], ids=[row[0] for row in CHOSEN]
)
def test_the_method_follows_from_the_configuration(changes: dict[str, Any], method: str) -> None:
    """It says so itself, and in words why."""
    made = configuration(**changes)
    found = automatic_method(made.aggregate, made.attributes)
    assert made.synthesize.method == found.method == method
    assert found.reason


def test_what_auto_stands_for_is_in_the_digest_as_if_it_had_been_written() -> None:
    """A release of another version, whose `auto` stood for another method, is read back as the one that it was."""
    auto, left_out, named = (configuration(**SAID[said]) for said in ("auto", "", "mixture"))
    assert auto.digest == left_out.digest == named.digest
    before = configuration(synthesize__method="gum")
    assert Configuration.from_canonical(before.canonical()).synthesize == before.synthesize


@pytest.mark.parametrize(
    ("changes", "sigma"),
    [
        ({"privacy__epsilon": 0.16}, "balanced"),
        ({"privacy__epsilon": 0.1}, "short"),
        ({"privacy__epsilon": 0.05}, "singles"),
        ({"privacy__epsilon": 0.1, "aggregate__sigma": "auto"}, "short"),
        ({"privacy__epsilon": 0.1, "aggregate__reporting_length": 2}, "short"),
        ({"privacy__epsilon": 0.1, "aggregate__sigma": "long"}, "long"),
        ({"privacy__epsilon": 1.0, **columns(17, 2)}, "balanced"),  # sqrt(17 * 16 / 2) < 16 < 40
        ({"privacy__epsilon": 0.5, **columns(17, 2)}, "short"),
        ({"privacy__epsilon": 0.25, **columns(17, 2)}, "singles"),
    ],
)
def test_the_proportions_follow_from_epsilon_and_the_columns(
    changes: dict[str, Any], sigma: str
) -> None:
    """They are in the digest as if they had been written. The four columns of the usual configuration have six pairs."""
    made = configuration(**TUPLES | changes)
    assert made.tuples.sigma == sigma
    assert made.digest == configuration(**{**changes, "aggregate__sigma": sigma}).digest


ALONE = {"columns": {"signs": {"type": "set", "values": [1], "max_values": 2}}}
FEWER_ROUNDS = {
    "aggregate__method": "marginals",
    "aggregate__cliques": {"adaptive": 2, "rounds": 13},
}
SPREAD = {
    **MARGINALS,
    "aggregate__cliques": {"all": 2, "spread_pairs": 4000},
    "aggregate__one_way_share": 0.5,
    "aggregate__compress": 1.0,
}
SINGLES = {**MARGINALS, "aggregate__cliques": {"all": 1}}


def wide_set(values: int) -> dict[str, Any]:
    """A set of so many values beside the usual four columns."""
    return {"columns__signs": {"type": "set", "values": list(range(values)), "max_values": 3}}


def few_pairs(rounds: int, *, coarsen: bool = True) -> dict[str, Any]:
    """So many rounds of a pair each; `coarsen` as where there is a number and the candidates are at most 20,000."""
    made = {"adaptive": 2, "rounds": rounds, "batch": 1, "annealing": False}
    return made | ({"coarsen": True} if coarsen else {})


COUNTED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("pairs with little noise", {"privacy__epsilon": 0.16}, TRIPLES),  # sqrt(6) / 0.16 < 16
    ("pairs with more", {"privacy__epsilon": 0.15}, MARGINALS),
    ("many columns", columns(40, 2), MARGINALS),  # 16 < sqrt(780) < 40
    ("many columns with little noise", {"privacy__epsilon": 2.0, **columns(40, 2)}, TRIPLES),
    ("columns with too many triples", {"privacy__epsilon": 9.0, **columns(41, 2)}, MARGINALS),
    (
        "a pair that is larger than triples may be",
        wide_pair(600),  # takes 216 s of 250, and 56 triples of the rest 3
        {**MARGINALS, "aggregate__cliques": {"all": 3, "max_cells": 9599}},
    ),
    ("a pair that takes all the time", wide_pair(700), MARGINALS),
    ("triples all too large", columns(4, 60), MARGINALS),  # two of 216,000 cells take 259 s
    ("two columns", columns(2, 5), {**MARGINALS, "aggregate__cliques": {"all": 2}}),
    ("one column", columns(1, 5), MARGINALS),
    (
        "pairs that drown",
        {"privacy__epsilon": 0.06},
        {
            **MARGINALS,
            # 60 * 0.06 < 4
            "aggregate__cliques": few_pairs(4),
            "aggregate__one_way_share": 0.5,
            "aggregate__selection_share": 0.15,
            "aggregate__compress": 2.0,
        },
    ),
    (
        "numbers of records by GUM",
        {"privacy__epsilon": 0.06, "synthesize__method": "gum"},
        {
            **MARGINALS,
            # 60 * 0.06 < 4
            "aggregate__cliques": few_pairs(4, coarsen=False),
            "aggregate__one_way_share": 0.5,
            "aggregate__selection_share": 0.15,
            "aggregate__compress": 2.0,
        },
    ),
    (
        "records made of k-tuples",
        {"privacy__epsilon": 0.06, "synthesize__method": "aggregate-seeded"},
        TUPLES,
    ),
    (
        "a unit of several rows",
        {"privacy__epsilon": 0.16, "privacy__unit": {"column": "id", "max_records": 2}},
        MARGINALS,
    ),
    (
        "one that is replaced",
        {"privacy__epsilon": 0.2, "privacy__neighbors": "replace-one"},
        MARGINALS,
    ),
    (
        "bounds that are bought",
        {
            "privacy__epsilon": 0.06,
            "columns__age": {"type": "number", "bounds": "private", "within": [0, 200], "bins": 5},
        },
        {
            **MARGINALS,
            "aggregate__cliques": few_pairs(4),
            "aggregate__one_way_share": 0.475,
            "aggregate__selection_share": 0.1425,  # 0.95 (1 - 0.05)
            "aggregate__compress": 2.0,
        },
    ),
    (
        "a structural zero in 10^8 combinations",
        {"privacy__epsilon": 0.3, **columns(4, 100), **ZERO},
        MARGINALS,
    ),
    (
        "a set with little noise, each value a column",
        {"privacy__epsilon": 0.58, **SETS},
        TRIPLES,
    ),  # sqrt(21) / 0.58 < 8
    ("a set with more, whose triples say little", {"privacy__epsilon": 0.57, **SETS}, MARGINALS),
    (
        "a set with yet more",
        {"privacy__epsilon": 0.15, **SETS},
        {**MARGINALS, "aggregate__cliques": few_pairs(15)},
    ),  # 450 0.15 / sqrt(21)
    (
        "a set with nearly too much",
        {"privacy__epsilon": 0.12, **SETS},
        {**MARGINALS, "aggregate__cliques": few_pairs(12)},
    ),  # sqrt(21) / 0.12 < 40
    (
        "a set of many values with little noise",
        {"privacy__epsilon": 3.0, **wide_set(40)},
        MARGINALS,
    ),  # 16 > sqrt(946) / 3
    (
        "a set of many values with more",
        {"privacy__epsilon": 1.9, **wide_set(40)},
        {**MARGINALS, "aggregate__cliques": few_pairs(28)},
    ),  # 450 1.9 / sqrt(946)
    (
        "a set that drowns",
        {"privacy__epsilon": 0.1, **SETS},  # sqrt(21) / 0.1 > 40
        {
            **MARGINALS,
            # 60 * 0.1
            "aggregate__cliques": few_pairs(6),
            "aggregate__one_way_share": 0.5,
            "aggregate__selection_share": 0.15,
            "aggregate__compress": 2.0,
        },
    ),
    (
        "a set of too many values for pairs of them: pairs of the other columns",
        {"privacy__epsilon": 3.0, **wide_set(400)},
        {
            **MARGINALS,
            "aggregate__cliques": [
                [a, b] for a, b in itertools.combinations(("sex", "region", "age", "grade"), 2)
            ],
        },
    ),
    (
        "a set alone of too many values",
        {**ALONE, "columns__signs__values": list(range(400))},
        SINGLES,
    ),
    ("a set with a private domain", {"columns__signs": PRIVATE_SET}, TUPLES),
    (
        "a set one of whose values is a column",
        {**SETS, "columns__signs=a": {"type": "category", "values": [1, 2]}},
        TUPLES,
    ),
    (
        "a private domain, whose triples may be large",
        PRIVATE,
        {
            **MARGINALS,
            "aggregate__one_way_share": 0.285,
            "aggregate__selection_share": 0.0475,
        },  # of what 5 % for it leave
    ),
    (
        "pairs that drown, beside a private domain",
        {"privacy__epsilon": 0.06, **PRIVATE},  # sqrt(6 / 0.95) / 0.06 > 40
        {
            **MARGINALS,
            "aggregate__cliques": few_pairs(4),
            "aggregate__one_way_share": 0.475,
            "aggregate__selection_share": 0.1425,
            "aggregate__compress": 2.0,
        },
    ),
    (
        "a private domain beside large ones: its 100 values make pairs too large to be fitted",
        {
            **PRIVATE,
            **{
                f"columns__c{i}": {"type": "category", "values": list(range(400))} for i in range(4)
            },
        },
        TUPLES,  # six pairs of 401 x 401 cells take 579 s of 600, with those of 401 x 101 676 s
    ),
    ("pairs too large to be fitted", columns(30, 200), TUPLES),
    (
        "too many pairs to look at in each round, and too many k-tuples",
        {**columns(560, 2), "rows": 10**6},
        SINGLES,
    ),
    ("too many pairs for noise that is larger than they are", columns(560, 2), SPREAD),
    (
        "more than 4,000 pairs, of which each column is in eight",
        columns(1_200, 2),
        {**SPREAD, "aggregate__cliques": {"all": 2, "spread_pairs": 4800}},
    ),
    (
        "pairs of many cells: as many as there is time for",
        columns(120, 16),
        {**SPREAD, "aggregate__cliques": {"all": 2, "spread_pairs": 1528}},
    ),
    (
        "too many pairs for a selection: as many rounds as there is time for",
        {**columns(300, 2), "rows": 10**6},
        FEWER_ROUNDS,
    ),
    (
        "too many pairs for all rounds that the noise asks for",
        {**columns(400, 2), "rows": 2_000, "synthesize__method": "gum"},
        {
            **MARGINALS,
            "aggregate__cliques": few_pairs(7, coarsen=False),
            "aggregate__one_way_share": 0.5,
            "aggregate__selection_share": 0.15,
            "aggregate__compress": 2.0,
        },
    ),
]


@pytest.mark.parametrize(
    ("changes", "named"), [row[1:] for row in COUNTED], ids=[row[0] for row in COUNTED]
)
def test_what_is_counted_follows_from_epsilon_and_the_columns(
    changes: dict[str, Any], named: dict[str, Any]
) -> None:
    """Left out, empty, `auto` and named it is the same release; `least_records` is what test_few_records has of it."""
    marginals = configuration(**{**changes, "aggregate": None}).marginals
    if marginals is not None and marginals.least_records is not None:
        named = {**named, "aggregate__least_records": marginals.least_records}
    found = {
        configuration(**{**changes, **said}).digest
        for said in ({"aggregate": None}, {"aggregate": {}}, AUTO, named)
    }
    assert len(found) == 1


def test_any_other_key_is_one_of_k_tuples() -> None:
    short = {"reporting_length": 2}
    left, named = (
        configuration(aggregate=section) for section in (short, {"method": "k-tuples", **short})
    )
    assert left.digest == named.digest


@given(st.lists(st.integers(1, 90), min_size=3, max_size=7))
def test_triples_are_as_many_as_there_is_time_for(sizes: list[int]) -> None:
    """Small ones first, and all of as many cells or none; what pairs take that have more cells is left for these."""
    made = {f"c{i}": columns(1, size)["columns"]["c0"] for i, size in enumerate(sizes)}
    settings = configuration(privacy__epsilon=9.0, columns=made, aggregate=None).marginals
    assert settings is not None
    cliques = settings.cliques
    cells, pairs = (
        sorted(map(math.prod, itertools.combinations(sizes, length))) for length in (3, 2)
    )
    limit = cells[-1] if sum(map(fitting_seconds, cells)) <= 250 else 0
    # the last that is measured, the first that is not
    for last, first in itertools.pairwise(() if limit else cells):
        measured = [*(n for n in cells if n <= last), *(n for n in pairs if n >= first)]
        if last < first and sum(map(fitting_seconds, measured)) <= 250:
            limit = last
    found = {
        size
        for size in cells
        if isinstance(cliques, AllCliques) and size <= (cliques.max_cells or size)
    }
    assert found == {size for size in cells if size <= limit}


def test_bounds_that_are_released_leave_the_method_alone() -> None:
    age = {"type": "number", "bounds": "private", "within": [0, 200], "bins": 5}
    named = configuration(columns__age=age, synthesize__method="gum")
    assert named.with_bounds({"age": (0.0, 99.0)}).synthesize == named.synthesize
    left = configuration(columns__age=age, privacy__epsilon=0.06)
    assert left.with_bounds({"age": (0.0, 99.0)}).aggregate == left.aggregate


def test_every_method_has_the_keys_that_go_with_auto() -> None:
    made = configuration(synthesize={"records": 7, "max_records": 5, "seed": 3}).synthesize
    assert made == MixtureSynthesis(records=7, max_records=5, seed=3)


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"synthesize__scale": 2},
        r"^synthesize has scale, which not every method has; .* method: aggregate-seeded$",
    ),
    (
        {"synthesize__rounds": 2},
        r"^synthesize has rounds, which not every method has; .* method: gum$",
    ),
    (
        {"synthesize__method": "auto", "synthesize__fits": 2},
        r"^synthesize has fits, .* method: mixture$",
    ),
    (
        {"aggregate__method": "auto", "aggregate__sigma": "short"},
        r"^aggregate has sigma, which method auto has not; name ",
    ),
    ({"synthesize__seet": 2}, r"^unknown key synthesize\.seet; did you mean seed\?$"),
    (
        {**SETS, **TUPLES, "synthesize__records": "exhaust"},
        r"^synthesize has records: exhaust, which not every method has; name the method, aggregate-seeded$",
    ),
    (
        {"synthesize__records": "exhaust"},
        r"^synthesize\.records \(exhaust\) must be count, 4x or a whole number$",
    ),
    ({"synthesize__method": "auto", "privacy": None}, r"^privacy is required$"),
    ({"synthesize": 3}, r"^synthesize \(3\) must be a mapping \(key: value\)$"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_key_that_says_which_method_is_meant_needs_the_method(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        configuration(**changes)
