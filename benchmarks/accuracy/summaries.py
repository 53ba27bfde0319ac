"""Repetitions of a cell become a mean and a spread."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks.accuracy.figures import Figure
from benchmarks.accuracy.methods import METHODS, PEERS
from benchmarks.accuracy.tables import TABLES


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Mean and sample standard deviation; of one value there is none."""

    mean: float
    deviation: float | None

    def __str__(self) -> str:
        return f"{self.mean:.4f}" + ("" if self.deviation is None else f" ± {self.deviation:.4f}")


@dataclass(frozen=True, kw_only=True)
class Summary:
    """All repetitions of a method on a table at an epsilon."""

    table: str
    epsilon: float
    method: str
    figures: tuple[Figure, ...]

    @property
    def failed(self) -> str:
        """Why one of them has no records; empty if all do."""
        return next((figure.failed for figure in self.figures if figure.failed), "")

    @property
    def is_peer(self) -> bool:
        """Whether it is of another system."""
        return self.method in PEERS

    def of(self, key: str) -> Spread:
        """Mean and spread of a number."""
        values = [float(figure[key]) for figure in self.figures]
        spread = statistics.stdev(values) if len(values) > 1 else None
        return Spread(mean=statistics.fmean(values), deviation=spread)


Summaries = Mapping[tuple[str, float], tuple[Summary, ...]]


def summarize(figures: Iterable[Figure]) -> Summaries:
    """The methods of each table and epsilon, in the order of the registries."""
    grouped: dict[tuple[str, float], dict[str, list[Figure]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for figure in sorted(figures, key=_place):
        grouped[figure.cell.table, figure.cell.epsilon][figure.cell.method].append(figure)
    return {
        (table, epsilon): tuple(
            Summary(table=table, epsilon=epsilon, method=method, figures=tuple(found))
            for method, found in methods.items()
        )
        for (table, epsilon), methods in grouped.items()
    }


def _place(figure: Figure) -> tuple[int, float, int, int]:
    cell = figure.cell
    return TABLES.index(cell.table), cell.epsilon, METHODS.index(cell.method), cell.seed


def best(summaries: Iterable[Summary], key: str) -> Summary | None:
    """The one with the least mean; None where nothing succeeded."""
    return min((s for s in summaries if not s.failed), key=lambda s: s.of(key).mean, default=None)


def verdict(ours: Spread, other: Spread) -> str:
    """Whether ours is better; means that differ by less than both standard deviations together decide nothing."""
    share = abs(ours.mean - other.mean) / other.mean if other.mean else 0.0
    if abs(ours.mean - other.mean) <= (ours.deviation or 0.0) + (other.deviation or 0.0):
        return "even"
    return f"won by {share:.0%}" if ours.mean < other.mean else f"**lost** by {share:.0%}"
