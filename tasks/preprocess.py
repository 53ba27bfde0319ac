"""Tasks of the stage: clean the raw columns of bounded or joined subjects, and buy private bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.base.arrow import compute as pc
from marginweave.base.digests import counts_digest
from marginweave.checkpoints.codecs import (
    Unpacked,
    pack_number,
    unpack_number,
    unpack_table,
)
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.release import Configuration
from marginweave.draws.draw import draw_once
from marginweave.draws.protocol import PreparedDraw
from marginweave.draws.references import BOUNDS, RunReference, StageResult
from marginweave.measurements.plan import PlannedDraw
from marginweave.mechanisms.gaussian import select_percentile
from marginweave.mechanisms.percentile import score_sensitivity
from marginweave.planning.prices import BOUND_KINDS, column_position
from marginweave.prepare.clean import HIGH_PERCENTILE, LOW_PERCENTILE, CleanBlock, CleanBlocks, clean_frame, pack_clean
from marginweave.prepare.rows import prepare_blocks

from ..schemas.contracts import check_contract, clean_schema
from .stage import stage


@stage("preprocess")
def preprocess(reference: RunReference, validated: StageResult) -> StageResult:
    """The clean table: at most theta rows or one record of everybody, missing values explicit, numbers inside bounds."""
    configuration, folder = reference.configuration, reference.folder.private
    schema = clean_schema(configuration)

    def blocks() -> Iterator[CleanBlock]:
        raw = Unpacked(unpack_table, reference.load_blocks(validated))
        for block in prepare_blocks(raw, configuration, reference.key_file.read_bytes(), folder):
            check_contract(schema, clean_frame(block.table), "preprocess")
            yield block

    return reference.checkpoint_blocks("preprocess", [validated.digest], lambda: pack_clean(blocks()))


def open_clean(reference: RunReference, preprocessed: StageResult) -> CleanBlocks:
    """The clean records, block by block. Private."""
    return CleanBlocks(reference.load_blocks(preprocessed))


@stage("release bounds")
def release_bounds(reference: RunReference, preprocessed: StageResult) -> StageResult:
    """Private bounds from two quantiles of each column that has them.

    From here on `resolved` has them in their place. DP: the planned cost of each draw, one ledger event each.
    """
    configuration = reference.configuration
    names = configuration.private_bounds
    histograms: dict[str, NDArray[np.int64]] = {}  # exact and private, summed over the blocks
    for block in open_clean(reference, preprocessed):
        for name in names:
            column = _number(configuration, name)
            values = _without_codes(block.table.column(name).combine_chunks(), column)
            counts = candidate_histogram(values, column.bound_candidates)
            histograms[name] = histograms.get(name, 0) + counts
    charged = tuple(str(draw) for name in names for draw in _draws(reference, name))
    bounds = {name: _released(reference, name, histograms[name]) for name in names}
    result = reference.derived.checkpoint(BOUNDS, [], lambda: json.dumps(bounds, sort_keys=True).encode())
    return replace(result, charged=charged)


def candidate_histogram(values: pa.Array, candidates: tuple[float, ...]) -> NDArray[np.int64]:
    """How many values lie above candidate i - 1 and up to candidate i, i = 1 … candidates; shape (candidates + 1,).

    Entry 0 is empty: candidates are counted from 1, as `select_percentile` does, and values outside the public range were
    clamped to it. Nulls are left out. F(i), the sum up to entry i, is the number of values at most candidate i exactly.
    A row is in one entry at most. Private.
    """
    index = np.searchsorted(np.asarray(candidates), values.drop_null().to_numpy(zero_copy_only=False), side="left")
    index = np.minimum(index, len(candidates) - 1)
    return np.bincount(index + 1, minlength=len(candidates) + 1).astype(np.int64)


def released_bounds(low: int, high: int, candidates: tuple[float, ...]) -> tuple[float, float]:
    """The bounds from the numbers (from 1) of the two chosen candidates; swapped if they came out the wrong way round.

    Equal ones stay equal: the column itself widens what is too narrow for its bins (`NumberColumn.with_bounds`).
    DP: post-processing.
    """
    return candidates[min(low, high) - 1], candidates[max(low, high) - 1]


def _without_codes(values: pa.Array, column: NumberColumn) -> pa.Array:
    """The numbers that are no special codes. Private."""
    return pc.if_else(pc.is_in(values, value_set=pa.array(column.special, pa.float64())), None, values)


def _number(configuration: Configuration, name: str) -> NumberColumn:
    column = configuration.columns[name]
    assert isinstance(column, NumberColumn)
    return column


def _draws(reference: RunReference, name: str) -> list[PlannedDraw]:
    """The planned draws of a column's bounds."""
    place = column_position(reference.configuration, name)
    return [reference.plan.draw(kind, place) for kind in BOUND_KINDS]


def _released(reference: RunReference, name: str, histogram: NDArray[np.int64]) -> tuple[float, float]:
    """The bounds of one column, by two draws."""
    configuration = reference.configuration
    unit = configuration.privacy.stability  # it moves what it moves in the rows, before any resize

    def prepare(draw: PlannedDraw, percentile: float) -> PreparedDraw:
        return PreparedDraw(
            inputs=counts_digest([histogram]),
            used={"percentile": str(percentile), "sensitivity": score_sensitivity(percentile, unit)},
            make=lambda bits, _: pack_number(select_percentile(histogram, percentile, draw.epsilon, unit, bits)),
        )

    planned = zip(_draws(reference, name), (LOW_PERCENTILE, HIGH_PERCENTILE), strict=True)
    low, high = (unpack_number(draw_once(reference, draw, partial(prepare, draw, p))[0]) for draw, p in planned)
    return released_bounds(low, high, _number(configuration, name).bound_candidates)
