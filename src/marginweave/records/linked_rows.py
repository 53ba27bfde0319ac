"""Makes rows of linked tables for synthetic records: as many as the record says, and such as it follows from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Codes, Flags, Floats, Integers, Records
from marginweave.base.arrow import compute as pc
from marginweave.base.arrow import to_numpy
from marginweave.base.errors import StageError
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.columns.base import NOT_DECLARED
from marginweave.configuration.linked import LinkedTable
from marginweave.configuration.release import Configuration
from marginweave.configuration.rules.structure import Structure
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.domain.labels import Domain
from marginweave.domain.masks import StructuralZeros
from marginweave.domain.zeros import broken_records, structural_masks
from marginweave.estimate.mixture.blocks import Block, tie
from marginweave.estimate.mixture.linked_rows import RowModel, fit_rows, row_gaps
from marginweave.estimate.mixture.model import Mixture
from marginweave.observations.compression import Compression
from marginweave.observations.linked import LinkedAxis, LinkedObservation
from marginweave.observations.linked_undeclared import linked_undeclared
from marginweave.observations.tables import Marginals, Observation
from marginweave.records.agreement import Agreement, Judgement
from marginweave.records.decode import decode_table
from marginweave.records.mixture import fill_components
from marginweave.records.nested import Nested
from marginweave.records.release import estimation_input
from marginweave.records.shards import stream

_LINKED = 3  # key of the random streams of rows
_UNITS = 4096  # units whose rows are made at a time: their components take 80 MB
# Rows of records that do not agree with them are drawn again so many times; at last from all components, in which there may be
# what those of the record hardly have.
_ROUNDS = 60
_LAST_ROUNDS = 20
# Rows that still break a rule are drawn again from all values alike, whatever the noise has left of the shares.
_EVEN_ROUNDS = 200


def fit_linked(
    counts: Marginals, configuration: Configuration, model: Mixture
) -> dict[str, RowModel]:
    """Return what the rows of each table of `recorded_tables` are like, by its histograms. DP: post-processing."""
    assert isinstance(configuration.synthesize, MixtureSynthesis)
    _, compression = estimation_input(counts, configuration)
    assert compression is not None
    places = {name: place for place, name in enumerate(counts.domain.names)}
    fitted = {}
    for name, number in configuration.recorded_tables.items():
        measured = _Histograms(name, configuration, counts.linked, places, compression)
        place = places[number]
        has_rows = _has_rows(configuration, number, compression.codes[place])
        fitted[name] = fit_rows(
            units_with_rows(model, place, has_rows),
            measured.observations,
            measured.sizes,
            measured.blocks,
            configuration.synthesize,
        )
    return fitted


def units_with_rows(model: Mixture, place: int, has_rows: Floats) -> Mixture:
    """Return the mixture of the units that have rows, by the code of the column at `place`; of all where none has any."""
    units = model.conditioned()
    if not units.marginal((place,)) @ has_rows > 0:
        return units
    return model.conditioned({place: has_rows})


def _has_rows(configuration: Configuration, number: str, merged: Integers) -> Floats:
    """Return for each code of a model whether it allows a unit with rows; `number` is the column with their number."""
    column = configuration.columns[number]
    assert isinstance(column, NumberColumn)
    has_rows = np.ones(len(merged))
    for code, limits in enumerate(column.label_limits):
        if limits is not None and limits[1] <= 0:
            has_rows[code] = 0.0
    return np.minimum(np.bincount(merged, has_rows), 1.0)


@dataclass(frozen=True)
class _Histograms:
    """The histograms by units of one linked table, as a model of the units has its codes."""

    name: str
    configuration: Configuration
    seen: Sequence[LinkedObservation]
    """Those of all tables, as they were drawn."""
    places: Mapping[str, int]
    compression: Compression

    @cached_property
    def _table(self) -> LinkedTable:
        return (self.configuration.tables or {})[self.name]

    @cached_property
    def _columns(self) -> dict[str, int]:
        """Number of each column of the table, behind those of the source."""
        first = len(self.compression.sizes)
        return {f"{self.name}.{name}": first + i for i, name in enumerate(self._table.columns)}

    @cached_property
    def observations(self) -> list[Observation]:
        """Histograms over the codes of the model; the attributes of the units come first."""
        numbers = {**self.places, **self._columns}
        observations = []
        for seen in self.seen:
            if seen.table != self.name or seen.count_of != "units":
                continue
            attributes = tuple(numbers[axis.name] for axis in seen.axes)
            counts = seen.counts
            for place, (axis, attribute) in enumerate(zip(seen.axes, attributes, strict=True)):
                if axis.table:
                    merged = self._merged_gaps(axis)
                    counts = _merged(counts, place, merged, len(self._labels(axis.column)) + 1)
                else:
                    merged = self.compression.codes[attribute]
                    counts = _merged(counts, place, merged, self.compression.sizes[attribute])
            observations.append(
                Observation(attributes=attributes, counts=counts, deviation=seen.spread)
            )
        return observations

    @property
    def _gaps(self) -> tuple[str, ...]:
        """Columns of which cells can be missing by their declaration, or more are than noise explains."""
        usual = self.configuration.missing
        rules = self._table.structure or Structure()
        return tuple(
            name
            for name in self._table.columns
            if self._table.attribute(name, usual).optional
            or name in rules.conditional_columns
            or name in self._undeclared
        )

    @cached_property
    def _undeclared(self) -> frozenset[str]:
        """Columns with more cells that are not as declared than noise explains."""
        decided = linked_undeclared(self.seen)
        return frozenset(
            row.column
            for row in decided
            if (row.table, row.count_of) == (self.name, "units") and row.cells.found
        )

    def _labels(self, column: str) -> tuple[str, ...]:
        return self._table.columns[column].labels

    def _merged_gaps(self, axis: LinkedAxis) -> Integers:
        """Return the codes of a column of the table, with one for all cells without a value; those ignored are left out."""
        ignored = axis.texts[-1] == NOT_DECLARED and axis.column not in self._undeclared
        codes = np.arange(len(axis.texts) - ignored)
        return np.minimum(codes, len(self._labels(axis.column)))

    @property
    def sizes(self) -> list[int]:
        """Number of codes of each column, one of them for a missing value."""
        return [len(column.labels) + 1 for column in self._table.columns.values()]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Columns that rules tie, and single ones, with the cells that a row can have."""
        gaps = self._gaps
        masks = row_masks(self.configuration.of_rows(self.name, gaps))
        missing = [
            -1 if name in gaps else len(column.labels)
            for name, column in self._table.columns.items()
        ]
        blocks = []
        for block in tie(self.sizes, masks).blocks:
            never = np.array([missing[column] for column in block.attributes])
            blocks.append(replace(block, cells=block.cells[(block.cells != never).all(axis=1)]))
        return tuple(blocks)


def row_masks(of_rows: Configuration) -> tuple[StructuralZeros, ...]:
    """Return the combinations of codes that no row of a linked table has; `of_rows` is the configuration of its rows."""
    labels = [attribute.labels for attribute in of_rows.attributes]
    masks = structural_masks(of_rows, labels)
    return tuple(mask for mask in masks if len(mask.attributes) > 1)


def _merged(counts: Floats, axis: int, merged: Integers, size: int) -> Floats:
    """Return counts with the codes of an axis merged into so many; codes that `merged` has not are left out."""
    by_code = np.moveaxis(counts, axis, 0)[: len(merged)]
    sums = np.zeros((size, *by_code.shape[1:]))
    np.add.at(sums, merged, by_code)
    return np.moveaxis(sums, 0, axis)


@dataclass(frozen=True, kw_only=True, eq=False)
class RowMaker:
    """Makes the rows that records have in the linked table `name`; `model` is the mixture of the records, as it was fitted.

    Each row draws a component of the mixture given its record, and its columns given the component. Of all rows of a component
    the values are as many as its shares say, rounded (`round_shares`). Where derived columns of a record do not follow from its
    rows, some of them are drawn again, and kept if as many columns or more then do.
    """

    name: str
    configuration: Configuration
    domain: Domain
    model: Mixture
    compression: Compression
    rows: RowModel

    @cached_property
    def rows_as_records(self) -> Configuration:
        """Configuration of the rows."""
        gaps = row_gaps(self.configuration, {self.name: self.rows})
        return self.configuration.of_rows(self.name, gaps[self.name])

    @cached_property
    def table(self) -> LinkedTable:
        """The table as it is declared."""
        return (self.configuration.tables or {})[self.name]

    @cached_property
    def row_domain(self) -> Domain:
        """Columns of the table and their labels."""
        columns = self.table.columns
        return Domain(
            names=tuple(columns), labels=tuple(column.labels for column in columns.values())
        )

    def with_rows(
        self, records: pa.Table, codes: Sequence[Codes], seed: int, block: int
    ) -> tuple[pa.Table, Nested]:
        """Return decoded records, and the rows that they have. DP: post-processing.

        Ends of derived columns become those of the rows, where these have the record's code.

        Args:
            records: as `decode_table` returns them.
            codes: those of the records.
            seed: public.
            block: number of this block of records.
        """
        generator = stream([seed, _LINKED, self._place], block)  # post-processing
        column = self.configuration.recorded_tables[self.name]
        numbers = to_numpy(records.column(column).combine_chunks().cast(pa.int64()).fill_null(0))
        parts = []
        ends: dict[str, list[pa.Array]] = {name: [] for name in self._ends}
        for start in range(0, max(len(numbers), 1), _UNITS):
            chosen = slice(start, start + _UNITS)
            draft = _Draft(self, [each[chosen] for each in codes], numbers[chosen], generator)
            draft.agree()
            parts.append(draft.table)
            for name, cells in ends.items():
                drawn = records.column(name).combine_chunks()[start : start + _UNITS]
                cells.append(draft.ends_like(name, drawn))
        for name, cells in ends.items():
            place = records.column_names.index(name)
            records = records.set_column(place, name, pa.concat_arrays(cells))
        rows = pa.concat_tables(parts).combine_chunks()
        return records, Nested(self.name, rows, np.maximum(numbers, 0))

    @property
    def _place(self) -> int:
        return self.configuration.counted_tables.index(self.name)

    @cached_property
    def _ends(self) -> list[str]:
        """Derived columns of the largest or smallest value that no rule of the records orders."""
        structure = self.configuration.structure
        ruled = {name for pair in (structure.orders if structure else ()) for name in pair}
        return [
            name
            for name, rule in self.table.derive.items()
            if not rule.always_has_value and name not in ruled
        ]

    @cached_property
    def components(self) -> Mixture:
        """Mixture that the records were drawn from."""
        return self.model.conditioned()

    @cached_property
    def cumulative(self) -> list[Floats]:
        """Running sums of the shares of each block, the last 1; shape (components, cells)."""
        return [_running(part) for part in self.rows.shares]

    @cached_property
    def label_shares(self) -> list[Floats]:
        """Shares of the labels of each column in all rows, which smooth draws inside bins follow."""
        shares = []
        for place, labels in enumerate(self.row_domain.labels):
            of_codes = self.rows.column_shares(place, self.components.weights)
            shares.append(np.pad(of_codes, (0, len(labels)))[: len(labels)])
        return shares

    @cached_property
    def masks(self) -> tuple[StructuralZeros, ...]:
        """Combinations of codes that no row has."""
        return row_masks(self.rows_as_records)


def row_makers(
    counts: Marginals,
    configuration: Configuration,
    model: Mixture,
    row_models: Mapping[str, RowModel],
) -> list[RowMaker]:
    """Return what makes the rows of each linked table that has a model of its rows."""
    _, compression = estimation_input(counts, configuration)
    assert compression is not None
    return [
        RowMaker(
            name=name,
            configuration=configuration,
            domain=counts.domain,
            model=model,
            compression=compression,
            rows=rows,
        )
        for name, rows in row_models.items()
    ]


class _Draft:
    """Rows of some records: the decoded table, in the order of the records."""

    def __init__(
        self,
        maker: RowMaker,
        codes: Sequence[Codes],
        numbers: Integers,
        generator: np.random.Generator,
    ) -> None:
        self._maker = maker
        self._numbers = np.maximum(numbers, 0)
        self._generator = generator
        self._owners = np.repeat(np.arange(len(numbers)), self._numbers)
        self._chances = _chances(maker, codes, np.flatnonzero(self._numbers))
        self._place_of = np.cumsum(self._numbers > 0) - 1  # of each record with rows among those
        self._agreement = Agreement(maker.name, maker.configuration, maker.domain, codes)
        components = self._components(self._owners)
        order = np.argsort(components, kind="stable")
        cells = np.empty((len(components), len(maker.rows.blocks)), np.int32)
        each = np.bincount(components, minlength=len(maker.components.weights))
        cells[order] = fill_components(maker.rows.shares, each, generator)
        self.table = self._decoded(cells, components)

    def _components(self, owners: Integers) -> Integers:
        """Return a component for each row, given its record."""
        return _drawn(self._chances, self._place_of[owners], self._generator)

    def _decoded(self, cells: Records, components: Integers) -> pa.Table:
        """Return rows of these cells of all blocks; those that break a rule are drawn again."""
        maker = self._maker
        codes = maker.rows.codes(cells)
        self._repair(codes, components)
        return decode_table(
            [*codes.T],
            maker.row_domain,
            maker.rows_as_records,
            int(self._generator.integers(2**62)),
            counts=maker.label_shares,
        )

    def _repair(self, codes: Records, components: Integers) -> None:
        """Draw rows that break a rule again, in place, at last from all values; what is left copies random other rows.

        Raises:
            StageError: no row keeps the rules.
        """
        masks = self._maker.masks
        broken = np.arange(len(codes)) if masks else np.zeros(0, np.int64)
        for turn in range(_ROUNDS + _EVEN_ROUNDS):
            broken = broken[broken_records(tuple(codes[broken].T), masks)]
            if not len(broken):
                return
            is_even = turn >= _ROUNDS
            cells = self._even(len(broken)) if is_even else self._cells(components[broken])
            codes[broken] = self._maker.rows.codes(cells)
        broken = broken[broken_records(tuple(codes[broken].T), masks)]
        whole = np.setdiff1d(np.arange(len(codes)), broken)
        if len(broken) and not len(whole):
            raise StageError(f"decode: rules leave no row of {self._maker.name}")
        codes[broken] = codes[self._generator.choice(whole, len(broken))]

    def _cells(self, components: Integers) -> Records:
        """Draw cells of all blocks for rows of these components."""
        columns = [_drawn(each, components, self._generator) for each in self._maker.cumulative]
        return np.stack(columns, axis=1).astype(np.int32)

    def _even(self, rows: int) -> Records:
        """Draw cells of all blocks for so many rows, each cell as likely as the others."""
        sizes = [len(block.cells) for block in self._maker.rows.blocks]
        return self._generator.integers(0, sizes, (rows, len(sizes))).astype(np.int32)

    def agree(self) -> None:
        """Draw rows of records again whose derived columns do not follow from them (`_ROUNDS`)."""
        records = np.flatnonzero(self._numbers)
        for turn in range(_ROUNDS):
            rows = np.flatnonzero(np.isin(self._owners, records))
            owners = np.searchsorted(records, self._owners[rows])
            judged = self._agreement.judge(self.table.take(pa.array(rows)), owners, records)
            is_wrong = judged.agreeing < self._agreement.columns
            if not is_wrong.any():
                return
            is_kept = is_wrong[owners]
            places = np.cumsum(is_wrong) - 1
            records = records[is_wrong]
            self._draw_again(
                records,
                rows[is_kept],
                places[owners[is_kept]],
                Judgement(judged.agreeing[is_wrong], judged.excluded[is_kept]),
                anywhere=turn >= _ROUNDS - _LAST_ROUNDS,
            )

    def _draw_again(
        self,
        records: Integers,
        rows: Integers,
        owners: Integers,
        judged: Judgement,
        *,
        anywhere: bool,
    ) -> None:
        """Draw the excluded rows of these records again, or where none is, each with a chance of 1/2; keep what is no worse.

        Better is that more derived columns agree, and then that fewer rows are excluded. Rows are drawn from the components of
        their record, or `anywhere` from all.
        """
        number = len(records)
        excluded = np.bincount(owners, judged.excluded, number)
        is_chance = (excluded[owners] == 0) & (self._generator.random(len(rows)) < 0.5)
        is_drawn = judged.excluded | is_chance
        if anywhere:
            weights = self._maker.components.weights
            chosen = self._generator.choice(len(weights), int(is_drawn.sum()), p=weights)
            components = chosen.astype(np.int64)
        else:
            components = self._components(records[owners[is_drawn]])
        drawn = self._decoded(self._cells(components), components)
        after = _replaced(self.table.take(pa.array(rows)), is_drawn, drawn)
        again = self._agreement.judge(after, owners, records)
        excluded_again = np.bincount(owners, again.excluded, number)
        is_better = (again.agreeing > judged.agreeing) | (
            (again.agreeing == judged.agreeing) & (excluded_again <= excluded)
        )
        is_taken = is_drawn & is_better[owners]
        changed = np.zeros(len(self._owners), np.bool_)
        changed[rows[is_taken]] = True
        taken = drawn.filter(pa.array(is_better[owners[is_drawn]]))
        self.table = _replaced(self.table, changed, taken)

    def ends_like(self, name: str, drawn: pa.Array) -> pa.Array:
        """Return the ends of the rows in a derived column, as `Agreement.ends_like`."""
        return self._agreement.ends_like(name, drawn, self.table, self._owners)


def _replaced(table: pa.Table, places: Flags, rows: pa.Table) -> pa.Table:
    """Return a table with other rows at some places, in order."""
    return pa.table(
        {
            name: pc.replace_with_mask(
                table.column(name).combine_chunks(),
                pa.array(places),
                rows.column(name).combine_chunks(),
            )
            for name in table.column_names
        },
        schema=table.schema,
    )


def _chances(maker: RowMaker, codes: Sequence[Codes], units: Integers) -> Floats:
    """Return the running sums of the chances of the components of some records, shape (units, components)."""
    model = maker.components
    chances = np.tile(model.weights, (len(units), 1))
    for block, shares in zip(model.blocks, model.shares, strict=True):
        columns = []
        for attribute in block.attributes:
            code = np.minimum(codes[attribute][units], maker.domain.sizes[attribute])
            merged = maker.compression.codes[attribute]
            columns.append(merged[np.minimum(code, len(merged) - 1)])
        shape = tuple(model.sizes[a] for a in block.attributes)
        wanted = np.ravel_multi_index(tuple(columns), shape)
        cells = block.places(block.attributes, model.sizes)
        order = np.argsort(cells)
        found = order[np.minimum(np.searchsorted(cells, wanted, sorter=order), len(cells) - 1)]
        is_there = (
            cells[found] == wanted
        )  # a record that was changed by a rule may have a cell of no component
        chances *= np.where(is_there[:, None], shares.T[found], 1.0)
        # no product of many columns is too small to be told from 0
        chances /= np.maximum(chances.max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    return _running(np.where(chances.any(axis=1, keepdims=True), chances, model.weights))


def _running(shares: Floats) -> Floats:
    """Return the running sums of each row, scaled so that the last is 1."""
    sums = np.cumsum(shares, axis=1)
    return np.asarray(sums / sums[:, -1:])


def _drawn(cumulative: Floats, rows: Integers, generator: np.random.Generator) -> Integers:
    """Draw an entry for each of `rows`, which are numbers of rows of running sums; none with a share of 0."""
    number = cumulative.shape[1]
    flat = (cumulative + np.arange(len(cumulative))[:, None]).ravel()
    points = rows + generator.random(len(rows))
    places = np.searchsorted(flat, points, side="right") - rows * number
    return np.clip(places, 0, number - 1).astype(np.int64)
