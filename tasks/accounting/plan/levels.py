"""Which sets of all columns are counted together, and at which level: where `structure.levels` has coarser ones, or of bins."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from marginweave.schemas.configuration.bin_levels import BinLevels
from marginweave.schemas.configuration.marginals import AllCliques, MarginalSettings
from marginweave.schemas.configuration.sections import Sections
from marginweave.schemas.released.measurements import Clique
from marginweave.tasks.accounting.plan.default_records import fitting_seconds, public_codes

# A table is counted as fine as leaves the noise of all its cells together below so many times the rows.
_MOST_NOISE = 1.0


def with_levels(section: Mapping[str, Any], configuration: Sections, rows: float) -> dict[str, Any]:
    """A section `aggregate` that measures all sets of columns, with a list of them at the levels that their noise allows.

    `rows` is how many times as many rows there are as the noise of a pair. DP: a function of public facts alone.

    Raises:
        ValueError: bins are to be coarser as well.
    """
    cliques = MarginalSettings.model_validate(section).cliques
    if not configuration.finer_places or not isinstance(cliques, AllCliques) or cliques.all == 1:
        return dict(section)
    if cliques.coarsen is not None:
        raise ValueError(
            "aggregate.cliques.coarsen cannot stand beside structure.levels, by which each set has its level; leave one out"
        )
    sizes = public_codes(configuration.attributes)
    columns = len(sizes) - len(configuration.finer_places)
    lengths = range(2, min(cliques.all, columns) + 1)
    limits = {length: _most_cells(rows, length, columns) for length in lengths}
    found = level_sets(tuple(sizes.values()), configuration.finer_places, limits, cliques.max_cells)
    names = list(sizes)
    return {**section, "cliques": [[names[a] for a in clique] for clique in found] or {"all": 1}}


def _most_cells(rows: float, length: int, columns: int) -> float:
    """How many cells a set of so many columns may have, of all of them; `rows` is that of `with_levels`."""
    return _MOST_NOISE * rows * math.sqrt(max(1, math.comb(columns, 2)) / math.comb(columns, length))


def level_sets(
    sizes: Sequence[int], finer: Mapping[int, int], limits: Mapping[int, float], max_cells: int | None = None
) -> Iterator[Clique]:
    """All sets of columns of the most attributes that `limits` have, each at one level, and shorter ones inside none of them.

    Of the levels that have at most `limits` cells by the number of attributes, a set has the finest ones, else the coarsest.
    A set that has more than `max_cells` even so is left out; but no pair. `finer` has the place of the column that a level is
    of. DP: arithmetic on public sizes.
    """
    levels: dict[int, list[int]] = {}
    for place in range(len(sizes)):
        levels.setdefault(finer.get(place, place), []).append(place)
    covered: set[Clique] = set()
    for length in sorted(limits, reverse=True):
        inside: set[Clique] = set()
        for columns in itertools.combinations(sorted(levels), length):
            choices = [tuple(sorted(places)) for places in itertools.product(*(levels[column] for column in columns))]
            cells = {places: math.prod(sizes[a] for a in places) for places in choices}
            most = max(min(limits[length], max_cells or math.inf), min(cells.values()))
            best = max(
                (places for places in choices if cells[places] <= most),
                key=lambda places: (cells[places], sum(place not in finer for place in places)),
            )
            is_large = max_cells is not None and cells[best] > max_cells and (length > 2 or len(limits) == 1)
            if not is_large and best not in covered:
                yield best
                inside.update(itertools.combinations(best, length - 1))
        covered = inside


# Most seconds (`fitting_seconds`) that triples may take, of which a tenth to two fifths were seen to be taken; most columns.
_TRIPLES_SECONDS = 250.0
_TRIPLES_COLUMNS = 40


def triples(configuration: Sections, rows: float) -> Iterator[Mapping[str, Any]]:
    """All triples, or those with few cells where all take too long to be fitted (pairs, of two columns); or nothing.

    Pairs that have more cells than the triples are measured as well, and take their time. `rows` is that of `with_levels`.
    """
    sizes = tuple(public_codes(configuration.attributes).values())
    length = min(3, len(sizes) - len(configuration.finer_places))
    if not 2 <= length <= len(sizes) <= _TRIPLES_COLUMNS:
        return
    coarsen = _coarsen(configuration, length, rows)
    if coarsen or configuration.finer_places:
        yield from _triples_at_levels(configuration, length, rows, coarsen)
        return
    found, pairs = (sorted(map(math.prod, itertools.combinations(sizes, number))) for number in (length, 2))
    so_far = list(itertools.accumulate(map(fitting_seconds, found)))
    if so_far[-1] <= _TRIPLES_SECONDS:
        yield {"method": "marginals", "cliques": {"all": length}}
        return
    for fitted in range(bisect.bisect_right(so_far, _TRIPLES_SECONDS), 0, -1):
        most = found[fitted] - 1  # as many cells as the first that is too much are too many
        wide = sum(map(fitting_seconds, pairs[bisect.bisect_right(pairs, most) :]))
        if found[fitted - 1] <= most and so_far[fitted - 1] + wide <= _TRIPLES_SECONDS:
            yield {"method": "marginals", "cliques": {"all": length, "max_cells": most}}
            return


# Triples are coarsened where there are at most so many times as many rows as the noise of a pair, and no other sets.
_FEW_ROWS, _COARSENED = 2_000.0, 3


def _coarsen(configuration: Sections, length: int, rows: float) -> int | None:
    """Beyond how many cells sets have coarser bins; None where that changes nothing, or is not known to help."""
    levels = BinLevels.make(tuple(public_codes(configuration.attributes).values()), configuration.attributes)
    has_levels = bool(configuration.finer_places)  # then each set is at one of these
    if length < _COARSENED or rows > _FEW_ROWS or has_levels or configuration.synthesize.method == "gum":
        return None
    most = round(_most_cells(rows, length, levels.attributes))
    sets = itertools.combinations(range(levels.attributes), length)
    return most if any(levels.within(places, most) != places for places in sets) else None


def _triples_at_levels(
    configuration: Sections, length: int, rows: float, coarsen: int | None
) -> Iterator[Mapping[str, Any]]:
    """With the levels that are declared, or with coarser bins beyond `coarsen` cells; as many as can be fitted."""
    sizes = public_codes(configuration.attributes)
    for most in (None, *(round(8192 * 0.75**step) for step in range(20))):
        chosen = AllCliques(all=length, max_cells=most, coarsen=coarsen)
        section: dict[str, Any] = {"method": "marginals", "cliques": chosen.model_dump(exclude_none=True)}
        cells = chosen.cells(BinLevels.make(tuple(sizes.values()), configuration.attributes))
        if coarsen is None:
            section = with_levels(section, configuration, rows)
            cells = iter([math.prod(sizes[name] for name in clique) for clique in section["cliques"]])
        if sum(map(fitting_seconds, cells)) <= _TRIPLES_SECONDS:
            yield section
            return
