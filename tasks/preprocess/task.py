"""Doors of the stage: clean the raw columns of bounded or joined subjects, and buy private bounds."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa

from marginweave.schemas.columns import NumberColumn
from marginweave.schemas.contracts import clean_schema
from marginweave.schemas.table import check_contract
from marginweave.tasks.budget.mechanisms import select_percentile
from marginweave.tasks.budget.planned import bounds_names
from marginweave.tasks.budget.randomness import KeyedBits
from marginweave.tasks.checkpoint.codecs import pack_number, pack_table, unpack_number, unpack_table
from marginweave.tasks.door import stage_task
from marginweave.tasks.drawing import draw_once
from marginweave.tasks.preprocess.bounds import (
    HIGH_PERCENTILE,
    LOW_PERCENTILE,
    candidate_histogram,
    released_bounds,
)
from marginweave.tasks.preprocess.contract import clean_frame
from marginweave.tasks.preprocess.rows import prepare_rows
from marginweave.tasks.references import BOUNDS, RunReference, StageResult


@stage_task("preprocess")
def preprocess(reference: RunReference, validated: StageResult) -> StageResult:
    """The clean table: at most theta rows or one record of everybody, missing values explicit, numbers inside bounds."""

    def compute() -> bytes:
        raw = unpack_table(reference.load(validated))
        words = KeyedBits(key=reference.key_file.read_bytes(), purpose="subjects")
        clean = prepare_rows(raw, reference.configuration, words)
        check_contract(clean_schema(reference.configuration), clean_frame(clean), "preprocess")
        return pack_table(clean)

    return reference.checkpoint("preprocess", [validated.digest], compute)


@stage_task("release bounds")
def release_bounds(reference: RunReference, preprocessed: StageResult) -> StageResult:
    """Private bounds from two quantiles of each column that has them; from here on `resolved` has them in their place.

    DP: the planned cost of each draw, one ledger event each.
    """
    configuration = reference.configuration
    names = configuration.private_bounds
    clean = unpack_table(reference.load(preprocessed)).select(list(names))
    released = {name: _released(reference, name, clean.column(name).combine_chunks()) for name in names}
    result = reference.derived.checkpoint(BOUNDS, [], lambda: json.dumps(released, sort_keys=True).encode())
    return replace(result, charged=tuple(draw for name in names for draw in bounds_names(configuration, name)))


def _released(reference: RunReference, name: str, values: pa.Array) -> tuple[float, float]:
    """The bounds of one column, by two draws."""
    configuration = reference.configuration
    column = configuration.columns[name]
    assert isinstance(column, NumberColumn)
    histogram = candidate_histogram(values, column.bound_candidates)
    chosen = []
    for draw, percentile in zip(bounds_names(configuration, name), (LOW_PERCENTILE, HIGH_PERCENTILE), strict=True):
        epsilon = reference.plan.draw(draw).parameter

        def make(percentile: float = percentile, epsilon: float = epsilon) -> tuple[bytes, bool]:
            # before the table is resized: the unit moves what it moves in the rows themselves
            selected = select_percentile(histogram, percentile, epsilon, configuration.privacy.stability)
            return pack_number(selected), False

        chosen.append(unpack_number(draw_once(reference, draw, make)[0]))
    return released_bounds(chosen[0], chosen[1], column.bound_candidates)
