"""Reads a published release back, and collects what its pages show of it and of its synthetic records; nothing private.

Records are codes over the released domain, read block by block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.answers.cells import CellTable, cell_tables
from marginweave.answers.codes import Codes
from marginweave.answers.intervals import Reach
from marginweave.answers.tables import PartTables, released_tables
from marginweave.base.arrays import Integers
from marginweave.base.durable import read_file
from marginweave.base.errors import InputError, StageError
from marginweave.configuration.columns.category import ValuedColumn
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import AnySynthesis, MixtureSynthesis
from marginweave.configuration.values import listed
from marginweave.domain.labels import Domain
from marginweave.domain.zeros import PossibleCells, domain_sizes
from marginweave.estimate.earlier import CELL_COLUMNS, read_measurements, with_earlier
from marginweave.estimate.intervals import LEVEL, Intervals
from marginweave.estimate.marginals import listed_counts, marginal_counts, normalize_marginals
from marginweave.observations.combinations import Aggregates, LevelNoise
from marginweave.observations.tables import Marginals
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import code_type, encode_table, value_slots
from marginweave.publish.tables import read_columns, read_counts
from marginweave.records.decode import decode_table, label_counts, typed_table
from marginweave.records.nested import rows_of, with_keys, with_nested
from marginweave.released.statement import PrivacyStatement

if TYPE_CHECKING:
    from marginweave.estimate.mixture.linked_rows import RowModel  # numba
    from marginweave.estimate.mixture.model import Mixture  # numba
    from marginweave.records.linked_rows import RowMaker  # numba

RecordCodes = tuple[NDArray[np.integer], ...]

MOST_RECORDS = 20_000
"""Records that the explorer's page holds."""
MOST_CELLS = 400_000
"""Cells of measured tables that the explorer's page holds: about 3 bytes each."""


@dataclass(frozen=True, kw_only=True)
class PublishedRelease:
    """A release: its configuration, its counts, its privacy statement, and its marginals where these were measured.

    `intervals` has an item for each length, aligned with the counts of `aggregates.levels`; it is empty for marginals. `model`
    is the fitted mixture as a table (`model_table`), or None. `measured` are the marginals as they were drawn, with those of
    earlier releases; None for k-tuples.
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
        """Return the release in folder `place` (`release/` of a run, or a copy of it).

        Raises:
            InputError: it is not there, or not complete.
        """
        with _complete(place):
            return cls._read(place)

    @classmethod
    def _read(cls, place: Path) -> PublishedRelease:
        statement = PrivacyStatement.from_json((place / "privacy.json").read_bytes())
        declared, configuration = _configurations(statement)
        domain = statement.released_domain
        marginals = None
        measured = None
        if configuration.marginals is None:
            noise = tuple(LevelNoise(**dict(item)) for item in statement.noise)
            counts = read_columns(place / "aggregates.parquet")
            aggregates, intervals = read_counts(counts, domain, noise)
        else:

            def earlier_file(name: str) -> bytes | None:
                return read_file(place / name)

            drawn = _drawn_marginals(place, statement, configuration)
            measured, _ = released_tables(drawn, declared, configuration, earlier_file)
            drawn = with_earlier(drawn, declared, configuration, earlier_file)
            marginals = normalize_marginals(drawn, configuration)
            aggregates, _ = listed_counts(marginal_counts(marginals, configuration, 1))
            intervals = ()
        model_file = place / "model.parquet"
        return cls(
            configuration=configuration,
            aggregates=aggregates,
            intervals=intervals,
            statement=statement,
            marginals=marginals,
            model=read_columns(model_file) if model_file.exists() else None,
            measured=measured,
        )

    def settings(self, records: int | None, seed: int | None) -> AnySynthesis:
        """Return the settings of its synthesis, with `records` and `seed` in place of its own where these are given."""
        changes = {}
        if records is not None:
            changes["records"] = records
        if seed is not None:
            changes["seed"] = seed
        return self.configuration.synthesize.model_copy(update=changes)

    @property
    def counts(self) -> Aggregates | Marginals:
        """Counts that its records are made from."""
        return self.marginals or self.aggregates

    @property
    def reach(self) -> Reach:
        """Reach of the noise of measured tables."""
        return Reach(
            level=LEVEL, tails=frozenset() if self.measured is None else self.measured.tails
        )

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
        possible = PossibleCells.of(self.configuration, self.aggregates.domain.labels)
        reaches = (self.reach, self.reach.each)
        tables = []
        for table in cell_tables(self.measured, self.counted_sizes, MOST_CELLS, reaches):
            codes = np.indices(table.estimates.shape)
            is_possible = possible.contain(table.attributes, codes, {})
            tables.append(table.without(~is_possible))
        return tuple(tables)

    @property
    def total(self) -> float:
        """Best estimate of the number of records."""
        return float(self.cells[0].estimates) if self.cells else float(self.aggregates.record_count)

    @cached_property
    def mixture(self) -> Mixture | None:
        """Fitted model of the release, None if it has none. Raises InputError where its rows are others."""
        if self.model is None or not isinstance(self.configuration.synthesize, MixtureSynthesis):
            return None
        from marginweave.publish.fitted import read_model  # numba
        from marginweave.records.release import estimation_input  # numba

        fitted_to, _ = estimation_input(self.counts, self.configuration)
        return read_model(self.model, fitted_to, self.configuration.synthesize)

    @property
    def refitted(self) -> str:
        """Words on a folder that lacks the fitted model, for before records are made; empty if it has what it needs."""
        if self.model is not None or self.configuration.synthesize.method != "mixture":
            return ""
        return (
            "has no model.parquet: the model is fitted again, and gives other records. To have the same, copy the whole "
            "folder of the release"
        )

    def synthesize(
        self, settings: AnySynthesis, where: Mapping[str, Any] | None = None
    ) -> Iterator[pa.Table]:
        """Yield new records from the released counts, in blocks, at least one; they hold rows of linked tables (`Nested`).

        DP: post-processing.

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
        allowed = Codes.of(self.configuration, self.counts.domain).meeting(where) if where else {}
        blocks = synthesize_blocks(self.counts, self.configuration, settings, self.mixture, allowed)
        domain = self.aggregates.domain
        labels = label_counts(self.aggregates)
        types = self.statement.types or {}
        makers = self._row_makers()
        for block, codes in enumerate(blocks):
            table = decode_table(
                codes, domain, self.configuration, settings.seed, block, labels, types=types
            )
            nested = []
            for maker in makers:
                table, rows = maker.with_rows(table, codes, settings.seed, block)
                nested.append(rows)
            yield with_nested(typed_table(table, domain, self.configuration, types), nested)

    def tables(
        self, settings: AnySynthesis, where: Mapping[str, Any] | None, table: str | None
    ) -> Iterator[pa.Table]:
        """Yield new records as their file has them (`synthesize`), or their rows in the linked table `table`.

        Raises:
            InputError: as `synthesize`, or the table has no synthetic rows.
        """
        if table is None:
            return with_keys(self.synthesize(settings, where), self.configuration)
        if table not in self.row_models:
            known = listed(tuple(self.row_models)) if self.row_models else "none"
            raise InputError(
                f"the release has no synthetic rows of a table {table!r}; of linked tables it has: {known}"
            )
        return rows_of(self.synthesize(settings, where), table, self.configuration)

    @cached_property
    def row_models(self) -> dict[str, RowModel]:
        """What the rows of linked tables are like, by the names of the tables that have synthetic rows."""
        if self.mixture is None or self.model is None:
            return {}
        from marginweave.publish.fitted import read_row_models  # numba

        return read_row_models(self.model, self.configuration)

    @property
    def row_gaps(self) -> dict[str, tuple[str, ...]]:
        """Columns in which synthetic rows of linked tables can lack a value, by the names of the tables."""
        from marginweave.estimate.mixture.linked_rows import row_gaps  # numba

        return row_gaps(self.configuration, self.row_models)

    def _row_makers(self) -> Sequence[RowMaker]:
        """Return what makes rows of linked tables; none without a model."""
        if not self.row_models:
            return ()
        from marginweave.records.linked_rows import row_makers  # numba

        assert self.marginals is not None
        assert self.mixture is not None
        return row_makers(self.marginals, self.configuration, self.mixture, self.row_models)


@dataclass(frozen=True, kw_only=True)
class FittedRelease:
    """A release of marginals with a fitted model, as answers need it: marginals as they were drawn, pooled with earlier ones.

    It has no consistent counts. To compute these takes longer than many answers.
    """

    configuration: Configuration
    marginals: Marginals
    mixture: Mixture

    @property
    def domain(self) -> Domain:
        """Labels of the attributes."""
        return self.marginals.domain

    @classmethod
    def read(cls, place: Path) -> FittedRelease | None:
        """Return the release in folder `place`; None where it has k-tuples, or no model. DP: post-processing.

        Raises:
            InputError: it is not there, or not complete, or the rows of its model are others.
            StageError: a file of an earlier release is missing or was changed.
        """
        with _complete(place):
            statement = PrivacyStatement.from_json((place / "privacy.json").read_bytes())
            declared, configuration = _configurations(statement)
            settings = configuration.synthesize
            file = place / "model.parquet"
            has_model = isinstance(settings, MixtureSynthesis) and file.exists()
            if not has_model or configuration.marginals is None:
                return None
            drawn = _drawn_marginals(place, statement, configuration)
            table = read_columns(file)
        from marginweave.publish.fitted import read_model  # numba
        from marginweave.records.release import estimation_input  # numba

        assert isinstance(settings, MixtureSynthesis)  # as above
        marginals = with_earlier(
            drawn, declared, configuration, lambda name: read_file(place / name)
        )
        fitted_to, _ = estimation_input(marginals, configuration)
        mixture = read_model(table, fitted_to, settings)
        return cls(configuration=configuration, marginals=marginals, mixture=mixture)


@contextmanager
def _complete(place: Path) -> Iterator[None]:
    """Raise InputError where a file of the release in folder `place` cannot be read."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowInvalid):
        raise InputError(
            f"{place} does not hold a complete release (privacy.json and aggregates.parquet or measurements.parquet)"
        ) from None


def _configurations(statement: PrivacyStatement) -> tuple[Configuration, Configuration]:
    """Return the configuration as it was declared, and that of its estimates: bounds and undeclared cells as released."""
    declared = Configuration.from_canonical(statement.configuration)
    resolved = declared.with_bounds(statement.bounds)
    return declared, resolved.with_undeclared(statement.released_domain.with_undeclared)


def _drawn_marginals(
    place: Path, statement: PrivacyStatement, configuration: Configuration
) -> Marginals:
    """Return the marginals of the release in folder `place` as they were drawn."""
    cells = read_columns(place / "measurements.parquet", CELL_COLUMNS)
    facts = statement.marginals or ()
    return read_measurements(cells, facts, statement.released_domain, configuration)


@dataclass(frozen=True, kw_only=True, eq=False)
class ShownRecords:
    """Numbers and a sample of the synthetic records that the pages show: `records` is the number of records.

    `values[j]` is the number of records with each value of attribute j, a missing value last, a set once for each of its slots.
    `empty[name]` is the number of records without a value in a section of the report. `sample` has the codes of all records, or
    of `MOST_RECORDS` of them, drawn with the release's public seed, in their order.
    """

    records: int
    values: tuple[Integers, ...]
    empty: dict[str, int]
    sample: RecordCodes


def show_records(
    blocks: Iterable[RecordCodes],
    records: int,
    domain: Domain,
    configuration: Configuration,
) -> ShownRecords:
    """Return what is shown of records, with one block at a time in memory; the same however they are cut into blocks.

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
    rows = _sampled_rows(records, configuration.synthesize.seed)
    sections = sections_of(configuration)
    values = [np.zeros(size + 1, np.int64) for size in domain.sizes]
    empty = dict.fromkeys(sections, 0)
    parts = []
    start = 0
    for block in blocks:
        for counted, codes in zip(values, block, strict=True):
            np.add(counted, np.bincount(codes.ravel(), minlength=len(counted)), out=counted)
        for name, attributes in sections.items():
            empty[name] += _count_empty(block, attributes, domain.sizes)
        end = start + len(block[0])
        first, last = np.searchsorted(rows, (start, end))
        sampled = rows[first:last] - start
        parts.append([codes[sampled] for codes in block])
        start = end
    if start != records:
        raise StageError("the synthetic records are not as many as their evaluation says")
    sample = tuple(np.concatenate(pieces) for pieces in zip(*parts, strict=True))
    return ShownRecords(records=records, values=tuple(values), empty=empty, sample=sample)


def _sampled_rows(records: int, seed: int) -> Integers:
    """Return the rows that are shown, in order: all of them, or `MOST_RECORDS` drawn with the release's public seed."""
    rng = np.random.default_rng(seed)  # post-processing
    if records > MOST_RECORDS:
        return np.sort(rng.choice(records, MOST_RECORDS, replace=False))
    return np.arange(records)


def _count_empty(block: RecordCodes, attributes: Sequence[int], sizes: Sequence[int]) -> int:
    """Return the number of records of a block without a value in all of these attributes."""
    missing = [slot == sizes[j] for j in attributes for slot in value_slots(block[j])]
    return int(np.logical_and.reduce(missing).sum())


def sections_of(configuration: Configuration) -> dict[str, list[int]]:
    """Return attributes by the name that they are shown under; a set with an attribute for each value is one column."""
    sections: dict[str, list[int]] = {}
    for j, attribute in enumerate(configuration.attributes):
        name = attribute.column if attribute.of_set else attribute.name
        sections.setdefault(name, []).append(j)
    return sections


def record_codes(records: pa.Table, domain: Domain, configuration: Configuration) -> RecordCodes:
    """Return codes of each attribute, shape (n,), or (n, width) for a set, whatever the block holds; its size is missing.

    The values of a private domain are those that the records hold, so they are numbered by `domain`. DP: post-processing.

    Args:
        records: The synthetic table, as it was decoded or read back.
        domain: The released domain.
        configuration: What is declared, bounds resolved.
    """
    encoded = encode_table(clean_table(records, configuration), configuration)
    codes = []
    columns = zip(
        encoded.codes, encoded.labels, domain.labels, configuration.attributes, strict=True
    )
    for record_values, found, labels, attribute in columns:
        places = {label: i for i, label in enumerate(labels)}
        missing = len(labels)
        numbers = np.array([*(places[label] for label in found), missing], code_type(missing))
        slots = [(0, 0), (0, attribute.width - record_values.shape[-1])] if attribute.is_set else 0
        codes.append(np.pad(numbers[record_values], slots, constant_values=missing))
    return tuple(codes)


def titled_labels(published: PublishedRelease) -> list[tuple[str, ...]]:
    """Return the labels of each attribute as the pages show them, each with its title. DP: post-processing."""
    columns = published.configuration.columns
    titled = []
    for attribute, labels in zip(
        published.configuration.attributes, published.aggregates.domain.labels, strict=True
    ):
        column = columns[attribute.column]
        titles = (column.titles or {}) if isinstance(column, ValuedColumn) else {}
        titled.append(
            tuple(f"{label} ({titles[label]})" if label in titles else label for label in labels)
        )
    return titled
