"""Writes the fitted mixture of a release as a table, which holds released facts only, and reads it back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.base.arrays import Floats
from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.estimate.mixture.model import Mixture
from marginweave.observations.combinations import Aggregates
from marginweave.observations.tables import Marginals
from marginweave.publish.measured_tables import code_texts, measured_together
from marginweave.publish.tables import with_combinations

if TYPE_CHECKING:
    from marginweave.records.release import EstimationInput  # numba

MODEL = "model.parquet"


def model_table(
    model: Mixture, counts: Aggregates | Marginals, configuration: Configuration
) -> pa.Table:
    """Return a mixture as a table: one row for each combination of values of columns that are drawn together.

    Most combinations are of a single column. The first row has no columns: its `shares` are the weights of the components, the
    parts of the records that they make. In the others, `shares` has for each component how often its records have the values of
    this row. Columns are in pairs `column_i`, `value_i`; values that were measured together are one text, as in
    measurements.parquet; a missing value is null. A component draws each block of columns by itself. DP: post-processing.
    """
    names = counts.domain.names
    texts = _texts(counts, configuration)
    longest = max(len(block.attributes) for block in model.blocks)
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
    table = pa.concat_tables(pieces)
    return table.combine_chunks()


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
    ends = np.cumsum([1, *cells])
    lists = table.column("shares").combine_chunks()
    values = lists.flatten()
    has_all_rows = len(lists) == ends[-1] and not values.null_count
    # `to_numpy` would import pandas, which takes longer than most questions do
    flat = np.asarray(np.from_dlpack(values) if has_all_rows else np.empty(0), np.float64)
    if not has_all_rows or len(flat) % len(lists) or not np.isfinite(flat).all():
        raise InputError(
            f"{MODEL} must have a row of weights and one for each combination of values"
        )
    rows = flat.reshape(len(lists), -1)
    weights = rows[0].copy()
    _, *parts = np.split(rows, ends[:-1])
    shares = [np.ascontiguousarray(part.T) for part in parts]
    measurements, _ = fitted_to.measured()
    settings_of_fit = settled(settings, measurements, len(fitted_to.sizes), total)
    return replace(empty, weights=weights, shares=tuple(shares), fits=settings_of_fit.fits)
