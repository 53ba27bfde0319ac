"""Several values of a column, ranges, and means in the explorer: by mouse, by keyboard and by link, and their names."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path
from typing import Any

import pytest

from marginweave.answers.codes import Codes
from marginweave.answers.marginals import MarginalAnswers
from marginweave.answers.tuples import TupleAnswers
from marginweave.configuration.question import read_question
from marginweave.publish import pooled_tables
from marginweave.publish.explorer import render_explorer
from tests.support.browser import Browser
from tests.support.explorer_pages import settle
from tests.support.published import measured_release, published, shown

pytestmark = pytest.mark.system
SAID = "return ['said', 'selection-a'].map((id) => document.getElementById(id).textContent.replaceAll(' ×', '×'))"
PRESSED = "return [...document.querySelectorAll('.value[aria-pressed=true]')].map((button) => button.dataset.key)"
TOTAL = "return document.getElementById('total-a').textContent"
AGE = 2
"""Place of the column of numbers in the release of marginals."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MarginalAnswers]:
    """The page of a release of marginals, and what answers questions to it."""
    page = tmp_path_factory.mktemp("pages") / "explore.html"
    release, codes, answers = measured_release()
    page.write_text(render_explorer(release, shown(release, codes)), encoding="utf-8")
    assert answers.codes.configuration.attributes[AGE].name == "age"
    return page, answers


def visit(chromium: Browser, page: Path, hash_: str = "", width: int = 1280) -> None:
    chromium.run("location.replace('about:blank')")
    chromium.open(page, width, hash_)
    settle(chromium)


def press(chromium: Browser, key: str, **modifiers: bool) -> None:
    """Click on a value with keys held down."""
    click = """document.querySelector(`[data-key="${arguments[0]}"]`).dispatchEvent(
        new MouseEvent("click", { bubbles: true, ...arguments[1] }))"""
    chromium.run(click, key, modifiers)
    settle(chromium)


def several(chromium: Browser, attribute: int) -> None:
    """Press the button that lets clicks add values in a column."""
    chromium.run(
        "document.getElementById(`attribute-${arguments[0]}`).parentElement.querySelector('button').click()",
        attribute,
    )


def choose(chromium: Browser, selector: str, value: str) -> None:
    """Choose an option of a list."""
    script = """const list = document.querySelector(arguments[0]); list.value = arguments[1];
        list.dispatchEvent(new Event("change"))"""
    chromium.run(script, selector, value)
    settle(chromium)


def count_of(answers: MarginalAnswers, where: dict[str, Any]) -> str:
    """A count as the page writes it."""
    (answer,) = answers.ask(read_question({"where": where}))
    return f"{answer.estimate:,.0f} ({answer.low:,.0f} to {answer.high:,.0f})"


def test_several_values_of_a_column_are_one_or_the_other(
    chromium: Browser, measured: tuple[Path, MarginalAnswers]
) -> None:
    """Once a reader asks for several; the count is that of `query`, and a click takes a value back."""
    page, answers = measured
    visit(chromium, page)
    press(chromium, "1-0")
    several(chromium, 1)
    press(chromium, "1-2")
    assert chromium.run(PRESSED) == ["1-0", "1-2"]
    labels = answers.codes.domain.labels[1]
    assert chromium.run(SAID) == ["", f"region: {labels[0]} or {labels[2]}×"]
    expected = count_of(answers, {"region": [labels[0], labels[2]]})
    assert chromium.run(TOTAL).startswith(expected)
    assert chromium.run("return location.hash").startswith("#a=1.0-1.2&")
    press(chromium, "1-0")
    assert chromium.run(PRESSED) == ["1-2"]
    several(chromium, 1)
    press(chromium, "1-1")
    assert chromium.run(PRESSED) == ["1-1"]
    assert chromium.complaints() == []


def test_control_adds_a_value_and_shift_all_up_to_it(
    chromium: Browser, measured: tuple[Path, MarginalAnswers]
) -> None:
    page, _ = measured
    visit(chromium, page)
    press(chromium, f"{AGE}-1")
    press(chromium, f"{AGE}-3", shiftKey=True)
    assert chromium.run(PRESSED) == [f"{AGE}-{value}" for value in (1, 2, 3)]
    press(chromium, f"{AGE}-2", ctrlKey=True)
    assert chromium.run(PRESSED) == [f"{AGE}-{value}" for value in (1, 3)]
    press(chromium, "0-1", ctrlKey=True)
    assert chromium.run(PRESSED) == ["0-1", f"{AGE}-1", f"{AGE}-3"]


def test_a_range_is_chosen_by_its_ends(
    chromium: Browser, measured: tuple[Path, MarginalAnswers]
) -> None:
    """With the keyboard alone, too: two lists of values; an open end goes to the end of the column."""
    page, answers = measured
    visit(chromium, page)
    several(chromium, AGE)
    labels = answers.codes.domain.labels[AGE]
    last = len(labels) - 1
    choose(chromium, ".run select:first-child", str(last - 1))
    assert chromium.run(PRESSED) == [f"{AGE}-{last - 1}", f"{AGE}-{last}"]
    least = answers.codes.numbers("age").low[last - 1]
    assert chromium.run(SAID) == ["", f"age: {least:g} and more×"]
    assert chromium.run(TOTAL).startswith(count_of(answers, {"age": {"from": str(least)}}))
    choose(chromium, ".run select:last-child", "0")
    assert chromium.run(PRESSED) == [f"{AGE}-0"]
    choose(chromium, ".run select:first-child", "")
    choose(chromium, ".run select:last-child", "1")
    most = answers.codes.numbers("age").high[1]
    assert chromium.run(SAID) == ["", f"age: {most:g} or less×"]
    names = "return [...document.querySelectorAll('.run select')].map((list) => list.ariaLabel)"
    assert chromium.run(names) == ["From this value of age", "To this value of age"]
    choose(chromium, ".run select:last-child", "")
    assert chromium.run(PRESSED) == []


def test_the_keyboard_chooses_several(
    chromium: Browser, measured: tuple[Path, MarginalAnswers]
) -> None:
    """The button is a stop of the Tab key and says what it does; Enter on values adds them, Escape takes all back."""
    from selenium.webdriver.common.keys import Keys

    page, _ = measured
    visit(chromium, page)
    chromium.run("document.querySelector('#attribute-1').focus()")
    keys = [Keys.TAB, Keys.ENTER, Keys.TAB, Keys.TAB, Keys.ENTER, Keys.ARROW_DOWN, Keys.ENTER]
    for key in keys:
        chromium.driver.switch_to.active_element.send_keys(key)
        settle(chromium)
    assert chromium.run(PRESSED) == ["1-0", "1-1"]
    button = "const b = document.querySelector('#attribute-1 + button'); return [b.ariaLabel, b.ariaPressed]"
    assert chromium.run(button) == ["Choose several values of region", "true"]
    chromium.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    settle(chromium)
    assert chromium.run(PRESSED) == []


@pytest.mark.parametrize(
    ("hash_", "expected"),
    [
        ("#a=2.1_3-1.0", ["2.1_3-1.0", ["1-0", "2-1", "2-2", "2-3"]]),
        ("#a=1.2-2.3-1.0-2.1-2.2", ["1.0-1.2-2.1_3", ["1-0", "1-2", "2-1", "2-2", "2-3"]]),
    ],
)
def test_a_link_keeps_several_values(
    chromium: Browser, measured: tuple[Path, MarginalAnswers], hash_: str, expected: list[Any]
) -> None:
    """Runs by their ends; opened again it is the same page, where a click adds to what the link has."""
    page, _ = measured
    visit(chromium, page, hash_)
    written = chromium.run("return new URLSearchParams(location.hash.slice(1)).get('a')")
    assert [written, chromium.run(PRESSED)] == expected
    main = chromium.run("return document.querySelector('main').innerText")
    visit(chromium, page, chromium.run("return location.hash"))
    assert chromium.run("return document.querySelector('main').innerText") == main
    press(chromium, "2-0")
    assert chromium.run(PRESSED) == sorted([*expected[1], "2-0"])


OTHER = ["This link was made for other columns or values; nothing is selected.", "all records"]


@pytest.mark.parametrize(
    "hash_",
    ["a=2.3_1", "a=2.1_99", "a=2.1_", "a=2._1", "a=2.1_2_3", "number=0", "number=99", "by=x"],
)
def test_a_range_that_does_not_exist_selects_nothing(
    chromium: Browser, measured: tuple[Path, MarginalAnswers], hash_: str
) -> None:
    """Nor does a mean of a column without numbers; the page says so."""
    page, _ = measured
    visit(chromium, page, f"#{hash_}")
    assert chromium.run(SAID) == OTHER
    assert chromium.complaints() == []


def test_what_a_link_means_and_the_page_does_not_know_is_named(
    chromium: Browser, measured: tuple[Path, MarginalAnswers]
) -> None:
    """By a later version, or with a slip; all else of it is opened."""
    page, _ = measured
    visit(chromium, page, "#a=0.1&map=3&average=mode")
    labels = measured[1].codes.domain.labels[0]
    said = "This page does not know a part of this link: map, average=mode. The rest was opened."
    assert chromium.run(SAID) == [said, f"sex: {labels[1]}×"]


def test_k_tuples_have_no_count_of_several_values(chromium: Browser, tmp_path: Path) -> None:
    """They were not counted together: the number is of the synthetic records, without a range, and so are means."""
    release, codes = published()
    page = tmp_path / "explore.html"
    page.write_text(render_explorer(release, shown(release, codes)), encoding="utf-8")
    visit(chromium, page, "#a=0.0-0.1&number=3&by=0")
    made = (codes[0] < 2).sum() * release.aggregates.record_count / len(codes[0])
    assert chromium.run(TOTAL) == f"≈ {made:,.0f}"
    cells = "return [...document.querySelectorAll('#average-table td')].map((td) => td.className)"
    assert set(chromium.run(cells)) <= {"estimated", ""}
    note = chromium.run("return document.getElementById('average-note').textContent")
    assert note.startswith("This release measured no means")


@pytest.mark.parametrize("average", ["mean", "median"])
def test_a_mean_stands_beside_each_value_of_another_column(
    chromium: Browser, measured: tuple[Path, MarginalAnswers], tmp_path: Path, average: str
) -> None:
    """As `query` answers it by that column; what is saved has the same numbers."""
    page, answers = measured
    visit(chromium, page)
    choose(chromium, "#average-number", str(AGE))
    choose(chromium, "#average-by", "1")
    choose(chromium, "#average-kind", average)
    rows = chromium.run(
        "return [...document.querySelectorAll('#average-table tbody tr')].map((tr) => [tr.firstChild.textContent, "
        "tr.lastChild.firstChild.textContent])"
    )
    expected = list(answers.ask(read_question({average: "age", "by": ["region"]})))
    compared = 0
    for (label, text), answer in zip(rows, expected, strict=False):
        assert label in (answer.group["region"], "(no value)")
        if answer.unusable or answer.how != "measured":
            assert "(" not in text or "≈" in text, text
            continue
        assert answer.estimate is not None
        assert text == f"{answer.estimate:.1f} ({answer.low:.1f} to {answer.high:.1f})"
        compared += 1
    assert compared >= 2
    behavior = {"behavior": "allow", "downloadPath": str(tmp_path)}
    chromium.driver.execute_cdp_cmd("Browser.setDownloadBehavior", behavior)
    chromium.run("document.getElementById('average-csv').click()")
    until = time.monotonic() + 20
    while not (saved := list(tmp_path.glob("*.csv"))):
        assert time.monotonic() < until
    lines = list(csv.DictReader(io.StringIO(saved[0].read_text(encoding="utf-8"))))
    assert [line["region"] for line in lines] == [label for label, _ in rows]
    first = expected[0]
    assert first.estimate is not None
    assert float(lines[0][f"{average} age"]) == pytest.approx(first.estimate)
    assert chromium.complaints() == []


def test_counts_say_what_was_counted(chromium: Browser, tmp_path: Path) -> None:
    """Where a column's cells may hold more values than are counted, or the rows of a person are bounded: in Python's words."""
    columns = {
        "signs": {"type": "set", "values": ["cough", "fever", "rash"], "max_values": 2},
        "sex": {"type": "category", "values": ["f", "m"]},
    }
    unit = {"column": "person", "max_records": 3}
    release, codes = published(columns=columns, privacy__unit=unit)
    page = tmp_path / "explore.html"
    page.write_text(render_explorer(release, shown(release, codes)), encoding="utf-8")
    words = "return document.getElementById('counted-a').textContent"
    codes_of = Codes.of(release.configuration, release.aggregates.domain)
    answers = TupleAnswers(
        aggregates=release.aggregates, intervals=release.intervals, codes=codes_of
    )
    parts = list[str]()
    for hash_, where in (("", {}), ("#a=1.0", {"sex": "f"}), ("#a=0.1", {"signs": ["fever"]})):
        visit(chromium, page, hash_)
        (answer,) = answers.ask(read_question({"where": where}))
        parts.append(answer.of)
        assert chromium.run(words) == f" ({answer.of})"
    assert parts[0] == "at most 3 rows for each person"
    assert "at most 2 values of signs in each cell" in parts[2]
    assert "values of signs" not in parts[1]
    card = "return document.querySelector('.card').innerText"
    assert "at most 2 values of signs in each cell" in chromium.run(card)


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_no_rule_of_accessibility_is_broken_by_them(
    chromium: Browser, measured: tuple[Path, MarginalAnswers], axe: str, width: int
) -> None:
    """Ranges, several values and means beside those of everybody; nothing is wider than the screen."""
    page, _ = measured
    visit(chromium, page, "#a=2.1_3-1.0-1.1&compare=all&number=2&by=1", width)
    assert chromium.violations(axe) == []
    assert chromium.run("return document.documentElement.scrollWidth") <= width


def test_where_a_page_lacks_covariances_it_says_so(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column too large for them: sums have no range, and single values, their shares included, all that they had."""
    release, codes, answers = measured_release()
    pages = list[Path]()
    for most in (pooled_tables.MOST_COVARIANCES, 0):
        monkeypatch.setattr(pooled_tables, "MOST_COVARIANCES", most)
        pages.append(tmp_path / f"{most}.html")
        pages[-1].write_text(render_explorer(release, shown(release, codes)), encoding="utf-8")
    numbers = "return [...document.querySelectorAll('.numbers')].map((one) => one.textContent)"
    of_pages = list[Any]()
    for page in pages:
        visit(chromium, page, "#a=1.0&unit=share")
        of_pages.append(chromium.run(numbers))
        visit(chromium, page, "#a=1.0-1.2&number=2")
        of_pages.append(chromium.run("return document.getElementById('average-table').innerText"))
        of_pages.append(chromium.run(TOTAL))
    labels = answers.codes.domain.labels[1]
    expected = count_of(answers, {"region": [labels[0], labels[2]]})
    assert of_pages[0] == of_pages[3]
    assert of_pages[2].startswith(expected)
    estimate, _, _ = expected.partition(" ")
    assert of_pages[5] == f"{estimate} (the page has no range for it: ask marginweave query)"
    assert "not in this page: ask marginweave query" in of_pages[4]
    assert "not in this page" not in of_pages[1]
    assert chromium.complaints() == []


def test_numbers_with_codes_have_ranges(chromium: Browser, tmp_path: Path) -> None:
    """Of the numbers alone: "60 and more" leaves out the code for a refusal, and the list of ends does not name it."""
    age = {"type": "number", "bounds": [0, 99], "bins": [0, 30, 60, 99], "decimals": 0}
    columns = {"age": {**age, "codes": {997: "refused"}}}
    release, codes = published(columns=columns)
    page = tmp_path / "explore.html"
    page.write_text(render_explorer(release, shown(release, codes)), encoding="utf-8")
    visit(chromium, page)
    several(chromium, 0)
    choose(chromium, ".run select:first-child", "1")
    assert chromium.run(PRESSED) == ["0-1", "0-2"]
    assert chromium.run(SAID) == ["", "age: 30 and more×"]
    options = "return document.querySelector('.run').innerText"
    assert "refused" not in chromium.run(options)
    press(chromium, "0-3")
    assert "refused" in chromium.run(SAID)[1]
