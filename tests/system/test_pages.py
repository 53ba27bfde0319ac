"""Report and explorer in a real browser: nothing leaves the page, nothing breaks, and a click narrows to the right numbers."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from marginweave.evaluate.verdict import verdict
from marginweave.publish.comparison import compare_releases, render_comparison
from marginweave.publish.pages import release_pages, render_explorer, render_report
from marginweave.publish.reader import PublishedRelease
from marginweave.released.evaluation import MarginalDistance, Measure
from tests.support.browser import Browser, need
from tests.support.changed_releases import truth, tuples_of
from tests.support.firefox import Firefox
from tests.support.page_laws import (
    PAPERS,
    breaks_no_rule,
    is_printed_well,
    light_and_dark,
    sheets_of,
    stands_alone,
)
from tests.support.production import until
from tests.support.published import (
    EVALUATION,
    FULL,
    HOSTILE,
    Codes,
    internal_evaluation,
    published,
    shown,
)
from tests.support.samples import every

pytestmark = pytest.mark.system
REPORTS = ["report.html", "internal.html", "office.html", "comparison.html"]


@pytest.fixture(scope="module")
def release() -> tuple[PublishedRelease, Codes]:
    return published()


@pytest.fixture(scope="module")
def pages(
    release: tuple[PublishedRelease, Codes], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    place = tmp_path_factory.mktemp("pages")
    for name, page in release_pages(release[0], shown(*release), FULL).items():
        (place / name).write_bytes(page)
    internal = render_report(release[0], shown(*release), EVALUATION, internal_evaluation())
    (place / "internal.html").write_text(internal, encoding="utf-8")
    (place / "office.html").write_text(office_report(), encoding="utf-8")
    rng, counts = np.random.default_rng(3), truth()
    before, after = (
        tuples_of(rng, {**counts, (1,): np.maximum(counts[1,] + change, 0)}) for change in (0, 90)
    )
    (place / "comparison.html").write_bytes(
        render_comparison(compare_releases(before, after), before, after)
    )
    return place


def office_report() -> str:
    """A report as an office has it: many columns, a verdict, pairs of every grade, a publisher."""
    rng, sizes = np.random.default_rng(5), [2, 3, 14, 5, 25, 4, 6, 2, 9, 3, 7]
    columns = {
        f"column_{i}": {
            "type": "category",
            "values": [f"value {v}" for v in range(size)],
            "label": f"What {i} is",
        }
        for i, size in enumerate(sizes)
    }
    codes = [rng.integers(0, size, 400).astype(np.uint8) for size in sizes]
    said = {
        "publisher": "Office of Statistics",
        "contact": "data@office.example",
        "license": "CC BY 4.0",
    }
    release, codes = published(
        codes, columns=columns, publish=said, description="A made-up census."
    )
    errors = {(name,): 0.01 for name in columns}
    errors |= {pair: 0.004 * i for i, pair in enumerate(itertools.combinations(columns, 2))}
    judged = verdict(errors, {1: [5.0], 2: [9.0]}, 800)
    statement = release.statement.model_copy(update={"verdict": judged.summary})
    names, cells = tuple(columns), rng.random((11, 11)).round(3)
    measure = Measure(
        names=names, synthetic=cells.tolist(), reference=cells.tolist(), mean_difference=0.1
    )
    worst = tuple(
        MarginalDistance(attributes=names[i : i + 3], tvd=0.3, noise=0.2) for i in range(9)
    )
    found = {
        "verdict": judged,
        "marginals": worst,
        "association": FULL.association.model_copy(update={"cramers_v": measure}),
    }
    return render_report(
        replace(release, statement=statement), shown(release, codes), FULL.model_copy(update=found)
    )


@pytest.mark.parametrize(
    "width", [360, *(pytest.param(width, marks=pytest.mark.long) for width in (600, 768)), 1440]
)
@pytest.mark.parametrize("page", [*REPORTS, "explore.html"])
def test_a_page_stands_alone_at_any_width(
    chromium: Browser, pages: Path, page: str, width: int
) -> None:
    stands_alone(chromium, pages / page, width)


# tests/system/test_explorer.py opens the page with the most scripts in both browsers
@pytest.mark.long
@pytest.mark.parametrize("page", [*REPORTS, "explore.html"])
def test_a_page_stands_alone_in_firefox_as_well(mozilla: Firefox, pages: Path, page: str) -> None:
    for width in (360, 1440):
        stands_alone(mozilla, pages / page, width)


@pytest.mark.parametrize("page", ["report.html", "office.html"])
def test_what_a_reader_unfolds_fits_its_column_on_paper(
    chromium: Browser, pages: Path, page: str
) -> None:
    """Tables of numbers, each below its figure, which two columns of a sheet hold."""
    chromium.open(pages / page, 700)
    try:
        chromium.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        chromium.run("document.querySelectorAll('details').forEach((e) => { e.open = true })")
        tables = "[...document.querySelectorAll('.figures details table')]"
        found = chromium.run(
            f"return {tables}.map((t) => [t.offsetWidth, t.parentElement.offsetWidth])"
        )
        assert found
        assert all(own <= column + 1 for own, column in found)
    finally:
        chromium.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_a_request_would_be_seen_and_is_refused(chromium: Browser, tmp_path: Path) -> None:
    """The test above can fail: a page that asks for something is found out, and our policy stops it."""
    (tmp_path / "asks.html").write_text('<img src="http://192.0.2.1/pixel.png">')
    chromium.requests()
    chromium.open(tmp_path / "asks.html", 390)
    assert "http://192.0.2.1/pixel.png" in chromium.requests()
    chromium.complaints()
    asking = (
        tmp_path / "asks.html"
    ).read_text() + '<iframe src="http://192.0.2.1/frame.html"></iframe>'
    release, codes = published()
    for page in (
        render_explorer(release, shown(release, codes)),
        render_report(release, shown(release, codes), EVALUATION),
    ):
        (policy,) = re.findall(r"<meta http-equiv.*>", page)
        (tmp_path / "asks.html").write_text(policy + asking)
        chromium.open(tmp_path / "asks.html", 390)
        refused: list[str] = []
        for asked in ("pixel.png", "fram"):  # on a busy machine the second is refused later
            until(partial(_is_refused, chromium, asked, refused), pause=0.1)


def _is_refused(chromium: Browser, asked: str, refused: list[str]) -> bool:
    """Whether the page's policy has refused an address; adds what the console has shown since the last time to `refused`."""
    refused += [said for said in chromium.complaints() if "Content Security Policy" in said]
    return any(asked in said for said in refused)


def test_a_label_is_text(chromium: Browser, pages: Path) -> None:
    """A value that looks like a script is shown as it is written, and never run."""
    chromium.open(pages / "explore.html", 1440)
    assert HOSTILE in chromium.run(
        "return [...document.querySelectorAll('.label')].map((label) => label.textContent)"
    )
    assert chromium.run("return document.querySelectorAll('script').length") == 2
    chromium.open(pages / "report.html", 1440)
    assert HOSTILE in chromium.run("return document.body.textContent")
    assert chromium.run("return document.querySelectorAll('script').length") == 0


@pytest.mark.parametrize(("page", "dark"), light_and_dark(REPORTS))
def test_no_rule_of_accessibility_is_broken(
    chromium: Browser, pages: Path, axe: str, page: str, dark: bool
) -> None:
    breaks_no_rule(chromium, pages / page, axe, dark=dark)


def test_the_first_screen_says_what_matters(chromium: Browser, pages: Path) -> None:
    """Verdict, what it is good for, publisher, day, license and citation, without scrolling and without a symbol."""
    chromium.open(pages / "office.html", 1440)
    above = chromium.run(
        "return [...document.querySelectorAll('h1, p, li, dt, dd')]"
        ".filter((e) => e.getBoundingClientRect().bottom <= 900).map((e) => e.innerText).join('\\n')"
    )
    for said in (
        "Verdict: with care, quality of pairs",
        "Good for:",
        "Not for:",
        "Office of Statistics",
        "2026-03-01",
        "CC BY 4.0",
        "Cite as",
    ):
        assert said in above, above
    assert not re.search(r"mu²|mu\^2|sigma|TVD", above)


@pytest.mark.parametrize("paper", every(2, PAPERS))
@pytest.mark.parametrize("page", REPORTS)
def test_a_page_is_printed_as_an_office_would(
    chromium: Browser, pages: Path, page: str, paper: str, tmp_path: Path
) -> None:
    chromium.open(pages / page, 1440)
    sheets = is_printed_well(
        chromium, tmp_path / "page.pdf", paper, half_empty=page == "internal.html"
    )
    assert sheets > 1


@pytest.mark.parametrize("page", ["office.html", "comparison.html"])
def test_on_paper_it_is_said_where_the_rest_is(
    chromium: Browser, pages: Path, page: str, tmp_path: Path
) -> None:
    """Of all that is folded, but for the ranges of figures, of which one sentence speaks; what a reader unfolds is printed.

    The errors by the size of the count are printed below their figure, which has no room for them.
    """
    need("pdftotext")
    chromium.open(pages / page, 1440)
    folded = chromium.run(
        "return [...document.querySelectorAll('summary')].map((e) => e.innerText.trim())"
    )
    rest = [said for said in folded if said != "Numbers"]
    (tmp_path / "page.pdf").write_bytes(chromium.printed())
    text = re.sub(
        r"\s+", "", " ".join(line for sheet in sheets_of(tmp_path / "page.pdf") for line in sheet)
    )
    assert rest
    for said in rest:
        assert re.search(f"{re.sub(' ', '', said)}:in", text), (said, text)
    assert len(rest) == len(folded) or "report.htmlhasthenumbersofafigure" in text
    assert page != "office.html" or "62.5%" in text
    chromium.run("document.querySelectorAll('details').forEach((e) => { e.open = true })")
    (tmp_path / "open.pdf").write_bytes(chromium.printed())
    assert len(sheets_of(tmp_path / "open.pdf")) > len(sheets_of(tmp_path / "page.pdf"))


def test_a_phone_has_a_list_in_place_of_a_heat_map(chromium: Browser, pages: Path) -> None:
    seen = "return [...document.querySelectorAll(arguments[0])].map((e) => e.getClientRects().length > 0)"
    for width, listed in ((360, True), (768, False)):
        chromium.open(pages / "office.html", width)
        assert chromium.run(seen, ".narrow") == [listed] * 2
        assert chromium.run(seen, "svg:has(pattern)") == [not listed] * 2


def test_every_printed_page_of_the_twin_says_so(
    chromium: Browser, pages: Path, tmp_path: Path
) -> None:
    need("pdftotext")
    chromium.open(pages / "internal.html", 1440)
    (tmp_path / "twin.pdf").write_bytes(chromium.printed())
    sheets = sheets_of(tmp_path / "twin.pdf")
    assert len(sheets) >= 3
    assert all(sum("NOT FOR RELEASE" in line for line in sheet) >= 2 for sheet in sheets)
