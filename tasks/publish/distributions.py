"""The distribution of each attribute: the released counts of its values beside those of the synthetic records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.configuration import Configuration
from marginweave.tasks.encode.codes import value_slots
from marginweave.tasks.publish.reader import PublishedRelease

MOST_VALUES = 25


@dataclass(frozen=True, kw_only=True)
class ValueCounts:
    """One value: its released count with an interval, None where none was released, and the synthetic count."""

    label: str
    reported: int | None
    low: int | None
    high: int | None
    synthetic: int


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """One attribute, or one set column; `more` values are left out; `missing` is how many synthetic records have no value."""

    name: str
    kind: str
    values: tuple[ValueCounts, ...]
    more: int
    missing: int


def distributions(
    published: PublishedRelease, codes: Sequence[NDArray[np.unsignedinteger]], scale: float
) -> list[Distribution]:
    """Values in declared order; of more than `MOST_VALUES` the most frequent ones.

    Args:
        published: The release.
        codes: Codes of its synthetic records (`record_codes`).
        scale: What a synthetic record counts for. DP: post-processing.
    """
    return [
        _distribution(name, places, published, codes, scale)
        for name, places in _sections(published.configuration).items()
    ]


def _sections(configuration: Configuration) -> dict[str, list[int]]:
    """Attributes by the name that they are shown under: a set whose values are attributes of their own is one column."""
    sections: dict[str, list[int]] = {}
    for j, attribute in enumerate(configuration.attributes):
        sections.setdefault(attribute.columns[0] if attribute.of_set else attribute.name, []).append(j)
    return sections


def _distribution(
    name: str,
    places: Sequence[int],
    published: PublishedRelease,
    codes: Sequence[NDArray[np.unsignedinteger]],
    scale: float,
) -> Distribution:
    aggregates, configuration = published.aggregates, published.configuration
    slots = [np.stack(list(value_slots(codes[j]))) for j in places]
    values = [value for j, held in zip(places, slots, strict=True) for value in _values(published, j, held, scale)]
    shown = values if len(values) <= MOST_VALUES else sorted(values, key=_frequency, reverse=True)[:MOST_VALUES]
    empty = np.logical_and.reduce(
        [(held == aggregates.domain.sizes[j]).all(axis=0) for j, held in zip(places, slots, strict=True)]
    )
    return Distribution(
        name=name,
        kind="group" if name not in configuration.columns else configuration.columns[name].type,
        values=tuple(shown),
        more=len(values) - len(shown),
        missing=round(int(empty.sum()) * scale),
    )


def _values(published: PublishedRelease, j: int, slots: NDArray[np.unsignedinteger], scale: float) -> list[ValueCounts]:
    first, intervals = published.aggregates.levels[0], published.intervals[0]
    labels = published.aggregates.domain.labels[j]
    made = np.bincount(slots.ravel(), minlength=len(labels) + 1)
    rows = np.flatnonzero(first.columns[:, 0] == j)
    row_of = dict(zip(first.values[rows, 0].tolist(), rows.tolist(), strict=True))
    return [
        ValueCounts(
            label=label,
            reported=None if (row := row_of.get(v)) is None else int(first.counts[row]),
            low=None if row is None else int(intervals.low[row]),
            high=None if row is None else int(intervals.high[row]),
            synthetic=round(float(made[v]) * scale),
        )
        for v, label in enumerate(labels)
    ]


def _frequency(value: ValueCounts) -> tuple[int, int]:
    return value.reported or 0, value.synthetic
