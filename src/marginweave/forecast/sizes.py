"""What a release will be good for, by the number of rows, before it is made: from public numbers alone."""

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
from marginweave.forecast.cost import Table, run_cost
from marginweave.forecast.expected import expected_errors, known_rows
from marginweave.measurements.larger_marginals import LargerMarginals
from marginweave.measurements.plan import Plan
from marginweave.measurements.round_draws import RoundMarginals
from marginweave.measurements.split import plan_budget
from marginweave.measurements.tuple_level import TupleLevel
from marginweave.measurements.whole_marginals import WholeMarginals, counted_sizes, public_sizes
from marginweave.mechanisms.gaussian import RoundedGaussian
from marginweave.released.verdict import grade

SIZES = 1_000, 10_000, 100_000
_NAMED = 6
_GRADES = {"good": "good", "with care": "with care", "not": "noise"}


class SizeForecast(NamedTuple):
    """Of so many rows, in words: `single` and `pairs` are distances by noise and what they are good for, `takes` the cost.

    `records` is how far synthetic records are expected to be, and between which eight of ten tables were in the benchmarks.
    `noise` names the pairs that noise alone makes useless.
    """

    rows: int
    counted: str
    single: str
    pairs: str
    records: str
    takes: str
    noise: str = ""


def size_forecast(configuration: Configuration) -> list[SizeForecast]:
    """A line for the public number of rows, or for `SIZES` where it is not said; none where sizes of domains are not public.

    What is counted is what the configuration as written counts, also where `auto` would choose otherwise if rows were said.
    The expected distance (TVD) is what the noise of all counts that hold a set adds up to if records followed it: the median
    over columns and over pairs, at most 1. DP: arithmetic on public numbers.
    """
    if configuration.private_columns:
        return []
    known = known_rows(configuration)
    return [_at(configuration, rows) for rows in ((known,) if known else SIZES)]


def declared_forecast(configuration: Configuration) -> str:
    """That rows can be said, and for which of `SIZES` auto would then count something else; nothing where they are."""
    if configuration.rows is not None:
        return ""
    columns, written, found = len(configuration.attributes), mapping_of(configuration.written), list[str]()
    for rows in SIZES:
        sized = configuration if configuration.resize else parse_configuration({**written, "rows": rows})
        if sized.aggregate != configuration.aggregate:
            found.append(f"with {rows:,} it counts {defaults.counts_words(sized.aggregate, columns)}")
    other = f" ({'; '.join(found)})" if found else ""
    return f"If the number of rows is public, say rows: N in the configuration: auto then chooses by it{other}"


def bins_forecast(configuration: Configuration) -> list[str]:
    """The names of the bins of every counted column whose edges are public, as structure and counts have them."""
    columns = [(name, configuration.columns[name]) for name in configuration.names]
    return [
        f"Bins of {name}: {listed(column.labels)}"
        for name, column in columns
        if isinstance(column, BinnedColumn) and column.public_cells
    ]


def _at(configuration: Configuration, rows: int) -> SizeForecast:
    plan = plan_budget(configuration)
    distances = _distances(configuration, plan, rows)
    found = {length: [d for part, d in distances.items() if len(part) == length] for length in (1, 2)}
    chosen = configuration.marginals is None or configuration.marginals.selects(len(configuration.attributes))
    pairs = _words(found[2], "chosen in the run" if chosen else "not counted", found[1])
    rounds = None if configuration.marginals is None else configuration.marginals.adaptive
    if rounds is not None:
        pairs = f"at most {rounds.most_chosen(len(configuration.attributes))} chosen, {pairs}"
    counted = defaults.counts_words(configuration.aggregate, len(configuration.attributes))
    records = str(expected_errors(configuration, rows) or "not measured")
    cost = run_cost(configuration, planned_tables(configuration, plan), rows, available_cores())
    single, noise = _words(found[1], "not known"), _noisy_pairs(configuration, distances)
    return SizeForecast(rows, counted, single, pairs, records, str(cost or "not measured"), noise)


def _noisy_pairs(configuration: Configuration, distances: Mapping[Clique, float]) -> str:
    """The pairs whose distance says noise, largest first."""
    pairs = sorted((part for part in distances if len(part) == 2), key=lambda part: -distances[part])
    useless = [part for part in pairs if grade(distances[part]) == "not"]
    names = [" x ".join(configuration.attributes[place].name for place in part) for part in useless[:_NAMED]]
    return f"{len(useless)} of {len(pairs)}: {', '.join([*names, '…'][: len(useless)])}" if useless else ""


def planned_tables(configuration: Configuration, plan: Plan) -> list[Table]:
    """The tables that are measured, and of sets still to choose as many as there may be. DP: arithmetic on public numbers."""
    settings, sizes = configuration.marginals, counted_sizes(configuration)
    found = [Table(cells(clique, sizes), sigma) for clique, sigma, _ in _queries(configuration, plan)]
    pairs = list(itertools.combinations(public_sizes(configuration), 2))
    for share in plan.of(RoundMarginals):
        assert settings is not None
        assert settings.adaptive is not None
        mean = sum(map(math.prod, pairs)) / len(pairs)
        found += settings.adaptive.batch * [Table(mean, share.sigma(configuration))]
    for draw in plan.of(LargerMarginals):
        if not draw.cliques(configuration):
            sigma = draw.sigma_alone(configuration) * math.sqrt(len(pairs))
            found += [Table(math.prod(pair), sigma) for pair in pairs]
    return found


def _words(distances: list[float], unknown: str, parts: Sequence[float] = ()) -> str:
    """The middle distance and its grade; it is no less than that of `parts`, of which other sets may have been measured."""
    if not distances:
        return unknown
    middle = min(1.0, max(statistics.median(some) for some in (distances, parts) if some))
    return f"{100 * middle:.{0 if middle >= 0.1 else 2}{'f' if middle >= 0.1 else 'g'}} % {_GRADES[grade(middle)]}"


def _distances(configuration: Configuration, plan: Plan, rows: int) -> dict[Clique, float]:
    """The distance of every column and pair that all of the noise would make; the verdict knows what records smooth away."""
    sizes, precisions = counted_sizes(configuration), defaultdict[Clique, float](float)
    names = range(len(configuration.attributes))
    for clique, sigma, error in _queries(configuration, plan):
        for length in (1, 2):
            for part in itertools.combinations((a for a in clique if a < len(names)), length):
                summed = cells(clique, sizes) / cells(part, sizes)
                precisions[part] += 1 / (error * sigma) ** 2 / summed if sigma else math.inf
    found = {part: cells(part, sizes) / math.sqrt(p) / (2 * rows) for part, p in precisions.items() if p}
    if configuration.marginals is not None and configuration.marginals.adaptive is not None:
        share = plan.of(RoundMarginals)[0]
        error = share.sigma(configuration) * share.count_noise(configuration).mean_error
        found |= {pair: error * cells(pair, sizes) / (2 * rows) for pair in itertools.combinations(names, 2)}
    # no pair is nearer than one of its columns
    return {part: max([distance, *(found.get((name,), 0.0) for name in part)]) for part, distance in found.items()}


def _queries(configuration: Configuration, plan: Plan) -> Iterator[tuple[Clique, float, float]]:
    """What is measured, by which sigma, and the mean error of noise of sigma 1."""
    names = range(len(configuration.attributes))
    for level in plan.of(TupleLevel):
        sigma = float(level.sigma(configuration))
        yield from ((part, sigma, RoundedGaussian.mean_error) for part in itertools.combinations(names, level.length))
    for draw in plan.of(WholeMarginals):
        error = draw.count_noise(configuration).mean_error
        sigmas = zip(draw.cliques(configuration), draw.sigmas(configuration), strict=True)
        yield from ((clique, float(sigma), error) for clique, sigma in sigmas)
