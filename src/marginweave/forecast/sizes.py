"""Forecast what a release will be good for, by the number of rows, from public numbers alone."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from marginweave.base.parallel import available_cores
from marginweave.configuration import defaults
from marginweave.configuration.columns.binned import BinnedColumn
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.configuration.yaml_source import mapping_of
from marginweave.counts.marginals import cells
from marginweave.domain.masks import Clique
from marginweave.forecast.cost import RunCost, Table, run_cost
from marginweave.forecast.expected import Errors, expected_errors, known_rows
from marginweave.forecast.plan_sentence import plan_sentence
from marginweave.measurements.larger_marginals import LargerMarginals
from marginweave.measurements.plan import Plan
from marginweave.measurements.round_draws import RoundMarginals
from marginweave.measurements.split import plan_budget
from marginweave.measurements.tuple_level import TupleLevel
from marginweave.measurements.whole_marginals import WholeMarginals, counted_sizes, public_sizes
from marginweave.mechanisms.gaussian import RoundedGaussian
from marginweave.released.verdict import grade
from marginweave.texts.sentences import Sentence, Share

SIZES = 1_000, 10_000, 100_000
_NAMED = 6
_GRADE_KEYS = {"good": "size.good", "with care": "size.with-care", "not": "size.noise"}


class SizeForecast(NamedTuple):
    """The quality and cost that a release of `rows` rows will have.

    `single` and `pairs` are distances by noise and what they are good for. `errors` is how far synthetic records are expected
    to be, and between which eight of ten tables were in the benchmarks; `cost` what a run takes; None where that was not
    measured. `most_chosen`: the most sets that rounds choose, None without rounds. `noise` names the pairs that noise alone
    makes useless, where there are any.
    """

    rows: int
    counted: str
    single: Sentence
    pairs: Sentence
    errors: Errors | None
    cost: RunCost | None
    most_chosen: int | None = None
    noise: Sentence | None = None

    @property
    def noise_shares(self) -> tuple[float | None, float | None]:
        """Distances of columns and of pairs by noise (TVD, from 0 to 1); None where `plan` has words instead."""
        shares = [sentence.facts.get("share") for sentence in (self.single, self.pairs)]
        columns, pairs = (share if isinstance(share, Share) else None for share in shares)
        return columns, pairs

    @property
    def records(self) -> Sentence:
        """How far records are expected to be, in words."""
        return plan_sentence("size.not-measured") if self.errors is None else self.errors.sentence

    @property
    def takes(self) -> Sentence:
        """What a run takes, in words."""
        return plan_sentence("size.not-measured") if self.cost is None else self.cost.sentence


def size_forecast(configuration: Configuration) -> list[SizeForecast]:
    """Return a line for the public number of rows, or for each of `SIZES`; none where sizes of domains are not public.

    What is counted is what the configuration as written counts, also where `auto` would choose otherwise if rows were said.
    The expected distance (TVD) is what the noise of all counts that hold a set adds up to if records followed it: the median
    over ordinary columns and over pairs of them, at most 1. DP: arithmetic on public numbers.
    """
    if configuration.private_columns:
        return []
    public_rows = known_rows(configuration)
    return [_at(configuration, rows) for rows in ((public_rows,) if public_rows else SIZES)]


def declared_forecast(configuration: Configuration) -> Sentence | None:
    """Return that rows can be declared, and for which of `SIZES` auto would count something else.

    None where they are, or where the size of a resized table takes their place.
    """
    if known_rows(configuration) is not None:
        return None
    written = mapping_of(configuration.written)
    if written.get("aggregate", {}) not in ({}, {"method": "auto"}):
        return plan_sentence("sizes.say-rows-alone")
    columns = len(configuration.attributes)
    differing = []
    for rows in SIZES:
        sized = parse_configuration({**written, "rows": rows})
        if sized.aggregate != configuration.aggregate:
            counted = defaults.counts_words(sized.aggregate, columns)
            differing.append(str(plan_sentence("sizes.with-rows", rows=rows, counted=counted)))
    return plan_sentence(
        "sizes.say-rows-other" if differing else "sizes.say-rows", others="; ".join(differing)
    )


def bins_forecast(configuration: Configuration) -> list[Sentence]:
    """Return the names of the bins of every counted column whose edges are public, as structure and counts have them."""
    columns = [(name, configuration.columns[name]) for name in configuration.names]
    return [
        plan_sentence("bins.names", column=name, bins=listed(column.labels))
        for name, column in columns
        if isinstance(column, BinnedColumn) and column.public_cells
    ]


def _at(configuration: Configuration, rows: int) -> SizeForecast:
    """Return what a release of this number of rows will be good for."""
    plan = plan_budget(configuration)
    distances = _distances(configuration, plan, rows)
    errors = expected_errors(configuration, rows)
    cost = run_cost(configuration, planned_tables(configuration, plan), rows, available_cores())
    adaptive = configuration.rounds
    return SizeForecast(
        rows=rows,
        counted=defaults.counts_words(configuration.aggregate, len(configuration.attributes)),
        single=_graded(_ordinary(configuration, distances, 1)) or plan_sentence("size.not-known"),
        pairs=_pairs(configuration, distances, rows),
        errors=errors,
        cost=cost,
        most_chosen=None
        if adaptive is None
        else adaptive.most_chosen(len(configuration.attributes)),
        noise=None if _are_few(configuration, rows) else _noisy_pairs(configuration, distances),
    )


def _ordinary(
    configuration: Configuration, distances: Mapping[Clique, float], length: int
) -> list[float]:
    """Return the distances of the sets of `length` ordinary columns; where there are none, those with values of sets."""
    of_length = {part: distance for part, distance in distances.items() if len(part) == length}
    attributes = configuration.attributes
    of_sets = {place for place, attribute in enumerate(attributes) if attribute.of_set}
    ordinary = [distance for part, distance in of_length.items() if of_sets.isdisjoint(part)]
    return ordinary or list(of_length.values())


def _are_few(configuration: Configuration, rows: int) -> bool:
    """Return whether so many rows are fewer than those with which few pairs are chosen in the run."""
    settings = configuration.marginals
    return settings is not None and rows < (settings.least_records or 0)


def _pairs(configuration: Configuration, distances: Mapping[Clique, float], rows: int) -> Sentence:
    """Return the distance of pairs, or why there is none."""
    if _are_few(configuration, rows):
        return plan_sentence("size.in-run")
    marginals = configuration.marginals
    columns = len(configuration.attributes)
    pairs = _graded(_ordinary(configuration, distances, 2), _ordinary(configuration, distances, 1))
    if pairs is None:
        in_run = marginals is None or marginals.selects(columns)
        pairs = plan_sentence("size.in-run" if in_run else "size.not-counted")
    return pairs


def _noisy_pairs(
    configuration: Configuration, distances: Mapping[Clique, float]
) -> Sentence | None:
    """Return the pairs whose distance is graded as noise, the largest distance first; None where there are none."""
    pairs = sorted(
        (part for part in distances if len(part) == 2), key=lambda part: -distances[part]
    )
    noisy = [part for part in pairs if grade(distances[part]) == "not"]
    if not noisy:
        return None
    attributes = configuration.attributes
    names = [
        f"{attributes[first].name} x {attributes[second].name}" for first, second in noisy[:_NAMED]
    ]
    key = "size.noisy" if len(noisy) <= _NAMED else "size.noisy-first"
    return plan_sentence(key, noisy=len(noisy), pairs=len(pairs), names=", ".join(names))


def planned_tables(configuration: Configuration, plan: Plan) -> list[Table]:
    """Return the tables that are measured, and for sets still to choose as many tables as may be chosen.

    Those that rounds choose have the mean size of a pair. Where pairs are selected, every pair is a table.

    DP: arithmetic on public numbers.
    """
    settings = configuration.marginals
    sizes = counted_sizes(configuration)
    tables = [
        Table(cells(clique, sizes), sigma) for clique, sigma, _ in _queries(configuration, plan)
    ]
    pairs = list(itertools.combinations(public_sizes(configuration), 2))
    for share in plan.of(RoundMarginals):
        assert settings is not None
        assert settings.adaptive is not None
        mean = sum(map(math.prod, pairs)) / len(pairs)
        tables += settings.adaptive.batch * [Table(mean, share.sigma(configuration))]
    for draw in plan.of(LargerMarginals):
        if not draw.cliques(configuration):
            sigma = draw.sigma_alone(configuration) * math.sqrt(len(pairs))
            tables += [Table(math.prod(pair), sigma) for pair in pairs]
    return tables


def _graded(distances: Sequence[float], parts: Sequence[float] = ()) -> Sentence | None:
    """Return the median distance and its grade, with the fact `share`, the distance as a number; None where there is none.

    It is no less than that of `parts`, of which other sets may have been measured.
    """
    if not distances:
        return None
    middle = statistics.median(distances)
    if parts:
        middle = max(middle, statistics.median(parts))
    middle = min(1.0, middle)
    distance = format(Share(middle), ".0f" if middle >= 0.1 else ".2g")
    return plan_sentence(_GRADE_KEYS[grade(middle)], distance=distance, share=Share(middle))


def _distances(configuration: Configuration, plan: Plan, rows: int) -> dict[Clique, float]:
    """Return the distance of every column and pair that all of the noise would make.

    Smoothing by the records is ignored here; the verdict counts it.
    """
    sizes = counted_sizes(configuration)
    precisions = defaultdict[Clique, float](float)
    columns = range(len(configuration.attributes))
    for clique, sigma, error in _queries(configuration, plan):
        counted = [column for column in clique if column < len(columns)]
        for length in (1, 2):
            for part in itertools.combinations(counted, length):
                summed = cells(clique, sizes) / cells(part, sizes)
                precisions[part] += 1 / (error * sigma) ** 2 / summed if sigma else math.inf
    distances = {}
    for part, precision in precisions.items():
        if precision:
            distances[part] = cells(part, sizes) / math.sqrt(precision) / (2 * rows)
    if configuration.marginals is not None and configuration.marginals.adaptive is not None:
        share = plan.of(RoundMarginals)[0]
        error = share.sigma(configuration) * share.count_noise(configuration).mean_error
        for pair in itertools.combinations(columns, 2):
            distances[pair] = error * cells(pair, sizes) / (2 * rows)
    # no pair is closer than one of its columns
    largest = {}
    for part, distance in distances.items():
        of_columns = [distances.get((column,), 0.0) for column in part]
        largest[part] = max([distance, *of_columns])
    return largest


def _queries(configuration: Configuration, plan: Plan) -> Iterator[tuple[Clique, float, float]]:
    """Yield each set of columns that is measured, its sigma, and the mean error of noise of sigma 1."""
    columns = range(len(configuration.attributes))
    for level in plan.of(TupleLevel):
        sigma = float(level.sigma(configuration))
        yield from (
            (part, sigma, RoundedGaussian.mean_error)
            for part in itertools.combinations(columns, level.length)
        )
    for draw in plan.of(WholeMarginals):
        error = draw.count_noise(configuration).mean_error
        sigmas = zip(draw.cliques(configuration), draw.sigmas(configuration), strict=True)
        yield from ((clique, float(sigma), error) for clique, sigma in sigmas)
