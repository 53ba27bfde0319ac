"""Writes the fitted mixture of a release as a table, which holds released facts only, and reads it back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.base.arrays import Floats
from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.estimate.mixture.blocks import Block
from marginweave.estimate.mixture.linked_rows import RowModel
from marginweave.estimate.mixture.model import Mixture
from marginweave.observations.combinations import Aggregates
from marginweave.observations.tables import Marginals
from marginweave.publish.measured_tables import code_texts, measured_together
from marginweave.publish.tables import with_combinations

if TYPE_CHECKING:
    from marginweave.records.release import EstimationInput  # numba

MODEL = "model.parquet"


def model_table(
    model: Mixture,
    counts: Aggregates | Marginals,
    configuration: Configuration,
    row_models: Mapping[str, RowModel] = MappingProxyType({}),
) -> pa.Table:
    """Return a mixture as a table: one row for each combination of values of columns that are drawn together.

    Most combinations are of a single column. The first row has no columns: its `shares` are the weights of the components, the
    parts of the records that they make. In the others, `shares` has for each component how often its records have the values of
    this row. Columns are in pairs `column_i`, `value_i`; values that were measured together are one text, as in
    measurements.parquet; a missing value is null. A component draws each block of columns by itself. Behind the columns of the
    records are those of rows of linked tables, each behind the name of its table. DP: post-processing.
    """
    names = counts.domain.names
    texts = _texts(counts, configuration)
    blocks = [*model.blocks, *(block for rows in row_models.values() for block in rows.blocks)]
    longest = max(len(block.attributes) for block in blocks)
    weights = _lists(model.weights[None, :])
    pieces = [with_combinations({"shares": weights}, [], longest)]
    for block, block_shares in zip(model.blocks, model.shares, strict=True):
        pairs = []
        for a, codes in zip(block.attributes, block.cells.T, strict=True):
            columns = pa.repeat(names[a], len(block.cells))
            values = pa.array(texts[a][codes], pa.string())
            pairs.append((columns, values))
        shares = _lists(block_shares.T)
        pieces.append(with_combinations({"shares": shares}, pairs, longest))
    for name, rows in row_models.items():
        pieces += _row_pieces(name, rows, configuration, longest)
    table = pa.concat_tables(pieces)
    return table.combine_chunks()


def _row_pieces(
    name: str, rows: RowModel, configuration: Configuration, longest: int
) -> Iterator[pa.Table]:
    """Yield the rows of `model_table` for each block of columns of a linked table."""
    columns = list((configuration.tables or {})[name].columns.items())
    for block, shares in zip(rows.blocks, rows.shares, strict=True):
        pairs = []
        for place, codes in zip(block.attributes, block.cells.T, strict=True):
            column_name, column = columns[place]
            texts = pa.array([*column.labels, None], pa.string())
            pairs.append(
                (pa.repeat(f"{name}.{column_name}", len(codes)), texts.take(pa.array(codes)))
            )
        yield with_combinations({"shares": _lists(shares.T)}, pairs, longest)


def _texts(
    counts: Aggregates | Marginals, configuration: Configuration
) -> list[NDArray[np.object_]]:
    """Return the text of each code of each attribute of a model, shape (codes,) each."""
    if not isinstance(counts, Marginals):
        return [np.array([*labels, None], object) for labels in counts.domain.labels]
    groups = measured_together(counts, configuration)
    return [np.array(code_texts(labels_of_codes), object) for labels_of_codes in groups]


def _lists(rows: Floats) -> pa.Array:
    """Return each row of a matrix as a list."""
    number, length = rows.shape
    values = np.ascontiguousarray(rows, np.float64)
    offsets = np.arange(number + 1, dtype=np.int32) * length
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.ravel()))


def read_model(table: pa.Table, fitted_to: EstimationInput, settings: MixtureSynthesis) -> Mixture:
    """Return the mixture that `model_table` wrote; `fitted_to` is what it was fitted to, and `settings` are those of the fit.

    Raises:
        InputError: rows that are not those of such a model.
    """
    from marginweave.estimate.mixture.fit import settled  # numba

    total = max(fitted_to.total, 1.0)
    empty = Mixture.of(np.ones(0), (), fitted_to.sizes, total, fitted_to.masks)
    cells = [len(block.cells) for block in empty.blocks]
    weights, *shares = _read_shares(table, [1, *cells])
    measurements, _ = fitted_to.measured()
    settings_of_fit = settled(settings, measurements, len(fitted_to.sizes), total)
    return replace(empty, weights=weights[:, 0], shares=tuple(shares), fits=settings_of_fit.fits)


def _read_shares(table: pa.Table, numbers: Sequence[int]) -> list[Floats]:
    """Return the shares in so many first rows, and so on, shapes (components, rows); raises InputError."""
    ends = np.cumsum(numbers)
    lists = table.column("shares").combine_chunks()[: ends[-1]]
    values = lists.flatten()
    has_all_rows = len(lists) == ends[-1] and not values.null_count
    # `to_numpy` would import pandas, which takes longer than most questions do
    flat = np.asarray(np.from_dlpack(values) if has_all_rows else np.empty(0), np.float64)
    if not has_all_rows or len(flat) % len(lists) or not np.isfinite(flat).all():
        raise InputError(
            f"{MODEL} must have a row of weights and one for each combination of values"
        )
    parts = np.split(flat.reshape(len(lists), -1), ends[:-1])
    return [np.ascontiguousarray(part.T) for part in parts]


def read_row_models(table: pa.Table, configuration: Configuration) -> dict[str, RowModel]:
    """Return the models of rows of linked tables that `model_table` wrote behind a mixture; raises InputError."""
    names = table.column("column_1").to_pylist()
    models = {}
    for name in configuration.recorded_tables:
        columns = (configuration.tables or {})[name].columns
        places = {f"{name}.{column}": place for place, column in enumerate(columns)}
        rows = table.filter(pa.array([each in places for each in names]))
        models[name] = _read_rows(rows, places, [column.labels for column in columns.values()])
    return models


def _read_rows(
    table: pa.Table, places: Mapping[str, int], labels: Sequence[Sequence[str]]
) -> RowModel:
    """Return the model of the rows of one linked table; `places` are those of its columns, by their names."""
    codes_of = [{text: code for code, text in enumerate((*texts, None))} for texts in labels]
    positions = sum(name.startswith("column_") for name in table.column_names)
    columns = [table.column(f"column_{i + 1}").to_pylist() for i in range(positions)]
    texts = [table.column(f"value_{i + 1}").to_pylist() for i in range(positions)]
    cells: dict[tuple[int, ...], list[list[int]]] = {}
    for names, values in zip(zip(*columns, strict=True), zip(*texts, strict=True), strict=True):
        attributes = tuple(places[name] for name in names if name is not None)
        codes = [codes_of[place][text] for place, text in zip(attributes, values, strict=False)]
        cells.setdefault(attributes, []).append(codes)
    shares = _read_shares(table, [len(codes) for codes in cells.values()]) if cells else []
    blocks = (
        Block(attributes=attributes, cells=np.array(codes, np.int64))
        for attributes, codes in cells.items()
    )
    model = RowModel(blocks=tuple(blocks), shares=tuple(shares))
    if sorted(a for attributes in cells for a in attributes) != list(range(len(labels))):
        raise InputError(f"{MODEL} must have all columns of the rows of linked tables")
    return model
