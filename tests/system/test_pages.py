"""Report and explorer in a real browser: nothing leaves the page, nothing breaks, and a click narrows to the right numbers."""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from marginweave.tasks.evaluate.intervals import record_interval
from marginweave.tasks.publish.pages import release_pages, render_explorer, render_report
from marginweave.tasks.publish.reader import PublishedRelease
from tests.support.browser import Browser, browser, need
from tests.support.published import EVALUATION, FULL, HOSTILE, Codes, internal_evaluation, published, shown

pytestmark = pytest.mark.system
READ = """
return [...document.querySelectorAll(".card")].map((card) => [...card.querySelectorAll("li > *")].map((line) => [
  line.dataset.key, line.querySelector(".label").textContent, line.querySelector(".estimated").textContent,
  line.querySelector(".counted")?.textContent ?? null, line.ariaPressed]));
"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def release() -> tuple[PublishedRelease, Codes]:
    return published()


@pytest.fixture(scope="module")
def pages(release: tuple[PublishedRelease, Codes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pages")
    for name, page in release_pages(release[0], shown(*release), FULL).items():
        (place / name).write_bytes(page)
    internal = render_report(release[0], shown(*release), EVALUATION, internal_evaluation())
    (place / "internal.html").write_text(internal, encoding="utf-8")
    return place


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("page", ["report.html", "explore.html", "internal.html"])
def test_a_page_stands_alone_at_any_width(chromium: Browser, pages: Path, page: str, width: int) -> None:
    """No message in the console, no request but for the page itself, no text beyond its right edge."""
    chromium.requests()
    chromium.open(pages / page, width)
    assert chromium.run("return document.readyState") == "complete"
    assert chromium.run("return document.documentElement.scrollWidth") <= width
    beyond = """
        const hidden = (e) => e.closest(".scroll, svg, details, .track");
        return [...document.body.querySelectorAll("*")]
          .filter((e) => !hidden(e) && e.getBoundingClientRect().right > innerWidth + 1)
          .map((e) => e.outerHTML.slice(0, 80))"""
    assert chromium.run(beyond) == []
    assert chromium.complaints() == []
    assert chromium.requests() == [(pages / page).as_uri()]


def test_a_request_would_be_seen_and_is_refused(chromium: Browser, tmp_path: Path) -> None:
    """The test above can fail: a page that asks for something is found out, and our policy stops it."""
    (tmp_path / "asks.html").write_text('<img src="http://192.0.2.1/pixel.png">')
    chromium.requests()
    chromium.open(tmp_path / "asks.html", 390)
    assert "http://192.0.2.1/pixel.png" in chromium.requests()
    chromium.complaints()
    asking = (tmp_path / "asks.html").read_text() + '<iframe src="http://192.0.2.1/frame.html"></iframe>'
    release, codes = published()
    for page in (
        render_explorer(release, shown(release, codes)),
        render_report(release, shown(release, codes), EVALUATION),
    ):
        (policy,) = re.findall(r"<meta http-equiv.*>", page)
        (tmp_path / "asks.html").write_text(policy + asking)
        chromium.open(tmp_path / "asks.html", 390)
        refused = [said for said in chromium.complaints() if "Content Security Policy" in said]
        for asked in ("pixel.png", "fram"):
            assert any(asked in said for said in refused), refused


def expected(
    release: PublishedRelease, codes: Codes, selection: list[tuple[int, int]]
) -> list[dict[str, tuple[Any, ...]]]:
    """For each attribute and value: the scaled number of records with it and the selection, and the released text."""
    aggregates, attributes = release.aggregates, release.configuration.attributes
    known: dict[tuple[tuple[int, int], ...], tuple[Any, ...]] = {
        (): (aggregates.record_count, *record_interval(aggregates))
    }
    for level, inside in zip(aggregates.levels, release.intervals, strict=True):
        for i, (columns, values) in enumerate(zip(level.columns.tolist(), level.values.tolist(), strict=True)):
            known[tuple(zip(columns, values, strict=True))] = (level.counts[i], inside.low[i], inside.high[i])
    found = []
    for a, attribute in enumerate(attributes):
        lines = {}
        for v in range(len(attribute.labels)):
            pairs = {(a, v), *((b, w) for b, w in selection if b != a or attribute.is_set)}
            held = [(codes[b].reshape(len(codes[b]), -1) == w).any(axis=1) for b, w in pairs]
            made = np.logical_and.reduce(held).sum() * aggregates.record_count / len(codes[0])
            count = known.get(tuple(sorted(pairs)))
            text = "not released" if count is None else f"{count[0]:,} ({count[1]:,} to {count[2]:,})"
            lines[f"{a}-{v}"] = (attribute.labels[v], f"≈ {made:,.0f}", text)
        found.append(lines)
    return found


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
    chromium: Browser, pages: Path, release: tuple[PublishedRelease, Codes], clicks: list[tuple[int, int]]
) -> None:
    """Estimates and released counts are those of a plain count, the most frequent first; a second click takes one back."""
    chromium.open(pages / "explore.html", 1440)
    for a, v in clicks:
        chromium.run("document.querySelector(arguments[0]).click()", f'[data-key="{a}-{v}"]')
    cards = chromium.run(READ)
    for card, lines in zip(cards, expected(*release, clicks), strict=True):
        valued = [line for line in card if not line[0].endswith("--1")]
        assert {key: (label, made, count) for key, label, made, count, _ in valued} == lines
        estimates = [int(line[2].removeprefix("≈ ").replace(",", "")) for line in valued]
        assert all(one >= other for one, other in pairwise(estimates))
        assert {key for key, *_, pressed in valued if pressed == "true"} <= {f"{a}-{v}" for a, v in clicks}
    for a, v in clicks:
        chromium.run("document.querySelector(arguments[0]).click()", f'[data-key="{a}-{v}"]')
    assert chromium.run("return document.getElementById('selection').textContent") == "all records"
    assert chromium.complaints() == []


def test_another_value_takes_the_place_of_the_first(chromium: Browser, pages: Path) -> None:
    """Of an attribute with one value a record; the keyboard's focus stays where it was, and Clear takes all back."""
    chromium.open(pages / "explore.html", 1440)
    for key in ("0-0", "0-1"):
        chromium.run("const b = document.querySelector(arguments[0]); b.focus(); b.click()", f'[data-key="{key}"]')
    pressed = "return [...document.querySelectorAll('[aria-pressed=true]')].map((button) => button.dataset.key)"
    assert chromium.run(pressed) == ["0-1"]
    assert chromium.run("return document.activeElement.dataset.key") == "0-1"
    chromium.run("document.getElementById('clear').click()")
    assert chromium.run(pressed) == []


def test_a_label_is_text(chromium: Browser, pages: Path) -> None:
    """A value that looks like a script is shown as it is written, and never run."""
    chromium.open(pages / "explore.html", 1440)
    assert HOSTILE in {line[1] for card in chromium.run(READ) for line in card}
    assert chromium.run("return document.querySelectorAll('script').length") == 2
    chromium.open(pages / "report.html", 1440)
    assert HOSTILE in chromium.run("return document.body.textContent")
    assert chromium.run("return document.querySelectorAll('script').length") == 0


def test_a_click_answers_at_once(chromium: Browser, tmp_path: Path) -> None:
    """A million records of 15 attributes: the middle one of ten clicks takes less than 100 ms, layout included."""
    columns = {f"c{j}": {"type": "category", "values": [f"v{v}" for v in range(4 + j % 5)]} for j in range(15)}
    small, _ = published(made_codes(columns, 2000), drop=10**9, columns=columns)
    page = tmp_path / "large.html"
    page.write_text(render_explorer(small, shown(small, made_codes(columns, 10**6))), encoding="utf-8")
    chromium.open(page, 1440)
    assert "a sample of 20000 of 1000000" in chromium.run("return document.body.textContent")
    timed = """
        const button = () => document.querySelector(`[data-key="${arguments[0]}"]`);
        const start = performance.now(); button().click(); document.body.offsetHeight; return performance.now() - start"""
    times = [chromium.run(timed, f"{j}-0") for j in range(10)]
    assert median(times) < 100, times


def made_codes(columns: dict[str, Any], count: int) -> Codes:
    rng = np.random.default_rng(3)
    return [rng.integers(0, len(column["values"]), count).astype(np.uint8) for column in columns.values()]


def test_every_printed_page_of_the_twin_says_so(chromium: Browser, pages: Path, tmp_path: Path) -> None:
    need("pdftotext")
    chromium.open(pages / "internal.html", 1440)
    (tmp_path / "twin.pdf").write_bytes(printed(chromium))
    text = subprocess.run(["pdftotext", tmp_path / "twin.pdf", "-"], check=True, capture_output=True, text=True).stdout
    *sheets, end = text.split("\f")
    assert end == ""
    assert len(sheets) >= 3
    assert all(sheet.count("NOT FOR RELEASE") >= 2 for sheet in sheets)


def printed(chromium: Browser) -> bytes:
    return base64.b64decode(chromium.driver.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
