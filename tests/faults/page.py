"""docs/faults.md: the planted faults and what kills each. `python -m tests.faults.page` writes it again."""

from __future__ import annotations

from tests.faults.catalogue import FAULTS, SECTIONS
from tests.support.places import REPOSITORY

PAGE = REPOSITORY / "docs" / "faults.md"
_ABOUT = """\
# Planted faults

For reviewers: would the tests notice a fault? Each of these {number} faults is planted into the shipped code, one at a time,
and the checks named beside it are run. Every one of them has to fail, by an assertion, and to pass without the fault
(`tests/faults`, in `make test`). The exact change is in `tests/faults/planted/`. If you correct a fault that the checks
had missed, plant it here. This page is written by `python -m tests.faults.page`.
"""


def written() -> str:
    """The text of the page."""
    parts = [_ABOUT.format(number=len(FAULTS))]
    for section, faults in SECTIONS.items():
        rows = [
            f"| {fault.name} | `{fault.file}` | {'<br>'.join(f'`{test}`' for test in fault.killed_by)} |"
            for fault in faults
        ]
        parts.append(
            "\n".join(
                [
                    f"## {section}",
                    "",
                    "| fault | in | killed by |",
                    "| --- | --- | --- |",
                    *rows,
                    "",
                ]
            )
        )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
