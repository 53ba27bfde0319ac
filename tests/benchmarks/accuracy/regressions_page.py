"""The section of docs/inference.md on regressions: how often intervals cover, by coefficient."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tests.benchmarks.scale.page import header
from tests.support.places import REPOSITORY

PAGE = REPOSITORY / "docs" / "inference.md"
BEGIN, END = "<!-- regressions: begin -->\n", "<!-- regressions: end -->\n"
ASKED = 60
_KINDS = ("sets", "one", "rows")
Figures = Sequence[Mapping[str, Any]]


def write_section(figures: Iterable[Mapping[str, Any]], names: Mapping[str, Sequence[str]]) -> None:
    """Put the tables in their place on the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    lines = "\n".join(section(list(figures), names))
    PAGE.write_text(f"{before}{BEGIN}\n{lines}\n\n{END}{after}", encoding="utf-8")


def section(figures: Figures, names: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A table a study and epsilon, a line a coefficient, and the mean."""
    cells = sorted({(f["study"], f["epsilon"]) for f in figures}, key=lambda cell: (cell[0] != "affairs", cell))
    for study, epsilon in cells:
        some = [f for f in figures if (f["study"], f["epsilon"]) == (study, epsilon)]
        cpu = statistics.fmean(f["cpu"] - f["release_cpu"] for f in some)
        yield (
            f"**{study}, epsilon {epsilon:g}**: {len(some)} of {ASKED} samples of {some[0]['settings']['rows']:,} rows, "
            f"{some[0]['settings']['sets']} sets each, {cpu:.0f} CPU s for the sets of a release.\n"
        )
        yield from header(
            "coefficient|measured with the target|truth|sets cover|one table covers|the rows cover|width: sets / rows"
        )
        places = range(len(names[study]))
        for place in places:
            shares = " | ".join(_percent(_covered(some, kind, [place])) for kind in _KINDS)
            width = statistics.median(_width(f, "sets", place) / _width(f, "rows", place) for f in some)
            together = "" if not place else f"{sum(f['measured'][place - 1] for f in some)} of {len(some)}"
            yield f"| {names[study][place]} | {together} | {some[0]['truth'][place]:.3f} | {shares} | {width:.2f} |"
        shares = " | ".join(_percent(_covered(some, kind, places)) for kind in _KINDS)
        yield f"| **mean** | | | {shares} | |\n"


def _covered(figures: Figures, kind: str, places: Iterable[int]) -> float:
    chosen = [(f, place) for place in places for f in figures]
    return statistics.fmean(f[kind][1][place] <= f["truth"][place] <= f[kind][2][place] for f, place in chosen)


def _width(figure: Mapping[str, Any], kind: str, place: int) -> float:
    return float(figure[kind][2][place] - figure[kind][1][place])


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
