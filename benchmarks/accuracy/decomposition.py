"""Where the default's error comes from: python -m benchmarks.accuracy.decomposition [--tables …] [--epsilons …].

Every table is released four times: as it is; from the same sets, at the same levels, without noise and at an epsilon at which
nothing is left out, merged or shrunk for noise; that with twenty times the records; and from all triples at their finest,
likewise. What lies between one and the next is what noise, records, and sets that are not measured add; what is left is the
model's. Figures are in decomposition.jsonl as
soon as they are there.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from platformdirs import user_cache_path

from benchmarks.accuracy import in_process, methods
from benchmarks.accuracy.figures import Cell, Figure, append, is_done, read
from benchmarks.accuracy.in_process import InProcess
from benchmarks.accuracy.tables import TABLES, delta, table
from benchmarks.scale.page import header
from benchmarks.scale.watch import Limits
from marginweave.accounting.accountants import gdp_mu
from marginweave.mechanisms.gaussian import RoundedGaussian

FIGURES = Path(__file__).with_name("decomposition.jsonl")
EPSILONS = (1.0, 10.0)
MANY = 20  # times the records
ENOUGH, CERTAIN = 38.0, 0.001  # epsilon and delta of a release that leaves nothing out
SECTION = """
## Where the error comes from

Mean TVD of triples of the default, taken apart (`python -m benchmarks.accuracy.decomposition`). *Noise* falls away where the
same sets have none, *records* with twenty times the records, *not measured* where all triples are measured at their finest;
the rest is *model*. *Bound* is the error of all triples with the noise that is best for them (ResidualPlanner: Xiao, He, Zhang
and Kifer 2023), not clipped: it can be above 1.
"""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """How a release differs from the default."""

    method: str = methods.DEFAULT
    is_exact: bool = True
    times: int = 1


VARIANTS = {
    "released": Variant(is_exact=False),
    "exact": Variant(),
    "exact, many": Variant(times=MANY),
    "all triples": Variant(method="triples-mixture", times=MANY),
}


@dataclass
class Decomposed(InProcess):
    """Releases that differ from the default as a variant says, the method of a cell."""

    def run(self, cell: Cell) -> Figure:
        """A release of the variant, the method of the cell, under the settings of the method that it is of."""
        variant = VARIANTS[cell.method]
        if not variant.is_exact:
            return replace(super().run(replace(cell, method=variant.method)), cell=cell)
        usual = replace(cell, method=variant.method, epsilon=ENOUGH)
        measured = methods.settings(replace(cell, method=variant.method))
        records = (
            {"records": variant.times * len(table(cell.table).rows)} if variant.times > 1 else {}
        )

        def configuration(asked: Cell, source: str) -> dict[str, Any]:
            made = methods.configuration(asked, source)
            sections = (
                {"aggregate": measured["aggregate"], "synthesize": made["synthesize"] | records}
                if measured
                else {}
            )
            return made | {"privacy": made["privacy"] | {"delta": CERTAIN}} | sections

        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(in_process, "configuration", configuration))
            stack.enter_context(mock.patch.object(in_process, "delta", return_value=CERTAIN))
            stack.enter_context(
                mock.patch.object(RoundedGaussian, "add", lambda _, counts, *__: counts)
            )
            return replace(super().run(usual), cell=cell)


def bound(sizes: Sequence[int], multiplier: float, rows: int) -> float:
    """Mean TVD of all triples by themselves, measured with the noise that is best for the sum of their variances.

    A residual of the columns A costs prod_A (1 - 1/s) / sigma^2 and adds sigma^2 prod_A (s - 1) prod_{T - A} 1/s to the cells
    of a triple T that holds A; sum_A of costs is 1 / multiplier^2 = mu^2, and sigma_A^2 is in proportion to
    sqrt(added / cost). A cell with the standard deviation d is off by d sqrt(2 / pi) in the mean.
    """
    triples = list(itertools.combinations(range(len(sizes)), 3))
    residuals = [a for k in range(4) for a in itertools.combinations(range(len(sizes)), k)]
    costs = {a: math.prod(1 - 1 / sizes[i] for i in a) for a in residuals}
    inside = {t: [a for k in range(4) for a in itertools.combinations(t, k)] for t in triples}
    added = {
        (t, a): math.prod(sizes[i] - 1 for i in a) / math.prod(sizes[i] for i in t if i not in a)
        for t in triples
        for a in inside[t]
    }
    weights = dict.fromkeys(residuals, 0.0)
    for (_, a), number in added.items():
        weights[a] += number
    total = sum(math.sqrt(costs[a] * weights[a]) for a in residuals) * multiplier**2
    variances = {a: total * math.sqrt(costs[a] / weights[a]) for a in residuals}
    errors = []
    for t in triples:
        cells = math.prod(sizes[i] for i in t)
        variance = sum(variances[a] * added[t, a] for a in inside[t]) / cells
        errors.append(cells * math.sqrt(2 / math.pi * variance) / (2 * rows))
    return float(np.mean(errors))


def section() -> Iterator[str]:
    """The section of docs/accuracy.md."""
    kept = read(FIGURES)
    yield SECTION
    yield from header("table|epsilon|TVD of triples|noise|records|not measured|model|bound")
    for name, epsilon in itertools.product(TABLES, EPSILONS):
        found = [kept.get(cell) for cell in _cells((name,), (epsilon,))]
        if all(figure is not None and not figure.failed for figure in found):
            yield _line(name, epsilon, [figure["tvd3"] for figure in found if figure is not None])


def _line(name: str, epsilon: float, errors: Sequence[float]) -> str:
    least = bound(table(name).sizes, 1 / gdp_mu(epsilon, delta(name)), len(table(name).rows))
    steps = [*(before - after for before, after in itertools.pairwise(errors)), errors[-1]]
    return f"| {name} | {epsilon:g} | {errors[0]:.4f} | {' | '.join(f'{step:.4f}' for step in steps)} | {least:.3f} |"


def _cells(tables: Sequence[str], epsilons: Sequence[float]) -> list[Cell]:
    product = itertools.product(tables, epsilons, VARIANTS)
    return [
        Cell(table=name, epsilon=epsilon, method=variant, seed=0)
        for name, epsilon, variant in product
    ]


def main() -> None:
    """Measure what is missing, and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy.decomposition", description=__doc__
    )
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=TABLES)
    parser.add_argument("--epsilons", nargs="*", type=float, choices=EPSILONS, default=EPSILONS)
    parser.add_argument(
        "--seconds", type=float, default=1200, help="CPU seconds after which a cell is stopped"
    )
    options = parser.parse_args()
    folder = user_cache_path("marginweave-benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    limits = Limits(megabytes=8000, cpu=options.seconds, seconds=20 * options.seconds)
    with tempfile.TemporaryDirectory() as place, Decomposed(Path(place), folder, limits) as runner:
        for cell in _cells(options.tables, options.epsilons):
            if not is_done(cell, read(FIGURES)):
                figure = runner.run(cell)
                append(FIGURES, figure)
                error = figure.failed or f"{figure['tvd3']:.4f}"
                sys.stdout.write(
                    f"{cell.table} {cell.epsilon:g} {cell.method}: {error} ({figure['cpu']:.0f} s)\n"
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
