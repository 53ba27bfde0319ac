"""Say which pairs a release will not measure, which line would measure some, and of what it will claim nothing."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marginweave.configuration.attributes import Attribute
from marginweave.configuration.defaults import MOST_PAIRS_CHOSEN
from marginweave.configuration.marginals import AllCliques, MarginalSettings
from marginweave.configuration.release import Configuration
from marginweave.configuration.yaml_lines import yaml_line
from marginweave.configuration.yaml_source import mapping_of
from marginweave.counts.marginals import cells
from marginweave.domain.masks import Clique
from marginweave.forecast.changes import changed
from marginweave.forecast.expected import known_rows
from marginweave.forecast.plan_sentence import plan_sentence
from marginweave.measurements.larger_marginals import LargerMarginals
from marginweave.measurements.split import plan_budget
from marginweave.measurements.whole_marginals import public_sizes
from marginweave.released.verdict import GOOD
from marginweave.texts.sentences import Sentence, Share

NAMED = 3
"""Pairs that are named, and that the advised line would measure."""
_KEPT_KEYS = (
    "noise",
    "allocation",
    "values_share",
    "bounds_share",
    "delta_threshold_share",
    "compress",
)


@dataclass(frozen=True, kw_only=True)
class MissingPairs:
    """What public facts tell, before any draw, of the pairs of columns that a release will not measure.

    `missing`: how many of `pairs` at least. `is_decided`: whether draws have no part in which these are, so that there are no
    more. `named`: some that are not measured, or that draws may leave out. `change`: a section of the configuration that
    measures the named ones, and that `parse_configuration` and `check_size` accept; empty where there is none. With fewer than
    `least_records` few pairs are measured, which noisy scores choose, and else all that are not missing. `is_spread`: the
    measured ones are spread over all columns, for what these have in common.
    """

    pairs: int
    missing: int
    is_decided: bool
    named: tuple[tuple[str, str], ...]
    change: Mapping[str, Any]
    least_records: int | None = None
    is_spread: bool = False

    @property
    def line(self) -> str:
        """The change as a line of YAML."""
        return "; ".join(f"{key}: {yaml_line(value)}" for key, value in self.change.items())

    @property
    def facts(self) -> dict[str, object]:
        """All of it, for programs."""
        return {
            "all": self.pairs,
            "not_measured_at_least": self.missing,
            "decided_by_draws": not self.is_decided,
            "named": [list(pair) for pair in self.named],
            "change": dict(self.change),
        }


def missing_pairs(configuration: Configuration) -> MissingPairs:
    """Return the pairs that a release will not measure. DP: arithmetic on public facts.

    A pair counts as measured if a marginal holds both columns, also in coarser bins, and k-tuples measure all pairs if they
    are of two and more columns. Where draws choose, the largest possible number of sets is taken for chosen; pairs above
    `max_cells` are never chosen. What a private domain turns out to hold can only make more pairs too large.
    """
    attributes = configuration.attributes
    pairs = math.comb(len(attributes), 2)
    settings = configuration.marginals
    chosen = settings is not None and settings.selects(len(attributes))
    unmeasured = list(_never_measured(configuration))
    missing = len(unmeasured)
    if settings is not None and settings.adaptive is not None and chosen:
        of_a_set = math.comb(min(settings.adaptive.adaptive, len(attributes)), 2)
        missing = max(missing, pairs - of_a_set * settings.adaptive.most_chosen(len(attributes)))
    least_records = None if settings is None else settings.least_records
    candidates: Iterable[Clique] = unmeasured
    if (chosen or least_records is not None) and not unmeasured:
        candidates = itertools.combinations(range(len(attributes)), 2)
    named = _named(list(candidates), attributes)
    return MissingPairs(
        pairs=pairs,
        missing=missing,
        is_decided=not chosen and not configuration.private_columns and least_records is None,
        named=named,
        change=_change(configuration, named),
        least_records=None if chosen else least_records,
        is_spread=settings is not None
        and isinstance(settings.cliques, AllCliques)
        and settings.cliques.spread_pairs is not None,
    )


def _never_measured(configuration: Configuration) -> Iterator[Clique]:
    """Yield the pairs that no draw can measure, whatever is drawn before it."""
    settings = configuration.marginals
    columns = len(configuration.attributes)
    all_pairs = itertools.combinations(range(columns), 2)
    if settings is None:
        if configuration.reporting_length < 2:
            yield from all_pairs
        return
    sizes = public_sizes(configuration)
    if settings.selects(columns):
        if settings.adaptive is not None:
            most = settings.adaptive.max_cells
            yield from (pair for pair in all_pairs if cells(pair, sizes) > most)
        return
    measured = _measured(configuration, settings) if settings.has_larger(columns) else set()
    yield from (pair for pair in all_pairs if pair not in measured)


def _measured(configuration: Configuration, settings: MarginalSettings) -> set[Clique]:
    """Return the pairs that a declared marginal holds, of attributes, also where it has them in coarser bins."""
    levels = settings.levels(public_sizes(configuration), configuration.attributes)
    measured: set[Clique] = set()
    for clique in LargerMarginals.cliques(configuration):
        measured.update(itertools.combinations(levels.columns(clique), 2))
    return measured


def _named(pairs: Sequence[Clique], attributes: Sequence[Attribute]) -> tuple[tuple[str, str], ...]:
    """Return the names of a few pairs: of ordinary columns before values of sets, and of columns not named yet.

    Two values of one set come last.
    """
    times = Counter[int]()

    def order(pair: Clique) -> tuple[int, int, int]:
        first = attributes[pair[0]]
        second = attributes[pair[1]]
        of_sets = first.of_set + second.of_set + (first.column == second.column)
        return of_sets, times[pair[0]] + times[pair[1]], pair[1] - pair[0]

    named: list[tuple[str, str]] = []
    left = list(pairs)
    while left and len(named) < NAMED:
        pair = min(left, key=order)
        left.remove(pair)
        times.update(pair)
        named.append((attributes[pair[0]].name, attributes[pair[1]].name))
    return tuple(named)


def _change(configuration: Configuration, named: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the section that measures the named pairs: the list with them, or a list of them; empty where it is refused."""
    if not named:
        return {}
    section: dict[str, Any]
    written = mapping_of(configuration.written).get("aggregate") or {}
    settings = configuration.marginals
    pairs = [list(pair) for pair in named]
    if settings is None:
        section = {**written, "method": "k-tuples", "reporting_length": 2}
    else:
        section = {"method": "marginals"}
        # `auto` may have chosen another share than the default
        if "one_way_share" in settings.model_fields_set:
            section["one_way_share"] = settings.one_way_share
        section |= {key: written[key] for key in _KEPT_KEYS if key in written}
        before = list(map(list, settings.cliques)) if isinstance(settings.cliques, tuple) else []
        section["cliques"] = [*before, *pairs]
    change = {"aggregate": section}
    return {} if changed(configuration, change) is None else change


def pairs_forecast(configuration: Configuration) -> list[Sentence]:
    """Return which pairs will not be measured, the line that would measure some, and what can be hoped for.

    Nothing where there is a single column.
    """
    if len(configuration.attributes) < 2:
        return []
    pairs = missing_pairs(configuration)
    sentences = [_missing_sentence(pairs)]
    if not pairs.named:
        return sentences
    if pairs.change:
        key = "pairs.line" if pairs.is_decided and not pairs.is_spread else "pairs.line-sure"
        if isinstance(configuration.aggregate, MarginalSettings) and isinstance(
            configuration.aggregate.cliques, tuple
        ):
            added = yaml_line([list(pair) for pair in pairs.named])
            sentences.append(plan_sentence("pairs.line-added", pairs=added))
        else:
            sentences.append(plan_sentence(key, line=pairs.line))
    hope = enough_for(configuration, pairs)
    return sentences if hope is None else [*sentences, hope]


def _missing_sentence(pairs: MissingPairs) -> Sentence:
    """Return how many pairs will not be measured, as far as that is known."""
    names = ", ".join(" x ".join(pair) for pair in pairs.named)
    facts = {"missing": pairs.missing, "pairs": pairs.pairs, "names": names}
    if pairs.least_records is not None:
        most = min(MOST_PAIRS_CHOSEN, pairs.pairs)
        return plan_sentence("pairs.few", **facts, least=pairs.least_records, most=most)
    if not pairs.named:
        return plan_sentence("pairs.none", **facts)
    if pairs.is_spread:
        return plan_sentence("pairs.spread", **facts)
    if pairs.is_decided:
        return plan_sentence("pairs.all" if pairs.missing == pairs.pairs else "pairs.some", **facts)
    return plan_sentence("pairs.drawn" if pairs.missing else "pairs.unknown", **facts)


def population_forecast(configuration: Configuration) -> list[Sentence]:
    """Return what the release will not say of a population, as far as the configuration tells; nothing for a plain sample."""
    attributes = configuration.attributes
    reason = configuration.not_a_sample({attribute.column for attribute in attributes})
    sentences = [] if reason is None else [plan_sentence("population.no-sample", reason=reason)]
    settings = configuration.marginals
    if settings is not None and settings.selects(len(attributes)):
        sentences.append(plan_sentence("population.chosen"))
    elif settings is not None and settings.least_records is not None:
        sentences.append(plan_sentence("population.few", least=settings.least_records))
    return sentences


def enough_for(configuration: Configuration, pairs: MissingPairs) -> Sentence | None:
    """Return how many pairs can be named and be good by noise; None where rows are not public or nothing can be named.

    A pair of c cells that is measured alone with standard deviation sigma is E|noise| sigma c / (2 n) off by noise. Of pairs
    that share the budget each has sqrt(number) times that noise (with Laplace noise number times), so that
    (bound / distance alone)^2 of them keep within the bound. c is the median over the pairs of ordinary columns.
    DP: arithmetic on public numbers.
    """
    rows = known_rows(configuration)
    if (
        rows is None
        or configuration.marginals is None
        or configuration.private_columns
        or not pairs.change
    ):
        return None
    one_pair = changed(
        configuration,
        {"aggregate": {**pairs.change["aggregate"], "cliques": [list(pairs.named[0])]}},
    )
    if one_pair is None:
        return None
    pair_sizes = _ordinary_pair_sizes(configuration)
    size = statistics.median_low(pair_sizes)
    draw = plan_budget(one_pair).draw(LargerMarginals)
    noise = draw.count_noise(one_pair)
    distance = noise.mean_error * draw.sigma_alone(one_pair) * size / (2 * rows)
    power = 1 if noise.is_pure else 2
    number = min(len(pair_sizes), math.floor((GOOD / distance) ** power))
    facts = {"rows": rows, "number": number, "size": size, "bound": Share(GOOD)}
    if number < 2:
        return plan_sentence("hope.one" if number else "hope.none", **facts)
    columns = math.floor((1 + math.sqrt(1 + 8 * number)) / 2)
    key = "hope.all" if number == len(pair_sizes) else "hope.some"
    return plan_sentence(key, **facts, columns=columns)


def _ordinary_pair_sizes(configuration: Configuration) -> list[int]:
    """Return the cells of all pairs of ordinary columns; where there are none, those of all pairs."""
    sizes = public_sizes(configuration)
    ordinary = [
        size
        for size, attribute in zip(sizes, configuration.attributes, strict=True)
        if not attribute.of_set
    ]
    counted = ordinary if len(ordinary) > 1 else sizes
    return list(map(math.prod, itertools.combinations(counted, 2)))
