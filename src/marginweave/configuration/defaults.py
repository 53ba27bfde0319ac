"""Default counts: `aggregate.method: auto` and `aggregate.sigma: auto`.

The noise that pairs would have if all were counted decides, by measurements (`benchmarks/accuracy`, results in
docs/accuracy.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from marginweave.configuration.attributes import Attribute
from marginweave.configuration.bin_levels import BinLevels
from marginweave.configuration.coarsening import triples
from marginweave.configuration.default_records import (
    MOST_MARGINALS,
    MOST_SECONDS,
    MOST_SETS,
    Counting,
    fitting_seconds,
    in_marginals,
    looking_seconds,
    mixture_hindrance,
    ordinary_pairs,
    public_codes,
    table_cells,
    too_many_tuples,
)
from marginweave.configuration.k_tuples import AggregateSettings
from marginweave.configuration.marginals import AdaptiveCliques, AllCliques, MarginalSettings
from marginweave.configuration.sections import Sections

# Noise of pairs (`pair_noise`) beyond which no triples are measured, and single columns need more of the budget of k-tuples.
_SHORT = 16.0
_SHORT_WITH_SETS = 8.0
# Noise of pairs beyond which single columns need most of the budget.
_SINGLES = 40.0
# Times the noise up to which triples are planned: beyond it, few pairs are measured of records that turn out to be so few.
_FEW_TIMES_SHORT = 2.0

_NEAR = 0.1  # largest difference to a limit, in logarithms, that is reported as close to it
USUAL_ROWS = 10_000
"""Rows that a table is assumed to have if `rows` is left out: noise matters in proportion to the counts."""


# Marginals that `auto` becomes where not all triples are measured (`triples`): pairs that are worth their noise.
_SELECTED: Mapping[str, Any] = {"method": "marginals"}
# Beside sets rounds have so many times the inverse of the noise of pairs: 28 rounds with a noise of 16, 11 with 40.
_ROUNDS_BESIDE_SETS = 450
# Number of pairs that are chosen one by one: few where the noise of a count is large, so that each is measured well.
MOST_PAIRS_CHOSEN = 16
_LEAST_ROUNDS = 4
_ROUNDS_TIMES_NOISE = 60


_SHARES = ("one_way_share", "selection_share")

NEEDED: Mapping[str, str] = {"aggregate-seeded": "k-tuples"}
"""The counts that a method of synthesis needs if it works only on one kind of counts."""


def check_own_keys(section: Any) -> None:
    """Refuse keys in addition to `aggregate: {method: auto}`; raises ValueError."""
    if not isinstance(section, dict) or section.get("method") != "auto":
        return
    for key in section:
        if key != "method":
            raise ValueError(
                f"aggregate has {key}, which method auto has not; name the method, k-tuples or marginals"
            )


def resolve_aggregate(configuration: Sections) -> dict[str, Any]:
    """Return the section `aggregate` that `auto` becomes: triples, selected pairs, pairs chosen in rounds, or k-tuples.

    Where the noise of pairs r (`pair_noise`) is small, all triples are measured that do not take too long to be fitted.
    Otherwise the budget goes to some pairs; where r is above 40, most of it goes to single columns. Measured, mean TVD of three
    columns of records made by the mixture, of one to five releases each:

    | table | epsilon | r | triples | selected | rounds | k-tuples | independent |
    | --- | --- | --- | --- | --- | --- | --- | --- |
    | affairs | 10 | 0.6 | .042 | .052 | .052 | .043 | .209 |
    | adult_cat | 10 | 1 | .019 | .025 | | .026 | .184 |
    | adult | 10 | 1 | .042 | .048 | | .056 | .170 |
    | ma2019_cat | 10 | 1.3 | .029 | .033 | | .035 | .163 |
    | affairs | 3 | 2 | .056 | .061 | .065 | .058 | .210 |
    | drug_deaths_cat | 10 | 2.2 | .008 | .011 | | .011 | .050 |
    | adult_cat | 3 | 3.2 | .023 | .031 | | .029 | .184 |
    | adult | 3 | 3.2 | .055 | .062 | | .065 | .170 |
    | ma2019_cat | 3 | 4.4 | .043 | .049 | | .061 | .163 |
    | affairs | 1 | 6 | .085 | .085 | | .092 | .209 |
    | drug_deaths_cat | 3 | 7.2 | .014 | .017 | | .031 | .051 |
    | adult_cat | 1 | 9.5 | .036 | .042 | | | .184 |
    | adult | 1 | 9.5 | .078 | .077 | | | .171 |
    | ma2019_cat | 1 | 13 | .068 | .077 | | .103 | .164 |
    | affairs | 0.3 | 20 | .146 | .126 | | .156 | .210 |
    | drug_deaths_cat | 1 | 22 | | .027 | | .040 | .052 |
    | adult_cat | 0.3 | 32 | .062 | .066 | | .092 | .185 |
    | ma2019_cat | 0.3 | 44 | .140 | .153 | .152 | .169 | .170 |
    | drug_deaths_cat | 0.3 | 72 | | .054 | .043 | .063 | .060 |

    Triples at r = 32 and 44 are one release each, and those at 44 are no closer in two columns (.079) than rounds are (.078).
    Measured again with triples in coarser bins, one release each, selected and triples (CPU seconds): affairs at 0.3 .130 and
    .132 (1.7, 2.6), drug_deaths_cat at 1 .0244 and .0230 (10, 62), adult_cat at 0.3 .0635 and .0616 (4, 19), adult at 0.3 .109
    and .104 (5, 12). That is no clear gain for so much time, so the limit of 16 is kept.

    K-tuples are counted where a mixture could not be fitted to the marginals, and where marginals cannot be measured: sets
    with a private domain. Each declared value of another set counts as a column, and most triples have such a column: triples
    are then measured up to half of that noise (measurements in docs/methods.md). Where columns are so many that k-tuples would
    be refused (`too_many_tuples`), it is as many rounds as there is time for, or single columns alone. Shares of marginals
    are scaled to the part of the budget that bounds and private values leave.

    DP: a function of public facts alone.

    Args:
        configuration: all but the sections that are to be resolved, with any settings of k-tuples.
    """
    configuration = in_marginals(configuration)
    counts_share = _counts_share(configuration)
    if counts_share <= 0 or _cannot_be_measured(configuration):  # a share of 0 is refused elsewhere
        return {"method": "k-tuples"}
    attributes = configuration.attributes
    for section in _candidates(configuration):
        settings = MarginalSettings.model_validate(section)
        is_refused = _has_many_sets(settings, len(attributes)) or mixture_hindrance(
            settings, attributes
        )
        if is_refused or _takes_long(settings, attributes):
            continue
        resolved = _with_coarser_bins(configuration, section)
        if counts_share < 1:
            for key in _SHARES if settings.selects(len(attributes)) else ("one_way_share",):
                resolved[key] = round(counts_share * getattr(settings, key), 9)
        return resolved | _few_records(configuration, settings)
    return {"method": "k-tuples"}


def _with_coarser_bins(configuration: Sections, section: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section `aggregate`; sets that rounds choose may be in coarser bins if there are any and the mixture takes them.

    Measurements are in docs/methods.md (coarser bins). DP: arithmetic on public facts.
    """
    settings = MarginalSettings.model_validate(section)
    adaptive = settings.adaptive
    if adaptive is None or configuration.synthesize.method != "mixture":
        return dict(section)
    sizes = tuple(public_codes(configuration.attributes).values())
    levels = BinLevels.make(sizes, configuration.attributes)
    if not levels.of or adaptive.candidates(levels) > MOST_MARGINALS:
        return dict(section)
    return {**section, "cliques": {**section["cliques"], "coarsen": True}}


def _few_records(configuration: Sections, settings: MarginalSettings) -> dict[str, int]:
    """Return `least_records` where `rows` is left out: the number with which the relative noise is at a limit.

    With triples it is twice theirs, with selected pairs 40. Measured at epsilon 1, mean TVD of pairs of two releases each, of
    all triples and of few pairs: affairs, 2,000 rows (r = 30) .084 and .072, 3,000 (20) .060 and
    .059; adult_cat, 5,000 (19) .060 and .062; ma2019_cat, 5,000 (26) .047 and .053. Where values are private, there is none.
    """
    attributes = configuration.attributes
    chooses = settings.cliques == "selected" or (
        isinstance(settings.cliques, AllCliques) and settings.cliques.all > 1
    )
    if configuration.rows or configuration.private_columns or len(attributes) < 2 or not chooses:
        return {}
    of_triples = _FEW_TIMES_SHORT * _most_noise_of_triples(attributes)
    limit = _SINGLES if settings.cliques == "selected" else of_triples
    return {"least_records": math.ceil(USUAL_ROWS * relative_noise(configuration) / limit)}


def _candidates(configuration: Sections) -> Iterator[Mapping[str, Any]]:
    """Yield sections `aggregate` of marginals for this noise, the most accurate first."""
    attributes = configuration.attributes
    noise = relative_noise(configuration)
    has_sets = any(attribute.of_set for attribute in attributes)
    # Tables of a private domain may be large: with one, triples would take most of the time.
    if noise <= _most_noise_of_triples(attributes) and not configuration.private_columns:
        yield from triples(configuration, rows_by_noise(configuration))
    if noise > _SINGLES:
        yield from _spread_pairs(configuration)
        yield _few_pairs(noise, len(attributes))
    elif has_sets and noise > _SHORT:
        yield _pairs_beside_sets(noise)
    else:
        yield _SELECTED
    if has_sets:
        yield ordinary_pairs(attributes)
    if too_many_tuples(len(attributes)):  # k-tuples, which are counted otherwise, would be refused
        yield from _of_many_columns(noise, attributes)


# Pairs that are spread over the columns, and the least of each column.
_SPREAD = 4_000
_PAIRS_OF_COLUMN = 8
# Most seconds (`fitting_seconds`) that they may take.
_SPREAD_SECONDS = 250.0
# Values are merged where their count is below so many sigmas: most pairs of a rarer value are noise.
_SPREAD_COMPRESS = 1.0


def _spread_pairs(configuration: Sections) -> Iterator[Mapping[str, Any]]:
    """Yield the section `aggregate` of pairs that are spread over so many columns that most pairs cannot be looked at.

    With more than 107 columns (`too_many_tuples`) of declared values, and a mixture. Of c columns 4,000 pairs are measured, or
    4 c if these are more, but no more than can be fitted in time, and none if that is fewer than 4 c. They keep what many
    columns have in common, which few pairs lose, and lose the few pairs that rounds would choose. Measurements: docs/methods.md
    (many columns). DP: arithmetic on public facts.
    """
    attributes = configuration.attributes
    is_taken = configuration.synthesize.method == "mixture" and not configuration.private_columns
    has_sets = any(attribute.of_set for attribute in attributes)
    if not too_many_tuples(len(attributes)) or has_sets or not is_taken:
        return
    sizes = public_codes(attributes).values()
    pairs = math.comb(len(attributes), 2)
    cells = (sum(sizes) ** 2 - sum(size**2 for size in sizes)) / 2 / pairs
    least = len(attributes) * _PAIRS_OF_COLUMN // 2
    in_time = math.floor(_SPREAD_SECONDS / fitting_seconds(math.ceil(cells)))
    number = min(max(_SPREAD, least), in_time)
    if number >= least:
        yield {
            "method": "marginals",
            "cliques": {"all": 2, "spread_pairs": number},
            "one_way_share": 0.5,
            "compress": _SPREAD_COMPRESS,
        }


def _pairs_beside_sets(noise: float) -> Mapping[str, Any]:
    """Return the section `aggregate` of rounds that choose a pair each, as many as the noise admits.

    With annealing all shares were gone before pairs with a value of a set had a turn, which come last. Six tables of 944 to
    48,842 rows and 8 to 16 columns beside a set of 4 to 20 values, four of which had been looked at for the number of rounds,
    21 releases of each kind: the mean TVD of pairs of columns, and of a column and a value, as a multiple of that with
    annealing and 64 choices (32 with a noise of 36), and the quality score by the true distances.

    | noise | two columns | a column and a value | score before | now |
    | --- | --- | --- | --- | --- |
    | 18 | 1.04 | .72 | 38 | 50 |
    | 26 | .97 | .80 | 34 | 42 |
    | 36 | .98 | .84 | 28 | 35 |
    """
    rounds = round(_ROUNDS_BESIDE_SETS / noise)
    cliques = {"adaptive": 2, "rounds": rounds, "batch": 1, "annealing": False}
    return {"method": "marginals", "cliques": cliques}


def _of_many_columns(noise: float, attributes: Sequence[Attribute]) -> Iterator[Mapping[str, Any]]:
    """Yield as many rounds as there is time for, unless these are very few, and single columns alone."""
    rounds = min(MOST_PAIRS_CHOSEN, _rounds_in_time(attributes))
    if rounds >= _LEAST_ROUNDS:
        of_less_noise = {"method": "marginals", "cliques": {"adaptive": 2, "rounds": rounds}}
        yield _rounds_of_pairs(rounds) if noise > _SINGLES else of_less_noise
    yield {"method": "marginals", "cliques": {"all": 1}}


def _most_noise_of_triples(attributes: Sequence[Attribute]) -> float:
    """Return the noise of pairs up to which triples are measured."""
    return _SHORT_WITH_SETS if any(attribute.of_set for attribute in attributes) else _SHORT


def _few_pairs(noise: float, columns: int) -> Mapping[str, Any]:
    """Return the section `aggregate` of few pairs, each of which a model of the earlier ones gets most wrong, one a round.

    The rounds are 60 / (noise of one pair alone), but 4 to 16: 6 for 1,000 rows at epsilon 1. No annealing, half of the budget
    for single columns, 15 % for choosing, values merged below 2 sigma. The table compares that with 640 / r rounds
    with annealing, .6, .1 and 3 sigma (before), at 1,000 rows, epsilon 1, delta 1e-6, on
    the three samples by which this was chosen, simulated with the functions of a release, before once, now twice, as is an
    oracle that knows the three pairs and spends .7 on them. Releases are in docs/small-tables.md.

    | table | TVD of pairs, before | now | V of 3, before | now | of 10, before | now | oracle, of 3 |
    | --- | --- | --- | --- | --- | --- | --- | --- |
    | affairs | .109 | .113 | .042 | .033 | .080 | .056 | |
    | drug_deaths_cat | .058 | .059 | .215 | .214 | .301 | .188 | .158 |
    | ma2019_cat | .134 | .135 | .601 | .553 | .575 | .499 | .172 |
    | adult_cat | .151 | .150 | .260 | .184 | .252 | .198 | .132 |
    | anes96 | .150 | .154 | .077 | .036 | .066 | .056 | |

    Few rounds are better on samples of 1,000 to 6,300 rows at epsilon .3 and 1: mean TVD of two columns, of one or two releases
    each with the shares before, by the mixture, compared with single columns alone and a spanning tree of pairs (MST), both
    simulated by their published algorithms:

    | table | rows | r | triples | selected | 16 rounds of 4 | 16 of 1 | 8 of 1 | 5 of 1 | independent | tree |
    | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
    | adult_cat | 5,000 | 19 | | .055 | | .061 | .066 | | | |
    | ma2019_cat | 5,000 | 26 | | .045 | | .055 | .059 | | | |
    | affairs | 2,000 | 30 | | .067 | | .070 | .072 | | | |
    | affairs | 6,300 | 32 | | .068 | | .061 | .058 | | | |
    | drug_deaths_cat | 5,000 | 44 | | .019 | | .016 | .019 | | | |
    | affairs | 1,000 | 60 | .120 | | .102 | | .095 | .099 | .124 | .102 |
    | adult_cat | 1,000 | 95 | .146 | | .135 | | .129 | .128 | .138 | .152 |
    | ma2019_cat | 1,000 | 130 | .130 | | .115 | | .109 | .111 | .114 | .139 |

    The error of Cramér's V of the three strongest pairs at 1,000 rows, 8 of 1: .04, .24, .46, of the tree .04, .26, .34.
    """
    return _rounds_of_pairs(_number_of_pairs(noise, columns))


def _number_of_pairs(noise: float, columns: int) -> int:
    """Return how many pairs are chosen: 60 / (noise of one pair alone), but 4 to 16."""
    pairs = max(1, math.comb(columns, 2))
    number = round(_ROUNDS_TIMES_NOISE * math.sqrt(pairs) / noise)
    return min(MOST_PAIRS_CHOSEN, max(_LEAST_ROUNDS, number), pairs)


def pairs_by_noise(configuration: Sections, records: float) -> int:
    """Return how many pairs are chosen with this number of records, whatever the configuration says of it."""
    noise = pair_noise(configuration) * USUAL_ROWS / records
    return _number_of_pairs(noise, len(configuration.attributes))


def _rounds_of_pairs(rounds: int) -> Mapping[str, Any]:
    """Return the section `aggregate` of one pair a round."""
    cliques = {"adaptive": 2, "rounds": rounds, "batch": 1, "annealing": False}
    return {
        "method": "marginals",
        "cliques": cliques,
        "one_way_share": 0.5,
        "selection_share": 0.15,
        "compress": 2.0,
    }


def limit_near_noise(configuration: Sections) -> float | None:
    """Return the limit of `resolve_aggregate` that the noise is close to; None where it is close to none."""
    noise = relative_noise(configuration)
    short = _most_noise_of_triples(in_marginals(configuration).attributes)
    for limit in (short, _SHORT, _SINGLES):
        distance = math.log(max(noise, 1e-9) / limit)
        if abs(distance) < _NEAR:
            return limit
    return None


def automatic_aggregate(configuration: Sections) -> Counting:
    """Return the settings that `aggregate: {method: auto}` becomes with the method that makes the records."""
    needed = NEEDED.get(configuration.synthesize.method)
    section = resolve_aggregate(configuration) if needed is None else {"method": needed}
    if section["method"] == "marginals":
        return MarginalSettings.model_validate(section)
    return AggregateSettings.model_validate(resolve_sigma(section, configuration))


def is_automatic(configuration: Sections) -> bool:
    """Return whether what is counted is what `auto` chooses, whether it was left to `auto` or written out."""
    return configuration.aggregate == automatic_aggregate(configuration)


def is_decided_by_noise(configuration: Sections) -> bool:
    """Return whether the counts that `auto` chooses depend on `pair_noise`: they do not with a single column."""
    return len(configuration.attributes) > 1


def counts_words(aggregate: Counting, attributes: int) -> str:
    """Return words for the counts of the settings, with this number of attributes."""
    if isinstance(aggregate, AggregateSettings):
        return "k-tuples"
    if not aggregate.has_larger(attributes):
        return "single columns"
    if aggregate.adaptive is not None:
        return "marginals, chosen in rounds"
    if isinstance(aggregate.cliques, AllCliques):
        if aggregate.cliques.spread_pairs is not None:
            return "pairs, spread over all columns"
        return f"marginals of {aggregate.cliques.all} columns"
    return (
        "marginals, selected pairs" if aggregate.cliques == "selected" else "marginals, as listed"
    )


def pair_noise(configuration: Sections) -> float:
    """Return about the noise of pairs in records if all are counted: r = s sqrt(m (m - 1) / 2) / (epsilon sqrt(left)).

    A unit moves the counts of a set of attributes by s in L2: theta, or sqrt(2) theta where records are replaced. `left` is the
    share of the budget, of mu^2, that is for counts.
    """
    counts_share = _counts_share(configuration)
    if counts_share <= 0:
        return math.inf
    stability = configuration.stability
    sensitivity = stability.records * (math.sqrt(2) if stability.neighbors == "replace-one" else 1)
    pairs = math.comb(len(configuration.attributes), 2)
    return sensitivity * math.sqrt(pairs / counts_share) / configuration.privacy.epsilon


def relative_noise(configuration: Sections) -> float:
    """Return `pair_noise` relative to a table of `USUAL_ROWS` rows: with n rows it is 10,000 / n times as large."""
    return pair_noise(configuration) * USUAL_ROWS / (configuration.rows or USUAL_ROWS)


def rows_by_noise(configuration: Sections) -> float:
    """Return the number of rows, or the number that is assumed, divided by the noise of a pair."""
    return USUAL_ROWS / max(relative_noise(configuration), 1e-9)


def _counts_share(configuration: Sections) -> float:
    """Return the share of the budget that bounds and values of marginals leave for counts, rounded to 6 decimals."""
    spent = configuration.bounds_share if configuration.private_bounds else 0.0
    if configuration.marginals is not None and configuration.private_columns:
        spent += configuration.marginals.values_share
    return round(1 - spent, 6)


def _cannot_be_measured(configuration: Sections) -> bool:
    """Return whether marginals are refused: with a delta of 0, or with two attributes of one name."""
    sizes = public_codes(configuration.attributes)
    return not configuration.privacy.delta or len(sizes) < len(configuration.attributes)


def resolve_sigma(section: Mapping[str, Any], configuration: Sections) -> dict[str, Any]:
    """Return the section `aggregate` of k-tuples with the proportions that `sigma: auto` becomes.

    The noise of pairs decides, r of `pair_noise`: where it is larger than their counts, records come no closer to the table
    than single columns do, and single columns need the budget. Measured, mean TVD of two
    columns, R = 3, by the mixture, of two to six releases each, compared with single columns that have the whole budget:

    | table | epsilon | r | balanced | short | singles | independent |
    | --- | --- | --- | --- | --- | --- | --- |
    | affairs | 1 | 6 | .042 | .045 | .075 | .098 |
    | affairs | 0.3 | 20 | .077 | .072 | .097 | .100 |
    | adult_cat | 0.3 | 32 | | .046 | .067 | .088 |
    | ma2019_cat | 0.3 | 44 | | .091 | .087 | .086 |
    | drug_deaths_cat | 0.3 | 72 | | .037 | .036 | .032 |
    """
    if section.get("sigma", "auto") != "auto":
        return dict(section)
    noise = relative_noise(configuration)
    if noise <= _SHORT:
        return {**section, "sigma": "balanced"}
    return {**section, "sigma": "short" if noise <= _SINGLES else "singles"}


def _has_many_sets(settings: MarginalSettings, columns: int) -> bool:
    """Return whether candidates of rounds, or pairs that are listed or selected, are more than a run admits."""
    if settings.adaptive is not None:
        return settings.adaptive.sets(columns) > MOST_SETS
    if isinstance(settings.cliques, tuple):
        return len(settings.cliques) > MOST_MARGINALS
    return settings.cliques == "selected" and math.comb(columns, 2) > MOST_MARGINALS


def _rounds_in_time(attributes: Sequence[Attribute]) -> int:
    """Return in how many rounds each pair can be checked within the time that all fits may take."""
    all_cells = table_cells(public_codes(attributes), 2, AdaptiveCliques().max_cells)
    return math.floor(MOST_SECONDS / max(sum(map(looking_seconds, all_cells)), 1e-9))


def _takes_long(settings: MarginalSettings, attributes: Sequence[Attribute]) -> bool:
    """Return whether a check of each pair in each round takes longer than all fits may."""
    rounds = settings.adaptive
    if rounds is None:
        return False
    seconds = 0.0
    for cells in table_cells(public_codes(attributes), 2, rounds.max_cells):
        seconds += rounds.rounds * looking_seconds(cells)
        if seconds > MOST_SECONDS:
            return True
    return False
