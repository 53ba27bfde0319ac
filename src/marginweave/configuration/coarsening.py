"""Sets of columns that are counted together where `auto` measures all triples, and the bins of these sets."""

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

# Most seconds (`fitting_seconds`) that triples may take; measured times were a tenth to two fifths of the estimate.
_TRIPLES_SECONDS = 250.0
# Most columns.
_TRIPLES_COLUMNS = 40


def triples(configuration: Sections, rows_by_noise: float) -> Iterator[Mapping[str, Any]]:
    """Yield the section `aggregate` of all triples, or of triples with few cells where all take too long to be fitted.

    With two columns it is their pair. Nothing is yielded where no such section fits. Pairs that have more cells than the
    triples are measured as well, and their time counts. `rows_by_noise` is the number of rows divided by the noise of a pair.
    DP: a function of public facts alone.
    """
    target = _target_keys(configuration, rows_by_noise)
    sizes = tuple(public_codes(configuration.attributes).values())
    length = min(3, len(sizes))
    if not 2 <= length <= len(sizes) <= _TRIPLES_COLUMNS:
        return
    coarsen = _coarsen_above(configuration, length, rows_by_noise)
    if coarsen:
        yield from _triples_in_bins(configuration, length, coarsen, target)
        return
    cells = _sorted_cells(sizes, length)
    total_seconds = list(itertools.accumulate(map(fitting_seconds, cells)))
    if total_seconds[-1] <= _TRIPLES_SECONDS:
        yield {"method": "marginals", "cliques": {"all": length, **target}}
        return
    pairs = _sorted_cells(sizes, 2)
    for number in range(bisect.bisect_right(total_seconds, _TRIPLES_SECONDS), 0, -1):
        most = cells[number] - 1  # less than the cells of the first triple that is too much
        larger_pairs = pairs[bisect.bisect_right(pairs, most) :]
        seconds = total_seconds[number - 1] + sum(map(fitting_seconds, larger_pairs))
        if cells[number - 1] <= most and seconds <= _TRIPLES_SECONDS:
            yield {"method": "marginals", "cliques": {"all": length, "max_cells": most, **target}}
            return


# The table with the target has as much of the budget of larger marginals as this many pairs, if all pairs shared it, and at
# most this share. Measured: docs/methods.md.
_TARGET_PAIRS = 11.0
_MOST_FOR_TARGET = 0.3
# Times the budget of triples with the target: with few columns, and by pairs. adult_cat at epsilon 1 (91 pairs, simulated once
# each), 1, 3, 6, 10 times: AUC of boosting .8968, .9006, .9018, .9013, mean TVD of triples .0411, .0411, .0418, .0424.
_MOST_WEIGHT = 10.0
_WEIGHED_PAIRS = 550.0
# Cells of that table by the rows divided by the noise of a pair. At epsilon 1 with 10,000 rows nine columns fit in two bins:
# without that table the structural model of docs/methods.md had an accuracy of .835, with it .852 (three releases each).
_TARGET_CELLS = 0.4


def _target_keys(configuration: Sections, rows_by_noise: float) -> dict[str, Any]:
    """Return the key of `AllCliques` for the table of the target; none without one, or where no mixture is fitted.

    DP: a function of public facts alone.
    """
    if configuration.target is None or configuration.synthesize.method != "mixture":
        return {}
    pairs = max(1, math.comb(len(configuration.attributes), 2))
    share = min(_MOST_FOR_TARGET, _TARGET_PAIRS / pairs)
    table = {
        "columns": list(configuration.target),
        "cells": max(1, round(_TARGET_CELLS * rows_by_noise)),
        "share": round(share, 6),
        "weight": round(max(1.0, min(_MOST_WEIGHT, _WEIGHED_PAIRS / pairs)), 6),
    }
    return {"target": table}


def _sorted_cells(sizes: tuple[int, ...], length: int) -> list[int]:
    """Return the cells of each table of `length` attributes, from few to many."""
    return sorted(map(math.prod, itertools.combinations(sizes, length)))


# Most rows, divided by the noise of a pair, with which triples have coarser bins.
_FEW_ROWS = 2_000.0
# Sets of fewer columns never have coarser bins.
_COARSENED = 3


def _coarsen_above(configuration: Sections, length: int, rows_by_noise: float) -> int | None:
    """Return the number of cells beyond which sets have coarser bins; None where that changes nothing or may not help.

    A table gets the finest bins with which the summed noise of its cells stays below the rows.
    """
    if length < _COARSENED or rows_by_noise > _FEW_ROWS:
        return None
    columns = len(configuration.attributes)
    # A budget split equally among m tables gives each count noise in proportion to sqrt(m). So a set of `length` columns has
    # sqrt(C(columns, length) / C(columns, 2)) times the noise of a pair, and n / noise cells have noise n in sum:
    # rows_by_noise sqrt(C(columns, 2) / C(columns, length)).
    pairs = max(1, math.comb(columns, 2))
    sets = math.comb(columns, length)
    most = max(1, round(rows_by_noise * math.sqrt(pairs / sets)))
    sizes = tuple(public_codes(configuration.attributes).values())
    levels = BinLevels.make(sizes, configuration.attributes)
    for places in itertools.combinations(range(columns), length):
        if levels.within(places, most) != places:
            return most
    return None


def _triples_in_bins(
    configuration: Sections, length: int, coarsen: int, target: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    """Yield the section `aggregate` with coarser bins beyond `coarsen` cells, of as many triples as can be fitted in time."""
    sizes = public_codes(configuration.attributes)
    limits = [round(8192 * 0.75**step) for step in range(20)]
    for most in (None, *limits):
        cliques = AllCliques(all=length, max_cells=most, coarsen=coarsen).model_dump(
            exclude_none=True
        )
        section = {"method": "marginals", "cliques": {**cliques, **target}}
        cells = marginal_cells(
            MarginalSettings.model_validate(section), sizes, configuration.attributes
        )
        if sum(map(fitting_seconds, cells)) <= _TRIPLES_SECONDS:
            yield section
            return
