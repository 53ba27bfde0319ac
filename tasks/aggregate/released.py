"""From the values of the encoded table to the values that were released, and from draws to one set of aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from marginweave.schemas.released.aggregates import Aggregates, Domain, Level, LevelNoise
from marginweave.tasks.encode.codes import Codes, EncodedTable, code_type


def released_values(first: Level, table: EncodedTable, private_columns: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Labels of the private columns' values that survived length 1, in sorted order.

    DP: post-processing of the released 1-tuples: a value that did not reach its threshold does not appear.
    """
    released = {}
    for j in private_columns:
        survived = first.values[first.columns[:, 0] == j, 0]
        released[j] = tuple(sorted(table.labels[j][v] for v in survived.tolist()))
    return released


def to_released(first: Level, table: EncodedTable, released: Mapping[int, tuple[str, ...]]) -> Level:
    """Length 1 with the values of private columns numbered as in the released domain."""
    values = first.values.copy()
    for j, labels in released.items():
        rows = first.columns[:, 0] == j
        position = {label: i for i, label in enumerate(labels)}
        values[rows, 0] = [position[table.labels[j][v]] for v in first.values[rows, 0].tolist()]
    order = np.lexsort((values[:, 0], first.columns[:, 0]))
    return Level(length=1, columns=first.columns[order], values=values[order], counts=first.counts[order])


def recode(table: EncodedTable, released: Mapping[int, tuple[str, ...]]) -> EncodedTable:
    """The table over the released domain: values of private columns that were not released become missing. Private."""
    codes: list[Codes] = list(table.codes)
    labels = list(table.labels)
    for j, values in released.items():
        position = {label: i for i, label in enumerate(values)}
        lookup = np.array([*(position.get(label, len(values)) for label in table.labels[j]), len(values)])
        codes[j] = lookup.astype(code_type(len(values)))[table.codes[j]]
        labels[j] = values
    return EncodedTable(codes=tuple(codes), labels=tuple(labels))


def collect(
    names: tuple[str, ...],
    labels: tuple[tuple[str, ...], ...],
    record_count: int,
    record_deviation: float,
    levels: Sequence[Level],
    noise: Sequence[LevelNoise],
) -> Aggregates:
    """One set of aggregates from the draws; a record count below 0 is told as 0.

    DP: post-processing.
    """
    return Aggregates(
        domain=Domain(names=names, labels=labels),
        record_count=max(0, record_count),
        record_deviation=record_deviation,
        levels=tuple(levels),
        noise=tuple(noise),
    )
