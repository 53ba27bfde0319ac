"""The section of docs/inference.md on answers of one to four columns: how often they cover, by size of the true count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.accuracy.regressions_page import write_between
from benchmarks.scale.page import header

BEGIN, END = "<!-- outside: begin -->\n", "<!-- outside: end -->\n"
_STRATA = ("below 100", "100 to 999", "1,000 to 9,999", "10,000 and more")
_KINDS = {"public": "public tables", "binary": "made tables"}
Figures = Sequence[Mapping[str, Any]]


def write_section(figures: Figures) -> None:
    """Put the table in its place on the page."""
    write_between(BEGIN, END, section(figures))


def section(figures: Figures) -> Iterator[str]:
    """A line for each kind of table, epsilon, number of columns and stratum."""
    epsilons = sorted({f["epsilon"] for f in figures})
    yield from header(
        "tables|epsilon|columns|true count|answers|95 % claimed|of these covered|usable|width, % of the rows"
    )
    for kind, shown in _KINDS.items():
        for epsilon in epsilons:
            some = [f for f in figures if f["epsilon"] == epsilon and _kind(f) == kind]
            for length in (1, 2, 3, 4):
                for stratum, size in enumerate(_STRATA):
                    if line := _line(some, length, stratum):
                        yield f"| {shown} | {epsilon:g} | {length} | {size} | {line} |"


def _kind(figure: Mapping[str, Any]) -> str:
    return "binary" if figure["table"].startswith("binary") else "public"


def _line(figures: Figures, length: int, stratum: int) -> str:
    sums = np.zeros(5)
    for figure in figures:
        for name, own in figure["sums"].items():
            columns, _, size = name.split("|")
            if (int(columns), int(size)) == (length, stratum):
                sums += own
    number, claimed, covered, usable, width = sums.tolist()
    if not number:
        return ""
    share = f"{100 * covered / claimed:.1f} %" if claimed else ""
    return (
        f"{number:,.0f} | {100 * claimed / number:.0f} % | {share} | {100 * usable / number:.0f} % | "
        f"{100 * width / number:.2f}"
    )
