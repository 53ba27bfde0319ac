"""Find what is counted and why, and how large noise is relative to counts, before a release."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from marginweave.configuration import defaults
from marginweave.configuration.default_records import Counting, automatic_method, in_marginals
from marginweave.configuration.marginals import AllCliques, MarginalSettings
from marginweave.configuration.privacy import MOST_EPSILON
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.forecast.plan_sentence import plan_sentence
from marginweave.measurements.larger_marginals import LargerMarginals
from marginweave.measurements.split import plan_budget
from marginweave.measurements.whole_marginals import public_sizes
from marginweave.mechanisms.base import CountNoise
from marginweave.texts.sentences import Sentence, Share


def method_forecast(configuration: Configuration) -> list[Sentence]:
    """Return what is counted, what `auto` gives up, and what makes the records."""
    usual = defaults.automatic_aggregate(configuration)
    sentences = [
        plan_sentence(
            "counting.line", counted=_counted(configuration), choice=_choice(configuration, usual)
        )
    ]
    if configuration.aggregate == usual:
        sentences += _given_up(configuration, usual)
    return [*sentences, *_records(configuration)]


def _choice(configuration: Configuration, usual: Counting) -> Sentence:
    """Return how the counts compare with those of `auto`, and the noise where it decides what `auto` counts."""
    columns = len(configuration.attributes)
    usual_counts = defaults.counts_words(usual, columns)
    if configuration.aggregate == usual:
        choice = plan_sentence("choice.as-auto")
    elif not configuration.privacy.delta:
        choice = plan_sentence("choice.needs-delta")
    elif defaults.counts_words(configuration.aggregate, columns) != usual_counts:
        choice = plan_sentence("choice.other", other=usual_counts)
    else:
        choice = plan_sentence("choice.other-settings")
    if not defaults.is_decided_by_noise(configuration):
        return choice
    sections = in_marginals(configuration) if isinstance(usual, MarginalSettings) else configuration
    noise = defaults.relative_noise(sections)
    noise_sentence = plan_sentence("choice.noise", choice=choice, noise=noise)
    limit = defaults.limit_near_noise(sections)
    if limit is None:
        return noise_sentence
    remedies = [plan_sentence("choice.fewer-columns")]
    if sections.privacy.epsilon < MOST_EPSILON:
        remedies.append(plan_sentence("choice.more-epsilon"))
    if configuration.rows is None:
        remedies.append(plan_sentence("choice.or-rows"))
    return plan_sentence(
        "choice.near-limit",
        noise=noise_sentence,
        side=plan_sentence("choice.above" if noise > limit else "choice.below"),
        limit=limit,
        remedies=" or ".join(map(str, remedies)),
    )


def _given_up(configuration: Configuration, usual: Counting) -> Iterator[Sentence]:
    """Yield what sets and private domains cost where the choice is left to `auto`, and what would avoid it."""
    attributes = configuration.attributes
    has_listed_pairs = isinstance(usual, MarginalSettings) and isinstance(usual.cliques, tuple)
    values_key = "given-up.values-without-pairs" if has_listed_pairs else "given-up.values"
    values_of_sets = Counter(attribute.column for attribute in attributes if attribute.of_set)
    for column, values in values_of_sets.items():
        costs = plan_sentence(values_key, column=column, values=values)
        has_other = getattr(configuration.columns[column], "outside", None) == "other"
        yield plan_sentence("given-up.set" if has_other else "given-up.set-other", costs=costs)
    for attribute in attributes:
        if attribute.is_set and attribute.private:
            yield plan_sentence("given-up.private-set", column=attribute.name)
    if isinstance(usual, MarginalSettings) and configuration.private_columns:
        columns = listed(configuration.private_columns)
        yield plan_sentence(
            "given-up.private-domains", columns=columns, share=Share(usual.values_share)
        )


def _counted(configuration: Configuration) -> str | Sentence:
    """Return what is counted: which marginals, where those of many cells are left out, and in how many bins."""
    counted = defaults.counts_words(configuration.aggregate, len(configuration.attributes))
    return _in_bins(configuration, _limited(configuration, counted))


def _limited(configuration: Configuration, counted: str | Sentence) -> str | Sentence:
    """Return `counted` with which marginals there are, where those of many cells are left out."""
    cliques = None if configuration.marginals is None else configuration.marginals.cliques
    counted = _with_target(configuration, counted)
    if isinstance(cliques, AllCliques) and cliques.spread_pairs is not None:
        number = len(LargerMarginals.cliques(configuration))
        pairs = math.comb(len(configuration.attributes), 2)
        return plan_sentence("counting.spread", counted=counted, number=number, pairs=pairs)
    if not isinstance(cliques, AllCliques) or cliques.max_cells is cliques.coarsen is None:
        return counted
    if cliques.max_cells:
        key = "counting.small-and-pairs" if cliques.all > 2 else "counting.small"
        counted = plan_sentence(key, counted=counted, cells=cliques.max_cells)
    if cliques.coarsen:
        counted = plan_sentence("counting.coarser", counted=counted, cells=cliques.coarsen)
    lengths = Counter(map(len, LargerMarginals.cliques(configuration)))
    numbers = [
        str(plan_sentence("counting.of-length", number=number, length=length))
        for length, number in sorted(lengths.items(), reverse=True)
    ]
    return plan_sentence("counting.lengths", counted=counted, lengths=", ".join(numbers))


def _with_target(configuration: Configuration, counted: str | Sentence) -> str | Sentence:
    """Return `counted` with what is measured of the target, or that it changes nothing."""
    if configuration.target is None:
        return counted
    settings = configuration.marginals
    if settings is None or not isinstance(settings.cliques, AllCliques):
        return plan_sentence("counting.no-target", counted=counted)
    names = listed(configuration.target)
    weight = settings.most_weight
    counted = plan_sentence("counting.target", counted=counted, target=names, weight=weight)
    for places, share in settings.reserved_shares(LargerMarginals.cliques(configuration)).items():
        sizes = settings.levels(public_sizes(configuration), configuration.attributes).sizes
        cells = math.prod(sizes[place] for place in places)
        counted = plan_sentence(
            "counting.target-table", counted=counted, cells=cells, share=Share(share)
        )
    return counted


def _in_bins(configuration: Configuration, counted: str | Sentence) -> str | Sentence:
    """Return `counted` with the numbers of bins of the columns of larger marginals, where they differ, the finest first."""
    settings = configuration.marginals
    names = [attribute.name for attribute in configuration.attributes]
    if settings is None or not settings.has_larger(len(names)) or settings.selects(len(names)):
        return counted
    divisions = settings.levels(public_sizes(configuration), configuration.attributes).of
    times = Counter(itertools.chain.from_iterable(LargerMarginals.cliques(configuration)))
    columns = []
    for column, bins in dict.fromkeys((column, bins) for column, bins, _ in divisions):
        places = [(column, bins)]
        for number, (divided, finest, width) in enumerate(divisions):
            if divided == column:
                places.append((len(names) + number, -(-finest // width)))
        if any(times[place] for place, _ in places[1:]):
            numbers = [
                str(plan_sentence("counting.times-in-bins", times=times[place], bins=place_bins))
                for place, place_bins in places
                if times[place]
            ]
            columns.append(
                str(
                    plan_sentence("counting.bins-of", column=names[column], bins=", ".join(numbers))
                )
            )
    return (
        plan_sentence("counting.bins", counted=counted, columns="; ".join(columns))
        if columns
        else counted
    )


def _records(configuration: Configuration) -> Iterator[Sentence]:
    """Yield what makes the synthetic records, what `auto` would choose, and how many there are for each that is counted."""
    method = configuration.synthesize.method
    automatic = automatic_method(configuration.aggregate, configuration.attributes)
    key = "records.method" if automatic.method == method else "records.other"
    yield plan_sentence(key, method=method, other=automatic.method, reason=automatic.reason)
    times = configuration.synthesize.times
    if times > 1:
        yield plan_sentence("records.times", times=times)


@dataclass(frozen=True)
class ErrorSpan:
    """Typical errors of the counts of a draw in percent, from the least to the most."""

    least: float
    most: float

    @classmethod
    def over(cls, percentages: Collection[float]) -> ErrorSpan | None:
        """Return the span of the errors; None where there are none."""
        return cls(min(percentages), max(percentages)) if percentages else None

    @property
    def sentences(self) -> tuple[Sentence, Sentence]:
        """The least error and the most, with two digits."""
        return _relative(self.least), _relative(self.most)


def _relative(percentage: float) -> Sentence:
    """Return a typical error in percent."""
    return plan_sentence("draw.relative", error=_two_digits(percentage))


def _two_digits(percentage: float) -> str:
    """Return a number with two digits, or all of those before the point."""
    return f"{percentage:.2g}" if percentage < 100 else f"{percentage:.0f}"


@dataclass(frozen=True)
class RelativeErrors:
    """Typical errors of a draw relative to all rows, and to the mean count of its cells; None where that is not known."""

    of_rows: ErrorSpan | None
    of_mean: ErrorSpan | None


def relative_errors(configuration: Configuration, rows: int) -> dict[str, RelativeErrors]:
    """Return the typical errors of each draw of counts, relative to all rows and to the mean count of its cells.

    The typical error is E|noise|. Of counts of records, each kind says which share of all is in a mean cell
    (`Measurement.shares`); where numbers of cells are not public, nothing is said of it.
    A resized table has its own, public number of rows.
    DP: arithmetic on public numbers.
    """
    rows = rows if configuration.resize is None else configuration.resize.records
    errors = {}
    for draw in plan_budget(configuration).draws:
        shares = draw.shares(configuration)
        if shares is None:
            continue
        assert issubclass(draw.mechanism, CountNoise)
        factor = 100 * draw.mechanism.mean_error / rows
        typical = [sigma * factor for sigma in draw.forecast(configuration).sigmas]
        of_mean = (
            [error / share for error, share in zip(typical, shares, strict=True)] if shares else []
        )
        errors[draw.name] = RelativeErrors(ErrorSpan.over(typical), ErrorSpan.over(of_mean))
    return errors
