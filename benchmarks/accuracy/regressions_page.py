"""The section of docs/inference.md on regressions: how often intervals cover, by coefficient."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.scale.page import header
from tests.support.places import REPOSITORY

PAGE = REPOSITORY / "docs" / "inference.md"
BEGIN, END = "<!-- regressions: begin -->\n", "<!-- regressions: end -->\n"
_SOURCES = ("release", "records", "sampled")
Figures = Sequence[Mapping[str, Any]]


def write_section(figures: Figures) -> None:
    """Put the tables in their place on the page."""
    write_between(BEGIN, END, section(figures))


def write_between(begin: str, end: str, lines: Iterable[str]) -> None:
    """Put lines between two marks of docs/inference.md."""
    before, rest = PAGE.read_text(encoding="utf-8").split(begin)
    _, after = rest.split(end)
    PAGE.write_text(f"{before}{begin}\n{chr(10).join(lines)}\n\n{end}{after}", encoding="utf-8")


def section(figures: Figures) -> Iterator[str]:
    """A line a regression and epsilon, with the means of all."""
    yield from header(
        "population|regression|epsilon|samples|refused|`regression` covers|worst coefficient"
        "|several tables cover|published records cover|the rows cover|width: `regression` / rows|CPU s"
    )
    cells = dict.fromkeys((f["population"], f["study"], f["epsilon"]) for f in figures)
    for epsilon in sorted({cell[2] for cell in cells}):
        shares = list[float]()
        for name, study, _ in sorted(cell for cell in cells if cell[2] == epsilon):
            some = [
                f
                for f in figures
                if (f["population"], f["study"], f["epsilon"]) == (name, study, epsilon)
            ]
            answered = [f for f in some if "refused" not in f]
            if not answered:
                yield f"| {name} | {study} | {epsilon:g} | {len(some)} | {len(some)} | | | | | | | |"
                continue
            covered = " | ".join(
                _percent(statistics.fmean(_hits(answered, source))) for source in _SOURCES[1:]
            )
            shares.append(statistics.fmean(_hits(answered, "release")))
            cpu = statistics.fmean(f["cpu"] for f in answered)
            yield (
                f"| {name} | {study} | {epsilon:g} | {len(some)} | {len(some) - len(answered)} | {_percent(shares[-1])} "
                f"| {_percent(_worst(answered))} | {_of_sets(answered)} | {covered} | {_wider(answered):.2f} | {cpu:.1f} |"
            )
        yield f"| **mean** | | {epsilon:g} | | | {_percent(statistics.fmean(shares))} | | | | | | |"


def _hits(figures: Figures, source: str) -> list[bool]:
    """Whether each interval covers the truth."""
    found = list[bool]()
    for figure in figures:
        if figure.get(source) is not None:
            _, lows, highs = figure[source]
            found += [
                low <= truth <= high
                for low, truth, high in zip(lows, figure["truth"], highs, strict=True)
            ]
    return found


def _of_sets(figures: Figures) -> str:
    """How often intervals of several synthetic tables cover, and of how many samples that was measured."""
    measured = [figure for figure in figures if figure.get("sets") is not None]
    return (
        f"{_percent(statistics.fmean(_hits(measured, 'sets')))} of {len(measured)}"
        if measured
        else ""
    )


def _worst(figures: Figures) -> float:
    """The least coverage of a coefficient that at least half of the samples have."""
    names = Counter(name for figure in figures for name in figure["names"])
    shares = list[float]()
    for name, times in names.items():
        if times >= len(figures) / 2:
            own = [_of_coefficient(figure, name) for figure in figures if name in figure["names"]]
            shares.append(statistics.fmean(own))
    return min(shares)


def _of_coefficient(figure: Mapping[str, Any], name: str) -> bool:
    place = figure["names"].index(name)
    _, lows, highs = figure["release"]
    return bool(lows[place] <= figure["truth"][place] <= highs[place])


def _wider(figures: Figures) -> float:
    """The median over all coefficients."""
    found = list[float]()
    for figure in figures:
        if figure["sampled"] is not None:
            (_, lows, highs), (_, least, most) = figure["release"], figure["sampled"]
            widths = zip(lows, highs, least, most, strict=True)
            found += [(high - low) / (end - start) for low, high, start, end in widths]
    return statistics.median(found)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
