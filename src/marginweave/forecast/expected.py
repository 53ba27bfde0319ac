"""How far synthetic records will be from the table: a law through what the benchmarks measured, before a release.

The mean distance (TVD) of all pairs or triples of columns is
exp(constant) (n0 / n)^(noise + turn log v) a^single v^values + exp(misfit) n^rows.
Here n0 = moved / mu is the noise of a count that has the whole budget, and n the number of rows. With s the numbers of values,
a = median(s)^(2/3) sqrt(sum s^(2/3)) is how much more noise the median column has where all share it, and v = mean(1 - 1/s) is
the distance of a uniform column from a single value. Where columns have few values, errors fall faster with the noise than
where much of a table is unmeasured whatever the noise: the turn. The second term is what a small table does not teach a model.
Fitted to the logarithms of the means in docs/accuracy.md#forecast, which says how near it comes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from marginweave.accounting.accountants import gdp_mu
from marginweave.configuration.defaults import automatic_aggregate, pair_noise
from marginweave.configuration.release import Configuration
from marginweave.forecast.accuracy import is_benchmarked
from marginweave.measurements.whole_marginals import public_sizes


class Law(NamedTuple):
    """Logarithms of the constants, and powers."""

    constant: float
    noise: float
    turn: float
    single: float
    values: float
    misfit: float
    rows: float


LAWS = {
    2: Law(-0.586, 0.551, -0.371, 0.595, -0.324, 4.54, -1.431),
    3: Law(0.018, 0.353, -0.645, 0.313, -0.654, 2.574, -0.979),
}
ROWS, COLUMNS, VALUES = (500, 48_842), (9, 31), (2.0, 15.5)
"""What was measured, of columns and their median number of values: nothing is forecast beyond."""
_LEAST_EPSILON, _MOST_EPSILON, _MOST_OF_FEW, _FEW = 0.3, 10.0, 3.0, 5_000


class Errors(NamedTuple):
    """Expected mean TVD."""

    pairs: float
    triples: float

    def __str__(self) -> str:
        return f"pairs {percent(self.pairs)}, triples {percent(self.triples)}"


def percent(error: float) -> str:
    """A distance of at most 1, in percent."""
    return f"{100 * error:.2g} %" if error < 0.995 else "100 %"


def known_rows(configuration: Configuration) -> int | None:
    """The public number of rows, that of the resized table where there is one."""
    return configuration.rows if configuration.resize is None else configuration.resize.records


def measured_epsilons(rows: int) -> tuple[float, float]:
    """Between which epsilons the law holds: with more of it, small tables were farther off than it says."""
    return _LEAST_EPSILON, _MOST_EPSILON if rows >= _FEW else _MOST_OF_FEW


def unmeasured(configuration: Configuration, rows: int) -> str:
    """Why nothing is forecast of so many rows; empty where something is."""
    if not is_benchmarked(configuration, automatic_aggregate(configuration)):
        return "it was measured only where aggregate and synthesize are left to auto, no column is private or a set"
    sizes = public_sizes(configuration)
    facts = {
        "rows": (rows, ROWS),
        "epsilon": (configuration.privacy.epsilon, measured_epsilons(rows)),
        "columns": (len(sizes), COLUMNS),
        "values in the median column": (statistics.median(sizes), VALUES),
    }
    found = (
        f"it was measured for {low:,} to {high:,} {what}, not {x:,}"
        for what, (x, (low, high)) in facts.items()
        if not low <= x <= high
    )
    return next(found, "")


def expected_errors(configuration: Configuration) -> Errors | None:
    """The expected errors of pairs and triples, None beyond what was measured. DP: arithmetic on public numbers."""
    rows = known_rows(configuration)
    if rows is None or unmeasured(configuration, rows):
        return None
    noise, sizes = count_noise_alone(configuration), public_sizes(configuration)
    return Errors(*(error_by_law(LAWS[length], sizes, noise, rows) for length in (2, 3)))


def count_noise_alone(configuration: Configuration) -> float:
    """The noise of a count that has all that is for counts: moved / mu."""
    privacy, pairs = configuration.privacy, math.comb(len(configuration.attributes), 2)
    return pair_noise(configuration) * privacy.epsilon / math.sqrt(pairs) / gdp_mu(privacy.epsilon, privacy.delta)


def error_by_law(law: Law, sizes: Sequence[int], noise: float, rows: float) -> float:
    """The distance where columns have so many values, and a count alone has so much noise; at most 1."""
    alone = statistics.median(sizes) ** (2 / 3) * math.sqrt(sum(size ** (2 / 3) for size in sizes))
    value = math.log(statistics.fmean(1 - 1 / size for size in sizes))
    by_noise = (
        (law.noise + law.turn * value) * math.log(noise / rows) + law.single * math.log(alone) + law.values * value
    )
    return min(1.0, math.exp(law.constant + by_noise) + math.exp(law.misfit + law.rows * math.log(rows)))
