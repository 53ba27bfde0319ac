"""How far synthetic records will be from the table, as a number and a range, before a release.

The mean distance (TVD) of all pairs or triples of columns is about

    exp(constant) D^(noise + rows log(n / 5,000) + values log v)

D is arithmetic: how far noise puts the mean column where single columns have the whole budget. With n0 = moved / mu, the noise
of a count that has the whole budget, n rows and s values of a column, a column is sqrt(2 / pi) / 2 n0 / n sqrt(sum s^(2/3))
s^(2/3) away, at most 1. v = mean(1 - 1/s) is the distance of a uniform column from a single value. Columns of few values, and
tables of many rows, teach a model more of the pairs by the same noise.

What selection and a model make of that depends on the table, which no public fact tells. So a range is said with the number:
times exp(x sqrt(1 - log D)), where x is between those that nine and one of ten tables had which the law was not fitted to.
docs/accuracy.md#forecast has how near both come, of tables that the law was not fitted to, and how often a range held.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from marginweave.accounting.accountants import gdp_mu
from marginweave.configuration.default_records import automatic_method
from marginweave.configuration.defaults import automatic_aggregate, counts_words, pair_noise
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.measurements.whole_marginals import public_sizes


class Law(NamedTuple):
    """The logarithm of a constant, powers, and between which x the range is."""

    constant: float
    noise: float
    rows: float
    values: float
    low: float = 0.0
    high: float = 0.0


LAWS = {
    2: Law(-0.428, 0.420, 0.053, -0.601, -0.207, 0.169),
    3: Law(-0.278, 0.271, 0.062, -0.713, -0.246, 0.174),
}
ROWS, COLUMNS, VALUES, EPSILONS = (500, 95_156), (5, 31), (2.0, 15.5), (0.3, 10.0)
"""Of rows, columns, their median number of values, and epsilon what was measured: two tables have as little and as much."""
NOISE = (0.000063, 0.4483)
"""The same of D."""
COUNTED = ("marginals of 3 columns", "marginals, selected pairs", "marginals, chosen in rounds")
"""What `auto` counted in the tables that were measured."""
USUAL_ROWS, _MEAN_ERROR = 5_000, math.sqrt(2 / math.pi)


class Expected(NamedTuple):
    """A mean TVD, and between which eight of ten tables were."""

    error: float
    low: float
    high: float

    def __str__(self) -> str:
        return (
            f"{percent(self.error)} ({percent(self.low).removesuffix(' %')} to {percent(self.high).removesuffix(' %')})"
        )


class Errors(NamedTuple):
    """What is expected of pairs and of triples of columns."""

    pairs: Expected
    triples: Expected

    def __str__(self) -> str:
        return f"pairs {self.pairs}, triples {self.triples}"


def percent(error: float) -> str:
    """A distance of at most 1, in percent."""
    return f"{100 * error:.2g} %" if error < 0.995 else "100 %"


def known_rows(configuration: Configuration) -> int | None:
    """The public number of rows, that of the resized table where there is one."""
    return configuration.rows if configuration.resize is None else configuration.resize.records


def is_measured(configuration: Configuration) -> bool:
    """Whether releases like it were measured: settings are those that auto chooses, and no column is a set or private."""
    usual, synthesize, attributes = (
        automatic_aggregate(configuration),
        configuration.synthesize,
        configuration.attributes,
    )
    if configuration.aggregate != usual or not isinstance(synthesize, MixtureSynthesis):
        return False
    plain = MixtureSynthesis(records=synthesize.records, max_records=synthesize.max_records, seed=synthesize.seed)
    is_plain = synthesize == plain and automatic_method(usual, attributes).method == "mixture"
    has_other = configuration.private_columns or any(attribute.of_set or attribute.is_set for attribute in attributes)
    return is_plain and not has_other and counts_words(usual, len(attributes)) in COUNTED


def unmeasured(configuration: Configuration, rows: int) -> str:
    """Why nothing is forecast of so many rows; empty where something is."""
    if not is_measured(configuration):
        return "it was measured only where aggregate and synthesize are left to auto, no column is private or a set"
    return beyond(public_sizes(configuration), count_noise_alone(configuration), rows, configuration.privacy.epsilon)


def beyond(sizes: Sequence[int], noise: float, rows: int, epsilon: float) -> str:
    """Which fact no two tables have that were measured; empty where two have all. DP: arithmetic on public numbers."""
    least, most = NOISE
    facts = {
        "rows": (rows, ROWS),
        "epsilon": (epsilon, EPSILONS),
        "columns": (len(sizes), COLUMNS),
        "values in the median column": (statistics.median(sizes), VALUES),
        "% by which noise alone puts the mean column off": (
            100 * noise_error(sizes, noise, rows),
            (100 * least, 100 * most),
        ),
    }
    found = (
        f"it was measured for {low:,.6g} to {high:,.6g} {what}, not {x:,.6g}"
        for what, (x, (low, high)) in facts.items()
        if not low <= x <= high
    )
    return next(found, "")


def expected_errors(configuration: Configuration, rows: int | None) -> Errors | None:
    """What is expected of so many rows, None beyond what was measured. DP: arithmetic on public numbers."""
    if rows is None or unmeasured(configuration, rows):
        return None
    distance, sizes = columns_error(configuration, rows), public_sizes(configuration)
    pairs, triples = (by_law(law, distance, sizes, rows) for law in LAWS.values())
    return Errors(pairs, triples)


def count_noise_alone(configuration: Configuration) -> float:
    """The noise of a count that has all that is for counts: moved / mu."""
    privacy, pairs = configuration.privacy, math.comb(len(configuration.attributes), 2)
    return pair_noise(configuration) * privacy.epsilon / math.sqrt(pairs) / gdp_mu(privacy.epsilon, privacy.delta)


def columns_error(configuration: Configuration, rows: int) -> float:
    """How far noise puts the mean column where single columns have the whole budget."""
    return noise_error(public_sizes(configuration), count_noise_alone(configuration), rows)


def noise_error(sizes: Sequence[int], noise: float, rows: float) -> float:
    """The same, where columns have so many values, and a count alone has so much noise."""
    shared = _MEAN_ERROR / 2 * noise / rows * math.sqrt(sum(size ** (2 / 3) for size in sizes))
    return statistics.fmean(min(1.0, shared * size ** (2 / 3)) for size in sizes)


def by_law(law: Law, distance: float, sizes: Sequence[int], rows: float) -> Expected:
    """What is expected where noise puts the mean column so far away; at most 1."""
    values = math.log(statistics.fmean(1 - 1 / size for size in sizes))
    power = law.noise + law.rows * math.log(rows / USUAL_ROWS) + law.values * values
    middle, width = law.constant + power * math.log(distance), math.sqrt(1 - math.log(distance))
    return Expected(*(min(1.0, math.exp(middle + x * width)) for x in (0.0, law.low, law.high)))
