"""Reads a published release back, and what its pages show of it and of its synthetic records; nothing private.

Records are codes over the released domain, read block by block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from marginweave.answers.cells import CellTable, cell_tables
from marginweave.answers.codes import Codes
from marginweave.answers.intervals import Reach
from marginweave.answers.tables import PartTables, released_tables
from marginweave.base.durable import read_file
from marginweave.base.errors import InputError, StageError
from marginweave.configuration.columns.category import ValuedColumn
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import AnySynthesis, MixtureSynthesis
from marginweave.domain.labels import Domain
from marginweave.domain.zeros import PossibleCells, domain_sizes
from marginweave.estimate.earlier import read_measurements, with_earlier
from marginweave.estimate.intervals import LEVEL, Intervals
from marginweave.estimate.marginals import listed_counts, marginal_counts, normalize_marginals
from marginweave.observations.combinations import Aggregates, LevelNoise
from marginweave.observations.tables import Marginals
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import code_type, encode_table, value_slots
from marginweave.publish.tables import read_counts
from marginweave.records.decode import decode_table, label_counts, typed_table
from marginweave.released.statement import PrivacyStatement

if TYPE_CHECKING:
    from marginweave.estimate.mixture.model import Mixture  # numba

RecordCodes = tuple[NDArray[np.integer], ...]

MOST_RECORDS = 20_000
"""Records that the explorer's page holds."""
MOST_CELLS = 400_000
"""Cells of measured tables that the explorer's page holds: about 3 bytes each."""


@dataclass(frozen=True, kw_only=True)
class PublishedRelease:
    """A release: its configuration, its counts, its privacy statement, and its marginals where these were measured.

    `intervals` has one item a length, aligned with the counts of `aggregates.levels`; none for marginals. `model` is the fitted
    mixture as a table (`model_table`); None where there is none. `measured` are the
    marginals as they were drawn, with those of earlier releases; None for k-tuples.
    """

    configuration: Configuration
    aggregates: Aggregates
    intervals: tuple[Intervals, ...]
    statement: PrivacyStatement
    marginals: Marginals | None = None
    model: pa.Table | None = None
    measured: PartTables | None = None

    @classmethod
    def read(cls, place: Path) -> PublishedRelease:
        """The release in folder `place` (`release/` of a run, or a copy of it).

        Raises:
            InputError: it is not there, or not complete.
        """
        try:
            statement = PrivacyStatement.from_json((place / "privacy.json").read_bytes())
            declared = Configuration.from_canonical(statement.configuration)
            domain = statement.released_domain
            configuration = declared.with_bounds(statement.bounds).with_undeclared(domain.with_undeclared)
            if configuration.marginals is None:
                noise = tuple(LevelNoise(**dict(item)) for item in statement.noise)
                counts = pq.read_table(place / "aggregates.parquet")
                (aggregates, intervals), marginals, measured = read_counts(counts, domain, noise), None, None
            else:
                cells = pq.read_table(place / "measurements.parquet")
                drawn = read_measurements(cells, statement.marginals or (), domain, configuration)
                measured, _ = released_tables(drawn, declared, configuration, lambda name: read_file(place / name))
                drawn = with_earlier(drawn, declared, configuration, lambda name: read_file(place / name))
                marginals = normalize_marginals(drawn, configuration)
                aggregates, _ = listed_counts(marginal_counts(marginals, configuration, 1))
                intervals = ()
            model = pq.read_table(place / "model.parquet") if (place / "model.parquet").exists() else None
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
            model=model,
            measured=measured,
        )

    def settings(self, records: int | None, seed: int | None) -> AnySynthesis:
        """The settings of its synthesis with another number of records, or another seed, where these are given."""
        changes = {key: value for key, value in (("records", records), ("seed", seed)) if value is not None}
        return self.configuration.synthesize.model_copy(update=changes)

    @property
    def counts(self) -> Aggregates | Marginals:
        """What its records are made from."""
        return self.marginals or self.aggregates

    @property
    def reach(self) -> Reach:
        """How far the noise of measured tables goes."""
        return Reach(level=LEVEL, tails=frozenset() if self.measured is None else self.measured.tails)

    @property
    def counted_sizes(self) -> tuple[int, ...]:
        """Codes of each attribute in the tables as they were drawn."""
        counted = self.configuration.with_undeclared(self.configuration.undeclared)
        return domain_sizes(counted.attributes, self.aggregates.domain.labels)

    @cached_property
    def cells(self) -> tuple[CellTable, ...]:
        """Estimates of the cells of measured tables, single columns first, from all measurements; none for k-tuples."""
        if self.measured is None:
            return ()
        sizes, possible = self.counted_sizes, PossibleCells.of(self.configuration, self.aggregates.domain.labels)
        tables = cell_tables(self.measured, sizes, MOST_CELLS, (self.reach, self.reach.each))
        return tuple(
            table.without(~possible.contain(table.attributes, np.indices(table.estimates.shape), {}))
            for table in tables
        )

    @property
    def total(self) -> float:
        """The best estimate of the number of records."""
        return float(self.cells[0].estimates) if self.cells else float(self.aggregates.record_count)

    @cached_property
    def mixture(self) -> Mixture | None:
        """The fitted model, where the release has it. Raises InputError where its rows are others."""
        if self.model is None or not isinstance(self.configuration.synthesize, MixtureSynthesis):
            return None
        from marginweave.publish.fitted import read_model  # numba
        from marginweave.records.release import estimation_input  # numba

        known, _ = estimation_input(self.counts, self.configuration)
        return read_model(self.model, known, self.configuration.synthesize)

    @property
    def refitted(self) -> str:
        """What to say of the folder before records are made, where it lacks the fitted model; else nothing."""
        if self.model is not None or self.configuration.synthesize.method != "mixture":
            return ""
        return (
            "has no model.parquet: the model is fitted again, and gives other records. To have the same, copy the whole "
            "folder of the release"
        )

    def synthesize(self, settings: AnySynthesis, where: Mapping[str, Any] | None = None) -> Iterator[pa.Table]:
        """New records from the released counts, in blocks, at least one. DP: post-processing.

        `where` has conditions by column, as questions have them (`Question`): records are then those of the fitted mixture
        that meet all of them, in its conditional distribution.

        Raises:
            InputError: there is no fitted mixture for conditions, or they do not go with their columns or leave no record.
            StageError: as `synthesize_blocks`.
        """
        from marginweave.records.release import synthesize_blocks  # numba

        if where and settings.method != "mixture":
            raise InputError(
                f"where needs a fitted mixture, and records of this release are made by {settings.method}; make them without "
                "it and keep those that meet the condition"
            )
        kept = Codes.of(self.configuration, self.counts.domain).meeting(where) if where else {}
        blocks = synthesize_blocks(self.counts, self.configuration, settings, self.mixture, kept)
        domain, labels, types = self.aggregates.domain, label_counts(self.aggregates), self.statement.types or {}
        for block, codes in enumerate(blocks):
            table = decode_table(codes, domain, self.configuration, settings.seed, block, labels, types=types)
            yield typed_table(table, domain, self.configuration, types)


@dataclass(frozen=True, kw_only=True, eq=False)
class ShownRecords:
    """What the pages show of the synthetic records: `records` is their number.

    `values[j]` has how many hold each value of attribute j, a missing value last, a set once for each of its slots;
    `empty[name]` how many have no value in a section of the report. `sample` has the codes of all, or of `MOST_RECORDS` of
    them, drawn with the release's public seed, in their order.
    """

    records: int
    values: tuple[NDArray[np.int64], ...]
    empty: dict[str, int]
    sample: RecordCodes


def show_records(
    blocks: Iterable[RecordCodes], records: int, domain: Domain, configuration: Configuration
) -> ShownRecords:
    """What is shown of records, of which one block at a time is in memory; the same however they are cut into blocks.

    Args:
        blocks: Codes of each attribute, shape (n,), or (n, width) for a set; at least one block.
        records: How many records there are.
        domain: The released domain.
        configuration: What is declared.

    Returns:
        Counts and a sample. DP: post-processing.

    Raises:
        StageError: there are not as many records as `records` says.
    """
    rng, sections = np.random.default_rng(configuration.synthesize.seed), sections_of(configuration)  # post-processing
    sampled = records > MOST_RECORDS
    rows = np.sort(rng.choice(records, MOST_RECORDS, replace=False)) if sampled else np.arange(records)
    values = [np.zeros(size + 1, np.int64) for size in domain.sizes]
    empty, parts, seen = dict.fromkeys(sections, 0), [], 0
    for block in blocks:
        for counted, codes in zip(values, block, strict=True):
            np.add(counted, np.bincount(codes.ravel(), minlength=len(counted)), out=counted)
        for name, places in sections.items():
            slots = [slot == domain.sizes[j] for j in places for slot in value_slots(block[j])]
            empty[name] += int(np.logical_and.reduce(slots).sum())
        start, seen = seen, seen + len(block[0])
        chosen = rows[slice(*np.searchsorted(rows, (start, seen)))] - start
        parts.append([codes[chosen] for codes in block])
    if seen != records:
        raise StageError("the synthetic records are not as many as their evaluation says")
    sample = tuple(np.concatenate(some) for some in zip(*parts, strict=True))
    return ShownRecords(records=records, values=tuple(values), empty=empty, sample=sample)


def sections_of(configuration: Configuration) -> dict[str, list[int]]:
    """Attributes by the name that they are shown under: a set whose values are attributes of their own is one column."""
    sections: dict[str, list[int]] = {}
    for j, attribute in enumerate(configuration.attributes):
        sections.setdefault(attribute.column if attribute.of_set else attribute.name, []).append(j)
    return sections


def record_codes(records: pa.Table, domain: Domain, configuration: Configuration) -> RecordCodes:
    """Codes of each attribute, shape (n,), or (n, width) for a set, whatever the block holds; its size is missing.

    The values of a private domain are those that the records hold, so they are numbered anew. DP: post-processing.

    Args:
        records: The synthetic table, as it was decoded or read back.
        domain: The released domain.
        configuration: What is declared, bounds resolved.
    """
    encoded = encode_table(clean_table(records, configuration), configuration)
    codes = []
    columns = zip(encoded.codes, encoded.labels, domain.labels, configuration.attributes, strict=True)
    for own, listed, labels, attribute in columns:
        place = {label: i for i, label in enumerate(labels)}
        numbers = np.array([*(place[label] for label in listed), len(labels)], code_type(len(labels)))
        slots = [(0, 0), (0, attribute.width - own.shape[-1])] if attribute.is_set else 0
        codes.append(np.pad(numbers[own], slots, constant_values=len(labels)))
    return tuple(codes)


def titled_labels(published: PublishedRelease) -> list[tuple[str, ...]]:
    """The labels of each attribute as the pages show them: with the title of a value behind it. DP: post-processing."""
    columns, found = published.configuration.columns, []
    for attribute, labels in zip(published.configuration.attributes, published.aggregates.domain.labels, strict=True):
        column = columns[attribute.column]
        titles = (column.titles or {}) if isinstance(column, ValuedColumn) else {}
        found.append(tuple(f"{label} ({titles[label]})" if label in titles else label for label in labels))
    return found
