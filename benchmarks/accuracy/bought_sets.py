"""Measure what bought sets of four columns would tell: python -m benchmarks.accuracy.bought_sets [--write].

Where all triples are measured, a table of four binary columns is known but for one number t, by which all cells with an even
number of ones may be larger and all others smaller, until a cell is empty: its bounds. With 2 % of the budget (mu²) random sets
of four columns, chosen without looking, would be measured, too. How far these are from a table without an interaction of four
columns says how far others are, on average over sets: an interval goes as far as 95 % of them, within its bounds.
Triples are taken as exact. With --write a section of docs/inference.md is rendered.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from benchmarks.accuracy import binary
from benchmarks.accuracy.outside import SIZES
from benchmarks.accuracy.regressions_page import write_between
from benchmarks.accuracy.tables import delta, table
from benchmarks.scale.page import header
from marginweave.accounting.accountants import gdp_mu

BEGIN, END = "<!-- bought: begin -->\n", "<!-- bought: end -->\n"
EPSILONS, BOUGHT, SHARE, LEVEL = (1.0, 3.0, 10.0), 20, 0.02, 0.95
DRAWS, QUESTIONS = 20, 200
"""How often sets are bought, and of how many random cells of random sets is asked then."""
_CELLS = 16
_SIGNS = np.array([(-1) ** cell.bit_count() for cell in range(_CELLS)], np.float64)
_LEAST = 100
"""Answers of a stratum that is shown."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Fours:
    """Every set of four columns: counts, shape (sets, cells); t, from `low` to `high`, is 0, and `guess` by the triples."""

    counts: np.ndarray
    low: np.ndarray
    high: np.ndarray
    guess: np.ndarray


def fours(name: str) -> Fours:
    """Those of a table of sixteen binary columns."""
    bits = np.array(table(name).rows).astype(np.int64)
    sets = itertools.combinations(range(binary.COLUMNS), 4)
    counts = np.array(
        [np.bincount(bits[:, own] @ (1, 2, 4, 8), minlength=_CELLS) for own in map(list, sets)],
        np.float64,
    )
    low, high = -counts[:, _SIGNS > 0].min(axis=1), counts[:, _SIGNS < 0].min(axis=1)
    guess = [_without_interaction(*ends) for ends in zip(counts, low, high, strict=True)]
    return Fours(counts=counts, low=low, high=high, guess=np.array(guess))


def _without_interaction(counts: np.ndarray, low: float, high: float) -> float:
    """The t at which even and odd cells have the same product."""

    def interaction(shift: float) -> float:
        return float(_SIGNS @ np.log(np.maximum(counts + _SIGNS * shift, 1e-9)))

    inside = low + 1e-6, high - 1e-6
    if inside[0] >= inside[1] or interaction(inside[0]) >= 0 or interaction(inside[1]) <= 0:
        return 0.0
    return float(brentq(interaction, *inside))


def covered(sets: Fours, deviation: float, rng: np.random.Generator) -> np.ndarray:
    """Of each question the true count, whether it is covered, the width of its interval, and that of its bounds."""
    found = []
    for _ in range(DRAWS):
        bought = rng.choice(len(sets.guess), BOUGHT, replace=False)
        seen = np.sort(np.abs(sets.guess[bought] + rng.normal(0, deviation, BOUGHT)))
        reach = seen[math.ceil(LEVEL * (BOUGHT + 1)) - 1]
        asked = rng.integers(len(sets.guess), size=QUESTIONS)
        low = np.maximum(sets.low[asked], sets.guess[asked] - reach)
        high = np.minimum(sets.high[asked], sets.guess[asked] + reach)
        truth = sets.counts[asked, rng.integers(_CELLS, size=QUESTIONS)]
        hits = (low <= 1e-6) & (high >= -1e-6)
        found.append(
            np.stack([truth, hits, high - low, sets.high[asked] - sets.low[asked]], axis=1)
        )
    return np.concatenate(found)


def section() -> Iterator[str]:
    """A line for each made table and epsilon."""
    strata = ("below 100", "100 to 999", "1,000 to 9,999", "10,000 and more")
    yield from header(
        "made table|epsilon|noise of a cell|covered|"
        + "|".join(strata)
        + "|width, of that of the bounds"
    )
    for kind in binary.KINDS:
        name = f"binary-{kind}-2"
        sets = fours(name)
        for epsilon in EPSILONS:
            mu = gdp_mu(epsilon, delta(name))
            deviation = math.sqrt(BOUGHT / (SHARE * mu**2) / _CELLS)  # of the mean of sixteen cells
            truth, hits, width, bounds = covered(sets, deviation, np.random.default_rng(0)).T
            of_size = np.digitize(truth, SIZES)
            shares = [
                f"{100 * hits[of_size == size].mean():.1f} %"
                if (of_size == size).sum() >= _LEAST
                else ""
                for size in range(len(strata))
            ]
            yield (
                f"| {kind} | {epsilon:g} | {deviation:.0f} | {100 * hits.mean():.1f} % | {' | '.join(shares)} "
                f"| {width.sum() / bounds.sum():.2f} |"
            )


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy.bought_sets", description=(__doc__ or "")[:59]
    )
    parser.add_argument(
        "--write", action="store_true", help="write the section of docs/inference.md"
    )
    lines = list(section())
    sys.stdout.write("\n".join(lines) + "\n")
    if parser.parse_args().write:
        write_between(BEGIN, END, lines)


if __name__ == "__main__":
    main()
