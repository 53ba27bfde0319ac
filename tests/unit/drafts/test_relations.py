"""`init` finds relations between columns, asks about each, and suggests none between independent columns."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import chain, combinations, permutations
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import marginweave as mw
from marginweave.base.errors import InputError
from marginweave.configuration.execution import SourceFile
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration
from marginweave.configuration.yaml_source import parse_yaml
from marginweave.drafts import chance
from marginweave.drafts.draft import draft_configuration, draft_table
from marginweave.drafts.draft_text import write_draft
from marginweave.drafts.drafted_configuration import ConfigurationDraft
from marginweave.evaluate.rules import broken_rules
from tests.support.drafts import answered
from tests.support.places import DATA

ROWS = 1200
FILE = SourceFile(file="t.csv")
TAXIS = DATA.parent / "cases" / "26" / "taxis.csv"
Table = Mapping[str, Sequence[object]]


def drafted(columns: Table, form: SourceFile = FILE) -> ConfigurationDraft:
    return draft_table(pa.table(dict(columns)), "t", form, list(columns))


def findings(draft: ConfigurationDraft) -> dict[str, str]:
    """What a terminal shows of each relation, by its name."""
    return {relation.name: relation.finding for relation in draft.relations}


def structure_of(draft: ConfigurationDraft) -> dict[str, Any]:
    return parse_yaml(write_draft(draft)).get("structure", {})


def rules_of(draft: ConfigurationDraft) -> dict[str, list[dict[str, Any]]]:
    """The suggested rules, as they are when they are confirmed."""
    rules: dict[str, list[dict[str, Any]]] = {}
    for key, entries in structure_of(draft).items():
        rules[key] = [
            {part: value for part, value in rule.items() if part != "confirm"} for rule in entries
        ]
    return rules


def confirmed(draft: ConfigurationDraft) -> Configuration:
    return parse_configuration(parse_yaml(answered(write_draft(draft), '"the code book"')))


def stays(rng: np.random.Generator, wrong: int = 0) -> dict[str, list[Any]]:
    """Stays in a hospital; `wrong` of them end before they begin."""
    admitted = [date(2023, 1, 1) + timedelta(days=int(day)) for day in rng.integers(0, 360, ROWS)]
    nights = rng.integers(0, 30, ROWS)
    discharged = [first + timedelta(days=int(n)) for first, n in zip(admitted, nights, strict=True)]
    for row in range(wrong):
        discharged[row] = admitted[row] - timedelta(days=9)
    return {"admitted": list(map(str, admitted)), "discharged": list(map(str, discharged))}


def trips(rng: np.random.Generator) -> dict[str, list[Any]]:
    """Fares, with tips in a half and tolls in a twentieth of the trips; 23 sorts of whole and decimal numbers."""
    cents = rng.integers(250, 9000, ROWS) * 10
    tips = np.where(rng.random(ROWS) < 0.5, 0, rng.integers(0, 1500, ROWS))
    tolls = np.where(rng.random(ROWS) < 0.95, 0, rng.integers(1, 90, ROWS) * 100)
    total = cents + tips + tolls
    return {
        "fare": [f"{value / 100:.1f}" for value in cents],
        "tip": [f"{value / 100:.2f}" for value in tips],
        "tolls": [str(value // 100) for value in tolls],
        "total": [f"{value / 100:.2f}" for value in total],
    }


def visits() -> dict[str, list[str]]:
    """The table of a review: several visits of a person, whose length follows from two dates."""
    rng = random.Random(14)
    rows: list[tuple[str, ...]] = []
    for _ in range(800):
        person = str(rng.randint(10**10, 10**11 - 1))
        sex = rng.choice("fm")
        for _ in range(min(40, max(1, int(rng.expovariate(0.25))))):
            first = date(2023, 1, 1) + timedelta(days=rng.randint(0, 360))
            nights = min(60, int(rng.expovariate(0.3)))
            last = first + timedelta(days=nights)
            rows.append((person, sex, str(first), str(last), rng.choice("ABC"), str(nights)))
    names = ("patient_id", "sex", "admitted", "discharged", "ward", "los")
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def independent(seed: int, rows: int = ROWS) -> dict[str, list[Any]]:
    """Columns of all kinds that do not depend on each other, many alike, some with gaps and most cells the same."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {}
    for i in range(3):
        columns[f"day{i}"] = [
            str(date(2020, 1, 1) + timedelta(days=int(d))) for d in rng.integers(0, 900, rows)
        ]
        columns[f"n{i}"] = list(map(str, rng.integers(0, 10 ** (i + 2), rows)))
        columns[f"cost{i}"] = [f"{value:.2f}" for value in rng.lognormal(i + 1, 1.5, rows)]
        columns[f"zero{i}"] = [
            str(value) if value > 950 else "0" for value in rng.integers(0, 1000, rows)
        ]
        columns[f"code{i}"] = [f"c{value}" for value in rng.integers(0, 4 + 20 * i, rows)]
        columns[f"many{i}"] = [f"m{value}" for value in rng.integers(0, 300, rows)]
        columns[f"rare{i}"] = ["x" if value else "y" for value in rng.random(rows) < 0.01]
        columns[f"gap{i}"] = [
            str(value) if value < 60 * i + 20 else "" for value in rng.integers(0, 150, rows)
        ]
        columns[f"few{i}"] = list(map(str, rng.integers(i, 2 + 3 * i, rows)))
        columns[f"skip{i}"] = [
            f"s{value}" if value < 3 else "" for value in rng.integers(0, 5, rows)
        ]
    return columns


def cases() -> Iterator[tuple[str, Table, dict[str, list[dict[str, Any]]]]]:
    """Tables with one relation each, by its kind; the last cells of a row are free."""
    rng = np.random.default_rng(1)
    yield "dates", stays(rng), {"ordered": [{"columns": ["admitted", "discharged"]}]}
    first = [datetime(2024, 1, 1) + timedelta(seconds=int(s)) for s in rng.integers(0, 10**7, ROWS)]  # noqa: DTZ001
    length = rng.integers(60, 5000, ROWS)
    last = [start + timedelta(seconds=int(s)) for start, s in zip(first, length, strict=True)]
    yield (
        "moments",
        {
            "taken": list(map(str, first)),
            "brought": list(map(str, last)),
            "seconds": list(map(str, length)),
        },
        {"difference": [{"column": "seconds", "of": "brought", "since": "taken"}]},
    )
    yield "sums", trips(rng), {"sum": [{"column": "total", "of": ["fare", "tip", "tolls"]}]}
    months = rng.integers(0, 500, (12, ROWS))
    by_month = {f"m{i}": list(map(str, cells)) for i, cells in enumerate(months)}
    yield (
        "a long sum",
        {"year": list(map(str, months.sum(axis=0))), **by_month},
        {"sum": [{"column": "year", "of": list(by_month)}]},
    )
    low = rng.integers(0, 100, ROWS)
    high = low + rng.integers(0, 40, ROWS)
    yield (
        "numbers",
        {"worst": list(map(str, high)), "mean": list(map(str, low))},
        {"ordered": [{"columns": ["mean", "worst"]}]},
    )
    ward = rng.integers(0, 24, ROWS)
    yield (
        "a coarser column",
        {"ward": [f"w{w:02d}" for w in ward], "unit": [f"u{w // 5}" for w in ward]},
        {
            "determined": [
                {
                    "column": "unit",
                    "by": "ward",
                    "mapping": {f"w{w:02d}": f"u{w // 5}" for w in range(24)},
                }
            ]
        },
    )
    age = rng.integers(0, 45, ROWS) * 2
    group = {str(a): f"g{min(a // 2 * 2 // 30, 2)}" for a in range(101)}
    yield (
        "groups of numbers",  # an odd number is in no row, and is in the group of the even one below
        {"age": list(map(str, age)), "group": [f"g{a // 30}" for a in age]},
        {"determined": [{"column": "group", "by": "age", "mapping": group}]},
    )
    smoker = rng.random(ROWS) < 0.3
    packs = [str(n) if s else "" for n, s in zip(rng.integers(1, 40, ROWS), smoker, strict=True)]
    yield (
        "a certain value",
        {"smoker": ["current" if s else "never" for s in smoker], "packs": packs},
        {"applies": [{"columns": ["packs"], "where": {"smoker": ["current"]}}]},
    )
    since = [
        str(n) if p and n % 3 else "" for n, p in zip(rng.integers(1, 40, ROWS), packs, strict=True)
    ]
    yield (
        "nested gaps",
        {"packs": packs, "since": since},
        {"forbidden": [{"packs": [""], "since": {"but": [""]}}]},
    )
    second = [str(n) if p else "" for n, p in zip(rng.integers(1, 90, ROWS), packs, strict=True)]
    yield (
        "the same gaps",
        {"packs": packs, "cost": second},
        {"applies": [{"columns": ["cost"], "where": {"packs": {"but": [""]}}}]},
    )
    yield from cases_of_few_numbers(rng)


def cases_of_few_numbers(
    rng: np.random.Generator,
) -> Iterator[tuple[str, Table, dict[str, list[dict[str, Any]]]]]:
    """Tables in which a category of few numbers is compared or added, or beside which a number is 0 or in a range."""
    people = rng.integers(1, 8, ROWS)
    children = rng.integers(0, people)
    yield (
        "few numbers",
        {"people": list(map(str, people)), "children": list(map(str, children))},
        {"ordered": [{"columns": ["children", "people"]}]},
    )
    rooms = people + rng.integers(0, 30, ROWS)
    yield (
        "few numbers beside many",
        {"people": list(map(str, people)), "rooms": list(map(str, rooms))},
        {"ordered": [{"columns": ["people", "rooms"]}]},
    )
    nights = rng.integers(0, 60, ROWS)
    yield (
        "a sum with a part of few numbers",
        {
            "week": list(map(str, nights)),
            "weekend": list(map(str, children)),
            "stay": list(map(str, nights + children)),
        },
        {"sum": [{"column": "stay", "of": ["week", "weekend"]}]},
    )
    cost = rng.integers(2, 9_000, ROWS)
    canceled = rng.random(ROWS) < 0.2
    yield (
        "a number that is 0 beside a value",
        {
            "state": ["canceled" if c else "done" for c in canceled],
            "cost": list(map(str, np.where(canceled, 0, cost))),
        },
        {
            "forbidden": [
                {"state": {"but": ["done"]}, "cost": {"above": "0"}},
                {"state": ["done"], "cost": {"to": "0"}},
            ]
        },
    )
    income = rng.integers(0, 60_000, ROWS)
    income[:4] = 9_990, 10_020, 29_990, 30_020
    bands = np.searchsorted([10_000, 30_000], income, side="right")
    yield (
        "ranges of a number",
        {"band": [f"band {'cab'[b]}" for b in bands], "income": list(map(str, income))},
        {
            "forbidden": [
                {"income": {"below": "10000"}, "band": {"but": ["band c"]}},
                {"income": {"from": "10000", "below": "30000"}, "band": {"but": ["band a"]}},
                {"income": {"from": "30000"}, "band": {"but": ["band b"]}},
            ]
        },
    )


CASES = list(cases())


@pytest.mark.parametrize(
    ("columns", "rules"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_each_kind_of_relation_is_found_and_accepted(columns: Table, rules: dict[str, Any]) -> None:
    """It alone is suggested; with a yes, the configuration is accepted, and no row of the table breaks it."""
    draft = drafted({**columns, "sex": ["f", "m"] * (ROWS // 2)})
    assert rules_of(draft) == rules
    assert all(": 0 of 1," in finding for finding in findings(draft).values()), findings(draft)
    configuration = confirmed(draft)
    broken = broken_rules(pa.table(dict(columns, sex=["f", "m"] * (ROWS // 2))), configuration)
    assert {rule.records for rule in broken} <= {0}


@pytest.mark.parametrize(("wrong", "is_found"), [(12, True), (13, False)])
def test_one_row_in_a_hundred_may_break_a_relation_and_its_number_is_not_in_the_draft(
    wrong: int, is_found: bool
) -> None:
    draft = drafted(stays(np.random.default_rng(5), wrong))
    assert bool(structure_of(draft)) is is_found
    if is_found:
        assert findings(draft) == {
            "structure.ordered.admitted, discharged": "`discharged` is never before `admitted`: 12 of 1,200 rows break it"
        }
        clean = drafted(stays(np.random.default_rng(5), 0))
        assert (
            write_draft(draft).partition("structure:")[2]
            == write_draft(clean).partition("structure:")[2]
        )


def test_a_thousand_rows_that_break_a_relation_are_no_errors() -> None:
    assert chance.are_exceptions(1000, 200_000)
    assert not chance.are_exceptions(1001, 200_000)
    assert not chance.are_exceptions(1000, 99_999)


@given(st.integers(0, 10**9))
@settings(max_examples=15, deadline=None)
def test_nothing_is_suggested_between_independent_columns(seed: int) -> None:
    """30 columns of many kinds; with a bound of 1e-8 for each of six kinds, a false alarm has a probability of 1e-6 at most."""
    with mock.patch.object(chance, "FALSE_ALARM", 1e-8):
        assert findings(drafted(independent(seed))) == {}


@pytest.mark.parametrize("rows", [3, 40, 200])
def test_few_rows_suggest_nothing_by_chance(rows: int) -> None:
    for seed in range(5):
        assert findings(drafted(independent(seed, rows))) == {}


def test_the_bounds_of_chance_hold() -> None:
    """Exact tails of the binomial, hypergeometric and shuffled order are never above the bounds that are used."""
    from scipy import stats

    for draws, share in ((20, 0.3), (200, 0.05), (50, 0.9)):
        for broken in range(0, draws, 7):
            bound = np.exp(-chance.draws_evidence(broken, draws, share))
            assert stats.binom.cdf(broken, draws, share) <= bound * (1 + 1e-9)
            good = round(1000 * share)
            assert stats.hypergeom.cdf(broken, 1000, good, draws) <= bound * (1 + 1e-9)
    rng = np.random.default_rng(2)
    low = np.sort(rng.normal(0, 1, 60))
    high = rng.normal(1.5, 1, 60)
    expected = float((low[:, None] > high).mean() * 60)
    shuffled = np.array([(low > rng.permutation(high)).sum() for _ in range(20_000)])
    for broken in range(int(expected)):
        bound = 2 * np.exp(-chance.permutation_evidence(broken, expected))
        # Of 20,000 shuffles, five standard deviations above the bound.
        assert (shuffled <= broken).mean() <= bound + 5 * np.sqrt(bound / 20_000)


@given(data=st.data())
def test_the_chance_of_an_order_without_exceptions_is_exact(data: st.DataObject) -> None:
    """By counting all ways to shuffle up to six cells."""
    cells = st.lists(st.integers(0, 8), min_size=6, max_size=6)
    low = np.array(data.draw(cells))
    high = np.array(data.draw(cells))
    kept = sum(bool((low <= np.array(shuffled)).all()) for shuffled in permutations(high))
    evidence = chance.unbroken_evidence(low, high)
    assert np.exp(-evidence) * math.factorial(6) == pytest.approx(kept)


def test_numbers_of_other_decimals_are_in_orders_with_the_decimals_of_the_finest() -> None:
    """In macrodata consumption has one decimal and output three; all three that a chain connects get as many."""
    rng = np.random.default_rng(9)
    low = rng.lognormal(3, 0.5, 200)
    columns = {
        "part": [f"{x:.1f}" for x in low],
        "most": [f"{x:.3f}" for x in low * rng.uniform(1.1, 1.6, 200)],
        "all": [f"{x:.0f}" for x in low * 2 + 9],
    }
    draft = drafted(columns)
    assert rules_of(draft) == {
        "ordered": [{"columns": ["part", "most"]}, {"columns": ["most", "all"]}]
    }
    assert {column.facts["decimals"] for column in draft.columns.values()} == {3}


def test_a_number_of_many_decimals_is_in_an_order() -> None:
    """In Engel's table food and income have a dozen decimals: the draft has those of a millionth of their range."""
    rng = np.random.default_rng(10)
    income = rng.lognormal(6.7, 0.45, 200)
    food = income * rng.uniform(0.4, 0.9, 200)
    draft = drafted(
        {"income": list(map(repr, income.tolist())), "food": list(map(repr, food.tolist()))}
    )
    assert rules_of(draft) == {"ordered": [{"columns": ["food", "income"]}]}
    assert draft.columns["income"].facts["decimals"] == 3


def test_a_total_with_gaps_and_the_error_of_doubles_is_a_sum() -> None:
    """As pandas writes it: 12.340000000000002; the total has the decimals of its parts."""
    rng = np.random.default_rng(8)
    parts = np.round(rng.lognormal(5, 0.5, (3, 300)), 2)
    totals = [repr(float(total)) for total in parts.sum(axis=0)]
    assert max(map(len, totals)) > 12
    texts = ["" if place % 9 == 0 else total for place, total in enumerate(totals)]
    columns = {name: list(map(str, cells)) for name, cells in zip("abc", parts, strict=True)}
    draft = drafted({**columns, "total": texts})
    assert rules_of(draft) == {"sum": [{"column": "total", "of": ["a", "b", "c"]}]}
    assert draft.columns["total"].facts["decimals"] == 2


def test_an_order_of_a_small_table_is_suggested() -> None:
    """Of 60 households what they eat is never above what they earn, as in Engel's table of 235."""
    rng = np.random.default_rng(7)
    income = rng.lognormal(6.7, 0.45, 60)
    columns = {
        "income": [f"{x:.1f}" for x in income],
        "food": [f"{x:.1f}" for x in income * rng.uniform(0.5, 0.8, 60)],
    }
    assert rules_of(drafted(columns)) == {"ordered": [{"columns": ["food", "income"]}]}


def test_gaps_that_follow_from_others_are_left_out() -> None:
    """Each column has values only where the one before has, and `c2` in the same rows as `c`, but for one."""
    rng = np.random.default_rng(3)
    depth = rng.integers(0, 5, 400)
    columns = {
        name: [
            str(v) if d >= place else ""
            for d, v in zip(depth, rng.integers(0, 90, 400), strict=True)
        ]
        for place, name in enumerate("abcd", 1)
    }
    first = columns["c"].index("")
    columns["c2"] = [*columns["c"][:first], "7", *columns["c"][first + 1 :]]
    rules = rules_of(drafted(columns))
    assert rules["applies"] == [{"columns": ["c2"], "where": {"c": {"but": [""]}}}]
    inner = [
        [name for name, cells in rule.items() if cells == {"but": [""]}]
        for rule in rules["forbidden"]
    ]
    assert inner == [["b"], ["c"], ["d"]]
    assert [next(iter(rule)) for rule in rules["forbidden"]] == ["a", "b", "c2"]


def test_a_value_beside_which_a_column_is_empty_is_asked_about_once() -> None:
    """Industries are only beside incomes, and incomes only of adults: a rule on adults and industries would be no news."""
    rng = np.random.default_rng(5)
    stage = rng.choice(["child", "adult", "old"], ROWS)
    income = rng.integers(1, 90_000, ROWS)
    has_industry = (stage != "child") & (rng.random(ROWS) < 0.6)
    columns = {
        "stage": stage.tolist(),
        "income": [str(v) if s != "child" else "" for v, s in zip(income, stage, strict=True)],
        "industry": [rng.choice(list("abc")) if has else "" for has in has_industry],
    }
    rules = rules_of(drafted(columns))
    assert [rule["columns"] for rule in rules["applies"]] == [["income"]]
    assert rules["forbidden"] == [{"income": [""], "industry": {"but": [""]}}]
    narrower = ["" if s == "old" else i for i, s in zip(columns["industry"], stage, strict=True)]
    rules = rules_of(drafted({**columns, "industry": narrower}))
    assert [set(rule) for rule in rules["forbidden"]] == [
        {"stage", "industry"},
        {"income", "industry"},
    ]


def test_a_moment_is_a_day_where_it_is_in_order_with_dates() -> None:
    """Orders have a time of day and parcels have none; the remark has the line of a moment, and other moments stay moments."""
    rng = np.random.default_rng(6)
    ordered = [
        datetime(2023, 1, 1) + timedelta(minutes=int(m))  # noqa: DTZ001
        for m in rng.integers(0, 525_000, ROWS)
    ]
    sent = [
        (m + timedelta(days=int(d))).date()
        for m, d in zip(ordered, rng.integers(0, 9, ROWS), strict=True)
    ]
    columns = {"ordered": list(map(str, ordered)), "sent": list(map(str, sent))}
    draft = drafted(columns)
    assert rules_of(draft) == {"ordered": [{"columns": ["ordered", "sent"]}]}
    assert confirmed(draft).columns["ordered"].type == "date"
    instead = draft.columns["ordered"].remark.partition("write ")[2].removesuffix(" instead")
    alone = drafted({"ordered": columns["ordered"], "x": ["a", "b"] * (ROWS // 2)})
    assert parse_yaml(instead) == {"type": "datetime", **alone.columns["ordered"].facts}
    written = [f"{m:%d.%m.%Y %H:%M}" for m in ordered]
    assert findings(drafted({**columns, "ordered": written})) == {}
    native = drafted({"ordered": ordered, "sent": sent})
    assert rules_of(native) == rules_of(draft)
    rules = broken_rules(pa.table({"ordered": ordered, "sent": sent}), confirmed(native))
    assert [rule.records for rule in rules if rule.rule == "ordered"] == [0]


def test_rows_that_add_up_the_others_are_noticed(tmp_path: Path) -> None:
    """The draft names the value, a terminal the column alone; no table of people has such rows."""
    rng = np.random.default_rng(8)
    rows = [["place", "sex", "deaths"]]
    for place in range(30):
        men, women = (int(cell) for cell in rng.integers(50, 900, 2))
        rows += [
            [f"p{place}", "f", str(women)],
            [f"p{place}", "m", str(men)],
            [f"p{place}", "all", str(men + women)],
        ]
    table = tmp_path / "t.csv"
    table.write_text("\n".join(map(",".join, rows)))
    draft = draft_configuration(str(table), FILE)
    assert "the rows with all add up the other rows" in draft.columns["sex"].remark
    assert "by one value of `sex`" in draft.totals_advice
    table.write_text("\n".join(",".join(row) for row in rows if row[1] != "all"))
    assert not draft_configuration(str(table), FILE).totals_advice


def test_a_number_of_an_order_that_was_a_category_says_how_to_be_one_again() -> None:
    """It has a bin for each of its values alone, and its remark has the line to write where the answer is no."""
    draft = drafted(
        next(columns for name, columns, _ in CASES if name == "few numbers beside many")
    )
    people = draft.columns["people"]
    assert people.facts["bins"] == [1, 2, 3, 4, 5, 6, 7, 7.5]
    assert "{type: category, values: [1, 2, 3, 4, 5, 6, 7]}" in people.remark
    rng = np.random.default_rng(2)
    fee, extra = rng.integers(1, 9000, ROWS), rng.integers(0, 4, ROWS) * 50
    cents = {"fee": fee, "extra": extra, "total": fee + extra}
    columns = {
        name: [f"{c // 100},{c % 100:02d}" if c else "" for c in cells]
        for name, cells in cents.items()
    }
    form = SourceFile(file="t.csv", delimiter="semicolon", decimal="comma")
    draft = drafted(columns, form)
    extra_fee = draft.columns["extra"]
    assert extra_fee.facts["bins"] == [0.5, 0.51, 1, 1.01, 1.5, 1.505]
    written = extra_fee.remark.partition("write ")[2]
    again = parse_yaml(written.removesuffix(" instead"))
    assert again == {"type": "category", "values": ["0,50", "1,00", "1,50"], "missing": [""]}


def test_orders_that_follow_from_others_are_left_out() -> None:
    """Of three dates in a row two orders; numbers whose ranges do not meet have none, nor have equal columns."""
    rng = np.random.default_rng(3)
    days = np.cumsum(rng.integers(0, 60, (3, ROWS)), axis=0) + rng.integers(0, 300, ROWS)
    columns = {
        name: [str(date(2020, 1, 1) + timedelta(days=int(d))) for d in cells]
        for name, cells in zip("cab", days, strict=True)
    }
    draft = drafted({name: columns[name] for name in "abc"})
    assert rules_of(draft) == {"ordered": [{"columns": ["a", "b"]}, {"columns": ["c", "a"]}]}
    low = list(map(str, rng.integers(0, 40, ROWS)))
    high = list(map(str, rng.integers(50, 400, ROWS)))
    assert findings(drafted({"low": low, "high": high, "again": low})) == {}
    copied = drafted({"first": columns["c"], "copy": columns["c"], "last": columns["b"]})
    assert rules_of(copied) == {"ordered": [{"columns": ["first", "last"]}]}


def test_small_numbers_are_in_no_order_with_large_ones_where_some_break_it() -> None:
    """Tolls depend on the length of a trip and are mostly below it, without a rule."""
    rng = np.random.default_rng(4)
    miles = rng.lognormal(1, 0.8, 6000)
    tolls = (
        np.where(rng.random(6000) < miles / 200, rng.choice([2, 3, 6], 6000), 0)
        + rng.integers(0, 9, 6000) / 100
    )
    assert 0 < (tolls > miles).sum() < 60
    draft = drafted(
        {"miles": [f"{value:.2f}" for value in miles], "tolls": [f"{value:.2f}" for value in tolls]}
    )
    assert findings(draft) == {}


@pytest.mark.parametrize(("small", "is_suggested"), [(30, False), (240, True)])
def test_an_order_is_suggested_where_shuffled_columns_would_break_one_row_in_a_hundred(
    small: int, is_suggested: bool
) -> None:
    """Records keep an order of columns whose ranges hardly meet; of others they break it, however far apart each row's are.

    A price index is below an amount of money that it follows, and near it in no row. Where few amounts are small, shuffled
    columns break the order in 0.5 % of the rows, where many are in 1.7 %.
    """
    rng = np.random.default_rng(9)
    index = np.linspace(1, 60, ROWS)
    amount = index * 5 + rng.integers(0, 90, ROWS)
    amount = np.where(np.arange(ROWS) < small, amount, amount + 60)
    columns = {"index": index.round(1), "amount": amount.round(1)}
    shuffled = np.subtract.outer(index, amount) > 0
    assert bool(shuffled.mean() > 0.01) is is_suggested
    draft = drafted({name: list(map(str, cells)) for name, cells in columns.items()})
    orders = {"ordered": [{"columns": ["index", "amount"]}]}
    assert rules_of(draft) == (orders if is_suggested else {})


def named_orders(draft: ConfigurationDraft) -> list[str]:
    """The comments of a draft that name an order which may be chance, as they are written where it is none."""
    commented = re.findall(r"^#( +- columns: \[.*\])  # ", write_draft(draft), re.MULTILINE)
    return list(commented)


def test_an_order_that_may_be_chance_is_named_and_not_asked_about() -> None:
    """Shuffled columns break it in 3 % of 150 rows, and keep it once in some 150 times; uncommented, its line is a rule.

    An order that follows from it and a suggested one is not named, and none that the ranges of the columns keep.
    """
    low = np.concatenate([np.arange(140), np.arange(450, 460)])
    least = low - np.arange(150) % 3
    middle = np.concatenate([np.arange(390, 530), np.arange(500, 510)])
    columns = {"least": least, "low": low, "middle": middle, "high": middle % 100 + 9_000}
    draft = drafted({name: list(map(str, cells)) for name, cells in columns.items()})
    suggested = {"columns": ["least", "low"]}
    assert rules_of(draft) == {"ordered": [suggested]}
    (line,) = named_orders(draft)
    uncommented = write_draft(draft).replace(f"#{line}", line[1:])
    answers = parse_yaml(answered(uncommented, '"the code book"'))
    assert answers["structure"] == {"ordered": [suggested, {"columns": ["low", "middle"]}]}
    parse_configuration(answers)


def test_an_order_that_follows_from_a_suggested_one_or_is_broken_is_not_named() -> None:
    rng = np.random.default_rng(4)
    start = rng.integers(0, 900, ROWS)
    apart = np.concatenate([rng.integers(0, 90, ROWS - 12), rng.integers(0, 900, 12)])
    columns = {"start": start, "end": start + rng.integers(0, 90, ROWS), "apart": apart}
    draft = drafted({name: list(map(str, cells)) for name, cells in columns.items()})
    assert rules_of(draft) == {"ordered": [{"columns": ["start", "end"]}]}
    assert named_orders(draft) == []


def test_orders_that_share_columns_are_one_question() -> None:
    """Directly or through others; orders of other columns are asked about apart, and the finding has the worst count."""
    rng = np.random.default_rng(2)
    parts = np.cumsum(rng.integers(0, 90, (5, ROWS)), axis=0) + rng.integers(0, 900, ROWS)
    apart = np.sort(rng.integers(0, 99, (2, ROWS)), axis=0)
    columns = dict(zip(["b", "d", "a", "e", "c"], parts, strict=True))
    columns |= {"least": apart[0], "most": apart[1]}
    written = {name: list(map(str, columns[name])) for name in ("a", "b", "c", "d", "e")}
    written |= {name: list(map(str, columns[name])) for name in ("least", "most")}
    draft = drafted(written)
    assert len(rules_of(draft)["ordered"]) == 5
    assert [len(relation.entries) for relation in draft.relations] == [4, 1]
    assert write_draft(draft).partition("structure:")[2].count("confirm: true") == 2
    assert "structure.ordered.least, most" in findings(draft)
    (words,) = [text for name, text in findings(draft).items() if "least" not in name]
    assert words.count(" is never below ") == 4
    assert words.endswith(": 0 of 1,200 rows break it")


def test_the_sum_of_sums_is_taken_apart() -> None:
    """A total of a subtotal and a tax is the sum of all three parts: what is computed is in no other rule."""
    rng = np.random.default_rng(6)
    room, meals, tax = rng.integers(0, 900, (3, ROWS))
    columns = {
        "room": room,
        "meals": meals,
        "net": room + meals,
        "tax": tax,
        "total": room + meals + tax,
    }
    sums = rules_of(drafted({name: list(map(str, cells)) for name, cells in columns.items()}))[
        "sum"
    ]
    assert sorted(sums, key=lambda rule: len(rule["of"])) == [
        {"column": "net", "of": ["room", "meals"]},
        {"column": "total", "of": ["room", "meals", "tax"]},
    ]


def test_the_table_of_a_review_has_its_length_of_stay() -> None:
    draft = drafted(visits())
    assert rules_of(draft) == {
        "difference": [{"column": "los", "of": "discharged", "since": "admitted"}]
    }


@pytest.mark.skipif(
    not TAXIS.exists(),
    reason="the table of taxis is not here; MARGINWEAVE_TEST_DATA names the folder beside it",
)
def test_the_taxis_have_an_order_of_times_and_of_amounts() -> None:
    table = pacsv.read_csv(
        TAXIS,
        convert_options=pacsv.ConvertOptions(
            column_types=dict.fromkeys(_header(TAXIS), pa.string())
        ),
    )
    draft = draft_table(table, "taxis", FILE, table.column_names)
    rules = rules_of(draft)
    orders = [rule["columns"] for rule in rules["ordered"]]
    assert ["pickup", "dropoff"] in orders
    assert ["fare", "total"] in orders
    confirmed(draft)


def _header(path: Path) -> list[str]:
    with path.open() as file:
        return file.readline().strip().split(",")


def many_relations() -> ConfigurationDraft:
    """The draft of a table with relations of all kinds."""
    columns: dict[str, Sequence[object]] = {}
    for name, table, _ in CASES:
        if name in {"dates", "sums", "a coarser column", "a certain value"}:
            columns |= table
    return drafted(columns)


def test_no_rule_lists_values_of_a_private_domain() -> None:
    """The borough follows from the zone, and one row is alone in a zone: a rule would publish that zone."""
    rng = np.random.default_rng(7)
    zone = np.where(
        rng.random(ROWS) < 0.6, 20 * rng.integers(0, 3, ROWS), rng.integers(0, 60, ROWS)
    )
    zones = [f"z{z:02d}" for z in zone[:-1]] + ["lonely"]
    boroughs = [f"b{z // 20}" for z in zone[:-1]] + ["b1"]
    draft = drafted({"zone": zones, "borough": boroughs, "by": [f"b{z // 20}" for z in zone]})
    assert draft.columns["zone"].is_private
    text = write_draft(draft)
    assert "lonely" not in text
    assert not re.search(r"\bz[0-9]{2}\b", text)


def test_any_choice_of_yes_and_no_is_accepted() -> None:
    """A no is the entries of a relation deleted, a yes its line; where all entries of a key are deleted, the key may stay."""
    draft = many_relations()
    assert len(findings(draft)) == 4
    text = answered(write_draft(draft), '"the code book"')
    head, blocks = _blocks(text)
    assert len(blocks) == 4
    for kept in chain.from_iterable(combinations(range(4), n) for n in range(5)):
        lines = list(head)
        for place, (key, block) in enumerate(blocks):
            if f"  {key}:" not in lines:
                lines.append(f"  {key}:")
            lines += block if place in kept else []
        structure = parse_configuration(parse_yaml("\n".join(lines))).structure
        assert structure is not None
        assert structure.can_be_broken or structure.computed or not kept


def test_a_structure_without_a_rule_is_none() -> None:
    """All rules are declined, with their keys."""
    head, _ = _blocks(answered(write_draft(many_relations()), '"the code book"'))
    assert parse_configuration(parse_yaml("\n".join(head))).structure is None


def _blocks(text: str) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """The text above the rules, and of each relation its key and its lines, from one comment to the next."""
    head, _, rules = text.partition("structure:\n")
    blocks: list[tuple[str, list[str]]] = []
    key = ""
    for line in rules.splitlines():
        name = re.fullmatch("  ([a-z]+):", line)
        if name:
            key = name[1]
        elif line.startswith("    #"):
            blocks.append((key, [line]))
        elif line.startswith("    "):
            blocks[-1][1].append(line)
    return [*head.splitlines(), "structure:"], blocks


def test_each_rule_is_refused_until_it_is_confirmed() -> None:
    """The message names them with their lines; each question is one line that says confirm."""
    draft = many_relations()
    rules = write_draft(draft).partition("structure:\n")[2]
    assert rules.count("confirm: true") == len(findings(draft))
    text = (
        answered(write_draft(draft), '"the code book"').partition("structure:\n")[0]
        + "structure:\n"
        + rules
    )
    with pytest.raises(InputError, match="waits for confirmation") as refusal:
        parse_configuration(parse_yaml(text), text)
    for key in ("ordered", "determined", "sum", "applies"):
        line = text[: text.index(f"\n  {key}:")].count("\n") + 4
        assert f"structure.{key}, entry 1 (line {line})" in str(refusal.value)


def test_a_terminal_shows_no_value_and_a_comment_is_one_line() -> None:
    """Values and names can have any character, and only the draft has values."""
    state = ["xq7\nmarker" if i % 3 else "no" for i in range(ROWS)]
    columns = {"a`b": state, "c": [str(i % 29) if i % 3 else "" for i in range(ROWS)]}
    draft = drafted(columns)
    assert rules_of(draft)["applies"] == [{"columns": ["c"], "where": {"a`b": ["xq7\nmarker"]}}]
    assert list(findings(draft).values()) == [
        "`c` has a value where `a`b` has certain values, and nowhere else: 0 of 1,200 rows break it"
    ]
    assert "# `c` has a value where `a`b` is xq7\\nmarker, and nowhere else\n" in write_draft(draft)


def test_a_draft_in_python_asks_about_its_rules(tmp_path: Path) -> None:
    table = pa.table(dict(CASES[0][1]))
    config = mw.Configuration.draft(table, "stays", home=tmp_path)
    name = "structure.ordered.admitted, discharged"
    assert (
        config.unconfirmed[name]
        == "`discharged` is never before `admitted`: 0 of 1,200 rows break it"
    )
    assert "rows break it" not in config.to_yaml()
    config.confirm("privacy")
    for column in ("admitted", "discharged"):
        config.confirm(column, "the code book")
    del config["rows"]
    with pytest.raises(InputError, match=r"structure\.ordered, entry 1 was drafted"):
        _ = config.resolved
    assert config.confirm(name).unconfirmed == {}
    assert config.resolved.structure is not None
    del config["structure"]["ordered"][0]
    assert config.resolved.structure.ordered is None


def test_numbers_are_read_as_the_source_writes_them() -> None:
    """1.234,5 is a number with a decimal comma; so are its sums."""
    columns = trips(np.random.default_rng(8))
    german = {name: [text.replace(".", ",") for text in cells] for name, cells in columns.items()}
    form = SourceFile.model_validate({"file": "t.csv", "decimal": "comma"})
    assert rules_of(drafted(german, form)) == {
        "sum": [{"column": "total", "of": ["fare", "tip", "tolls"]}]
    }
