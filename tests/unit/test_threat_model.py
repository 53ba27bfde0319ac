"""docs/threat-model.md names tests that exist, and every role and every place that it must speak of."""

from __future__ import annotations

import re

import pytest

from tests.support.places import REPOSITORY
from tests.support.syntax import functions_of

PAGE = (REPOSITORY / "docs" / "threat-model.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"(tests/[\w/]+\.py)::(\w+)", PAGE)))


@pytest.mark.parametrize(("file", "test"), NAMED, ids=[test for _, test in NAMED])
def test_a_named_test_exists(file: str, test: str) -> None:
    place = REPOSITORY / file
    assert place.is_file(), file
    assert test in functions_of(place), f"{file} has no {test}"


def test_claims_of_places_are_numbered_and_explained() -> None:
    """Each number in the table of places has its line of tests, and each line is referred to."""
    table = PAGE.partition("| place |")[2].partition("\n\n")[0]
    referred = {int(number) for number in re.findall(r"\((\d+)\)", PAGE)}
    explained = [int(number) for number in re.findall(r"^(\d+)\. ", PAGE, re.MULTILINE)]
    assert explained == list(range(1, len(explained) + 1))
    assert {int(number) for number in re.findall(r"\((\d+)\)", table)} == set(explained) >= referred
    assert len(NAMED) >= 30


@pytest.mark.parametrize(
    "who",
    ["steward", "operator", "database administrator", "Prefect's server", "auditor", "reader"],
)
def test_everybody_is_spoken_of(who: str) -> None:
    assert re.search(rf"^\| \*\*{who}", PAGE, re.MULTILINE)


@pytest.mark.parametrize(
    "heading",
    ["What timing may reveal", "What the owner of the ledger could do", "What is outside"],
)
def test_the_sections_are_there(heading: str) -> None:
    assert f"\n## {heading}\n" in PAGE
