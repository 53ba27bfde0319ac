"""The section of docs/inference.md on answers: how often intervals cover, by table, epsilon and kind of question."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.accuracy.regressions_page import write_between
from benchmarks.scale.page import header
from marginweave.mechanisms.normal import ndtri

BEGIN, END = "<!-- coverage: begin -->\n", "<!-- coverage: end -->\n"
_SCORE = 4.676
"""Mean interval score of a 95 % interval of a normal estimate, for each standard deviation: 2 z + 80 (phi(z) - .025 z)."""
_SURE = 0.999
_SHOWN = {
    "unclipped, sd at least 12": "inside, unclipped, sd ≥ 12",
    "inside": "inside, as shown",
    "mean": "means",
    "quantile": "quantiles",
    "published, 1": "published, 1",
    "published, 2": "published, 2",
    "published, 3": "published, 3",
}
Figures = Sequence[Mapping[str, Any]]


def write_section(figures: Iterable[Mapping[str, Any]]) -> None:
    """Put the tables in their place on the page."""
    write_between(BEGIN, END, section(list(figures)))


def section(figures: Figures) -> Iterator[str]:
    """A line a table, method and epsilon; a column a kind of question."""
    yield from header("table|method|epsilon|releases|" + "|".join(_SHOWN.values()))
    cells = list(dict.fromkeys((f["table"], f["method"], f["epsilon"]) for f in figures))
    for table, method, epsilon in sorted(cells, key=lambda c: (c[1], c[0], c[2])):
        some = [
            f
            for f in figures
            if (f["table"], f["method"], f["epsilon"]) == (table, method, epsilon)
        ]
        shown = (covered(some, kind) for kind in _SHOWN)
        yield f"| {table} | {method} | {epsilon:g} | {len(some)} | {' | '.join(shown)} |"
    yield ""
    yield from header(
        "questions|epsilon|how many|covered|worst table|interval score beside the best"
    )
    for epsilon in sorted({f["epsilon"] for f in figures}):
        for stratum in ("below 1 %", "1 to 10 %", "above 10 %"):
            if line := _stratum(
                [f for f in figures if f["epsilon"] == epsilon], f"inside, {stratum}"
            ):
                yield f"| inside, {stratum} of the rows | {epsilon:g} | {line} |"


def _sums(figure: Mapping[str, Any], kind: str) -> np.ndarray:
    found = [
        sums
        for name, sums in figure["sums"].items()
        if name == kind or name.startswith(f"{kind}, ")
    ]
    return np.sum(found, axis=0) if found else np.zeros(5)


def covered(figures: Figures, kind: str) -> str:
    """Which share is covered, and half the width of its 99.9 % interval, clustered by release."""
    sums = np.array([own for f in figures if (own := _sums(f, kind))[0]])
    if not len(sums):
        return ""
    share = sums[:, 1].sum() / sums[:, 0].sum()
    if len(sums) < 2:
        return f"{100 * share:.1f}"
    rest = (sums[:, 1] - share * sums[:, 0]) / sums[:, 0].mean()
    half = -ndtri((1 - _SURE) / 2) * math.sqrt(float(rest.var(ddof=1)) / len(sums))
    return f"{100 * share:.1f} ± {100 * half:.1f}"


def _stratum(figures: Figures, kind: str) -> str:
    """How many questions, which share is covered in all and in the worst table, and the score beside the best one.

    The best one has intervals of normal errors of the stated standard deviation.
    """
    by_table: dict[str, np.ndarray] = {}
    for figure in figures:
        if (own := _sums(figure, kind))[0]:
            name = f"{figure['table']} {figure['method']}"
            by_table[name] = by_table.get(name, np.zeros(5)) + own
    if not by_table:
        return ""
    total = np.sum(list(by_table.values()), axis=0)
    worst = min(by_table, key=lambda name: by_table[name][1] / by_table[name][0])
    ratios = []
    for own in by_table.values():
        ratios.append(own[2] / (_SCORE * own[4]) if own[4] else math.nan)
    low = by_table[worst]
    return (
        f"{total[0]:,.0f} | {100 * total[1] / total[0]:.1f} | {worst}: {100 * low[1] / low[0]:.1f} | "
        f"{np.nanmin(ratios):.2f} to {np.nanmax(ratios):.2f}"
    )
