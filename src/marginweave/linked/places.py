"""Where the tables of a release are, and the bytes of each for the keyed digest. Nothing here imports Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from marginweave.base.errors import InputError
from marginweave.base.places import EXAMPLE_PREFIX
from marginweave.configuration.release import Configuration
from marginweave.sources.content import content_of
from marginweave.sources.kinds import check_kind
from marginweave.sources.parts import find_from


@dataclass(frozen=True)
class TablePlaces:
    """The place of the source, and those of the linked tables by their names."""

    root: str
    linked: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, configuration: Configuration, source: str, below: Path, linked: Mapping[str, str]
    ) -> TablePlaces:
        """Return the places of a release's tables, with `source` for the first one.

        Linked tables are found in the folder `below`, unless `linked` has their place.

        Raises:
            InputError: a linked table is of a kind that cannot be read, or the source is an example, whose releases are
                charged to a ledger of examples.
        """
        if configuration.tables is not None and source.startswith(EXAMPLE_PREFIX):
            raise InputError(
                f"source ({source}) is an example, whose releases are not charged to your ledger; leave tables out"
            )
        places = {}
        for name, table in sorted((configuration.tables or {}).items()):
            places[name] = linked.get(name) or find_from(below, table.source.file)
            check_kind(places[name], table.source)
        return cls(source, places)

    def contents(self) -> dict[str, Iterator[bytes]]:
        """Return the bytes of each table by its name, for the keyed digest; the name of the source is empty."""
        return {name: content_of(place) for name, place in {"": self.root, **self.linked}.items()}
