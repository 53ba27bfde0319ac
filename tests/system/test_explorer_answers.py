"""What the explorer says of several values, of means and medians is what `query` answers of the same release.

Releases with codes, cells that are not as declared, open bins, imputed and private values, sets, rules, merged values, rows of
persons, and discrete Laplace noise. The page's own objects are questions, in Chromium.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from marginweave.accounting.accounts import Account
from marginweave.answers.intervals import Reach, count_interval_of
from marginweave.answers.least_squares import Estimates, LeastSquares, NotMeasuredError
from marginweave.answers.marginals import GroupAnswer, MarginalAnswers
from marginweave.answers.merged import count_between
from marginweave.answers.quantities import Factor, share_between
from marginweave.base.errors import InputError
from marginweave.configuration.question import read_question
from marginweave.inference.answers import read_answers
from marginweave.ledger import Ledger
from marginweave.publish.explorer import render_explorer
from marginweave.publish.pooled_tables import pack_rules, pack_squares
from tests.support.browser import Browser
from tests.support.dense_least_squares import Survey
from tests.support.explorer_pages import settle
from tests.support.plain_runs import run_plainly
from tests.support.published import published
from tests.support.published import shown as shown_records

pytestmark = pytest.mark.system
CASES = 400
FLAGS = {
    "zero": "there may be none",
    "allButGaps": "all, but for cells",
    "allButUnreleased": "all, but for values",
    "least": "it may be",
}
"""Beginnings of notes that the page shows in its own words, by what the page calls them."""
ROWS = 4000
COLUMNS: dict[str, Any] = {
    "sex": {"type": "category", "values": ["f", "m"]},
    "region": {
        "type": "category",
        "values": ["north", "south", "west", "isle", "rock", "cape", "reef"],
        "missing": [""],
    },
    "age": {
        "type": "number",
        "bounds": [0, 100],
        "bins": 10,
        "decimals": 0,
        "codes": {997: "refused"},
    },
    "weight": {
        "type": "number",
        "bins": {"min": 40, "max": 120, "step": 20},
        "outer": "open",
        "decimals": 1,
    },
    "grade": {"type": "category", "values": ["1", "2", "3", "4", "5"]},
    "signs": {"type": "set", "values": ["cough", "fever", "rash"], "separator": ";", "max_values": 2},
    "town": {"type": "category", "domain": "private", "impute": {"weights": {"u": 3, "v": 1}}},
}  # fmt: skip
CHANGES: dict[str, dict[str, Any]] = {
    "rules and merged values": {
        "structure": {"forbidden": [{"sex": "f", "grade": "5"}, {"region": "rock", "grade": "1"}]},
    },
    "Laplace noise of persons": {
        "privacy": {
            "epsilon": 6.0,
            "delta": 1e-5,
            "unit": {"column": "person", "max_records": 2},
        },
        "aggregate": {
            "method": "marginals",
            "noise": "laplace",
            "cliques": [["sex", "region"], ["region", "age"], ["age", "grade"], ["sex", "grade"]],
        },
    },
}


def _table() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    age = rng.integers(0, 101, ROWS)
    regions = rng.choice(
        ["north", "south", "west", ""],
        ROWS,
        p=[0.4, 0.3, 0.2, 0.1],
    )
    signs = rng.choice(["cough", "cough;fever", "rash", "fever", ""], ROWS)
    return pd.DataFrame(
        {
            "person": np.arange(ROWS) // 2,
            "sex": rng.choice(["f", "m", "x"], ROWS, p=[0.5, 0.4, 0.1]),
            "region": regions,
            "age": np.where(rng.random(ROWS) < 0.05, 997, age),
            "weight": np.round(40 + age / 2 + rng.normal(0, 20, ROWS), 1),
            "grade": rng.integers(1, 5, ROWS),
            "signs": signs,
            "town": rng.choice(["u", "v"], ROWS, p=[0.6, 0.4]),
        }
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    """A question to page and answers: conditions by attribute, those of a group, and the attribute of the numbers."""

    kind: str
    where: list[tuple[int, list[int]]]
    group: list[tuple[int, list[int]]]
    numbers: int | None


@pytest.fixture(scope="module", params=CHANGES)
def release(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The folder of a release of a made-up table."""
    home = tmp_path_factory.mktemp("home")
    configuration: dict[str, Any] = {
        "dataset": "people",
        "source": "people.csv",
        "privacy": {"epsilon": 4.0, "delta": 1e-5, "unit": "row"},
        "columns": COLUMNS,
        "aggregate": {
            "method": "marginals",
            "cliques": [["sex", "region", "age"], ["age", "grade"], ["grade", "sex"],
                        ["town", "age"], ["signs=cough", "sex"], ["weight", "sex"], ["region", "grade"]],
        },
        "synthesize": {"method": "mixture", "components": 4, "fits": 1, "iterations": 5},
    } | CHANGES[request.param]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARGINWEAVE_LEDGER", str(home / "ledger.sqlite"))
        opened = Account(
            dataset="people",
            epsilon=Decimal(90),
            delta=Decimal("1e-4"),
            unit="row" if request.param == "rules and merged values" else "subject:person",
            neighbors="add-remove",
        )
        Ledger.create(home / "ledger.sqlite").accounts.open(opened, actor="steward")
        _table().to_csv(home / "people.csv", index=False)
        path = home / "people.yaml"
        path.write_text(yaml.safe_dump(configuration, sort_keys=False))
        yield run_plainly(home, path, "r") / "release"


def _cases(answers: MarginalAnswers) -> list[Case]:
    """Random questions: half of them about columns that were measured together."""
    generator = random.Random(7)
    sizes = answers.codes.sizes
    numeric = [place for place in range(len(sizes)) if _has_numbers(answers, place)]
    measured = [
        tuple(answers.codes.domain.names.index(name) for name in names)
        for names in answers.measured_together
    ]
    cases = list[Case]()
    for _ in range(CASES):
        kind = generator.choice(["count", "share", "mean", "median"])
        places = list(range(len(sizes)))
        if generator.random() < 0.7:
            places = list(generator.choice(measured))
        chosen = generator.sample(places, min(len(places), generator.choice([1, 2, 2, 3])))
        conditions = [(place, _codes(generator, sizes[place])) for place in chosen]
        cut = generator.randrange(len(chosen)) if kind == "share" else 0
        inside = [place for place in numeric if place in places] or numeric
        numbers = generator.choice(inside) if kind in ("mean", "median") else None
        cases.append(
            Case(kind=kind, where=conditions[cut:], group=conditions[:cut], numbers=numbers)
        )
    return cases


def _has_numbers(answers: MarginalAnswers, place: int) -> bool:
    try:
        answers.codes.numbers(answers.codes.configuration.attributes[place].column)
    except InputError:
        return False
    return True


def _codes(generator: random.Random, size: int) -> list[int]:
    """One code, some, or a run to the last one: "60 and older"."""
    if generator.random() < 0.3:
        return list(range(generator.randrange(size), size))
    number = min(size, generator.choice([1, 1, 2, 3]))
    return sorted(generator.sample(range(size), number))


def _answered(answers: MarginalAnswers, case: Case) -> GroupAnswer:
    """The answer of Python, by the same codes."""
    attributes = answers.codes.configuration.attributes
    content: dict[str, Any] = {"count": True}
    numbers = None
    if case.kind == "share":
        content = {"share": True, "where": {attributes[0].column: list(attributes[0].labels)}}
    elif case.numbers is not None:
        content = {case.kind: attributes[case.numbers].column}
        numbers = answers.codes.numbers(attributes[case.numbers].column)
    where, group = (_factors(answers, part) for part in (case.where, case.group))
    return answers.answer_group(read_question(content), where, group, numbers)


def _factors(answers: MarginalAnswers, conditions: Sequence[tuple[int, list[int]]]) -> list[Factor]:
    factors = list[Factor]()
    for place, codes in conditions:
        every_code = np.arange(answers.codes.sizes[place])
        factors.append((place, np.isin(every_code, codes).astype(np.float64)))
    return factors


_ASK = """const [cases, done] = arguments;
const data = document.getElementById("data").textContent;
unpack(data).then((content) => {
  const release = new Release(content);
  const pairs = (conditions) => conditions.flatMap(([attribute, values]) => values.map((value) => [attribute, value]));
  const finite = (end) => (Number.isFinite(end) ? end : null);
  done(cases.map(({ kind, where, group, numbers }) => {
    const selected = new Selected(release, pairs([...group, ...where]));
    let number = kind === "count" ? selected.total() : null;
    if (kind === "share") number = selected.share(selected.total(), new Selected(release, pairs(group)).total());
    number ??= selected.average(numbers, kind === "median" ? 0.5 : undefined);
    const { estimate, low, high, measured, unknown, nothing } = number;
    const ends = [estimate, low, high].map(finite);
    const words = release.countedWords(selected.conditions);
    const zero = cautionOf({ count: kind === "count" ? number : {}, share: number }, kind === "share") === TEXT.zero;
    const flags = [...(zero ? ["zero"] : []), ...(number.but ?? []), ...(number.least === undefined ? [] : ["least"])];
    return { ends, words, flags, measured: Boolean(measured), unusable: Boolean(unknown || nothing) };
  }));
});"""


def test_it_says_what_python_answers(chromium: Browser, release: Path) -> None:
    """Of every question: the same numbers, or for both none, and the same that should not be used."""
    answers = read_answers(release)
    assert isinstance(answers, MarginalAnswers)
    cases = _cases(answers)
    chromium.open(release / "explore.html", 1280)
    settle(chromium)
    chromium.driver.set_script_timeout(120)
    questions = [
        {"kind": c.kind, "where": c.where, "group": c.group, "numbers": c.numbers} for c in cases
    ]
    shown = chromium.driver.execute_async_script(_ASK, questions)
    compared = Counter[str]()
    seen = set[str]()
    for case, page in zip(cases, shown, strict=True):
        answer = _answered(answers, case)
        is_unusable = any(note.unusable for note in answer.notes) or answer.interval is None
        by_page = answer.how in ("measured", "rule")
        assert page["measured"] <= by_page, (case, answer, page)
        assert page["words"] == _words_of(answers, case), case
        if not by_page:
            continue
        assert page["unusable"] == is_unusable, (case, answer, page)
        if answer.interval is None or (is_unusable and case.kind != "count"):
            continue
        assert page["measured"], (case, answer, page)
        notes = [str(note) for note in answer.notes]
        flags = {key for key, words in FLAGS.items() if any(n.startswith(words) for n in notes)}
        assert set(page["flags"]) == flags, (case, answer, page)
        interval = answer.interval
        for end, expected in zip(
            page["ends"], (interval.estimate, interval.low, interval.high), strict=True
        ):
            if expected is None or math.isinf(expected):
                assert end is None, (case, answer, page)
            elif case.kind == "count":
                assert end == expected, (case, answer, page)
            else:
                assert end == pytest.approx(expected, rel=1e-9, abs=1e-9), (case, answer, page)
        seen |= flags
        kind = "merged " if interval.sd is None and case.kind == "count" else ""
        compared[f"{answer.how} {kind}{case.kind}"] += 1
    assert chromium.complaints() == []
    assert {"zero", "least"} <= seen  # what a page says beside some number of each release
    for kind in ("count", "merged count", "share", "mean", "median"):
        assert compared[f"measured {kind}"] >= 3, compared


def _words_of(answers: MarginalAnswers, case: Case) -> str:
    """What counts of these columns are of, in Python's words."""
    configuration = answers.codes.configuration
    places = [place for place, _ in (*case.where, *case.group)]
    columns = {configuration.attributes[place].column for place in places}
    return configuration.counted_among(columns) or ""


_SOLVE = """const [facts, arrays, queries] = arguments;
const packed = Object.fromEntries(Object.entries(arrays).map(([name, numbers]) => [name, Float64Array.from(numbers)]));
const squares = new Squares(facts, packed);
const weights = (all) => {
  const codes = all.map((_, code) => code).filter((code) => all[code] !== 0);
  return { codes, weights: codes.map((code) => all[code]) };
};
return queries.map((rows) => {
  const asked = rows.map((row) => new Map(row.map(([axis, all]) => [axis, weights(all)])));
  const solved = squares.solve(asked);
  if (!solved.measured) return [solved.merged];
  return [solved.values, asked.map((_, i) => asked.map((_, j) => solved.covariance(i, j)))];
});"""
MERGED = ((0, 1, 1), (0, 1, 2, 2), (0, 0, 1, 2, 3))
SIZES = tuple(len(blocks) for blocks in MERGED)


def test_sums_are_those_of_least_squares(chromium: Browser, tmp_path: Path) -> None:
    """Of tables that overlap, of one set measured finely and merged, and weights of any size: estimates and covariance."""
    sets = (
        *(((axis,), 3.0, False) for axis in range(3)),
        ((0, 1), 30.0, False),
        ((0, 1), 2.0, True),
        ((1, 2), 4.0, False),
        ((0, 1, 2), 20.0, True),
    )
    survey = Survey(sizes=SIZES, sets=sets, merged=MERGED)
    rng = np.random.default_rng(3)
    squares = survey.measure(rng.poisson(40, survey.cells).astype(np.float64), rng)
    packed, facts = _packed(squares)
    queries = [_random_queries(rng) for _ in range(300)]
    rows = [_rows(weights) for weights in queries]
    page = _made_up_page(tmp_path)
    chromium.open(page, 1280)
    settle(chromium)
    solved_by_page = chromium.run(_SOLVE, facts, packed, rows)
    compared = Counter[str]()
    for weights, by_page in zip(queries, solved_by_page, strict=True):
        solved = _solved(squares, weights)
        if isinstance(solved, bool):
            assert by_page == [solved]
            compared["refused"] += 1
            continue
        values, covariance = by_page
        np.testing.assert_allclose(values, solved.values, rtol=1e-8, atol=1e-7)
        np.testing.assert_allclose(covariance, solved.covariance, rtol=1e-8, atol=1e-7)
        compared["solved"] += 1
    assert min(compared["solved"], compared["refused"]) >= 30


_SHARES = """const [facts, arrays, questions] = arguments;
const packed = Object.fromEntries(Object.entries(arrays).map(([name, numbers]) => [name, Float64Array.from(numbers)]));
const tables = new Tables({ header: { ...facts, tables: [], total: 0 }, arrays: packed });
const counted = (conditions) => ({ conditions, measured: true, ...tables.counts(conditions, 1) });
return questions.map(([part, whole]) => {
  const { estimate, low, high } = tables.share(counted(part), counted(whole)) ?? {};
  return [estimate ?? null, low ?? null, high ?? null];
});"""


def test_shares_of_merged_values_are_those_of_python(chromium: Browser, tmp_path: Path) -> None:
    """Where the other column leaves nobody out, noise takes the likely count out of its bounds, which decide it then."""
    pairs = (((0, 1), 12.0, True), ((1, 2), 12.0, True))
    sets = (*(((axis,), 3.0, False) for axis in range(3)), *pairs)
    survey = Survey(sizes=SIZES, sets=sets, merged=MERGED)
    # by these draws 44 of 180 questions have another estimate between other ends
    rng = np.random.default_rng(9)
    table = rng.poisson(0.3, survey.cells).astype(np.float64)
    table[1:], table[:, 2:], table[:, :, :2] = 0.0, 0.0, 0.0  # nobody has the merged values
    table[0, 0, 4] = 300.0
    measured = survey.measure(table, rng).measured
    merged_below = {axis: np.full(size, 3.0) for axis, size in enumerate(SIZES)}
    squares = LeastSquares(replace(measured, merged_below=merged_below))
    packed, facts = _packed(squares)
    reach = Reach(level=0.95)
    questions, expected = list[Any](), list[list[float | None]]()
    for _ in range(400):
        asked, other = rng.choice(3, 2, replace=False).tolist()
        chosen = rng.choice(SIZES[asked], 2, replace=False)
        conditions = [(other, list(range(SIZES[other]))), (asked, sorted(chosen.tolist()))]
        share = _share_between_bounds(squares, conditions, reach)
        if share is not None:
            questions.append((conditions, conditions[:1]))
            expected.append(share)
    page = _made_up_page(tmp_path)
    chromium.open(page, 1280)
    settle(chromium)
    shown = chromium.run(_SHARES, facts, packed, json.loads(json.dumps(questions)))
    assert len(questions) >= 100
    np.testing.assert_allclose(
        np.array(shown, np.float64), np.array(expected, np.float64), rtol=1e-9, atol=1e-9
    )


def _share_between_bounds(
    squares: LeastSquares, conditions: list[tuple[int, list[int]]], reach: Reach
) -> list[float | None] | None:
    """What Python says of the share of the first condition's records; None where its tables tell the values apart."""
    weights = {
        axis: np.isin(np.arange(SIZES[axis]), codes)[None].astype(np.float64)
        for axis, codes in sorted(conditions)
    }
    group = {axis: vectors for axis, vectors in weights.items() if axis == conditions[0][0]}
    if not isinstance(_solved(squares, weights), bool) or not _solved(squares, weights):
        return None
    part = count_between(squares, weights, reach.each)
    solved = squares.solve(group)
    whole = count_interval_of(float(solved.values[0]), float(solved.covariance[0, 0]), reach.each)
    share, note = share_between(part, whole)
    if note:
        return [None, None, None]
    return [share.estimate, share.low, share.high]


def _packed(squares: LeastSquares) -> tuple[dict[str, Any], Any]:
    """What a page has of measured tables: arrays, and facts of its header."""
    arrays = dict[str, Any]()
    shown = set[tuple[int, ...]]()
    for length in range(4):
        shown.update(itertools.combinations(range(3), length))
    reach = Reach(level=0.95)
    facts = {
        "squares": pack_squares(squares.measured, shown, range(3), reach, arrays),
        "rules": pack_rules((), arrays),
        "sizes": SIZES,
        "reach": reach.sigmas,
        "attributes": [{"labels": [], "lowered": 0}] * 3,
    }
    return {name: np.asarray(array).tolist() for name, array in arrays.items()}, _plain(facts)


def _made_up_page(folder: Path) -> Path:
    """An explorer of a made-up release, whose objects take other numbers."""
    page = folder / "explore.html"
    made_up, codes = published()
    page.write_text(render_explorer(made_up, shown_records(made_up, codes)), encoding="utf-8")
    return page


def _solved(squares: LeastSquares, weights: dict[int, Any]) -> Estimates | bool:
    """What Python estimates, else whether tables have the axes, with values merged."""
    try:
        return squares.solve(weights)
    except NotMeasuredError as error:
        return error.merged


def _random_queries(rng: np.random.Generator) -> dict[int, Any]:
    """One to three queries of the same axes: their weights, in half of them the same for values that were merged."""
    axes = rng.choice(3, rng.integers(1, 4), replace=False).tolist()
    number = int(rng.integers(1, 4))
    weights = {axis: rng.choice([0, 0, 1, 1, 2.5], (number, SIZES[axis])) for axis in axes}
    if rng.random() < 0.5:
        weights = {axis: vectors[:, list(MERGED[axis])] for axis, vectors in weights.items()}
    return weights


def _rows(weights: dict[int, Any]) -> list[list[tuple[int, list[float]]]]:
    """Each query with its weights by axis, as the page is handed them."""
    rows = list[list[tuple[int, list[float]]]]()
    for number in range(len(next(iter(weights.values())))):
        rows.append([(axis, vectors[number].tolist()) for axis, vectors in weights.items()])
    return rows


def _plain(facts: dict[str, Any]) -> Any:
    """Facts as a page's header has them."""
    return json.loads(json.dumps(facts))
