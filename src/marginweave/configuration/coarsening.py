"""Which sets of all columns are counted together, and in which bins."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from marginweave.configuration.bin_levels import BinLevels
from marginweave.configuration.default_records import fitting_seconds, marginal_cells, public_codes
from marginweave.configuration.marginals import AllCliques, MarginalSettings
from marginweave.configuration.sections import Sections

# Most seconds (`fitting_seconds`) that triples may take, of which a tenth to two fifths were seen to be taken; most columns.
_TRIPLES_SECONDS = 250.0
_TRIPLES_COLUMNS = 40


def triples(configuration: Sections, rows: float) -> Iterator[Mapping[str, Any]]:
    """All triples, or those with few cells where all take too long to be fitted (pairs, of two columns); or nothing.

    Pairs that have more cells than the triples are measured as well, and take their time. `rows` is how many times as
    many rows there are as the noise of a pair. DP: a function of public facts alone.
    """
    sizes = tuple(public_codes(configuration.attributes).values())
    length = min(3, len(sizes))
    if not 2 <= length <= len(sizes) <= _TRIPLES_COLUMNS:
        return
    if coarsen := _coarsen(configuration, length, rows):
        yield from _triples_in_bins(configuration, length, coarsen)
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
    """Beyond how many cells sets have coarser bins; None where that changes nothing, or is not known to help.

    A table is counted as fine as leaves the noise of all its cells together below the rows.
    """
    columns = len(configuration.attributes)
    most = max(1, round(rows * math.sqrt(max(1, math.comb(columns, 2)) / math.comb(columns, length))))
    levels = BinLevels.make(tuple(public_codes(configuration.attributes).values()), configuration.attributes)
    sets = itertools.combinations(range(columns), length)
    helps = length >= _COARSENED and rows <= _FEW_ROWS and any(levels.within(places, most) != places for places in sets)
    return most if helps else None


def _triples_in_bins(configuration: Sections, length: int, coarsen: int) -> Iterator[Mapping[str, Any]]:
    """In coarser bins beyond `coarsen` cells, and as many as can be fitted."""
    sizes = public_codes(configuration.attributes)
    for most in (None, *(round(8192 * 0.75**step) for step in range(20))):
        cliques = AllCliques(all=length, max_cells=most, coarsen=coarsen).model_dump(exclude_none=True)
        section = {"method": "marginals", "cliques": cliques}
        cells = marginal_cells(MarginalSettings.model_validate(section), sizes, configuration.attributes)
        if sum(map(fitting_seconds, cells)) <= _TRIPLES_SECONDS:
            yield section
            return
