"""Forecast how far synthetic records will be from the table, as a number and a range, before a release.

The mean distance (TVD) of all pairs or triples of columns is about

    exp(constant) D^(noise + rows log(n / 5,000) + values log v)

D is arithmetic: how far noise puts the mean column where single columns have the whole share left for counts. With
n0 = sensitivity / mu, the noise of a count that has that share, n rows and s values of a column, a column is
sqrt(2 / pi) / 2 n0 / n sqrt(sum s^(2/3)) s^(2/3) away, at most 1. v = mean(1 - 1/s) is the distance of a uniform column from
a single value. Columns of few values, and tables of many rows, teach a model more of the pairs by the same noise.

What selection and a model make of that depends on the table, which no public fact tells. So a range is said with the number:
times exp(x sqrt(1 - log D)), where x runs from the 10th to the 90th percentile of held-out tables, all weighted alike.
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
from marginweave.forecast.plan_sentence import plan_sentence
from marginweave.measurements.whole_marginals import public_sizes
from marginweave.texts.sentences import Sentence


class Law(NamedTuple):
    """The logarithm of a constant, powers, and the ends of the range as x."""

    constant: float
    noise: float
    rows: float
    values: float
    low: float = 0.0
    high: float = 0.0


LAWS = {
    2: Law(-0.585, 0.389, 0.058, -0.609, -0.2, 0.154),
    3: Law(-0.393, 0.248, 0.066, -0.716, -0.249, 0.179),
}
ROWS = (500, 95_156)
COLUMNS = (5, 31)
VALUES = (2.0, 15.5)
EPSILONS = (0.3, 10.0)
"""The rows, columns, median numbers of values and epsilons that were measured: at least two tables reach each end."""
NOISE = (0.000063, 0.3879)
"""The D that was measured: at least two tables reach each end."""
COUNTED = ("marginals of 3 columns", "marginals, selected pairs", "marginals, chosen in rounds")
"""The counts of `auto` in the tables that were measured."""
USUAL_ROWS = 5_000
_MEAN_ERROR = math.sqrt(2 / math.pi)


class Expected(NamedTuple):
    """A mean TVD, and the range in which eight of ten tables were."""

    error: float
    low: float
    high: float

    @property
    def cells(self) -> tuple[Sentence, Sentence, Sentence]:
        """Error and ends of its range in percent, for three cells of a table."""
        return percent(self.error), percent(self.low), percent(self.high)

    @property
    def sentence(self) -> Sentence:
        """Error in percent, and in brackets its range."""
        error, low, high = map(_percentage, self)
        return plan_sentence("expected.error", error=error, low=low, high=high)


class Errors(NamedTuple):
    """The expected errors of pairs and of triples of columns."""

    pairs: Expected
    triples: Expected

    @property
    def sentence(self) -> Sentence:
        """Both errors with their ranges."""
        return plan_sentence(
            "expected.errors", pairs=self.pairs.sentence, triples=self.triples.sentence
        )


def percent(error: float) -> Sentence:
    """Return a distance of at most 1, in percent."""
    return plan_sentence("expected.percent", error=_percentage(error))


def _percentage(error: float) -> str:
    """Return a distance of at most 1 as a percentage with two digits."""
    return f"{100 * error:.2g}" if error < 0.995 else "100"


def known_rows(configuration: Configuration) -> int | None:
    """Return the public number of rows, that of the resized table where there is one."""
    return configuration.rows if configuration.resize is None else configuration.resize.records


def is_measured(configuration: Configuration) -> bool:
    """Return whether releases like it were measured: settings are those of auto, and no column is a set or private."""
    usual = automatic_aggregate(configuration)
    synthesize = configuration.synthesize
    attributes = configuration.attributes
    if configuration.aggregate != usual or not isinstance(synthesize, MixtureSynthesis):
        return False
    plain = MixtureSynthesis(
        records=synthesize.records, max_records=synthesize.max_records, seed=synthesize.seed
    )
    is_plain = synthesize == plain and automatic_method(usual, attributes).method == "mixture"
    has_sets = any(attribute.of_set or attribute.is_set for attribute in attributes)
    return (
        is_plain
        and not configuration.private_columns
        and not has_sets
        and counts_words(usual, len(attributes)) in COUNTED
    )


def unmeasured(configuration: Configuration, rows: int) -> str:
    """Return why nothing is forecast of this number of rows; empty where something is."""
    if not is_measured(configuration):
        return "it was measured only where aggregate and synthesize are left to auto, no column is private or a set"
    return beyond(
        public_sizes(configuration),
        count_noise_alone(configuration),
        rows,
        configuration.privacy.epsilon,
    )


def beyond(sizes: Sequence[int], noise: float, rows: int, epsilon: float) -> str:
    """Return the fact that is outside of what was measured of two tables; empty where none is.

    DP: arithmetic on public numbers.
    """
    least, most = NOISE
    percentages = (100 * least, 100 * most)
    facts = {
        "rows": (rows, ROWS),
        "epsilon": (epsilon, EPSILONS),
        "columns": (len(sizes), COLUMNS),
        "values in the median column": (statistics.median(sizes), VALUES),
        "% by which noise alone puts the mean column off": (
            100 * noise_error(sizes, noise, rows),
            percentages,
        ),
    }
    for name, (value, (low, high)) in facts.items():
        if not low <= value <= high:
            return f"it was measured for {low:,.6g} to {high:,.6g} {name}, not {value:,.6g}"
    return ""


def expected_errors(configuration: Configuration, rows: int | None) -> Errors | None:
    """Return what is expected of this number of rows, None beyond what was measured. DP: arithmetic on public numbers."""
    if rows is None or unmeasured(configuration, rows):
        return None
    distance = columns_error(configuration, rows)
    sizes = public_sizes(configuration)
    pairs, triples = (by_law(law, distance, sizes, rows) for law in LAWS.values())
    return Errors(pairs, triples)


def count_noise_alone(configuration: Configuration) -> float:
    """Return the noise of a count that has the whole share left for counts: sensitivity / mu."""
    privacy = configuration.privacy
    pairs = math.comb(len(configuration.attributes), 2)
    return (
        pair_noise(configuration)
        * privacy.epsilon
        / math.sqrt(pairs)
        / gdp_mu(privacy.epsilon, privacy.delta)
    )


def columns_error(configuration: Configuration, rows: int) -> float:
    """Return how far noise puts the mean column where single columns have the whole share left for counts."""
    return noise_error(public_sizes(configuration), count_noise_alone(configuration), rows)


def noise_error(sizes: Sequence[int], noise: float, rows: float) -> float:
    """Return how far noise puts the mean column of `sizes` values; `noise` is that of a count with the whole share."""
    shared = _MEAN_ERROR / 2 * noise / rows * math.sqrt(sum(size ** (2 / 3) for size in sizes))
    return statistics.fmean(min(1.0, shared * size ** (2 / 3)) for size in sizes)


def by_law(law: Law, distance: float, sizes: Sequence[int], rows: float) -> Expected:
    """Return what is expected where noise puts the mean column `distance` away; at most 1."""
    values = math.log(statistics.fmean(1 - 1 / size for size in sizes))
    power = law.noise + law.rows * math.log(rows / USUAL_ROWS) + law.values * values
    middle = law.constant + power * math.log(distance)
    width = math.sqrt(1 - math.log(distance))
    return Expected(*(min(1.0, math.exp(middle + x * width)) for x in (0.0, law.low, law.high)))
