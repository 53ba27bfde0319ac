"""Where the tables of a release are, and the bytes of all of them for the keyed digest. Nothing here imports Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from marginweave.base.errors import InputError
from marginweave.base.places import EXAMPLE_PREFIX
from marginweave.configuration.release import Configuration
from marginweave.sources.content import content_of
from marginweave.sources.kinds import check_kind
from marginweave.sources.parts import find_from

_NEXT_TABLE = b"\xff" * 8
"""Comes before the name of a linked table, where a part of a table would have its length: no part is so long."""


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

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of all tables (`joined_chunks`)."""
        return joined_chunks(content_of(self.root), self.linked, content_of)


def joined_chunks(
    root: Iterable[bytes], linked: Mapping[str, str], content: Callable[[str], Iterable[bytes]]
) -> Iterator[bytes]:
    """Yield the bytes of the source as they are, then each linked table's name and bytes, in the order of the names.

    `content` returns the bytes of what `linked` has under a name. The length of a name comes before it, so that bytes that
    move from one table to the next change the digest.
    """
    yield from root
    for name, place in sorted(linked.items()):
        encoded = name.encode()
        yield _NEXT_TABLE + len(encoded).to_bytes(8, "big") + encoded
        yield from content(place)
