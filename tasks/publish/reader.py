"""Reads a published release back: all that a new synthesis needs, and nothing private."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.configuration.synthesis import AnySynthesis
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.aggregates import Aggregates, Domain, LevelNoise
from marginweave.schemas.released.measurements import Marginals
from marginweave.schemas.released.statement import PrivacyStatement
from marginweave.tasks.decode.decode import decode_table
from marginweave.tasks.evaluate.intervals import Intervals, marginal_intervals
from marginweave.tasks.normalize.marginals import marginal_counts, normalize_marginals
from marginweave.tasks.publish.measurements import read_measurements
from marginweave.tasks.publish.tables import read_counts, read_intervals


@dataclass(frozen=True, kw_only=True)
class PublishedRelease:
    """A release: its configuration, its counts, its privacy statement, and its marginals where these were measured.

    `intervals` has one item a length, aligned with the counts of `aggregates.levels`.
    """

    configuration: Configuration
    aggregates: Aggregates
    intervals: tuple[Intervals, ...]
    statement: PrivacyStatement
    marginals: Marginals | None = None

    @classmethod
    def read(cls, place: Path) -> PublishedRelease:
        """The release in folder `place` (`release/` of a run, or a copy of it).

        Raises:
            InputError: it is not there, or not complete.
        """
        try:
            statement = PrivacyStatement.from_json((place / "privacy.json").read_bytes())
            declared = Configuration.from_canonical(statement.configuration)
            configuration = declared.with_bounds(statement.bounds)
            domain = Domain(names=tuple(statement.domain), labels=tuple(statement.domain.values()))
            if configuration.marginals is None:
                noise = tuple(LevelNoise(**dict(item)) for item in statement.noise)
                counts = pq.read_table(place / "aggregates.parquet")
                aggregates, marginals = read_counts(counts, domain, noise), None
                intervals = read_intervals(counts, len(noise))
            else:
                cells = pq.read_table(place / "measurements.parquet")
                drawn = read_measurements(cells, statement.marginals or (), domain, configuration)
                marginals = normalize_marginals(drawn, configuration)
                aggregates = marginal_counts(marginals, configuration)
                intervals = marginal_intervals(aggregates, marginals, configuration)
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowInvalid):
            raise InputError(
                f"{place} does not hold a complete release (privacy.json and aggregates.parquet or measurements.parquet)"
            ) from None
        return cls(
            configuration=configuration,
            aggregates=aggregates,
            intervals=intervals,
            statement=statement,
            marginals=marginals,
        )

    def synthesize(self, settings: AnySynthesis) -> Iterator[pa.Table]:
        """New records from the released counts, in blocks, at least one. DP: post-processing.

        Raises:
            InputError, StageError: as `synthesize_blocks`.
        """
        from marginweave.tasks.synthesize.release import synthesize_blocks  # numba

        blocks = synthesize_blocks(self.marginals or self.aggregates, self.configuration, settings)
        for block, codes in enumerate(blocks):
            yield decode_table(codes, self.aggregates.domain, self.configuration, settings.seed, block)
