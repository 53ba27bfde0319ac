"""The attributes that are levels of others, and the axes that they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.configuration.sections import Sections


def level_codes(configuration: Sections) -> Iterator[tuple[int, int, Integers]]:
    """Places of each level that is counted and of what it is of, and its code for each code of that, the missing one last."""
    places = {attribute.name: place for place, attribute in enumerate(configuration.attributes)}
    for level in (configuration.structure.levels if configuration.structure else None) or ():
        if level.column in places:
            yield places[level.column], places[level.by], np.array(level.codes(configuration.columns), np.int64)


def axes_of(configuration: Sections, sizes: Sequence[int]) -> dict[int, tuple[int, Integers]]:
    """For each attribute its axis, and its code for each code of the axis: of a level those of the column that it is of."""
    found = {a: (a, np.arange(size)) for a, size in enumerate(sizes)}
    return found | {coarse: (fine, codes[: sizes[fine]]) for coarse, fine, codes in level_codes(configuration)}
