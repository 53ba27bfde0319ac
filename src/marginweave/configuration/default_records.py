"""What makes the records where nobody says it: `synthesize.method: auto`.

In our benchmarks (`benchmarks/accuracy`, results in docs/accuracy.md) the mixture is mostly the most accurate;
what is public of the domain decides whether one can be fitted, in time and memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from marginweave.configuration.attributes import Attribute
from marginweave.configuration.k_tuples import AggregateSettings
from marginweave.configuration.marginals import AdaptiveCliques, AllCliques, MarginalSettings
from marginweave.configuration.sections import Sections
from marginweave.configuration.synthesis import SYNTHESES
from marginweave.configuration.values import MAX_TABLE

MOST_SECONDS = 600.0
"""CPU seconds that all fits of a mixture may take at their most iterations; most end much earlier."""


# CPU seconds of all default fits at their most iterations, on one core of an AMD EPYC: what each cell takes, and each table
# beside. Measured: 1,160 tables of 142,600 cells together 84 s, 29 of 374,411 152 s, 3,486 of 341,130 145 s, 1,355 of 1,020,740
# 287 s; small sets of tables take 5 to 15 s.
_FITTED_CELL, _FITTED_TABLE = 6e-4, 0.01


# The same of looking once whether a table tells anything, with room: 19,900 tables of 9 cells took 4 s.
_SEEN_CELL, _SEEN_TABLE = 2e-7, 1e-3

Counting = AggregateSettings | MarginalSettings
"""The section `aggregate`, of either method."""
Method = Literal["aggregate-seeded", "gum", "mixture"]


# Keys that not every method has, and a method that has it.
_OWN = {
    key: f"method: {model.model_fields['method'].default}"
    for model in SYNTHESES
    for key in model.model_fields
    if not all(key in other.model_fields for other in SYNTHESES)
}


# What makes records where no mixture can be fitted: both work on what was released, value by value or row by row.
_INSTEAD: Mapping[str, Method] = {"k-tuples": "aggregate-seeded", "marginals": "gum"}


ASSUMED_VALUES = 100
"""Values that a private domain is taken to have before it is discovered: each is released of a hundred records or so."""


# A model has a share of each code in each component: 2400 x 8 bytes, and half as much again in every fit that is under way.
_MOST_CODES = 10_000


# So many sets of columns are looked at in less than a second; far fewer can be measured.
_MOST_SETS = 200_000


@dataclass(frozen=True, kw_only=True)
class AutomaticMethod:
    """The method that `auto` stands for, and why, in words."""

    method: Method
    reason: str


def automatic_method(aggregate: Counting, attributes: Sequence[Attribute]) -> AutomaticMethod:
    """The mixture wherever it can be fitted to the counts, else what goes without dense tables of all values.

    DP: a function of public facts alone, of the settings and the declared domains.
    """
    hindrance = mixture_hindrance(aggregate, attributes)
    if hindrance is None:
        return AutomaticMethod(method="mixture", reason="the most accurate in most of our benchmarks")
    return AutomaticMethod(method=_INSTEAD[aggregate.method], reason=f"{hindrance} rule out a mixture")


def resolve_method(given: Mapping[str, Any], aggregate: Counting, attributes: Sequence[Attribute]) -> dict[str, Any]:
    """The section `synthesize` with the method that `auto` stands for in the place of `auto`.

    Raises:
        ValueError: a key, or a value, that only some methods have.
    """
    for key in given:
        if key in _OWN:
            raise ValueError(f"synthesize has {key}, which not every method has; name the method, such as {_OWN[key]}")
    method = automatic_method(aggregate, attributes).method
    if given.get("records") == "exhaust" and method == "aggregate-seeded":  # the others have it not at all
        raise ValueError(f"synthesize has records: exhaust, which not every method has; name the method, {method}")
    return {**given, "method": method}


def in_marginals(configuration: Sections) -> Sections:
    """The same with marginals for counts, in which each declared value of a set is an attribute of its own."""
    fields = {name: getattr(configuration, name) for name in Sections.model_fields}
    return Sections.model_construct(**{**fields, "aggregate": MarginalSettings()})


def ordinary_pairs(attributes: Sequence[Attribute]) -> Mapping[str, Any]:
    """All pairs of columns that are no values of sets; these are measured by themselves."""
    ordinary = [attribute.name for attribute in attributes if not attribute.of_set]
    return {"method": "marginals", "cliques": [*map(list, itertools.combinations(ordinary, 2))] or {"all": 1}}


def public_codes(attributes: Sequence[Attribute]) -> dict[str, int]:
    """Codes of each attribute, missing included; of a private domain as many as are assumed (`ASSUMED_VALUES`)."""
    return {a.name: (ASSUMED_VALUES if a.private else len(a.labels)) + a.optional for a in attributes}


def mixture_hindrance(aggregate: Counting, attributes: Sequence[Attribute]) -> str | None:
    """What is public and forbids a mixture, in the plural."""
    if any(attribute.is_set and attribute.private for attribute in attributes):
        return "sets with a private domain"
    if isinstance(aggregate, AggregateSettings) and any(a.is_set or a.private for a in attributes):
        return "k-tuples of sets or private domains"
    sizes = public_codes(attributes)
    if sum(sizes.values()) > _MOST_CODES:
        return f"{sum(sizes.values())} values, more than {_MOST_CODES},"
    cliques = aggregate.cliques if isinstance(aggregate, MarginalSettings) else None
    if isinstance(cliques, AllCliques) and cliques.count_sets(len(sizes)) > _MOST_SETS:
        return "so many sets of columns"
    so_far = itertools.accumulate(_seconds(aggregate, sizes, attributes))
    if any(seconds > MOST_SECONDS for seconds in so_far):  # there may be millions more
        return "so many columns and values"
    return None


def _seconds(aggregate: Counting, sizes: Mapping[str, int], attributes: Sequence[Attribute]) -> Iterator[float]:
    """What each table takes, from short ones to long ones.

    All of the longest k-tuples are looked at, and fitted as many as there is time for. Marginals that are still to
    be selected may be all.
    """
    if isinstance(aggregate, MarginalSettings):
        yield from map(fitting_seconds, marginal_cells(aggregate, sizes, attributes))
        return
    longest = aggregate.reporting_length or min(3, len(sizes))
    for length in range(1, longest + 1):
        takes = fitting_seconds if length == 1 or length < longest else looking_seconds
        yield from map(takes, table_cells(sizes, length, MAX_TABLE))


def marginal_cells(
    aggregate: MarginalSettings, sizes: Mapping[str, int], attributes: Sequence[Attribute]
) -> Iterator[int]:
    """Cells of each marginal, single attributes first: of pairs still to be selected all, of rounds the largest."""
    yield from sizes.values()
    if isinstance(aggregate.cliques, tuple):
        # a name that is no attribute is refused elsewhere
        yield from (math.prod(sizes.get(name, 1) for name in clique) for clique in aggregate.cliques)
        return
    if isinstance(aggregate.cliques, AdaptiveCliques):
        rounds, widest = aggregate.cliques, sorted(sizes.values())
        most = min(rounds.max_cells, math.prod(widest[-rounds.adaptive :]))
        yield from itertools.repeat(most, rounds.most_chosen(len(sizes)))
        return
    chosen = aggregate.cliques if isinstance(aggregate.cliques, AllCliques) else AllCliques(all=2)
    if chosen.all > 1:
        yield from chosen.cells(aggregate.levels(tuple(sizes.values()), attributes))


def table_cells(sizes: Mapping[str, int], length: int, most: int) -> Iterator[int]:
    """Cells of each table of so many attributes that has at most `most`."""
    return (cells for cells in map(math.prod, itertools.combinations(sizes.values(), length)) if cells <= most)


def fitting_seconds(cells: int) -> float:
    """At most so long are mixtures fitted to a table of so many cells."""
    return _FITTED_TABLE + _FITTED_CELL * cells


def looking_seconds(cells: int) -> float:
    """About so long it takes to see whether a table of so many cells is worth fitting."""
    return _SEEN_TABLE + _SEEN_CELL * cells
