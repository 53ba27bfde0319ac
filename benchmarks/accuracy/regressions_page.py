"""The section of docs/inference.md on regressions: how often intervals cover, by coefficient."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.scale.page import header
from tests.support.places import REPOSITORY

PAGE = REPOSITORY / "docs" / "inference.md"
BEGIN, END = "<!-- regressions: begin -->\n", "<!-- regressions: end -->\n"
_SOURCES = ("release", "sets", "records", "rows")
Figures = Sequence[Mapping[str, Any]]


def write_section(figures: Iterable[Mapping[str, Any]], names: Mapping[str, Sequence[str]]) -> None:
    """Put the tables in their place on the page."""
    write_between(BEGIN, END, section(list(figures), names))


def write_between(begin: str, end: str, lines: Iterable[str]) -> None:
    """Put lines between two marks of docs/inference.md."""
    before, rest = PAGE.read_text(encoding="utf-8").split(begin)
    _, after = rest.split(end)
    PAGE.write_text(f"{before}{begin}\n{chr(10).join(lines)}\n\n{end}{after}", encoding="utf-8")


def section(figures: Figures, names: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A table a study, kind and epsilon, a line a coefficient, and the mean."""
    cells = sorted(
        {(f["study"], f["kind"], f["epsilon"]) for f in figures}, key=lambda cell: (cell[0] != "affairs", cell)
    )
    for study, kind, epsilon in cells:
        some = [f for f in figures if (f["study"], f["kind"], f["epsilon"]) == (study, kind, epsilon)]
        cpu = statistics.fmean(f["cpu"] for f in some)
        yield (
            f"**{study}, {kind}, epsilon {epsilon:g}**: {len(some)} samples of {some[0]['settings']['rows']:,} rows, "
            f"{cpu:.1f} CPU s a regression.\n"
        )
        covers = "`regression` covers|several tables cover|published records cover|the rows cover"
        yield from header(f"coefficient|truth|{covers}|width: `regression` / rows|width: several tables / rows")
        places = range(len(names[study]))
        for place in places:
            shares = " | ".join(_percent(_covered(some, source, [place])) for source in _SOURCES)
            widths = " | ".join(f"{_wider(some, source, place):.2f}" for source in _SOURCES[:2])
            yield f"| {names[study][place]} | {some[0]['truth'][place]:.3f} | {shares} | {widths} |"
        shares = " | ".join(_percent(_covered(some, source, places)) for source in _SOURCES)
        yield f"| **mean** | | {shares} | | |\n"


def _covered(figures: Figures, source: str, places: Iterable[int]) -> float:
    chosen = [(f, place) for place in places for f in figures]
    return statistics.fmean(f[source][1][place] <= f["truth"][place] <= f[source][2][place] for f, place in chosen)


def _wider(figures: Figures, source: str, place: int) -> float:
    return statistics.median(_width(f, source, place) / _width(f, "rows", place) for f in figures)


def _width(figure: Mapping[str, Any], source: str, place: int) -> float:
    return float(figure[source][2][place] - figure[source][1][place])


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
