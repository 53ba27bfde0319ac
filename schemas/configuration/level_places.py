"""Which counted attributes are levels of which."""

from __future__ import annotations

from marginweave.schemas.configuration.sections import Sections


def finer_places(configuration: Sections) -> dict[int, int]:
    """For the place of each counted attribute that is a level the place of the one that it is of."""
    places = {attribute.name: place for place, attribute in enumerate(configuration.attributes)}
    levels = (configuration.structure.levels if configuration.structure else None) or ()
    return {places[level.column]: places[level.by] for level in levels if level.column in places}
