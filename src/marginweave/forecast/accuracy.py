"""What is counted and why, and what noise is beside counts: before a release."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

from marginweave.configuration import defaults
from marginweave.configuration.default_records import automatic_method, in_marginals
from marginweave.configuration.k_tuples import AggregateSettings
from marginweave.configuration.marginals import AllCliques, MarginalSettings
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.measurements.larger_marginals import LargerMarginals
from marginweave.measurements.split import plan_budget
from marginweave.measurements.whole_marginals import public_sizes
from marginweave.mechanisms.base import CountNoise


def method_forecast(configuration: Configuration) -> list[str]:
    """What is counted, what makes the records, and what `auto` stands for, in words."""
    usual = defaults.automatic_aggregate(configuration)
    given_up = _given_up(configuration, usual) if configuration.aggregate == usual else []
    return [_counts(configuration, usual), *given_up, _records(configuration)]


def _counts(configuration: Configuration, usual: AggregateSettings | MarginalSettings) -> str:
    columns = len(configuration.attributes)
    counted, other = (defaults.counts_words(settings, columns) for settings in (configuration.aggregate, usual))
    chosen = f"auto would choose {other}" if counted != other else "auto would choose other settings"
    if not configuration.privacy.delta:
        chosen = "auto needs a delta above 0"
    if configuration.aggregate == usual:
        chosen = "as auto would choose"
    if defaults.is_decided_by_noise(configuration):
        decided = in_marginals(configuration) if isinstance(usual, MarginalSettings) else configuration
        noise, beside = defaults.relative_noise(decided), defaults.edge_words(decided)
        chosen += f"; all pairs together would have relative noise r = {noise:.3g}{beside}"
    return f"Counting: {counted}{_limited(configuration)}{_in_bins(configuration)} ({chosen})"


def _given_up(configuration: Configuration, usual: AggregateSettings | MarginalSettings) -> list[str]:
    """What sets and private domains cost where the choice is left to `auto`, and what would avoid it, in a sentence each."""
    attributes = configuration.attributes
    listed_pairs = isinstance(usual, MarginalSettings) and isinstance(usual.cliques, tuple)
    alone = ", and are in no pairs" if listed_pairs else ""
    found = [
        f"Column {name}, a set, counts as {values} columns, one for each value, which share the budget{alone}; declare fewer "
        "values (outside: other takes the rare ones) for less noise"
        for name, values in Counter(attribute.column for attribute in attributes if attribute.of_set).items()
    ]
    found += [
        f"Column {attribute.name}, a set with a private domain, rules out marginals and a mixture: rare values are lost, and "
        "pairs of columns are less accurate; declare its values to avoid it"
        for attribute in attributes
        if attribute.is_set and attribute.private
    ]
    if isinstance(usual, MarginalSettings) and configuration.private_columns:
        found.append(
            f"Private domains ({listed(configuration.private_columns)}) cost {100 * usual.values_share:g} % of the budget, and "
            "values that few records have become missing; declare the values to avoid it"
        )
    return found


def _limited(configuration: Configuration) -> str:
    """Which marginals there are, where those of many cells are left out."""
    cliques = None if configuration.marginals is None else configuration.marginals.cliques
    if not isinstance(cliques, AllCliques) or cliques.max_cells is cliques.coarsen is None:
        return ""
    lengths = Counter(map(len, LargerMarginals.cliques(configuration)))
    numbers = ", ".join(f"{number:,} of {length}" for length, number in sorted(lengths.items(), reverse=True))
    pairs = ", and pairs" if cliques.all > 2 else ""
    most = f", of at most {cliques.max_cells:,} cells{pairs}" if cliques.max_cells else ""
    coarser = f", in coarser bins beyond {cliques.coarsen:,} cells" if cliques.coarsen else ""
    return f"{most}{coarser}: {numbers}"


def _in_bins(configuration: Configuration) -> str:
    """In how many bins the columns of larger marginals are counted, where that differs, and how often, the finest first."""
    settings, names = configuration.marginals, [attribute.name for attribute in configuration.attributes]
    if settings is None or not settings.has_larger(len(names)) or settings.selects(len(names)):
        return ""
    of, found = settings.levels(public_sizes(configuration), configuration.attributes).of, list[str]()
    times = Counter(itertools.chain.from_iterable(LargerMarginals.cliques(configuration)))
    for place, bins in dict.fromkeys((a, bins) for a, bins, _ in of):
        levels = [(place, bins), *((len(names) + i, -(-b // j)) for i, (a, b, j) in enumerate(of) if a == place)]
        if any(times[at] for at, _ in levels[1:]):
            numbers = ", ".join(f"{times[at]:,} in {left:,} bins" for at, left in levels if times[at])
            found.append(f"{names[place]} {numbers}")
    return f", {'; '.join(found)}" if found else ""


def _records(configuration: Configuration) -> str:
    method = configuration.synthesize.method
    automatic = automatic_method(configuration.aggregate, configuration.attributes)
    chosen = "as auto would choose" if automatic.method == method else f"auto would choose {automatic.method}"
    return f"Synthetic records: {method} ({chosen}: {automatic.reason})"


def relative_errors(configuration: Configuration, rows: int) -> dict[str, tuple[str, str]]:
    """For each draw of counts its typical error beside all rows, and beside the mean count of its cells, in words.

    The typical error is E|noise|. Of counts of records, each kind says which share of all is in a mean cell
    (`Measurement.shares`); where numbers of cells are not public, nothing is said of it.
    A resized table has its own, public number of rows.
    DP: arithmetic on public numbers.
    """
    rows = rows if configuration.resize is None else configuration.resize.records
    found = {}
    for draw in plan_budget(configuration).draws:
        shares = draw.shares(configuration)
        if shares is None:
            continue
        assert issubclass(draw.mechanism, CountNoise)
        factor = 100 * draw.mechanism.mean_error / rows
        typical = [sigma * factor for sigma in draw.forecast(configuration).sigmas]
        beside = [error / share for error, share in zip(typical, shares, strict=True)] if shares else []
        found[draw.name] = _span(typical), _span(beside)
    return found


def _span(percentages: Iterable[float]) -> str:
    found = sorted(percentages)
    if not found:
        return ""
    ends = list(dict.fromkeys(f"{value:.2g}" if value < 100 else f"{value:.0f}" for value in (found[0], found[-1])))
    return f"± {' to '.join(ends)} %"
