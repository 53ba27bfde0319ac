"""An advice names no key that a configuration has not: what plan, check and verdict say to write is accepted as written.

Every text that names keys is in `ADVICE`, with a configuration that it is said of and what follows from it. A key that is
there for another method, another kind of column or not at all fails here (`aggregate.reporting_length` was said of drafts
that have no such key, `aggregate.cliques` of k-tuples).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.yaml_source import parse_yaml
from marginweave.evaluate.advice import BeyondNoise, advice, rounds_line
from marginweave.released.verdict import SetVerdict
from marginweave.runs.limits import check_size
from marginweave.texts.sentences import Page, texts_of
from tests.support.configurations import raw
from tests.support.keys import all_keys, named_keys

NAMED = "aggregate: {method: marginals, cliques: [[COLUMN, COLUMN], …]}"
LISTED = {"aggregate": {"method": "marginals", "cliques": [["sex", "age"]]}}
AUTO: dict[str, Any] = {"aggregate": None}
ROUNDS = {"aggregate": {"method": "marginals", "cliques": {"adaptive": 2}}}
SET = {"type": "set", "values": [*"abc"], "max_values": 2}
SETS: dict[str, Any] = {"columns__signs": SET}
SUBJECT: dict[str, Any] = {"privacy__unit": {"column": "id", "max_records": 4}}
BOUGHT = {"type": "number", "bounds": "private", "within": [0, 200], "bins": 5}
DATE = {"type": "date", "bounds": ["2020-01-01", "2021-01-01"], "bins": "month"}
DAYS = {"columns__day": DATE, "columns__end": {**DATE, "bounds": ["2020-01-01", "2022-01-01"]}}
STAY = {"type": "number", "bounds": [0, 90], "bins": 3, "decimals": 0}
BETWEEN = {
    **DAYS,
    "columns__stay": STAY,
    "structure__difference": [{"column": "stay", "of": "end", "since": "day"}],
}
GAP = {"structure__applies": [{"where": {"sex": "f"}, "columns": ["age"]}]}
DETERMINED = {
    "structure__determined": [{"column": "grade", "by": "sex", "mapping": {"f": 1, "m": 2}}]
}

Written = Mapping[str, Any]
WIDE: dict[str, Any] = {
    "columns__age": {"type": "number", "bounds": "private", "within": [0, 1e6], "bins": 5}
}
COUNTED: dict[str, Any] = {
    "source": "stays.csv",
    "columns": {"kind": {"type": "category", "values": ["a", "b"]}},
    "at_most": 3,
}
LINKED: dict[str, Any] = {"privacy__unit": {"column": "id", "max_records": 1}}
ADVICE: dict[str, tuple[Written, Written]] = {
    "check.table.beyond-advice": (
        {**LISTED, **LINKED, "tables": {"stays": COUNTED}},
        {"tables": {"stays": {**COUNTED, "at_most": 5}}},
    ),
    "plan.linked.no-method": (
        {
            "aggregate": {"method": "marginals"},
            "synthesize": {"method": "gum"},
            "privacy__unit": {"column": "id", "max_records": 1},
            "tables": {"stays": COUNTED},
        },
        {"synthesize": {"method": "mixture"}},
    ),
    "plan.linked.no-number": (
        {
            "aggregate": {"method": "marginals"},
            "privacy__unit": {"column": "id", "max_records": 1},
            "tables": {"stays": COUNTED},
        },
        {
            "columns__number": {
                "type": "number",
                "bounds": [0, 3],
                "bins": {"min": 0, "max": 3, "step": 1},
                "decimals": 0,
            },
            "tables": {"stays": {**COUNTED, "derive": {"number": "count"}}},
        },
    ),
    "plan.choice.or-rows": (AUTO, {"rows": 5000}),
    "plan.given-up.set-other": (SETS, {"columns__signs__outside": "other"}),
    "plan.preparation.uncounted-sets": (SETS, {"columns__signs__outside": "other"}),
    "plan.sizes.say-rows": (AUTO, {"rows": 5000}),
    "plan.sizes.say-rows-other": (AUTO, {"rows": 5000}),
    "plan.sizes.say-rows-alone": (LISTED, {"rows": 5000}),
    "plan.delta.write": ({"rows": 12_000}, {"privacy__delta": 7e-7}),
    "plan.pairs.line-added": (LISTED, {"aggregate__cliques": [["sex", "age"], ["sex", "region"]]}),
    "plan.preparation.bounds-noisy": (
        WIDE,
        {"columns__age": {"type": "number", "bounds": [0, 120], "bins": 5}},
    ),
    "plan.preparation.bounds-coarse": (WIDE, {**WIDE, "columns__age__within": [0, 200]}),
    "plan.ledger.refused-epsilon": ({}, {"privacy__epsilon": 0.5}),
    "check.unread-advice.min-values": (
        {**LISTED, "columns__signs": {**SET, "min_values": 1, "outside": "error", "missing": []}},
        {"columns__signs__min_values": None},
    ),
    "check.unread-advice.empty": ({"missing": None}, {"columns__grade__missing": [""]}),
    "check.unread-advice.spelling": ({}, {"columns__age__text": {"unit": "years"}}),
    "check.unread-advice.decimal": ({}, {"source": {"file": "people.csv", "decimal": "comma"}}),
    "check.unread-advice.thousands": ({}, {"source": {"file": "people.csv", "thousands": "comma"}}),
    "check.unread-advice.format": ({"columns__day": DATE}, {"columns__day__format": "%d.%m.%Y"}),
    "check.unread-advice.case": ({}, {"columns__sex__values": ["F", "M"]}),
    "check.unread-advice.values": ({}, {"columns__sex__values": ["0", "1"]}),
    "check.unread-advice.missing": ({}, {"columns__sex__missing": ["9"]}),
    "check.beyond.codes": (
        {},
        {"columns__age__codes": {"99": "refused"}, "columns__age__missing": ["-9"]},
    ),
    "check.column.missing-advice": ({}, {**GAP, "columns__age__missing": [""]}),
    "check.column.constant-advice": ({}, {"columns__sex": {"type": "constant", "value": "f"}}),
    "check.column.empty-advice": ({}, {"columns__sex__missing": ["9"]}),
    "check.rule-advice.difference": (BETWEEN, {"columns__stay__bounds": [0, 300]}),
    "check.rule-advice.max_values": (SETS, {"columns__signs__max_values": 3}),
    "check.rule-advice.determined": (DETERMINED, {**DETERMINED, "columns__region": None}),
    "check.table.ownerless-advice": (SUBJECT, {"privacy__unit__missing_subject": "own"}),
    "check.table.ids-advice": ({}, SUBJECT),
    "check.table.ids-warning": ({}, SUBJECT),
    "verdict.changed.ownerless-advice": (SUBJECT, {"privacy__unit__missing_subject": "own"}),
    "verdict.uncounted.linked-advice": (
        {**LISTED, **LINKED, "tables": {"stays": COUNTED}},
        {"tables": {"stays": {**COUNTED, "at_most": 5}}},
    ),
    "verdict.uncounted.linked-unknown-advice": (
        {**LISTED, **LINKED, "tables": {"stays": COUNTED}},
        {
            "columns__stays": {**STAY, "bins": [0, 4, 90]},
            "tables": {"stays": {**COUNTED, "derive": {"stays": "count"}}},
        },
    ),
    "verdict.uncounted.advice": (SUBJECT, {"privacy__unit__max_records": 9}),
    "verdict.undeclared-advice.uncounted": (SETS, {"columns__signs__outside": "other"}),
    "verdict.undeclared-advice.declare": (
        {},
        {
            "columns__sex__outside": "null",
            "columns__age": {"type": "number", "bounds": [0, 120], "bins": 5},
        },
    ),
    "verdict.advice.other-rows": ({"rows": 50_000}, {"rows": 500}),
    "verdict.advice.say-rows": (AUTO, {"rows": 5000}),
    "verdict.advice.say-rows-and-auto": (LISTED, {"rows": 5000, "aggregate": {"method": "auto"}}),
}


PAIRS_ARE_NAMED = (
    "pairs.none-chosen-advice",
    "pairs.not-chosen-advice",
    "advice.one-too-large",
    "advice.too-large",
    "advice.one-not-measured",
    "advice.not-measured",
    "advice.no-more-rounds",
)
"""Texts of the verdict that name the pairs by a whole line."""
NO_ADVICE = {
    *("check." + key for key in ("unread.half", "table.suite", "table.ids")),
    *(
        "check.rule." + key
        for key in ("structural-zeros", "determined", "difference", "sum", "max_values")
    ),
    *(
        "plan.delta.of-one",
        "plan.delta.large",
        "plan.preparation.rows-beyond",
        "plan.preparation.repaired",
    ),
    *(
        "plan.known.other-source",
        "plan.known.these-rows",
        "plan.known.invariant",
        "plan.choice.near-limit",
    ),
    *(
        "plan.hope.some",
        "plan.records.method",
        "plan.records.other",
        "plan.earlier.not-used",
        "plan.ledger.example",
    ),
    *(
        "plan.schedule.period",
        "plan.schedule.period-delta",
        "plan.sizes.noisy",
        "plan.remedy.columns",
    ),
    *("verdict.changed.repaired", "verdict.changed.unkept", "verdict.changed.imputed-advice"),
    *("verdict.earlier.contradicted-advice", "verdict.undeclared.none"),
    "verdict.advice.more-rounds",
}
"""Texts with a word that is a key elsewhere, or that say what a key has done and not what to write."""


def test_every_text_that_names_a_key_is_followed_here() -> None:
    keys = all_keys()
    assert {"cliques", "reporting_length", "missing_subject", "within"} <= keys
    pages: tuple[Page, ...] = ("check", "plan", "verdict")
    naming = {
        f"{page}.{key}"
        for page in pages
        for key, text in texts_of(page).items()
        if named_keys(text, keys)
    }
    followed = {*ADVICE, *(f"verdict.{key}" for key in PAIRS_ARE_NAMED)}
    assert naming - followed == NO_ADVICE
    assert followed <= naming


@pytest.mark.parametrize("key", ADVICE)
def test_what_is_advised_is_accepted_and_is_another_configuration(key: str) -> None:
    before, followed = ADVICE[key]
    config = parse_configuration(raw(**before))
    changed = parse_configuration(raw(**{**before, **followed}))
    assert changed.written != config.written or "source" in followed


@pytest.mark.parametrize("key", PAIRS_ARE_NAMED)
def test_the_line_that_names_pairs_is_whole(key: str) -> None:
    """With names in it, in the place of the section that is there or is left to `auto`, a run takes it."""
    text = texts_of("verdict")[key].format(pairs=4, epsilon=1.0)
    assert NAMED in text
    line = NAMED.replace("COLUMN, COLUMN", "sex, age").replace(", …", "")
    for before in (AUTO, ROUNDS, LISTED):
        check_size(parse_configuration({**raw(**before), **parse_yaml(line)}))


@settings(max_examples=50)
@given(
    rounds=st.integers(1, 100),
    batch=st.integers(1, 20),
    adaptive=st.integers(2, 4),
    more=st.sampled_from(
        [
            {},
            {"one_way_share": 0.5, "compress": "none"},
            {"selection_share": 0.15, "allocation": "equal"},
        ]
    ),
)
def test_more_rounds_are_more_and_nothing_else(
    rounds: int, batch: int, adaptive: int, more: dict[str, Any]
) -> None:
    """The line is a configuration of up to twice the rounds; where there can be no more, none is offered."""
    cliques = {"adaptive": adaptive, "rounds": rounds, "batch": batch, "annealing": False}
    try:
        config = parse_configuration(
            raw(aggregate={"method": "marginals", "cliques": cliques, **more})
        )
    except InputError:
        return
    line = rounds_line(config)
    if not line:
        assert rounds == 100 or (rounds + 1) * batch > 400
        return
    followed = parse_configuration({**raw(), **parse_yaml(line)}).marginal_settings
    before = config.marginal_settings
    assert before.adaptive is not None
    assert followed.adaptive is not None
    assert rounds < followed.adaptive.rounds <= 2 * rounds
    same_rounds = followed.adaptive.model_copy(update={"rounds": rounds})
    assert followed.model_copy(update={"cliques": same_rounds}) == before


def test_pairs_of_k_tuples_are_not_advised_to_be_named() -> None:
    """K-tuples count every pair: one without a count had none that reached the threshold."""
    rows = [
        SetVerdict(attributes=pair, error=None, grade="with care")
        for pair in itertools.combinations("abc", 2)
    ]
    (said,) = map(str, advice(rows, 1.0, BeyondNoise(measures_named=False)))
    assert "cliques" not in said
    (said,) = map(str, advice(rows, 1.0, BeyondNoise()))
    assert "cliques" in said


def binary(columns: int) -> dict[str, Any]:
    """Return the columns of a table of so many columns of two values."""
    return {
        "columns": {f"c{place}": {"type": "category", "values": [0, 1]} for place in range(columns)}
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"privacy__delta": 0, "aggregate": None},
        {"privacy__delta": 0, "aggregate": None, **binary(1)},
        {"privacy__delta": 0, "aggregate": None, **binary(300)},
        {"privacy__delta": 0},
        {"aggregate": {"method": "k-tuples"}, **binary(300)},
        {"aggregate": {"method": "k-tuples"}, **binary(1000)},
        {"aggregate": {"method": "k-tuples", "reporting_length": 4}, **binary(60)},
    ],
)
def test_the_line_of_a_refusal_is_accepted(changes: dict[str, Any]) -> None:
    """A refusal that says what to write in the place of `aggregate` ends when that is written."""
    written = raw(**changes)
    with pytest.raises(InputError) as refusal:
        check_size(parse_configuration(written))
    (line,) = re.findall(r"write (aggregate: \{.*\})", str(refusal.value))
    check_size(parse_configuration({**written, **parse_yaml(line)}))


@pytest.mark.parametrize("mark", ["comma", "space", "apostrophe"])
def test_every_mark_between_thousands_that_is_advised_is_accepted(mark: str) -> None:
    parse_configuration(raw(source={"file": "people.csv", "thousands": mark}))
    assert mark in texts_of("check")["unread-advice.thousands"]


@pytest.mark.parametrize(
    ("kind", "key"),
    [({"type": "number", "bounds": [0, 100], "bins": 5}, "bounds"), (BOUGHT, "within")],
)
def test_limits_are_widened_by_the_key_that_has_them(kind: dict[str, Any], key: str) -> None:
    from marginweave.configuration.columns import NumberColumn
    from marginweave.flows.check.advice import _limits_key

    column = parse_configuration(raw(columns__age=kind)).columns["age"]
    assert isinstance(column, NumberColumn)
    assert _limits_key(column) == key
    wider = {**kind, key: [0, 1000]}
    parse_configuration(raw(columns__age=wider))
