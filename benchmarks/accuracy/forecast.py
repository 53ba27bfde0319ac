"""What `plan` expects of synthetic records beside what was measured: python -m benchmarks.accuracy.forecast [--write].

A cell is the default on a table, or on samples of so many rows, at an epsilon: the mean of its figures in figures.jsonl,
small.jsonl and forecast.jsonl, which `forecast_cells` measures. Printed are the laws and limits that
src/marginweave/forecast/expected.py should have; with --write the section of docs/accuracy.md is rendered.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.figures import Figure, current, read
from benchmarks.accuracy.forecast_cells import FILES
from benchmarks.accuracy.methods import DEFAULT, UNTOLD, default_method, parsed, settings
from benchmarks.accuracy.tables import table
from benchmarks.scale.page import header
from marginweave.forecast.cost import START, run_cost
from marginweave.forecast.expected import LAWS, USUAL_ROWS, Expected, Law, by_law, columns_error
from marginweave.forecast.sizes import planned_tables
from marginweave.measurements.split import plan_budget
from marginweave.measurements.whole_marginals import public_sizes
from tests.support.places import REPOSITORY

PAGE, HEADING = REPOSITORY / "docs" / "accuracy.md", "\n## Forecast\n"
NEAR, WIDE, ENDS, LENGTHS = 0.25, 1.5, (0.1, 0.9), (2, 3)
_FAR = 0.25
"""Logarithms of ratios beyond which a cell counts less in a fit: one table that is unlike all others should not decide."""
FAR = "photograph"
"""A table beyond the limits, as an example."""
SECTION = """
## Forecast

What `plan` expects of the default's synthetic records (`src/marginweave/forecast/expected.py`), beside {cells} settings of
{tables} tables that were measured (`python -m benchmarks.accuracy.forecast --write`). **Each table is judged by laws that were
fitted to the other tables alone**, and so is the range that `plan` prints, in which eight of ten settings are. Parts of a table
are the same table.

{shares}

The aim was 80 % within 25 % and 95 % within a factor of 1.5. **It is not reached.** How far records are follows from the
dependence of columns and the spread of values, which no public fact says. Of all settings of pairs {same} are on the side of
their table's median.

`plan` prints number and range for {columns} columns, a median column of {values} values, {rows} rows and epsilon
{epsilons}, without sets and private domains. Beyond that, where {beyond} of what was measured is, it says nothing: of the
pixels of a photograph, with {photographed} values in the median column, pairs were {off:.1f} times as far as expected (median),
at most {most:.0f} times. Of samples of 1,000 rows that were released without `rows`, {untold} of pairs are within 25 %.
"""
COST = """
Of {releases} releases of these settings {half} took between half and twice the CPU time that `plan` says, {more} took more, and
{less} less, without the {start:.0f} s of the program's start.
"""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A cell: which table, of how many rows, the facts that the laws know, and the mean TVD of pairs and of triples."""

    name: str
    rows: int
    epsilon: float
    is_told: bool
    sizes: Sequence[int]
    distance: float
    errors: Mapping[int, float]

    @cached_property
    def family(self) -> str:
        """The table, whichever the sample and the columns."""
        return self.name.split("/", maxsplit=1)[0].split("+", maxsplit=1)[0].removesuffix("_cat")

    @cached_property
    def terms(self) -> tuple[float, ...]:
        """What the numbers of a law are times."""
        noise, values = (
            math.log(self.distance),
            math.log(statistics.fmean(1 - 1 / size for size in self.sizes)),
        )
        return 1.0, noise, noise * math.log(self.rows / USUAL_ROWS), noise * values

    @property
    def width(self) -> float:
        """What the ends of a range are times."""
        return math.sqrt(1 - math.log(self.distance))


@cache
def every() -> tuple[Measured, ...]:
    """All that was measured of the default, by table and epsilon."""
    found: dict[tuple[str, float, str], list[Figure]] = defaultdict(list)
    for path in FILES:
        for figure in current(read(path), settings).values():
            cell = figure.cell
            usual = (
                (DEFAULT, UNTOLD)
                if "/" in cell.table
                else (default_method(cell.table, cell.epsilon),)
            )
            if cell.method in usual and not figure.failed:
                found[cell.table.rsplit("/", maxsplit=1)[0], cell.epsilon, cell.method].append(
                    figure
                )
    return tuple(_measured(*key, figures) for key, figures in sorted(found.items()))


def _measured(name: str, epsilon: float, method: str, figures: Sequence[Figure]) -> Measured:
    sample = figures[0].cell.table
    rows = len(table(sample).rows)
    made = parsed(UNTOLD if method == UNTOLD else DEFAULT, sample, epsilon)
    return Measured(
        name=name,
        rows=rows,
        epsilon=epsilon,
        is_told=method != UNTOLD,
        sizes=public_sizes(made),
        distance=columns_error(made, rows),
        errors={length: float(np.mean([f[f"tvd{length}"] for f in figures])) for length in LENGTHS},
    )


FACTS: Mapping[str, Callable[[Measured], float]] = {
    "ROWS": lambda cell: cell.rows,
    "COLUMNS": lambda cell: len(cell.sizes),
    "VALUES": lambda cell: statistics.median(cell.sizes),
    "EPSILONS": lambda cell: cell.epsilon,
    "NOISE": lambda cell: cell.distance,
}


@cache
def limits() -> dict[str, tuple[float, float]]:
    """Of each fact the least and the most that two tables have."""
    found = {}
    for name, fact in FACTS.items():
        facts = defaultdict[str, list[float]](list)
        for cell in every():
            facts[cell.family].append(fact(cell))
        found[name] = sorted(map(min, facts.values()))[1], sorted(map(max, facts.values()))[-2]
    return found


@cache
def cells() -> tuple[Measured, ...]:
    """What was measured within these limits."""
    ends = limits()
    return tuple(
        c
        for c in every()
        if all(low <= FACTS[name](c) <= high for name, (low, high) in ends.items())
    )


def _weights(measured: Sequence[Measured]) -> NDArray[Any]:
    """All tables count alike."""
    families = [cell.family for cell in measured]
    sizes = Counter(families)
    return np.array([1 / sizes[family] for family in families]) / len(sizes)


def _powers(measured: Sequence[Measured], length: int) -> NDArray[Any]:
    """The numbers of a law by Huber's loss of logarithms: squares of what is near, distances of what is far."""
    terms = np.array([cell.terms for cell in measured])
    logs = np.log([cell.errors[length] for cell in measured])
    weights = _weights(measured)
    near = np.ones(len(measured))
    found = np.zeros(terms.shape[1])
    for _ in range(50):
        weighted = terms.T * (weights * near)
        found = np.linalg.solve(weighted @ terms, weighted @ logs)
        near = np.minimum(1, _FAR / np.maximum(np.abs(terms @ found - logs), 1e-12))
    return found


def held_out(measured: Sequence[Measured], length: int) -> NDArray[Any]:
    """Logarithms of what was measured over what the law of the other tables expects, a cell each."""
    families = np.array([cell.family for cell in measured])
    terms, found = (
        np.array([cell.terms for cell in measured]),
        np.log([cell.errors[length] for cell in measured]),
    )
    for family in dict.fromkeys(families):
        own = families == family
        others = [cell for cell in measured if cell.family != family]
        found[own] -= terms[own] @ _powers(others, length)
    return found


def _range(measured: Sequence[Measured], logs: NDArray[Any]) -> tuple[float, float]:
    """Between which numbers eight of ten cells are, tables counted alike; in units of the width."""
    scaled, weights = logs / [cell.width for cell in measured], _weights(measured)
    order = np.argsort(scaled)
    shares = np.cumsum(weights[order])
    low, high = (
        float(scaled[order][min(np.searchsorted(shares, end), len(order) - 1)]) for end in ENDS
    )
    return low, high


@cache
def fitted(length: int) -> Law:
    """The law of all tables, and the range of tables that it was not fitted to."""
    numbers = [*_powers(cells(), length), *_range(cells(), held_out(cells(), length))]
    return Law(*(round(float(number), 3) for number in numbers))


def expected(cell: Measured, length: int) -> Expected:
    """What `plan` says of a cell."""
    return by_law(LAWS[length], cell.distance, cell.sizes, cell.rows)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A cell, by what was fitted to other tables: the logarithm of measured over expected, and its side of the range, or 0."""

    cell: Measured
    length: int
    log: float
    side: int

    @property
    def is_near(self) -> bool:
        """Whether what is expected is within 25 % of what was measured."""
        return abs(math.exp(-self.log) - 1) <= NEAR

    @property
    def is_wide(self) -> bool:
        """Whether it is within a factor of 1.5."""
        return abs(self.log) <= math.log(WIDE)


@cache
def judged(*, has_far: bool = False) -> tuple[Judged, ...]:
    """Every cell and length by what was fitted to other tables, the ranges, too; `has_far` has the table beyond the limits."""
    measured, found = [*cells(), *(far_cells() if has_far else ())], list[Judged]()
    for length in LENGTHS:
        logs = held_out(measured, length)
        for family in families_of(measured):
            others = [cell for cell in measured if cell.family != family]
            low, high = _range(others, held_out(others, length))
            for cell, log in zip(measured, logs, strict=True):
                if cell.family == family:
                    side = int(log / cell.width > high) - int(log / cell.width < low)
                    found.append(Judged(cell=cell, length=length, log=float(log), side=side))
    return tuple(found)


def far_cells() -> list[Measured]:
    """Those of the table beyond the limits."""
    return [cell for cell in every() if cell.family == FAR]


def share(found: Sequence[bool]) -> float:
    """How many of them are so."""
    return sum(found) / len(found)


def _percent(found: Sequence[bool]) -> str:
    return f"{100 * share(found):.0f} %"


JUDGEMENTS: tuple[Callable[[Judged], bool], ...] = (
    lambda j: j.is_near,
    lambda j: j.is_wide,
    lambda j: j.side == 0,
    lambda j: j.side > 0,
)
"""Within 25 %, within a factor of 1.5, in the range, above it."""


def _shares(
    found: Sequence[Judged], of: Sequence[Callable[[Judged], bool]] = JUDGEMENTS[:3]
) -> str:
    return " | ".join(_percent([is_so(j) for j in found]) for is_so in of)


def share_lines() -> Iterator[str]:
    """How near forecasts come: of all settings, by how much noise there is, and with all tables counted alike."""
    yield from header("of|settings|within 25 %|within a factor of 1.5|in the range|above it")
    noises = (
        (0, 2, ""),
        (0.005, 2, ", noise puts the mean column at least 0.5 % off"),
        (0, 0.005, ", less"),
    )
    for length, name in zip(LENGTHS, ("pairs", "triples"), strict=True):
        every_side = [j for j in judged() if j.length == length]
        for low, high, words in noises:
            some = [j for j in every_side if low <= j.cell.distance < high]
            yield f"| {name}{words} | {len(some)} | {_shares(some, JUDGEMENTS)} |"
        families = [
            [j for j in every_side if j.cell.family == family] for family in families_of(cells())
        ]
        alike = (
            f"{statistics.fmean(100 * share([is_so(j) for j in own]) for own in families):.0f} %"
            for is_so in JUDGEMENTS
        )
        yield f"| {name}, all tables counted alike | {len(families)} tables | {' | '.join(alike)} |"
        with_far = [j for j in judged(has_far=True) if j.length == length]
        yield f"| {name}, with a photograph (below) | {len(with_far)} | {_shares(with_far, JUDGEMENTS)} |"


def families_of(measured: Sequence[Measured]) -> list[str]:
    """The tables, each once."""
    return list(dict.fromkeys(cell.family for cell in measured))


def section() -> Iterator[str]:
    """The section of docs/accuracy.md."""
    ends = limits()
    shown = {name.lower(): f"{low:,g} to {high:,g}" for name, (low, high) in ends.items()}
    pairs = [j for j in judged() if j.length == LENGTHS[0]]
    middle = {family: _median(pairs, family) > 0 for family in families_of(cells())}
    far = far_cells()
    ratios = [cell.errors[LENGTHS[0]] / expected(cell, LENGTHS[0]).error for cell in far]
    yield SECTION.format(
        cells=len(cells()),
        tables=len(families_of(cells())),
        shares="\n".join(share_lines()),
        same=_percent([(j.log > 0) is middle[j.cell.family] for j in pairs]),
        beyond=_percent([cell not in cells() for cell in every()]),
        photographed=f"{max(statistics.median(cell.sizes) for cell in far):g}",
        off=statistics.median(ratios),
        most=max(ratios),
        untold=_percent([j.is_near for j in pairs if not j.cell.is_told]),
        **shown,
    )
    yield from family_lines()
    yield from cost_lines()


def cost_lines() -> Iterator[str]:
    """How near the CPU time comes that `plan` says."""
    found = cost_ratios()
    shares = {
        "half": _percent([0.5 <= ratio <= 2 for ratio in found]),
        "more": _percent([ratio > 2 for ratio in found]),
        "less": _percent([ratio < 0.5 for ratio in found]),
    }
    yield COST.format(releases=len(found), start=START, **shares)


def _median(found: Sequence[Judged], family: str) -> float:
    return statistics.median(j.log for j in found if j.cell.family == family)


def family_lines() -> Iterator[str]:
    """A line a table: settings, sizes, and the same shares; the median of measured over expected."""
    yield from header(
        "table|settings|rows|columns|pairs, within 25 %|1.5 times|in the range|measured / expected|triples, within 25 %|"
        "1.5 times|in the range|measured / expected"
    )
    for family in families_of(cells()):
        own = [cell for cell in cells() if cell.family == family]
        rows, columns = (
            _span([int(FACTS[name](cell)) for cell in own]) for name in ("ROWS", "COLUMNS")
        )
        sides = []
        for length in LENGTHS:
            found = [j for j in judged() if j.length == length and j.cell.family == family]
            sides.append(f"{_shares(found)} | {math.exp(_median(found, family)):.2f}")
        yield f"| {family} | {len(own)} | {rows} | {columns} | {' | '.join(sides)} |"


def _span(numbers: Sequence[int]) -> str:
    return " to ".join(dict.fromkeys((f"{min(numbers):,}", f"{max(numbers):,}")))


def cost_ratios() -> list[float]:
    """CPU time of releases in this process over what `plan` says of it, without the start of the program."""
    found = list[float]()
    for figure in current(read(FILES[-1]), settings).values():
        made = parsed(figure.cell.method, figure.cell.table, figure.cell.epsilon)
        said = run_cost(made, planned_tables(made, plan_budget(made)), figure.rows, 1)
        if said is not None:
            found.append(figure["cpu"] / (said.cpu - START))
    return found


def write() -> None:
    """Put the section in its place, the last of the page."""
    before = PAGE.read_text(encoding="utf-8").split(HEADING, maxsplit=1)[0]
    PAGE.write_text(before + "\n".join(section()) + "\n", encoding="utf-8")


def main() -> None:
    """Print, and write."""
    shown: dict[str, Any] = {
        f"LAWS[{length}]": tuple(fitted(length)) for length in LENGTHS
    } | limits()
    for name, found in shown.items():
        sys.stdout.write(f"{name}: {found}\n")
    for length in LENGTHS:
        sys.stdout.write(f"{length}: {_shares([j for j in judged() if j.length == length])}\n")
    if "--write" in sys.argv:
        write()


if __name__ == "__main__":
    main()
