"""The explorer in a real browser: its numbers are those of a plain count and of `query`, and nobody is left out of it."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marginweave.answers.answer import Answer
from marginweave.answers.codes import Codes as AnswerCodes
from marginweave.answers.marginals import MarginalAnswers
from marginweave.answers.tuples import TupleAnswers
from marginweave.configuration.question import read_question
from marginweave.estimate.intervals import record_interval
from marginweave.publish.best import tuple_intervals
from marginweave.publish.explorer import SCRIPTS, render_explorer
from marginweave.publish.reader import PublishedRelease
from tests.support.browser import Browser
from tests.support.explorer_pages import large_page, settle
from tests.support.firefox import Firefox
from tests.support.page_laws import PAPERS, is_printed_well
from tests.support.published import Codes, measured_release, published, shown
from tests.support.samples import every

pytestmark = pytest.mark.system
READ = """
return [...document.querySelectorAll(".card")].map((card) => [...card.querySelectorAll("li > *")].map((line) => [
  line.dataset.key, line.querySelector(".label").textContent, line.querySelector(".numbers > span").textContent,
  line.ariaPressed]));
"""


@pytest.fixture(scope="module")
def release() -> tuple[PublishedRelease, Codes]:
    return published()


@pytest.fixture(scope="module")
def tuples(
    release: tuple[PublishedRelease, Codes], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    page = tmp_path_factory.mktemp("pages") / "explore.html"
    page.write_text(render_explorer(release[0], shown(*release)), encoding="utf-8")
    return page


Measured = tuple[Path, PublishedRelease, MarginalAnswers]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """The page of a release of marginals, the release, and what answers questions to it."""
    return page_of_marginals(tmp_path_factory.mktemp("measured"))


def visit(chromium: Browser, page: Path, width: int = 1440, hash_: str = "") -> None:
    chromium.open(page, width, hash_)
    settle(chromium)


def click(chromium: Browser, *keys: tuple[int, int]) -> None:
    for a, v in keys:
        chromium.run("document.querySelector(arguments[0]).click()", f'[data-key="{a}-{v}"]')
    settle(chromium)


def expected(
    release: PublishedRelease, codes: Codes, selection: list[tuple[int, int]]
) -> list[dict[str, tuple[str, str]]]:
    """For each attribute and value: its label, and the released count, else the scaled number of records, and at most what
    `query` says.
    """
    aggregates, attributes = release.aggregates, release.configuration.attributes
    known: dict[tuple[tuple[int, int], ...], tuple[Any, ...]] = {
        (): (aggregates.record_count, *record_interval(aggregates))
    }
    for level, inside in zip(aggregates.levels, release.intervals, strict=True):
        for i, (columns, values) in enumerate(
            zip(level.columns.tolist(), level.values.tolist(), strict=True)
        ):
            known[tuple(zip(columns, values, strict=True))] = (
                level.counts[i],
                inside.low[i],
                inside.high[i],
            )
    found = []
    for a, attribute in enumerate(attributes):
        lines = {}
        for v in range(len(attribute.labels)):
            pairs = {(a, v), *((b, w) for b, w in selection if b != a or attribute.is_set)}
            held = [(codes[b].reshape(len(codes[b]), -1) == w).any(axis=1) for b, w in pairs]
            made = np.logical_and.reduce(held).sum() * aggregates.record_count / len(codes[0])
            count = known.get(tuple(sorted(pairs)))
            most = most_by_query(release, pairs)
            about = (
                f"≈ {made:,.0f}"
                if most is None
                else f"≈ {min(made, most):,.0f} (at most {most:,.0f})"
            )
            text = about if count is None else f"{count[0]:,} ({count[1]:,} to {count[2]:,})"
            lines[f"{a}-{v}"] = (attribute.labels[v], text)
        found.append(lines)
    return found


def most_by_query(release: PublishedRelease, pairs: set[tuple[int, int]]) -> int | None:
    """The most that a combination can have; None where it was not counted, as two values of a set."""
    codes = AnswerCodes.of(release.configuration, release.aggregates.domain)
    answers = TupleAnswers(aggregates=release.aggregates, intervals=release.intervals, codes=codes)
    attributes = release.configuration.attributes
    where = {attributes[a].column: [attributes[a].labels[v]] for a, v in pairs}
    if len(where) < len(pairs):
        return None
    (answer,) = answers.ask(read_question({"where": where}))
    return None if answer.high is None else int(answer.high)


CLICKS = [
    [],
    [(0, 1)],
    [(0, 1), (1, 1)],
    [(0, 1), (1, 1), (3, 2)],  # with one more value longer than what was released
    [(2, 0)],
    [(2, 0), (2, 3), (0, 0)],  # two values of a set: never counted together
]


@pytest.mark.parametrize("clicks", CLICKS, ids=str)
def test_a_click_narrows_to_the_right_numbers(
    chromium: Browser,
    tuples: Path,
    release: tuple[PublishedRelease, Codes],
    clicks: list[tuple[int, int]],
) -> None:
    """Each value has one number, the released one where there is one; values stay where they are; clicks can be taken back."""
    visit(chromium, tuples)
    click(chromium, *clicks)
    for card, lines in zip(chromium.run(READ), expected(*release, clicks), strict=True):
        valued = [line for line in card if int(line[0].split("-")[1]) < len(lines)]
        assert {key: (label, number) for key, label, number, _ in valued} == lines
        assert [line[0] for line in valued] == list(lines)  # as declared
        assert {key for key, *_, pressed in valued if pressed == "true"} == {
            f"{a}-{v}" for a, v in clicks
        } & set(lines)
    click(chromium, *clicks)
    assert (
        chromium.run("return document.getElementById('selection-a').textContent") == "all records"
    )
    assert chromium.complaints() == []


def _see_all(opened: Browser | Firefox) -> None:
    """Scroll to the end, wait until every column is filled, and lay all of them out: `innerText` has no text of the others."""
    whole = "return [...document.querySelectorAll('#attributes > *')].every((card) => card.querySelector('.value')) + ''"
    opened.run("window.scrollTo(0, document.body.scrollHeight)")
    until = time.monotonic() + 30
    while opened.run(whole) != "true":
        assert time.monotonic() < until
    opened.run(
        "for (const card of document.querySelectorAll('.card')) card.style.contentVisibility = 'visible'"
    )
    settle(opened)


def test_firefox_shows_the_same(chromium: Browser, mozilla: Firefox, tuples: Path) -> None:
    """All numbers, at first and after a click."""
    shown_by = list[Any]()
    for opened in (chromium, mozilla):
        opened.open(tuples, 1440)
        settle(opened)
        seen = [opened.run(READ)]
        opened.run("document.querySelector('[data-key=\"0-1\"]').click()")
        settle(opened)
        _see_all(opened)
        shown_by.append(
            [*seen, opened.run(READ), opened.run("return document.querySelector('main').innerText")]
        )
        assert opened.complaints() == []
    assert shown_by[0] == shown_by[1]
    assert shown_by[0][0] != shown_by[0][1]


@pytest.mark.parametrize("which", ["chromium", "mozilla"])
def test_a_browser_tells_what_a_page_does(
    which: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Otherwise the laws of pages could not fail: a message in the console, a request, and text that is too wide."""
    opened = request.getfixturevalue(which)
    page, address = tmp_path / "page.html", "http://localhost:65000/picture.png"
    page.write_text(
        f'<script>console.error("seen")</script><img src="{address}"><div style="width: 2000px">wide</div>'
    )
    opened.open(page, 400)
    assert any("seen" in line for line in opened.complaints())
    assert address in opened.requests()
    assert opened.run("return document.documentElement.scrollWidth") > 400


def test_largest_first_on_request(chromium: Browser, tuples: Path) -> None:
    visit(chromium, tuples, hash_="#order=size")
    for card in chromium.run(READ):
        numbers = [int(line[2].removeprefix("≈ ").split()[0].replace(",", "")) for line in card]
        assert numbers == sorted(numbers, reverse=True)


def test_another_value_takes_the_place_of_the_first(chromium: Browser, tuples: Path) -> None:
    """Of an attribute with one value a record; the keyboard's focus stays where it was, and Clear takes all back."""
    visit(chromium, tuples)
    for key in ("0-0", "0-1"):
        chromium.run(
            "const b = document.querySelector(arguments[0]); b.focus(); b.click()",
            f'[data-key="{key}"]',
        )
    pressed = "return [...document.querySelectorAll('.value[aria-pressed=true]')].map((button) => button.dataset.key)"
    assert chromium.run(pressed) == ["0-1"]
    assert chromium.run("return document.activeElement.dataset.key") == "0-1"
    chromium.run("document.getElementById('clear').click()")
    assert chromium.run(pressed) == []


def text_of(answer: Answer, *, share: bool) -> str:
    """An answer as the page writes it."""
    if answer.estimate is None:
        return "too few records"
    assert answer.low is not None
    assert answer.high is not None
    one, low, high = (
        f"{100 * x:.1f}%" if share else f"{x:,.0f}"
        for x in (answer.estimate, answer.low, answer.high)
    )
    return f"{one} ({low} to {high})"


def test_shares_of_records_that_a_rule_excludes_are_empty(
    chromium: Browser, tmp_path: Path
) -> None:
    """No woman is in the north: of a selection of both there is no share of any other column."""
    release, codes, _ = measured_release(structure={"forbidden": [{"sex": "f", "region": "north"}]})
    page = tmp_path / "explore.html"
    page.write_text(render_explorer(release, shown(release, codes)), encoding="utf-8")
    visit(chromium, page, hash_="#unit=share")
    click(chromium, (0, 0), (1, 0))
    others = chromium.run(READ)[2:]
    assert {line[2] for card in others for line in card} == {"no such record: a rule excludes it"}


@pytest.mark.parametrize("unit", ["count", "share"])
@pytest.mark.parametrize("clicks", [[], [(1, 0)], [(1, 1), (3, 0)], [(0, 1)]], ids=str)
def test_numbers_and_ranges_are_those_of_query(
    chromium: Browser, measured: Measured, clicks: list[tuple[int, int]], unit: str
) -> None:
    page, release, answers = measured
    visit(chromium, page, hash_=f"#unit={unit}")
    click(chromium, *clicks)
    attributes, compared = release.configuration.attributes, 0
    for a, card in enumerate(chromium.run(READ)):
        where = {attributes[b].name: [attributes[b].labels[v]] for b, v in clicks if b != a}
        for key, _, number, _ in card:
            value = int(key.split("-")[1])
            if value == len(attributes[a].labels):
                continue
            asked = {**where, attributes[a].name: [attributes[a].labels[value]]}
            if unit == "count":
                (answer,) = answers.ask(read_question({"where": asked}))
            else:
                own = {
                    "where": {attributes[a].name: asked[attributes[a].name]},
                    "share": True,
                    "by": list(where),
                }
                found = list(answers.ask(read_question(own)))
                (answer,) = [
                    one
                    for one in found
                    if all(where[name] == [text] for name, text in one.group.items())
                ]
            (count,) = answers.ask(read_question({"where": asked}))
            if count.estimate is None:
                assert number.startswith(("≈", "too few")), (asked, number)
            else:
                compared += 1
                assert number == text_of(answer, share=unit == "share"), asked
    assert compared >= 4
    assert chromium.complaints() == []


def test_a_link_keeps_the_state(chromium: Browser, tuples: Path) -> None:
    """What was chosen is in the address, which opens the page as it was; what makes no sense in it is left out."""
    visit(chromium, tuples)
    click(chromium, (0, 1), (2, 3))
    for name, value in (("compare", "second"), ("order", "size"), ("edit", "b")):
        chromium.run(
            "document.querySelector(arguments[0]).click()", f'input[name="{name}"][value="{value}"]'
        )
    click(chromium, (1, 2))
    chromium.run(
        "const s = document.getElementById('search'); s.value = 'e'; s.dispatchEvent(new Event('input'))"
    )
    for which, attribute in (("rows", "0"), ("columns", "3")):
        choose = "const s = document.getElementById(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('change'))"
        chromium.run(choose, f"pair-{which}", attribute)
    settle(chromium)
    state = """const inputs = [...document.querySelectorAll("input")].map((i) => [i.name, i.value, i.checked]);
        return [document.querySelector("main").innerText, inputs]"""
    hash_, seen = chromium.run("return location.hash"), chromium.run(state)
    assert "second" in hash_
    chromium.run("location.replace('about:blank')")
    visit(chromium, tuples, hash_=hash_)
    assert chromium.run("return location.hash") == hash_
    assert chromium.run(state) == seen
    assert chromium.run(SAID) == ["", "sex: m×signs: ache×"]
    assert chromium.complaints() == []


def test_back_takes_back_the_last_change_of_the_selection(chromium: Browser, tuples: Path) -> None:
    """Click by click, also of clicks in quick succession; what is no selection adds no step."""
    visit(chromium, tuples)
    two = "for (const key of arguments[0]) document.querySelector(`[data-key='${key}']`).click()"
    chromium.run(two, ["0-1", "1-1"])
    chromium.run("document.querySelector('input[name=order][value=size]').click()")
    settle(chromium)
    for chosen in ("sex: m×", "all records"):
        chromium.run("history.back()")
        until = time.monotonic() + 10
        while chromium.run(SAID)[1] != chosen:
            assert time.monotonic() < until
    settle(chromium)
    assert chromium.complaints() == []


def test_a_part_above_its_whole_is_explained_where_it_occurs(
    chromium: Browser, tuples: Path
) -> None:
    visit(chromium, tuples, hash_="#a=0.1")
    notes = "return [...document.querySelectorAll('.card')].map((c) => c.innerText.includes('can be above that of the whole'))"
    assert chromium.run(notes) == [False] * 4
    chromium.run("""const one = Selected.prototype.one;
      Selected.prototype.one = function (attribute, value) {
        const found = one.call(this, attribute, value);
        return attribute === 3 ? { ...found, count: { ...found.count, measured: true, estimate: 1e6 } } : found; }""")
    click(chromium, (1, 0))
    assert chromium.run(notes) == [False, False, False, True]


def test_the_example_is_a_value_that_says_something(chromium: Browser, tmp_path: Path) -> None:
    """Not the most frequent value where that is none, in whatever words."""
    empty = ["-", "N", "N (not applicable)", "Unknown"]
    texts = {f"c{j}": {"type": "category", "values": [text, "yes"]} for j, text in enumerate(empty)}
    both = np.repeat(np.array([0, 1], np.uint8), [250, 50])
    release, codes = published([both] * len(empty), columns=texts)
    page = tmp_path / "explore.html"
    page.write_text(render_explorer(release, shown(release, codes)), encoding="utf-8")
    visit(chromium, page)
    chromium.run(
        "Selected.prototype.difference = () => ({ difference: 0.5, low: 0.4, high: 0.6, measured: true })"
    )
    chromium.run("document.getElementById('example').click()")
    settle(chromium)
    assert chromium.run(SAID)[1] == "c0: yes×"


SAID = "return ['said', 'selection-a'].map((id) => document.getElementById(id).textContent.replaceAll(' ×', '×'))"
OTHER = ["This link was made for other columns or values; nothing is selected.", "all records"]


@pytest.mark.parametrize(
    "hash_",
    [
        "a=99.1",
        "a=0.77",
        "a=0.1-x",
        "a=-0.1",
        "a=0.-1",
        "a=0.1.1",
        "a=0.",
        "b=0.77",
        "rows=1000",
        "rows=-1",
        "at=length",
    ],
)
def test_a_link_to_what_does_not_exist_selects_nothing(
    chromium: Browser, tuples: Path, hash_: str
) -> None:
    """And says so, until something is chosen."""
    visit(
        chromium,
        tuples,
        hash_=f"#a=0.1&{hash_}&unit=nothing&compare=" if hash_[0] != "a" else f"#{hash_}",
    )
    assert chromium.run(SAID) == OTHER
    click(chromium, (0, 1))
    assert chromium.run(SAID) == ["", "sex: m×"]
    assert chromium.complaints() == []


def test_a_link_for_another_release_selects_nothing(
    chromium: Browser, tuples: Path, tmp_path: Path
) -> None:
    """One whose columns have other names or values, though its places exist."""
    visit(chromium, tuples)
    click(chromium, (0, 1))
    hash_ = chromium.run("return location.hash")
    columns = {
        name: {"type": "category", "values": ["m", "f"]}
        for name in ("sex", "region", "signs", "age")
    }
    other, codes = published(columns=columns)
    page = tmp_path / "explore.html"
    page.write_text(render_explorer(other, shown(other, codes)), encoding="utf-8")
    visit(chromium, page, hash_=hash_)
    assert chromium.run(SAID) == OTHER
    visit(chromium, tuples, hash_=hash_)
    assert chromium.run(SAID) == ["", "sex: m×"]


def test_a_copied_link_leads_to_the_column_in_sight(chromium: Browser, tuples: Path) -> None:
    """Where a reader has gone down to one; what is chosen afterwards does not keep the place."""
    visit(chromium, tuples, 360)
    chromium.run("document.getElementById('attribute-2').scrollIntoView()")
    chromium.run("document.getElementById('link').click()")
    hash_ = chromium.run("return location.hash")
    chromium.run("location.replace('about:blank')")
    visit(chromium, tuples, 360, hash_)
    top = "return document.getElementById('attribute-2').getBoundingClientRect().top / innerHeight"
    assert 0 <= chromium.run(top) < 1
    click(chromium, (2, 0))
    assert "at=" in hash_
    assert "at=" not in chromium.run("return location.hash")


def test_search_finds_columns_and_values(chromium: Browser, tuples: Path) -> None:
    visit(chromium, tuples, hash_="#q=fever")
    shown_cards = "return [...document.querySelectorAll('.card')].filter((c) => !c.hidden).map((c) => c.innerText)"
    (text,) = chromium.run(shown_cards)
    assert "fever" in text
    assert "cough" not in text
    visit(chromium, tuples, hash_="#q=region")
    (text,) = chromium.run(shown_cards)
    assert "north" in text
    assert "west" in text


def test_the_keyboard_reaches_everything(chromium: Browser, tuples: Path) -> None:
    """One stop a list, arrows inside, Escape clears, / searches."""
    visit(chromium, tuples)
    stops = "return [...document.querySelectorAll('.values')].map((ul) => ul.querySelectorAll('[tabindex=\"0\"]').length)"
    assert chromium.run(stops) == [1, 1, 1, 1]
    press = """document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: arguments[0], bubbles: true }));
        return document.activeElement.dataset.key ?? document.activeElement.id"""
    chromium.run("document.querySelector('[data-key=\"3-0\"]').focus()")
    assert [
        chromium.run(press, key) for key in ("ArrowDown", "ArrowDown", "ArrowUp", "End", "Home")
    ][:3] == [
        "3-1",
        "3-2",
        "3-1",
    ]
    assert chromium.run(stops) == [1, 1, 1, 1]
    click(chromium, (3, 1))
    chromium.run(press, "Escape")
    settle(chromium)
    assert chromium.run("return location.hash") == ""
    assert chromium.run(press, "/") == "search"


@pytest.mark.parametrize(
    ("dark", "hash_"),
    [(False, ""), (True, "#a=0.1&b=0.0&compare=second&rows=0&columns=1&sources=1")],
)
def test_no_rule_of_accessibility_is_broken(
    chromium: Browser, tuples: Path, axe: str, dark: bool, hash_: str
) -> None:
    """WCAG 2.2, levels A and AA, as far as axe-core can tell; narrow and wide."""
    chromium.prefer(dark=dark)
    for width in (360, 1440):
        visit(chromium, tuples, width, hash_)
        assert chromium.violations(axe) == []
    chromium.prefer(dark=False)


def test_what_is_saved_is_what_is_shown(
    chromium: Browser, tuples: Path, release: tuple[PublishedRelease, Codes], tmp_path: Path
) -> None:
    """CSV, SVG and PNG, without a request to anywhere."""
    behavior = {"behavior": "allow", "downloadPath": str(tmp_path)}
    chromium.driver.execute_cdp_cmd("Browser.setDownloadBehavior", behavior)
    visit(chromium, tuples, hash_="#a=0.1")
    chromium.requests()
    chromium.run("document.querySelectorAll('.card')[1].querySelector('.save').click()")
    for place in range(3):
        chromium.run(
            "document.querySelectorAll('.card')[1].querySelectorAll('.save')[arguments[0]].click()",
            place,
        )
    until = time.monotonic() + 20
    while (
        len(found := {path.suffix: path for path in tmp_path.iterdir()}) < 3
        or ".crdownload" in found
    ):
        assert time.monotonic() < until
    lines = list(csv.DictReader(io.StringIO(found[".csv"].read_text(encoding="utf-8"))))
    read = chromium.run(READ)[1]
    assert [line["value"] for line in lines] == [line[1] for line in read]
    statement = release[0].statement
    assert {(line["dataset"], line["release"], line["level"]) for line in lines} == {
        (statement.dataset, statement.release, "0.95")
    }
    assert [f"{int(line['count']):,}" for line in lines] == [
        line[2].removeprefix("≈ ").split()[0] for line in read
    ]
    pairs, ends = (
        release[0].aggregates.levels[1],
        tuple_intervals(release[0], 2, 0.975),
    )  # two that hold with 95 % together
    whole = tuple_intervals(release[0], 1, 0.975)
    single = release[0].aggregates.levels[0]
    (row,) = np.flatnonzero((single.columns[:, 0] == 0) & (single.values[:, 0] == 1))
    shares = {
        int(v[1]): f"{low / whole.high[row]:.5f}"
        for c, v, low in zip(pairs.columns, pairs.values, ends.low, strict=True)
        if (*c, v[0]) == (0, 1, 1)
    }
    assert [line["share_low"] for line in lines] == [shares.get(v, "") for v in range(len(lines))]
    assert found[".png"].read_bytes().startswith(b"\x89PNG")
    assert "north" in found[".svg"].read_text(encoding="utf-8")
    assert [url for url in chromium.requests() if not url.startswith(("blob:", "data:"))] == []
    assert chromium.complaints() == []


def test_no_saved_text_is_a_formula(chromium: Browser, tuples: Path) -> None:
    """Spreadsheets compute cells that begin so; numbers, and texts that are numbers, stay as they are."""
    texts = ["=1+1", "+a", "-a", "@a", "\ta", "\ra", '=HYPERLINK("x", "y")']
    numbers = ["-1", "+2.5", "1e3", "a=b"]
    visit(chromium, tuples)
    text = chromium.run("return csv([arguments[0], arguments[1], [-3, null]])", texts, numbers)
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        [f"'{one}" for one in texts],
        numbers,
        ["-3", ""],
    ]


def test_a_saved_table_of_two_columns_says_of_whom_and_how_sure(
    chromium: Browser, tuples: Path, tmp_path: Path
) -> None:
    """Selection and ranges are in both files, and the selection in their names."""
    behavior = {"behavior": "allow", "downloadPath": str(tmp_path)}
    chromium.driver.execute_cdp_cmd("Browser.setDownloadBehavior", behavior)
    visit(chromium, tuples, hash_="#a=0.1")
    choose = "const s = document.getElementById(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('change'))"
    for which, attribute in (("rows", "1"), ("columns", "3")):
        chromium.run(choose, f"pair-{which}", attribute)
    settle(chromium)
    for kind in ("csv", "svg"):
        chromium.run("document.getElementById(arguments[0]).click()", f"pair-{kind}")
    until = time.monotonic() + 20
    while {path.suffix for path in tmp_path.iterdir()} != {".csv", ".svg"}:
        assert time.monotonic() < until
    saved = {path.suffix: path for path in tmp_path.iterdir()}
    lines = list(csv.DictReader(io.StringIO(saved[".csv"].read_text(encoding="utf-8"))))
    assert lines
    assert all(line["among"].startswith("sex: ") for line in lines)
    ranges = [f"{int(line['low']):,} – {int(line['high']):,}" for line in lines if line["low"]]
    picture = saved[".svg"].read_text(encoding="utf-8")
    assert ranges
    assert all(one in picture for one in ranges)
    assert all("sex" in path.name for path in saved.values())


@pytest.mark.parametrize("columns", [15, 200])
def test_a_large_table_fits_into_a_page(chromium: Browser, tmp_path: Path, columns: int) -> None:
    """Records of which a sample is in the page; how fast one of a million answers is in `benchmarks/explorer.py`."""
    page = tmp_path / "large.html"
    page.write_text(large_page(columns, 50_000), encoding="utf-8")
    assert page.stat().st_size <= 5_000_000
    visit(chromium, page)
    assert "a sample of 20,000 of 50,000" in chromium.run("return document.body.textContent")
    many = "return document.querySelectorAll('.card:last-child .value').length"
    assert chromium.run(many) == 12
    chromium.run("document.querySelector('.card:last-child .all').click()")
    assert chromium.run(many) == 212
    number = "return document.querySelector('[data-key=\"1-0\"] .numbers').textContent"
    before = chromium.run(number)
    click(chromium, (0, 0))
    assert chromium.run(number) != before


def test_in_print_nothing_is_cut_off(chromium: Browser, tuples: Path) -> None:
    """On paper, too, everything that is shown lies between the margins, and what cannot be clicked is left out."""
    visit(chromium, tuples, 700, "#rows=0&columns=3&compare=all&unit=share")
    chromium.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    beyond = """return [...document.querySelectorAll("main *")].filter((e) => !e.closest("svg, .track, .visually-hidden"))
        .filter((e) => e.getBoundingClientRect().right > innerWidth + 1 || e.scrollWidth > e.clientWidth + 1 && e.clientWidth
          && getComputedStyle(e).display !== "inline").map((e) => e.outerHTML.slice(0, 80))"""
    assert chromium.run(beyond) == []
    assert chromium.run("return document.querySelector('.tools').offsetHeight") == 0
    chromium.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.parametrize("paper", every(2, PAPERS))
@pytest.mark.parametrize("hash_", ["", "#a=0.1&rows=0&columns=3&compare=all&unit=share&order=size"])
def test_it_is_printed_whole(
    chromium: Browser, tuples: Path, tmp_path: Path, hash_: str, paper: str
) -> None:
    visit(chromium, tuples, hash_=hash_)
    assert is_printed_well(chromium, tmp_path / "page.pdf", paper) >= 1


def test_all_texts_are_in_one_catalogue() -> None:
    """No text for people in the scripts, and none in the catalogue that nothing shows."""
    place = Path(render_explorer.__code__.co_filename).parent
    texts = json.loads((place / "explore.texts.json").read_text(encoding="utf-8"))
    sources = "".join((place / name).read_text(encoding="utf-8") for name in SOURCES)
    assert len(sources) < 600_000
    for key in texts:
        used = (
            f"TEXT.{key}",
            f'say("{key}"',
            f"text.{key}",
            f'"{key}"',
            key[4:] if key.startswith("head") else "\0",
        )
        assert any(word in sources for word in used), key


SOURCES = (*(f"{name}.js" for name in SCRIPTS), "explore.html.j2")


NOTES = """
const text = (line, part) => line.querySelector(part)?.textContent ?? "";
return [...document.querySelectorAll(".card")].map((card) => [...card.querySelectorAll(".value")].map((line) => ({
  key: line.dataset.key, first: text(line, ".numbers > span"), weak: text(line, ".weak"), second: text(line, ".second"),
  differs: text(line, ".differs") })))
"""


def page_of_marginals(place: Path, **changes: Any) -> Measured:
    release, codes, answers = measured_release(**changes)
    page = place / "explore.html"
    page.write_text(render_explorer(release, shown(release, codes)), encoding="utf-8")
    return page, release, answers


def test_a_count_that_cannot_be_quoted_says_so_on_both_sides(
    chromium: Browser, measured: Measured
) -> None:
    """Noise alone may have made it, or is above a quarter of it, as in the report: of A and of B, by what `query` says."""
    page, release, answers = measured
    visit(chromium, page, hash_="#a=1.1&b=1.0&compare=second")
    attributes, seen = release.configuration.attributes, set()
    for a, card in enumerate(chromium.run(NOTES)):
        for line in card:
            value = int(line["key"].split("-")[1])
            if a == 1 or value == len(attributes[a].labels):
                continue
            for region, said in ((1, f"{line['first']}, {line['weak']}"), (0, line["second"])):
                where = {
                    attributes[1].name: attributes[1].labels[region],
                    attributes[a].name: attributes[a].labels[value],
                }
                (answer,) = answers.ask(read_question({"where": where}))
                if answer.estimate is None or answer.noise_sd is None:
                    continue
                small = "too small to quote" if answer.estimate < 4 * answer.noise_sd else ""
                expected = "could be zero" if answer.low == 0 else small
                assert said.partition("), ")[2] == expected, (where, said)
                seen.add(expected)
    assert seen == {"", "could be zero", "too small to quote"}


def test_each_look_of_a_number_has_one_meaning(chromium: Browser, measured: Measured) -> None:
    """In the table of two columns: slanted could be zero, underlined is too small to quote; nothing else is either."""
    page, *_ = measured
    visit(chromium, page, hash_="#rows=1&columns=2")
    looks = chromium.run(
        "return [...document.querySelectorAll('#pair-table td[title]')].map((e) => [e.title, getComputedStyle(e).fontStyle, "
        "getComputedStyle(e).textDecorationLine])"
    )
    assert {style for _, style, _ in looks} == {"normal", "italic"}
    for title, style, line in looks:
        assert (style == "italic") == ("could be zero" in title), title
        assert (line == "underline") == ("too small to quote" in title), title
    slanted = "return [...document.querySelectorAll('main *')].filter((e) => getComputedStyle(e).fontStyle === 'italic')"
    assert chromium.run(f"{slanted}.filter((e) => !e.closest('.zero')).length") == 0


def test_a_table_that_is_wider_than_the_screen_shows_that_there_is_more(
    chromium: Browser, tuples: Path
) -> None:
    """Its right edge, where nothing is written, looks otherwise until it is scrolled to its end."""
    visit(chromium, tuples, 360, "#rows=2&columns=3")
    box = "const e = document.querySelector('.scroll'); "
    assert chromium.run(f"{box} return e.scrollWidth > e.clientWidth")
    looks = []
    for place in (0, 10_000):
        edge = chromium.run(
            f"{box} e.scrollIntoView(); e.scrollLeft = {place}; const r = e.getBoundingClientRect(); "
            "return {x: r.right - 8, y: r.top + 2 + scrollY, width: 8, height: 10, scale: 1}"
        )
        shot = {"clip": edge, "captureBeyondViewport": True}
        looks.append(chromium.driver.execute_cdp_cmd("Page.captureScreenshot", shot)["data"])
    assert looks[0] != looks[1]


def test_sorted_by_size_what_ranges_cannot_tell_apart_is_marked(
    chromium: Browser, measured: Measured
) -> None:
    page, *_ = measured
    visit(chromium, page, hash_="#order=size&a=1.1")
    marks = []
    for card in chromium.run(NOTES):
        ends = [re.fullmatch(r"([\d,]+) \(([\d,]+) to ([\d,]+)\)", line["first"]) for line in card]
        for above, own, line in zip(ends, ends[1:], card[1:], strict=False):
            tied = (
                above is not None
                and own is not None
                and int(own[3].replace(",", "")) >= int(above[2].replace(",", ""))
            )
            assert ("could tie" in line["weak"]) == tied, line
            marks.append(tied)
    assert {*marks} == {True, False}
    visit(chromium, page, hash_="#a=1.1")
    assert not any("could tie" in line["weak"] for card in chromium.run(NOTES) for line in card)


def test_arrows_have_words_and_shares_say_of_whom(chromium: Browser, measured: Measured) -> None:
    """Higher and lower than what it is compared with; in the column of the selection, whose shares these are."""
    page, *_ = measured
    visit(chromium, page, hash_="#a=1.1-0.0&compare=all&unit=share")
    said = {line["differs"] for card in chromium.run(NOTES) for line in card}
    assert said - {""} <= {"▲ higher than everybody", "▼ lower than everybody"}
    text = "return document.body.innerText"
    assert (
        "▲ ▼ higher, lower: the ranges of the two shares do not overlap, and neither"
        in chromium.run(text)
    )
    among = (
        "return [...document.querySelectorAll('.among')].map((p) => p.hidden ? '' : p.textContent)"
    )
    left = "what is chosen in this column is left aside."
    assert chromium.run(among) == [
        f"Shares of region: south: {left}",
        f"Shares of sex: f: {left}",
        "",
        "",
    ]
    visit(chromium, page, hash_="#a=1.1")
    assert chromium.run(among) == ["", f"Counted among all records: {left}", "", ""]
    assert "▲" not in chromium.run(text)
    chromium.run("""const one = Selected.prototype.one;
      Selected.prototype.one = function (attribute, value) {
        const found = one.call(this, attribute, value);
        return this.pairs.length ? { ...found, share: { ...found.share, low: 0.98, high: 0.99 } } : found; }""")
    arrows = []
    # what cannot be quoted is neither higher nor lower
    for change in ("", "caution = () => 'too small'; "):
        chromium.run(f"{change}location.hash = '#a=1.{len(arrows)}&compare=all&unit=share'")
        settle(chromium)
        arrows.append(sum(bool(line["differs"]) for card in chromium.run(NOTES) for line in card))
    assert arrows[0] > 0 == arrows[1]


def test_a_column_that_may_not_differ_has_no_arrows(chromium: Browser, tuples: Path) -> None:
    """Of many values some are apart by chance: arrows stand only where the column differs for certain, too."""
    visit(chromium, tuples, hash_="#a=0.1&compare=all&unit=share")
    arrows = "return document.querySelectorAll('.differs').length"
    assert chromium.run(arrows) > 0
    chromium.run(
        "Selected.prototype.difference = () => ({ measured: true, difference: 0.1, low: 0, high: 0.2 })"
    )
    click(chromium, (0, 1), (0, 1))
    assert chromium.run(arrows) == 0


def test_the_guide_is_open_where_no_link_leads_elsewhere(chromium: Browser, tuples: Path) -> None:
    visit(chromium, tuples)
    opened = "return document.getElementById('guide').open"
    for hash_, expected_open in (("#a=0.1", False), ("", True)):
        chromium.run("location.replace('about:blank')")
        visit(chromium, tuples, hash_=hash_)
        assert chromium.run(opened) == expected_open
    assert chromium.complaints() == []


@pytest.mark.parametrize(("values", "moved"), [(2, 0.0), (2, 0.1), (5, 0.0), (20, 0.0), (20, 0.2)])
def test_the_range_of_a_difference_covers_it(
    chromium: Browser, tuples: Path, values: int, moved: float
) -> None:
    """In 95 of 100 releases at least, so a difference that is nothing is listed in 5 at most.

    4,000 releases with the noise of cells, and of their sum: more than 270 misses have probability 1e-6 at a rate of 5 %.
    """
    rng, runs, sd, size = np.random.default_rng(values), 4000, 6.0, 400
    true = np.full((2, values), 1 / values)
    true[0, 0] += moved
    true[0, 1:] -= moved / (values - 1)
    shares = []
    for share, records in zip(true, (size, 5 * size), strict=True):
        noisy = share * records + rng.normal(0, sd, (runs, values))
        total = noisy.sum(axis=1, keepdims=True)
        half = 1.96 * sd * np.sqrt(1 - 2 * share + values * share**2) / records
        shares.append(
            np.stack([noisy / total, noisy / total - half, noisy / total + half], axis=-1)
        )
    script = """const [mine, all] = arguments[0].map((runs) => runs.map((run) => run.map(([estimate, low, high]) => (
        { share: { estimate, low, high, measured: true } }))));
      return mine.map((own, i) => {
        const selected = Object.create(Selected.prototype);
        selected.one = (_, value) => own[value];
        selected.release = { values: () => own.map((_, v) => v), everybody: { one: (_, value) => all[i][value] } };
        const { low, high } = selected.apart(0, selected.release.everybody);
        return [low, high]; })"""
    visit(chromium, tuples)
    low, high = np.array(chromium.run(script, [np.clip(own, 0, 1).tolist() for own in shares])).T
    difference = np.abs(true[0] - true[1]).sum() / 2
    assert ((low > difference + 1e-12) | (high < difference - 1e-12)).sum() <= 270
    assert moved == 0 or (low > 0).mean() > 0.9


@pytest.mark.parametrize(
    ("hash_", "said"),
    [
        (
            "a=4.0",
            "not known: this release did not measure the selection together with any other column",
        ),
        (
            "a=0.0&b=4.0&compare=second",
            "not known: this release did not measure the selection together with any other column",
        ),
        ("a=0.0", "no column differs by more than noise can make"),
    ],
)
def test_what_was_measured_with_nothing_is_not_said_to_be_alike(
    chromium: Browser, tmp_path: Path, hash_: str, said: str
) -> None:
    alone = {"type": "category", "values": ["coast", "land"], "missing": [], "outside": "error"}
    page, *_ = page_of_marginals(tmp_path, columns__area=alone)
    visit(chromium, page, hash_=f"#{hash_}")
    assert chromium.run("return document.getElementById('related-list').textContent") == said


def test_columns_that_differ_for_certain_are_listed_with_their_ranges(
    chromium: Browser, tuples: Path
) -> None:
    """What may be nothing is left out, and what the synthetic records alone say stands apart, without a range.

    Where there is a second selection, it is this that the first one differs from.
    """
    visit(chromium, tuples)
    chromium.run("""const known = { 0: { difference: 0.3, low: 0.25, high: 0.375, measured: true }, 2: { difference: 0.2 },
        1: { difference: 0.4, low: 0, high: 0.8, measured: true } };
      Selected.prototype.difference = (attribute, other) => {
        document.body.dataset.others = other.pairs.join(" ");
        return known[attribute];
      }""")
    click(chromium, (3, 0))
    told = (
        "return [document.getElementById('related-whom').textContent, document.body.dataset.others]"
    )
    assert chromium.run(told) == ["Most different from everybody", ""]
    lists = [
        chromium.run(
            "return [...document.querySelectorAll(arguments[0])].map((c) => c.textContent)",
            f"#{name} .chip",
        )
        for name in ("related-list", "related-made")
    ]
    assert lists == [["sex 30.0% (25.0% to 37.5%)"], ["signs ≈ 20.0%"]]
    chromium.run("location.hash = '#a=3.0&b=3.1&compare=second'")
    settle(chromium)
    assert chromium.run(told) == ["Most different between A and B", "3,1"]
