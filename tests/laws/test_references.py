"""Every reference resolves inside the repository (pages, anchors, steps, tests, modules), and nothing points outside."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.places import REPOSITORY
from tests.support.syntax import functions_of, nodes

FOLDERS = ("flows", "tasks", "schemas", "src/marginweave", "benchmarks", "tests")
SOURCES = sorted(
    p
    for folder in FOLDERS
    for p in (REPOSITORY / folder).rglob("*.py")
    if "data" not in p.relative_to(REPOSITORY).parts
)
PAGES = sorted(
    p
    for p in [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]
    if p.name != "CHANGELOG.md"
)
ELSEWHERE = re.compile(
    r"\b(house|language|design|review|field|privacy-notes)\.md\b|\bnotes?/|\bshared/"
    r"|\b(the|this|our) (design (document|says|speaks)|review|brief|house plan|notes)\b"
    r"|\bspecification texts?\b|\bHarvard notes\b"
)
"""Words for texts that are not in the repository: what is needed of them stands in docs/sources."""
PATH = re.compile(
    r"(?<![\w/.-])((?:docs|tests|benchmarks|flows|tasks|schemas|src|deployments)/[\w./-]*[\w/])(?:#([\w-]+))?(?:::(\w+))?"
)
STEP = re.compile(r"\bsteps? (\d+)(?: (?:of|in) docs/privacy\.md)|docs/privacy\.md, steps? (\d+)")


def words(path: Path) -> str:
    """The comments and docstrings of a module, or a page without its blocks of code; lines that were broken are joined."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"#.*", text)  # and a little more than comments
    for node in nodes(path):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            found.append(node.value.value)
    return re.sub(r"\n\s*", " ", "\n".join(found))


@cache
def anchors(page: Path) -> frozenset[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return frozenset(
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings
    )


def exists(reference: str) -> bool:
    """A file, a folder or a module; but what a test or a start of the service makes."""
    place = REPOSITORY / reference.rstrip("/.")
    return (
        place.exists()
        or place.with_suffix(".py").exists()
        or reference.startswith(("tests/data", "deployments/compose/secrets"))
    )


def broken(text: str) -> list[str]:
    """What a text refers to that is not there."""
    found = [f"outside: {match[0]}" for match in ELSEWHERE.finditer(text)]
    for path, anchor, test in PATH.findall(text):
        place = REPOSITORY / path.rstrip("/.")
        if re.search(r"/[A-Z]+\.py$", path):  # NAME.py: a name to be chosen
            continue
        if not exists(path):
            found.append(path)
        elif (anchor and place.suffix == ".md" and anchor not in anchors(place)) or (
            test and test not in functions_of(place)
        ):
            found.append(f"{path}: {anchor or test}")
    steps = anchors_of_steps()
    found += [
        f"step {one or other}"
        for one, other in STEP.findall(text)
        if int(one or other) not in steps
    ]
    return found


@cache
def anchors_of_steps() -> frozenset[int]:
    """Numbers of the steps of the proof."""
    text = (REPOSITORY / "docs" / "privacy.md").read_text(encoding="utf-8")
    return frozenset(int(number) for number in re.findall(r"^\*{0,2}(\d+)\.", text, re.MULTILINE))


def test_what_a_text_refers_to_is_in_the_repository() -> None:
    texts = [*SOURCES, *PAGES]
    assert len(texts) > 600
    assert {str(path): found for path in texts if (found := broken(words(path)))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "see docs/nowhere.md",
        "see docs/privacy.md#no-such-part",
        "`tests/laws/test_noise.py::test_nothing`",
        "src/marginweave/mechanisms/nothing.py",
        "docs/privacy.md, step 99",
        "as notes/privacy.md has it",
        "the review says so",
    ],
)
def test_a_reference_that_does_not_resolve_is_found(text: str) -> None:
    assert broken(text)


def test_a_source_is_listed() -> None:
    """Each page of a source is in the index."""
    folder = REPOSITORY / "docs" / "sources"
    index = (folder / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in folder.glob("*.md") if f"({page.name})" not in index] == [
        "README.md"
    ]
