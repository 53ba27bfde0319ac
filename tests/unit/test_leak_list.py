"""docs/leaks.md has all 45 items, and every test that it names is there and runs with `make test`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.named_tests import why_not_living
from tests.support.places import REPOSITORY

PAGE = (REPOSITORY / "docs" / "leaks.md").read_text(encoding="utf-8")
ITEMS = [
    f"{group}{i}" for group, count in (("P", 20), ("S", 10), ("D", 15)) for i in range(1, count + 1)
]
ROW = re.compile(r"^\| ([A-Z]\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def rows(page: str) -> dict[str, tuple[str, str, list[str]]]:
    """What each item says, what stops it, and its tests; no item stands twice."""
    found = {
        item: (leak, stop, re.findall(r"`([^`]+)`", tests))
        for item, leak, stop, tests in ROW.findall(page)
    }
    assert len(found) == len(ROW.findall(page))
    return found


def test_every_item_is_there() -> None:
    """In order, each in words, with at least one test; a cell of tests holds nothing but tests."""
    found = rows(PAGE)
    assert list(found) == ITEMS
    for item, (leak, stop, tests) in found.items():
        assert min(len(leak), len(stop)) > 10 or stop == "As P11", item
        assert tests, item
        assert len(set(tests)) == len(tests), item
    cells = [tests for *_, tests in ROW.findall(PAGE)]
    assert all(
        re.fullmatch(r"`tests/[\w/]+\.py::test_\w+`(, `tests/[\w/]+\.py::test_\w+`)*", cell)
        for cell in cells
    )


@pytest.mark.parametrize("item", ITEMS)
def test_its_tests_live(item: str) -> None:
    dead = {test: why for test in rows(PAGE)[item][2] if (why := why_not_living(test))}
    assert dead == {}


DEAD = {
    "absent.py": None,
    "other.py": "def test_other():\n    pass\n",
    "skipped.py": "import pytest\n@pytest.mark.skip\ndef test_it():\n    pass\n",
    "sometimes.py": "import pytest\n@pytest.mark.skipif(True, reason='x')\ndef test_it():\n    pass\n",
    "inside.py": "import pytest\ndef test_it():\n    pytest.skip('x')\n",
    "failing.py": "import pytest\n@pytest.mark.xfail\ndef test_it():\n    pass\n",
    "long.py": "import pytest\n@pytest.mark.long\ndef test_it():\n    pass\n",
    "all_long.py": "import pytest\npytestmark = [pytest.mark.system, pytest.mark.long]\ndef test_it():\n    pass\n",
    "nested.py": "def outer():\n    def test_it():\n        pass\n",
}


@pytest.mark.parametrize("name", DEAD)
def test_a_dead_test_is_seen(tmp_path: Path, name: str) -> None:
    """The check above can fail, in each way in which a test does not run."""
    text = DEAD[name]
    if text is not None:
        (tmp_path / name).write_text(text)
    assert why_not_living(f"{name}::test_it", tmp_path)
    (tmp_path / "living.py").write_text(
        "import pytest\n@pytest.mark.system\ndef test_it():\n    pass\n"
    )
    assert why_not_living("living.py::test_it", tmp_path) is None


def test_it_is_linked() -> None:
    """From the pages of the argument and of the threats."""
    pages = [REPOSITORY / "docs" / name for name in ("threat-model.md", "privacy.md")]
    assert [
        page.name
        for page in pages
        if page.exists() and "(leaks.md)" not in page.read_text(encoding="utf-8")
    ] == []
