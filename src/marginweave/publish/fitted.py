"""The fitted mixture of a release as a table, which holds released facts alone, and read back from it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Floats
from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.estimate.mixture.model import Mixture
from marginweave.observations.combinations import Aggregates
from marginweave.observations.tables import Marginals
from marginweave.publish.measured_tables import measured_together, one_text
from marginweave.publish.tables import with_combinations

if TYPE_CHECKING:
    from marginweave.records.release import EstimationInput  # numba

MODEL = "model.parquet"


def model_table(model: Mixture, counts: Aggregates | Marginals, configuration: Configuration) -> pa.Table:
    """A mixture, one row for each combination of values of columns that are drawn together, most of them single columns.

    The first row has no columns: its `shares` are the weights of the components, the parts of the records that they make. In
    the others, `shares` has for each component how often its records have the values of this row. Columns are in pairs
    `column_i`, `value_i`; values that were measured together stand as one text, as in measurements.parquet; a missing value
    is null. A component draws each block of columns by itself. DP: post-processing.
    """
    domain = counts.domain
    if isinstance(counts, Marginals):
        groups = measured_together(counts, configuration)
    else:
        groups = [[[label] for label in (*labels, None)] for labels in domain.labels]
    texts = [np.array(list(map(one_text, own)), object) for own in groups]
    longest = max(len(block.attributes) for block in model.blocks)
    pieces = [with_combinations({"shares": _lists(model.weights[None, :])}, [], longest)]
    for block, shares in zip(model.blocks, model.shares, strict=True):
        pairs = [
            (pa.repeat(domain.names[a], len(block.cells)), pa.array(texts[a][codes], pa.string()))
            for a, codes in zip(block.attributes, block.cells.T, strict=True)
        ]
        pieces.append(with_combinations({"shares": _lists(shares.T)}, pairs, longest))
    return pa.concat_tables(pieces).combine_chunks()


def _lists(rows: Floats) -> pa.Array:
    flat = pa.array(np.ascontiguousarray(rows, np.float64).ravel())
    return pa.ListArray.from_arrays(pa.array(np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]), flat)


def read_model(table: pa.Table, known: EstimationInput, settings: MixtureSynthesis) -> Mixture:
    """The mixture that `model_table` wrote; `known` is what it was fitted to, and `settings` are those of the fit.

    Raises:
        InputError: rows that are not those of such a model.
    """
    from marginweave.estimate.mixture.fit import settled  # numba

    total = max(known.total, 1.0)
    empty = Mixture.of(np.ones(0), (), known.sizes, total, known.masks)
    ends = np.cumsum([1, *(len(block.cells) for block in empty.blocks)])
    shares = table.column("shares").combine_chunks()
    flat = np.asarray(shares.flatten().to_numpy(), np.float64)
    if len(shares) != ends[-1] or len(flat) % len(shares) or not np.isfinite(flat).all():
        raise InputError(f"{MODEL} must have a row of weights and one for each combination of values")
    rows = flat.reshape(len(shares), -1)
    measurements, _ = known.measured()
    fits = settled(settings, measurements, len(known.sizes), total).fits
    parts = np.split(rows, ends[:-1])[1:]
    return replace(empty, weights=rows[0].copy(), shares=tuple(np.ascontiguousarray(p.T) for p in parts), fits=fits)
