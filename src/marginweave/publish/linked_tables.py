"""Prepares histograms of linked tables for files and statements: every cell with its noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pyarrow as pa

from marginweave.configuration.release import Configuration
from marginweave.estimate.intervals import LEVEL
from marginweave.evaluate.undeclared import linked_uncounted_sentence, linked_undeclared_sentence
from marginweave.mechanisms.normal import ndtri
from marginweave.observations.linked import LinkedObservation
from marginweave.observations.linked_uncounted import linked_uncounted
from marginweave.observations.linked_undeclared import linked_undeclared
from marginweave.observations.tables import Marginals
from marginweave.publish.tables import with_combinations
from marginweave.released.statement import (
    LinkedStatement,
    LinkedUncountedStatement,
    LinkedUndeclaredStatement,
)

_LONGEST = 2


def linked_table(observations: Sequence[LinkedObservation]) -> pa.Table:
    """Return every cell of every histogram, one a row: the columns below, then `column_i` and `value_i` of both columns.

    `histogram` numbers them from 1. `count_of` is `units` or `rows`. Counts are signed, in units or rows; `deviation` is the
    standard deviation of their noise. `low` and `high` are the ends of an interval that covers the true count with a
    probability of 95 % (`LinkedObservation.spread`); no true count is negative, so that a negative count has the interval of 0.
    Cells are in C order. A missing value is null. DP: post-processing.
    """
    parts = []
    for number, seen in enumerate(observations, 1):
        cells = np.unravel_index(np.arange(seen.counts.size), seen.counts.shape)
        pairs = []
        for axis, codes in zip(seen.axes, cells, strict=True):
            texts = pa.array(axis.texts, pa.string())
            columns = pa.repeat(axis.name, seen.counts.size)
            pairs.append((columns, texts.take(pa.array(codes))))
        parts.append(with_combinations(_numbers(seen, number), pairs, _LONGEST))
    return pa.concat_tables(parts).combine_chunks()


def _numbers(seen: LinkedObservation, number: int) -> dict[str, pa.Array]:
    """Return the columns of one histogram that say what it is, and its numbers."""
    size = seen.counts.size
    counts = seen.counts.ravel()
    half = 0.5 / seen.steps - ndtri((1 - LEVEL) / 2) * seen.spread
    center = np.maximum(counts, 0.0)
    return {
        "histogram": pa.array(np.full(size, number), pa.int32()),
        "table": pa.repeat(seen.table, size),
        "count_of": pa.repeat(seen.count_of, size),
        "count": pa.array(counts, pa.float64()),
        "deviation": pa.array(np.full(size, seen.deviation), pa.float64()),
        "low": pa.array(np.maximum(center - half, 0.0), pa.float64()),
        "high": pa.array(center + half, pa.float64()),
    }


def linked_statements(
    observations: Sequence[LinkedObservation], configuration: Configuration
) -> tuple[LinkedStatement, ...]:
    """Return the facts of privacy.json on each histogram of linked tables, in the order of `linked_table`."""
    tables = configuration.tables or {}
    statements = []
    for seen in observations:
        most = 1 if seen.count_of == "units" else tables[seen.table].at_most or 1
        statement = LinkedStatement(
            draw=seen.draw,
            table=seen.table,
            count_of=seen.count_of,
            columns=tuple(axis.name for axis in seen.axes),
            cells=seen.counts.size,
            deviation=seen.deviation,
            steps=seen.steps,
            most=most,
        )
        statements.append(statement)
    return tuple(statements)


def undeclared_statements(
    observations: Sequence[LinkedObservation], configuration: Configuration
) -> tuple[LinkedUndeclaredStatement, ...]:
    """Return the facts of privacy.json on cells of linked tables that are not as declared."""
    statements = []
    for decided in linked_undeclared(observations):
        cells = decided.cells
        statement = LinkedUndeclaredStatement(
            table=decided.table,
            column=decided.column,
            count_of=decided.count_of,
            count=cells.count,
            deviation=cells.deviation,
            low=cells.low,
            high=cells.high,
            found=cells.found,
            words=str(linked_undeclared_sentence(decided, configuration)),
        )
        statements.append(statement)
    return tuple(statements)


def uncounted_statements(
    marginals: Marginals, configuration: Configuration
) -> tuple[LinkedUncountedStatement, ...]:
    """Return the facts of privacy.json on rows of linked tables that are in no count of rows, where anything tells."""
    return tuple(
        LinkedUncountedStatement(
            table=told.table,
            **asdict(told.rows),
            column=told.by,
            words=str(linked_uncounted_sentence(told)),
            share=told.shares[0],
            share_low=told.shares[1],
        )
        for told in linked_uncounted(marginals, configuration)
    )
