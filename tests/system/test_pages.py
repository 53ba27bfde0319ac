"""Report and explorer in a real browser: nothing leaves the page, nothing breaks, and a click narrows to the right numbers."""

from __future__ import annotations

import base64
import re
import subprocess
from pathlib import Path

import pytest

from marginweave.tasks.publish.pages import release_pages, render_explorer, render_report
from marginweave.tasks.publish.reader import PublishedRelease
from tests.support.browser import Browser, need
from tests.support.published import EVALUATION, FULL, HOSTILE, Codes, internal_evaluation, published, shown

pytestmark = pytest.mark.system


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


@pytest.mark.parametrize("width", [360, 768, 1440])
@pytest.mark.parametrize("page", ["report.html", "explore.html", "internal.html"])
def test_a_page_stands_alone_at_any_width(chromium: Browser, pages: Path, page: str, width: int) -> None:
    """No message in the console, no request but for the page itself, no text beyond its right edge."""
    chromium.requests()
    chromium.open(pages / page, width)
    assert chromium.run("return document.readyState") == "complete"
    assert chromium.run("return document.documentElement.scrollWidth") <= width
    beyond = """
        const hidden = (e) => e.closest(".scroll, svg, details, .track, .visually-hidden");
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


def test_a_label_is_text(chromium: Browser, pages: Path) -> None:
    """A value that looks like a script is shown as it is written, and never run."""
    chromium.open(pages / "explore.html", 1440)
    assert HOSTILE in chromium.run("return [...document.querySelectorAll('.label')].map((label) => label.textContent)")
    assert chromium.run("return document.querySelectorAll('script').length") == 2
    chromium.open(pages / "report.html", 1440)
    assert HOSTILE in chromium.run("return document.body.textContent")
    assert chromium.run("return document.querySelectorAll('script').length") == 0


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
