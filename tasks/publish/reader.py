"""Reads a published release back: all that a new synthesis needs, and nothing private."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.schemas.aggregates import Aggregates, Domain, LevelNoise
from marginweave.schemas.configuration import Configuration
from marginweave.schemas.errors import InputError
from marginweave.tasks.publish.tables import read_counts


@dataclass(frozen=True, kw_only=True)
class PublishedRelease:
    """A release: its configuration, its counts, its privacy statement."""

    configuration: Configuration
    aggregates: Aggregates
    statement: dict[str, Any]

    @classmethod
    def read(cls, place: Path) -> PublishedRelease:
        """The release in folder `place` (`release/` of a run, or a copy of it).

        Raises:
            InputError: it is not there, or not complete.
        """
        try:
            statement = json.loads((place / "privacy.json").read_text(encoding="utf-8"))
            counts = pq.read_table(place / "aggregates.parquet")
            configuration = Configuration.from_canonical(statement["configuration"])
            domain = Domain(
                names=tuple(statement["domain"]), labels=tuple(tuple(labels) for labels in statement["domain"].values())
            )
            noise = tuple(LevelNoise(**item) for item in statement["noise"])
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowInvalid):
            raise InputError(
                f"{place} does not hold a complete release (privacy.json and aggregates.parquet)"
            ) from None
        return cls(configuration=configuration, aggregates=read_counts(counts, domain, noise), statement=statement)
