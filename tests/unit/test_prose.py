"""The house style of docs/style.md holds for what people read: pages, messages, help, public docstrings, templates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import pytest

from tests.support.notebooks import page_of
from tests.support.places import REPOSITORY
from tests.support.prose import (
    PAGES,
    STYLE,
    banned,
    banned_words,
    docstrings,
    grade,
    messages,
    modules,
    plain,
    sentences,
    syllables,
    template_text,
    words,
)

MOST_WORDS, MOST_GRADE = 40, 11
CHECKED = [page for page in PAGES if page not in (STYLE, REPOSITORY / "CHANGELOG.md")]
# Notes on published work quote formulas, which are no sentences.
READ = [page for page in CHECKED if page.parent.name != "sources"]
PUBLIC = [
    REPOSITORY / "src" / "marginweave" / "__init__.py",
    *(REPOSITORY / "src" / "marginweave" / "front").glob("*.py"),
    *(
        REPOSITORY / "src" / "marginweave" / "inference" / name
        for name in ("__init__.py", "analyses.py")
    ),
    *(REPOSITORY / "flows" / "cli").glob("*.py"),
    *(
        REPOSITORY / name
        for name in (
            "flows/notebook.py",
            "src/marginweave/inference/opened.py",
            "src/marginweave/base/errors.py",
        )
    ),
]
# Words of released files change with the version of their format alone.
RELEASED = {"src/marginweave/publish/statement.py"}


def of_the_product() -> Iterator[tuple[str, str]]:
    """Each message, template and public docstring, and where it is."""
    for path in modules():
        for line, text in messages(path):
            yield f"{path.relative_to(REPOSITORY)}:{line}", text
    for path in PUBLIC:
        for line, text in docstrings(path):
            yield f"{path.relative_to(REPOSITORY)}:{line}", text
    for path in (REPOSITORY / "src" / "marginweave" / "publish").glob("*.j2"):
        yield path.name, template_text(path)


def too_long(text: str) -> list[str]:
    return [sentence for sentence in sentences(text) if len(words(sentence)) > MOST_WORDS]


@pytest.mark.parametrize("page", CHECKED, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_a_page_keeps_the_style(page: Path) -> None:
    text = plain(page_of(page))
    assert banned().findall(text) == []
    assert page not in READ or too_long(text) == []


def test_pages_are_easy_enough_to_read() -> None:
    """Flesch and Kincaid, of all pages that say something in sentences."""
    assert mean(grade(plain(page_of(page))) for page in READ) <= MOST_GRADE


def test_the_product_keeps_the_style() -> None:
    texts = list(of_the_product())
    assert len(texts) > 2000
    assert {place: found for place, text in texts if (found := banned().findall(text))} == {}
    texts = [(place, text) for place, text in texts if place.partition(":")[0] not in RELEASED]
    assert {place: found for place, text in texts if (found := too_long(text))} == {}


def test_the_list_is_read_and_finds_its_words() -> None:
    assert {"stands", "of its own", "obviously"} <= {*banned_words()}
    assert all(banned().search(f"It says {word}, again.") for word in banned_words())
    assert banned().search("A value of its\nOWN")
    assert not banned().search("withstands, justice, a nearer-by")


def test_sentences_and_grades_are_those_of_a_reader() -> None:
    page = "# A head\n\nOne `a.b. C` here. *Two* here.\n\n- three\n- four (4. is this)\n\n```\nNo. No.\n```\n"
    page += "| five | six |\n| --- | --- |\n"
    read = ["A head", "One `x` here.", "*Two* here.", "three", "four (4. is this)", "five", "six"]
    assert [*sentences(plain(page))] == read
    counted = {
        "the": 1,
        "people": 2,
        "differential": 4,
        "noise": 1,
        "privacy": 3,
        "table": 2,
        "released": 2,
        "epsilon": 3,
    }
    assert {word: syllables(word) for word in counted} == counted
    assert grade("The cat sat on the mat.") == pytest.approx(0.39 * 6 + 11.8 - 15.59)
