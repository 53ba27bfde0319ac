"""What is counted where nobody says it: `aggregate.method: auto` and `aggregate.sigma: auto`.

The noise that pairs would have if all were counted decides, as far as measured (`benchmarks/accuracy`, results in
docs/accuracy.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from marginweave.configuration.attributes import Attribute
from marginweave.configuration.coarsening import triples
from marginweave.configuration.default_records import (
    MOST_SECONDS,
    Counting,
    in_marginals,
    looking_seconds,
    mixture_hindrance,
    ordinary_pairs,
    public_codes,
    table_cells,
)
from marginweave.configuration.k_tuples import AggregateSettings
from marginweave.configuration.marginals import AllCliques, MarginalSettings
from marginweave.configuration.privacy import MOST_EPSILON
from marginweave.configuration.sections import Sections

# Noise of pairs (`pair_noise`) beyond which no triples are measured, and single columns need more of the budget of k-tuples;
# and beyond which they need most of it.
_SHORT, _SHORT_WITH_SETS, _SINGLES = 16.0, 8.0, 40.0

_NEAR = 0.1  # in logarithms: so near is beside a limit
USUAL_ROWS = 10_000
"""Rows that a table is taken to have where it does not say: noise counts by what it is beside them."""


# Marginals that `auto` stands for where not all triples are measured (`triples`): pairs that are worth their noise.
_SELECTED: Mapping[str, Any] = {"method": "marginals"}
# Of many columns that are values of sets, scores of all pairs have too much noise to select by.
_MANY_ROUNDS: Mapping[str, Any] = {"method": "marginals", "cliques": {"adaptive": 2}}
# How many pairs are chosen one by one: few where the noise of a count is large, so that each is measured well.
_MOST_ROUNDS, _LEAST_ROUNDS, _ROUNDS_TIMES_NOISE = 16, 4, 60


_SHARES = ("one_way_share", "selection_share")

NEEDED: Mapping[str, str] = {"aggregate-seeded": "k-tuples"}
"""The counts that a synthesis needs which works on one kind only."""


def check_own_keys(section: Any) -> None:
    """Refuse keys beside `aggregate: {method: auto}`; raises ValueError."""
    if isinstance(section, dict) and section.get("method") == "auto" and len(section) > 1:
        other = next(key for key in section if key != "method")
        raise ValueError(f"aggregate has {other}, which method auto has not; name the method, k-tuples or marginals")


def resolve_aggregate(configuration: Sections) -> dict[str, Any]:
    """The section `aggregate` that `auto` stands for: all triples, selected pairs, or pairs chosen in rounds; else k-tuples.

    Where the noise of pairs r (`pair_noise`) is small, all triples are measured that do not take too long to be fitted.
    Beyond, the budget goes to some pairs, and to single columns most of it where r is above 40. Measured, mean TVD of three
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

    Triples at r = 32 and 44 are one release each, and those at 44 are no nearer in two columns (.079) than rounds are (.078).
    Measured again with triples in coarser bins, one release each, selected and triples (CPU seconds): affairs at 0.3 .130 and
    .132 (1.7, 2.6), drug_deaths_cat at 1 .0244 and .0230 (10, 62), adult_cat at 0.3 .0635 and .0616 (4, 19), adult at 0.3 .109
    and .104 (5, 12). That is no clear gain for so much time, so the limit of 16 stays.
    K-tuples stay where a mixture could not be fitted to the marginals, and where marginals cannot be measured as asked: sets
    with a private domain. Each declared value of another set counts as a column, and most triples have such a one: they are
    measured up to half of that noise (docs/methods.md has what was measured). Of the
    shares of marginals there is as much as bounds and private values leave.

    DP: a function of public facts alone.

    Args:
        configuration: all but the sections that are to be resolved, with whatever settings of k-tuples.
    """
    configuration = in_marginals(configuration)
    attributes, left = configuration.attributes, _left(configuration)
    if left <= 0 or _cannot_be_measured(configuration):  # what leaves nothing is refused elsewhere
        return {"method": "k-tuples"}
    noise, has_sets = relative_noise(configuration), any(attribute.of_set for attribute in attributes)
    usual = _few_pairs(noise, len(attributes)) if noise > _SINGLES else _SELECTED
    if has_sets and _SHORT < noise <= _SINGLES:
        usual = _MANY_ROUNDS
    # tables of a private domain, which may be large, take most of what all triples have
    is_quiet = noise <= (_SHORT_WITH_SETS if has_sets else _SHORT) and not configuration.private_columns
    tried = triples(configuration, beside_noise(configuration)) if is_quiet else ()
    for section in (*tried, usual, *([ordinary_pairs(attributes)] if has_sets else ())):
        settings = MarginalSettings.model_validate(section)
        if not (mixture_hindrance(settings, attributes) or _takes_long(settings, attributes)):
            shares = _SHARES if settings.selects(len(attributes)) else ("one_way_share",)
            scaled = {key: round(left * getattr(settings, key), 9) for key in shares} if left < 1 else {}
            return {**section, **scaled}
    return {"method": "k-tuples"}


def _few_pairs(noise: float, columns: int) -> Mapping[str, Any]:
    """Pairs that a model gets most wrong, one a round: 60 / (noise of one pair alone), 6 for 1,000 rows at epsilon 1; 4 to 16.

    No annealing, half of the budget for single columns, 15 % for choosing, values merged below 2 sigma. Beside 640 / r rounds
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

    That few are better, on samples of 1,000 to 6,300 rows at epsilon .3 and 1: mean TVD of two columns, of one or two releases
    each with the shares before, by the mixture, beside single columns alone and a spanning tree of pairs (MST), both simulated
    by their published algorithms:

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
    pairs = max(1, math.comb(columns, 2))
    rounds = min(_MOST_ROUNDS, max(_LEAST_ROUNDS, round(_ROUNDS_TIMES_NOISE * math.sqrt(pairs) / noise)), pairs)
    cliques = {"adaptive": 2, "rounds": rounds, "batch": 1, "annealing": False}
    return {"method": "marginals", "cliques": cliques, "one_way_share": 0.5, "selection_share": 0.15, "compress": 2.0}


def edge_words(configuration: Sections) -> str:
    """That the noise is just beside a limit of `resolve_aggregate`, and what would help, where that is so."""
    noise = relative_noise(configuration)
    short = (
        _SHORT_WITH_SETS if any(attribute.of_set for attribute in in_marginals(configuration).attributes) else _SHORT
    )
    limit = next(
        (limit for limit in (short, _SHORT, _SINGLES) if abs(math.log(max(noise, 1e-9) / limit)) < _NEAR), None
    )
    if limit is None:
        return ""
    side = "just above" if noise > limit else "just below"
    more = "more epsilon, " if configuration.privacy.epsilon < MOST_EPSILON else ""
    return f", {side} {limit:g}, where auto chooses otherwise: fewer columns, {more}or rows: N if it is public, decide"


def automatic_aggregate(configuration: Sections) -> Counting:
    """The settings that `aggregate: {method: auto}` stands for, beside the method that makes the records."""
    needed = NEEDED.get(configuration.synthesize.method)
    section = resolve_aggregate(configuration) if needed is None else {"method": needed}
    if section["method"] == "marginals":
        return MarginalSettings.model_validate(section)
    return AggregateSettings.model_validate(resolve_sigma(section, configuration))


def is_decided_by_noise(configuration: Sections) -> bool:
    """Whether `pair_noise` has a part in what `auto` counts: not where only one thing can be counted, nor of one column."""
    return len(configuration.attributes) > 1


def counts_words(aggregate: Counting, attributes: int) -> str:
    """What the settings count of so many attributes, for a reader."""
    if isinstance(aggregate, AggregateSettings):
        return "k-tuples"
    if not aggregate.has_larger(attributes):
        return "single columns"
    if aggregate.adaptive is not None:
        return "marginals, chosen in rounds"
    if isinstance(aggregate.cliques, AllCliques):
        return f"marginals of {aggregate.cliques.all} columns"
    return "marginals, selected pairs" if aggregate.cliques == "selected" else "marginals, as listed"


def pair_noise(configuration: Sections) -> float:
    """About the noise of pairs in records, where all are counted: r = s sqrt(m (m - 1) / 2) / (epsilon sqrt(left)).

    A unit moves the counts of a set of attributes by s in L2: theta, or sqrt(2) theta where records are replaced. `left` is the
    share of the budget, of mu^2, that is for counts.
    """
    stability, pairs = (configuration.stability, math.comb(len(configuration.attributes), 2))
    moved = stability.records * (math.sqrt(2) if stability.neighbors == "replace-one" else 1)
    left = _left(configuration)
    return moved * math.sqrt(pairs / left) / configuration.privacy.epsilon if left > 0 else math.inf


def relative_noise(configuration: Sections) -> float:
    """`pair_noise` as it would be beside `USUAL_ROWS` rows: with n rows noise is 10,000 / n times as large beside counts."""
    return pair_noise(configuration) * USUAL_ROWS / (configuration.rows or USUAL_ROWS)


def beside_noise(configuration: Sections) -> float:
    """How many times as many rows there are, or are taken to be, as the noise of a pair."""
    return USUAL_ROWS / max(relative_noise(configuration), 1e-9)


def _left(configuration: Sections) -> float:
    """What bounds and values of marginals leave of the budget; to 6 digits, as sums of shares."""
    before = configuration.bounds_share if configuration.private_bounds else 0.0
    if configuration.marginals is not None and configuration.private_columns:
        before += configuration.marginals.values_share
    return round(1 - before, 6)


def _cannot_be_measured(configuration: Sections) -> bool:
    """Whether marginals are refused: pure epsilon, a name twice."""
    sizes = public_codes(configuration.attributes)
    return not configuration.privacy.delta or len(sizes) < len(configuration.attributes)


def resolve_sigma(given: Mapping[str, Any], configuration: Sections) -> dict[str, Any]:
    """The section `aggregate` of k-tuples with the proportions that `sigma: auto` stands for.

    What decides is how large the noise of pairs is, r of `pair_noise`: where pairs drown in
    it, records come no nearer to the table than single columns do, and these need the budget. Measured, mean TVD of two
    columns, R = 3, by the mixture, of two to six releases each, beside single columns that have the whole budget:

    | table | epsilon | r | balanced | short | singles | independent |
    | --- | --- | --- | --- | --- | --- | --- |
    | affairs | 1 | 6 | .042 | .045 | .075 | .098 |
    | affairs | 0.3 | 20 | .077 | .072 | .097 | .100 |
    | adult_cat | 0.3 | 32 | | .046 | .067 | .088 |
    | ma2019_cat | 0.3 | 44 | | .091 | .087 | .086 |
    | drug_deaths_cat | 0.3 | 72 | | .037 | .036 | .032 |
    """
    if given.get("sigma", "auto") != "auto":
        return dict(given)
    pairs = relative_noise(configuration)
    if pairs <= _SHORT:
        return {**given, "sigma": "balanced"}
    return {**given, "sigma": "short" if pairs <= _SINGLES else "singles"}


def _takes_long(settings: MarginalSettings, attributes: Sequence[Attribute]) -> bool:
    """Whether looking at each pair in each round takes longer than all fits may."""
    rounds = settings.adaptive
    if rounds is None:
        return False
    sizes = public_codes(attributes)
    looks = (rounds.rounds * looking_seconds(cells) for cells in table_cells(sizes, 2, rounds.max_cells))
    return any(seconds > MOST_SECONDS for seconds in itertools.accumulate(looks))
