"""Default method of synthesis: `synthesize.method: auto`.

In our benchmarks (`benchmarks/accuracy`, results in docs/accuracy.md) the mixture is mostly the most accurate;
public facts about the domain decide whether it can be fitted, in time and memory.
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
"""CPU seconds that all fits of a mixture may take at their most iterations; most fits end much earlier."""


# CPU seconds of all default fits at their most iterations, on one core of an AMD EPYC: for each cell, and in addition for each
# table. Measured: 1,160 tables of 142,600 cells in all 84 s, 29 of 374,411 152 s, 3,486 of 341,130 145 s, 1,355 of 1,020,740
# 287 s; small sets of tables take 5 to 15 s.
_FITTED_CELL = 6e-4
_FITTED_TABLE = 0.01


# CPU seconds of one check whether a table is worth fitting, rounded up: 19,900 tables of 9 cells took 4 s.
_SEEN_CELL = 2e-7
_SEEN_TABLE = 1e-3

Counting = AggregateSettings | MarginalSettings
"""The section `aggregate`, of either method."""
Method = Literal["aggregate-seeded", "gum", "mixture"]


_COMMON_KEYS = set.intersection(*(set(model.model_fields) for model in SYNTHESES))
# Keys that not every method has, with a method that has them.
_OWN_KEYS = {
    key: f"method: {model.model_fields['method'].default}"
    for model in SYNTHESES
    for key in model.model_fields
    if key not in _COMMON_KEYS
}


# Methods where no mixture can be fitted: both make records from the released counts, value by value or row by row.
_INSTEAD: Mapping[str, Method] = {"k-tuples": "aggregate-seeded", "marginals": "gum"}


ASSUMED_VALUES = 100
"""Values that a private domain is assumed to have before it is discovered; a value needs about 100 records to be released."""


# A model has a share of each code in each component: 2400 x 8 bytes, and half of that in every fit that is running.
_MOST_CODES = 10_000


MOST_SETS = 200_000
"""Sets of columns that are looked at: this many are listed in less than a second, far fewer can be measured."""
MOST_MARGINALS = 20_000
"""Marginals of a release: every round of consistency and synthesis goes over all of them."""
_LONGEST_TUPLES = 3  # that are counted where `aggregate.reporting_length` is left out


@dataclass(frozen=True, kw_only=True)
class AutomaticMethod:
    """The method that `auto` becomes, and the reason in words."""

    method: Method
    reason: str


def automatic_method(aggregate: Counting, attributes: Sequence[Attribute]) -> AutomaticMethod:
    """Return the mixture wherever it can be fitted to the counts, otherwise a method that needs no dense tables of all values.

    DP: a function of public facts alone, of the settings and the declared domains.
    """
    hindrance = mixture_hindrance(aggregate, attributes)
    if hindrance is None:
        return AutomaticMethod(
            method="mixture", reason="the most accurate in most of our benchmarks"
        )
    return AutomaticMethod(
        method=_INSTEAD[aggregate.method], reason=f"{hindrance} rule out a mixture"
    )


def resolve_method(
    section: Mapping[str, Any], aggregate: Counting, attributes: Sequence[Attribute]
) -> dict[str, Any]:
    """Return the section `synthesize` with the method that `auto` becomes; `section` has no method.

    Raises:
        ValueError: a key, or a value, that only some methods have.
    """
    for key in section:
        if key in _OWN_KEYS:
            raise ValueError(
                f"synthesize has {key}, which not every method has; name the method, such as {_OWN_KEYS[key]}"
            )
    method = automatic_method(aggregate, attributes).method
    # models of other methods refuse it
    if section.get("records") == "exhaust" and method == "aggregate-seeded":
        raise ValueError(
            f"synthesize has records: exhaust, which not every method has; name the method, {method}"
        )
    return {**section, "method": method}


def in_marginals(configuration: Sections) -> Sections:
    """Return the configuration with marginals for counts, in which each declared value of a set is a separate attribute."""
    fields = {name: getattr(configuration, name) for name in Sections.model_fields}
    return Sections.model_construct(**{**fields, "aggregate": MarginalSettings()})


def ordinary_pairs(attributes: Sequence[Attribute]) -> Mapping[str, Any]:
    """Return the section `aggregate` of all pairs of columns; values of sets are only measured by themselves."""
    columns = [attribute.name for attribute in attributes if not attribute.of_set]
    pairs = [list(pair) for pair in itertools.combinations(columns, 2)]
    return {"method": "marginals", "cliques": pairs or {"all": 1}}


def public_codes(attributes: Sequence[Attribute]) -> dict[str, int]:
    """Return the number of codes of each attribute, missing included; a private domain has `ASSUMED_VALUES` values."""
    codes = dict[str, int]()
    for attribute in attributes:
        values = ASSUMED_VALUES if attribute.private else len(attribute.labels)
        codes[attribute.name] = values + attribute.optional
    return codes


def too_many_tuples(columns: int) -> bool:
    """Return whether k-tuples of the default lengths of this many columns are more sets than are looked at."""
    return max(math.comb(columns, length) for length in range(1, _LONGEST_TUPLES + 1)) > MOST_SETS


def mixture_hindrance(aggregate: Counting, attributes: Sequence[Attribute]) -> str | None:
    """Return the public fact that forbids a mixture, in the plural, or None."""
    if any(attribute.is_set and attribute.private for attribute in attributes):
        return "sets with a private domain"
    if isinstance(aggregate, AggregateSettings) and any(a.is_set or a.private for a in attributes):
        return "k-tuples of sets or private domains"
    sizes = public_codes(attributes)
    if sum(sizes.values()) > _MOST_CODES:
        return f"{sum(sizes.values())} values, more than {_MOST_CODES},"
    cliques = aggregate.cliques if isinstance(aggregate, MarginalSettings) else None
    if isinstance(cliques, AllCliques) and cliques.count_sets(len(sizes)) > MOST_SETS:
        return "so many sets of columns"
    total_seconds = itertools.accumulate(_seconds(aggregate, sizes, attributes))
    # stops early: there may be millions of tables
    if any(seconds > MOST_SECONDS for seconds in total_seconds):
        return "so many columns and values"
    return None


def _seconds(
    aggregate: Counting, sizes: Mapping[str, int], attributes: Sequence[Attribute]
) -> Iterator[float]:
    """Yield the seconds that each table takes, from short ones to long ones.

    All of the longest k-tuples are checked, and as many are fitted as there is time for. Of marginals that are not selected
    yet, all are counted.
    """
    if isinstance(aggregate, MarginalSettings):
        yield from map(fitting_seconds, marginal_cells(aggregate, sizes, attributes))
        return
    longest = aggregate.reporting_length or min(_LONGEST_TUPLES, len(sizes))
    for length in range(1, longest + 1):
        seconds_of = fitting_seconds if length == 1 or length < longest else looking_seconds
        yield from map(seconds_of, table_cells(sizes, length, MAX_TABLE))


def marginal_cells(
    aggregate: MarginalSettings, sizes: Mapping[str, int], attributes: Sequence[Attribute]
) -> Iterator[int]:
    """Yield the cells of each marginal, single attributes first.

    Marginals that are not selected yet are all pairs; those that are chosen in rounds count as the largest.
    """
    yield from sizes.values()
    cliques = aggregate.cliques
    if isinstance(cliques, tuple):
        for clique in cliques:
            # a name that is no attribute is refused elsewhere
            yield math.prod(sizes.get(name, 1) for name in clique)
        return
    if isinstance(cliques, AdaptiveCliques):
        largest = sorted(sizes.values())[-cliques.adaptive :]
        most = min(cliques.max_cells, math.prod(largest))
        yield from itertools.repeat(most, cliques.most_chosen(len(sizes)))
        return
    measured = cliques if isinstance(cliques, AllCliques) else AllCliques(all=2)
    if measured.all > 1:
        levels = aggregate.levels(tuple(sizes.values()), attributes)
        yield from measured.cells(levels)


def table_cells(sizes: Mapping[str, int], length: int, most: int) -> Iterator[int]:
    """Yield the cells of each table of `length` attributes that has at most `most` cells."""
    for table in itertools.combinations(sizes.values(), length):
        cells = math.prod(table)
        if cells <= most:
            yield cells


def fitting_seconds(cells: int) -> float:
    """Return the most seconds that the fit of mixtures to a table of this many cells takes."""
    return _FITTED_TABLE + _FITTED_CELL * cells


def looking_seconds(cells: int) -> float:
    """Return about how many seconds it takes to check whether a table of this many cells is worth fitting."""
    return _SEEN_TABLE + _SEEN_CELL * cells
