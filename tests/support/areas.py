"""The tests of an area: those in a folder of its name, and those that import it, or support that does.

`python -m tests.support.areas ledger` prints their files.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def tests_of(area: str) -> list[Path]:
    """Test files of a room of the house, such as `ledger` or `records`, or of a part, such as `flows`."""
    front = "|import marginweave as mw" if area == "front" else ""
    about = re.compile(rf"\bmarginweave\.(?:(?:flows|tasks|schemas)\.)?{re.escape(area)}\b{front}")
    helpers = [
        path
        for path in (TESTS / "support").glob("*.py")
        if about.search(path.read_text(encoding="utf-8"))
    ]
    names = "|".join([about.pattern, *(rf"\btests\.support\.{path.stem}\b" for path in helpers)])
    found = re.compile(names)
    files = sorted(
        path for kind in ("unit", "laws", "system") for path in (TESTS / kind).rglob("test_*.py")
    )
    return [
        path
        for path in files
        if path.parent.name == area or found.search(path.read_text(encoding="utf-8"))
    ]


if __name__ == "__main__":
    found = tests_of(sys.argv[1])
    if not found:
        sys.exit(
            f"no test is about {sys.argv[1]!r}; an area is a room of docs/architecture.md, such as ledger"
        )
    print(*(path.relative_to(TESTS.parent) for path in found))  # noqa: T201
