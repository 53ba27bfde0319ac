"""Pages are self-contained: links, anchors and tests that they name exist, and the first page stays short."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from runpy import run_path

import pytest

from tests.support.notebooks import NOTEBOOKS, page_of
from tests.support.places import REPOSITORY
from tests.support.syntax import functions_of

PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *NOTEBOOKS])
RECORDS = sorted((REPOSITORY / "docs" / "decisions").glob("[0-9]*.md"))


@cache
def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page_of(page), flags=re.MULTILINE | re.DOTALL)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Anchors of the headings of a page, as a site makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return frozenset(
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_reference_of_a_page_is_there(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), link
        assert not anchor or anchor in anchors(place), link
    for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)", prose(page)):
        assert name in functions_of(REPOSITORY / file), f"{file}::{name}"


def test_every_page_is_reached_from_the_readme() -> None:
    """By links, from page to page."""
    reached, waiting = set[Path](), [REPOSITORY / "README.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        for link in re.findall(r"\]\(([^)\s#]+\.(?:md|ipynb))[^)]*\)", prose(page)):
            place = (page.parent / link).resolve()
            waiting += [place] if place not in reached and place not in waiting else []
    assert set(PAGES) <= reached


def test_every_row_of_the_glossary_is_terms_of_the_site() -> None:
    """No table is left, and each word in bold of a first cell is a line that begins an entry."""
    page = (REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8")
    site = run_path(str(REPOSITORY / "docs" / "terms.py"))["with_terms"](page)
    cells = re.findall(r"^\| \*\*(.+?)\*\* \|", page, re.MULTILINE)
    assert (
        len(cells) == len(re.findall(r"^\|", page, re.MULTILINE)) - 2 * page.count("| word |") > 40
    )
    assert not re.search(r"^\|", site, re.MULTILINE)
    begun = re.findall(r"^([^\s#`].*)\n(?=(?:[^\s#`].*\n)*  \S)", site, re.MULTILINE)
    assert [word for cell in cells for word in cell.split(", ")] == begun


def test_the_search_puts_pages_later_that_are_there() -> None:
    """Each name in the pattern of docs/search.js is a page or a folder of pages."""
    script = (REPOSITORY / "docs" / "search.js").read_text(encoding="utf-8")
    roots, below = re.findall(r"\^\((.*)\|docs\\/\((.*)\)\\b\)", script)[0]
    names = [*roots.split("|"), *(f"docs/{name}" for name in below.split("|"))]
    assert [
        name
        for name in names
        if not list(REPOSITORY.glob(f"{name}.md")) and not (REPOSITORY / name).is_dir()
    ] == []


def test_the_readme_is_short() -> None:
    assert len((REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("promise", ["cap", "byte for byte", "Stops that depend on the data"])
def test_the_readme_says_in_short_what_is_promised(promise: str) -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    guarantee = text.partition("\n## The guarantee\n")[2].partition("\n## ")[0]
    assert promise in guarantee
    assert promise in (REPOSITORY / "docs" / "guarantee.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_a_decision_has_its_parts(record: Path) -> None:
    """Numbered without a gap, in the index, and with evidence in this repository."""
    assert int(record.name[:4]) == RECORDS.index(record) + 1
    headings = re.findall(r"^## (.*)$", record.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == ["Context", "Decision", "Consequences", "Evidence"]
    assert re.search(r"\]\(|`tests/", prose(record).partition("\n## Evidence\n")[2])
    assert f"]({record.name})" in (record.parent / "README.md").read_text(encoding="utf-8")
