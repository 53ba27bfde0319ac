"""Pairs and triples of columns that nothing drew, and of which a declared known table has the counts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection

from marginweave.configuration.release import Configuration
from marginweave.configuration.totals import KnownTotals
from marginweave.evaluate.distances import Names, sorted_names
from marginweave.observations.means import expected_noise

_LENGTHS = (2, 3)


def known_distances(
    configuration: Configuration, measured: Collection[Names], apart: Collection[Names]
) -> dict[Names, float | None]:
    """Return the distance of records from rows in each pair and triple that a known table holds and that was not measured.

    By sorted names. Records follow such a table. Where it counts these rows its error is the distance: 0 for exact counts. Of
    a table of another source, or of columns that are `apart` from what was counted, nobody knows how far it is from the rows:
    None. DP: arithmetic on public numbers and post-processing.
    """
    distances: dict[Names, float | None] = {}
    doubted = set(itertools.chain.from_iterable(apart))
    for known in configuration.totals:
        tells = known.table.origin == "these-rows" and doubted.isdisjoint(known.table.columns)
        for length in _LENGTHS:
            for places in itertools.combinations(range(len(known.attributes)), length):
                names = sorted_names(
                    [configuration.attributes[known.attributes[place]].name for place in places]
                )
                distance = _distance(known, places) if tells else None
                earlier = distances.get(names)
                if earlier is None or (distance is not None and distance < earlier):
                    distances[names] = distance
    return {names: distance for names, distance in distances.items() if names not in measured}


def _distance(known: KnownTotals, places: tuple[int, ...]) -> float:
    """Return the expected distance (TVD) of a known table of these rows, summed over its other columns, from the rows."""
    cells = math.prod(known.sizes[place] for place in places)
    summed = math.prod(known.sizes) / cells
    deviation = (known.table.sd or 0.0) * math.sqrt(summed)
    return min(1.0, expected_noise(deviation, cells) / (2 * max(known.total, 1.0)))
