"""What the configuration leaves to us, by the benchmark: `synthesize.method: auto` and `aggregate.sigma: auto`.

By the benchmark (`tests/benchmarks/accuracy`, results in deployments/accuracy.md) the mixture is the nearest to the table of
all methods, but for k-tuples at epsilon 0.3, where GUM is as near or a little nearer. So neither epsilon nor size decides;
what does is whether a mixture can be fitted, in time and memory, by what is public of the domain.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from marginweave.schemas.aggregation import AggregateSettings
from marginweave.schemas.attributes import Attribute
from marginweave.schemas.marginals import AdaptiveCliques, AllCliques, MarginalSettings
from marginweave.schemas.numbers import MAX_CELLS, MAX_TABLE
from marginweave.schemas.synthesis import GumSynthesis, MixtureSynthesis, PgmSynthesis, SynthesisSettings

_LITTLE = 0.5  # epsilon up to which the shorter combinations need most of the budget

Method = Literal["aggregate-seeded", "gum", "mixture"]
_MODELS = (SynthesisSettings, GumSynthesis, MixtureSynthesis, PgmSynthesis)
# Keys that not every method has, and a method that has it.
_OWN = {
    key: f"method: {model.model_fields['method'].default}"
    for model in _MODELS
    for key in model.model_fields
    if not all(key in other.model_fields for other in _MODELS)
}

# What makes records where no mixture can be fitted: both work on what was released, value by value or row by row.
_INSTEAD: Mapping[str, Method] = {"k-tuples": "aggregate-seeded", "marginals": "gum"}

# CPU seconds of all default fits at their most iterations, on one core of an AMD EPYC: what each cell takes, and each table
# beside. Most fits end much earlier. Measured, within a factor of 4: 55 tables of 4,600 cells together 12 s, 15 of 401,000
# 317 s, 210 of 171,600 153 s, 1350 of 1,159,200 715 s.
_SECONDS_A_CELL = 4e-4
_SECONDS_A_TABLE = 0.3
_MOST_SECONDS = 1200.0
# A model has a share of each code in each component: 2400 x 8 bytes, and half as much again in every fit that is under way.
_MOST_CODES = 10_000


@dataclass(frozen=True, kw_only=True)
class AutomaticMethod:
    """The method that `auto` stands for, and why, in words."""

    method: Method
    reason: str


def automatic_method(
    aggregate: AggregateSettings | MarginalSettings, attributes: Sequence[Attribute]
) -> AutomaticMethod:
    """The mixture wherever it can be fitted to the counts, else what goes without dense tables of all values.

    DP: a function of public facts alone, of the settings and the declared domains.
    """
    hindrance = _hindrance(aggregate, attributes)
    if hindrance is None:
        return AutomaticMethod(method="mixture", reason="mostly the nearest to the table by the benchmark")
    return AutomaticMethod(method=_INSTEAD[aggregate.method], reason=f"{hindrance} rule out a mixture")


def resolve_sigma(given: Mapping[str, Any], epsilon: float, accountant: str) -> dict[str, Any]:
    """The section `aggregate` of k-tuples with the proportions that `sigma: auto` stands for; SDS's formulas keep its own.

    Measured on affairs, drug_deaths_cat and ma2019_cat, R = 3: `long` leaves a 14th of the budget to single columns, and at
    epsilon 0.3 the records are then farther from the table than independent columns (TVD of two columns .124 against .086 on
    ma2019_cat; `balanced` .099, `short` .087). At epsilon 1 and 3 `balanced` is as near as `long` or nearer, `short` farther.
    """
    if given.get("sigma", "auto") != "auto":
        return dict(given)
    printed = "sds" in (accountant, given.get("split"))
    return {**given, "sigma": "long" if printed else "short" if epsilon <= _LITTLE else "balanced"}


def resolve_method(
    given: Mapping[str, Any], aggregate: AggregateSettings | MarginalSettings, attributes: Sequence[Attribute]
) -> dict[str, Any]:
    """The section `synthesize` with the method that `auto` stands for in the place of `auto`.

    Raises:
        ValueError: a key that only some methods have.
    """
    for key in given:
        if key in _OWN:
            raise ValueError(f"has {key}, which not every method has; name the method, such as {_OWN[key]}")
    return {**given, "method": automatic_method(aggregate, attributes).method}


def _hindrance(aggregate: AggregateSettings | MarginalSettings, attributes: Sequence[Attribute]) -> str | None:
    """What is public and forbids a mixture, in the plural."""
    if any(attribute.is_set for attribute in attributes):
        return "columns of sets"
    if any(attribute.private for attribute in attributes):
        return "private domains, whose sizes are not public,"
    sizes = {attribute.name: len(attribute.labels) + attribute.optional for attribute in attributes}
    if sum(sizes.values()) > _MOST_CODES:
        return f"{sum(sizes.values())} values, more than {_MOST_CODES},"
    seconds = 0.0
    for cells in _tables(aggregate, sizes):
        seconds += _SECONDS_A_TABLE + _SECONDS_A_CELL * cells
        if seconds > _MOST_SECONDS:  # there may be millions more
            return "so many columns and values"
    return None


def _tables(aggregate: AggregateSettings | MarginalSettings, sizes: Mapping[str, int]) -> Iterator[int]:
    """Cells of every table that a mixture may be fitted to: of pairs still to be selected all, of rounds the largest."""
    yield from sizes.values()
    if isinstance(aggregate, AggregateSettings):
        longest, most = aggregate.reporting_length or min(3, len(sizes)), MAX_TABLE
        lengths = range(2, longest + 1)
    elif isinstance(aggregate.cliques, tuple):
        # a name that is no attribute is refused elsewhere
        yield from (math.prod(sizes.get(name, 1) for name in clique) for clique in aggregate.cliques)
        return
    elif isinstance(aggregate.cliques, AdaptiveCliques):
        rounds, widest = aggregate.cliques, sorted(sizes.values())
        candidates = sum(math.comb(len(sizes), length) for length in range(2, rounds.adaptive + 1))
        most = min(rounds.max_cells, math.prod(widest[-rounds.adaptive :]))
        yield from itertools.repeat(most, min(rounds.rounds * rounds.batch, candidates))
        return
    else:
        chosen = aggregate.cliques if isinstance(aggregate.cliques, AllCliques) else AllCliques(all=2)
        most, lengths = chosen.max_cells or MAX_CELLS, range(max(chosen.all, 2), chosen.all + 1)
    for length in lengths:
        yield from (cells for cells in map(math.prod, itertools.combinations(sizes.values(), length)) if cells <= most)
