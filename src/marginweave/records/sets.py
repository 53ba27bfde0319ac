"""Expands sets for synthesis: each released value becomes an attribute, present or absent; later they are joined again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from marginweave.base.arrays import Codes, Integers, Records, Words
from marginweave.columns.category import cut_sets, pad_sets
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.release import Configuration
from marginweave.domain.labels import Domain
from marginweave.domain.masks import StructuralZeros
from marginweave.domain.zeros import broken_records
from marginweave.observations.combinations import Aggregates

_ROUNDS = 50
_TRIED = 32
"""Records of which the most alike one gets a value."""
_MOST_GIVERS = 10_000
"""Records that give a value in one round, which bounds memory."""


class SetLayout:
    """The columns of a domain once its sets are expanded: attribute j begins at column `starts[j]`.

    A set of s released values has s columns, each with one value, whose missing value says that the set lacks it. For each
    column, `optional` says whether a record can lack it, and `sets` the number of the set that it is a value of, or -1.
    """

    def __init__(self, attributes: Sequence[Attribute], sizes: Sequence[int]) -> None:
        self.attributes = attributes
        self.sizes = sizes
        self.is_set = np.array([attribute.is_set for attribute in attributes])
        widths = np.where(self.is_set, sizes, 1)
        self.starts = np.concatenate([[0], np.cumsum(widths)])
        is_optional = [attribute.lacks_values for attribute in attributes]
        self.optional = np.repeat(is_optional, widths).tolist()
        number_of_set = np.cumsum(self.is_set) - 1
        sets = np.where(self.is_set, number_of_set, -1)
        self.sets = np.repeat(sets, widths).tolist()

    def place(self, attribute: int, value: int) -> tuple[int, int]:
        """Return column and value of a value of an attribute."""
        start = int(self.starts[attribute])
        if self.attributes[attribute].is_set:
            return start + value, 0
        return start, value


def expand_sets(aggregates: Aggregates, layout: SetLayout) -> Aggregates:
    """Return released counts with a column for each value of every set.

    A combination has at most one value of a set, so no two columns of one set are in a combination. DP: post-processing.
    """
    if not layout.is_set.any():
        return aggregates
    levels = []
    for level in aggregates.levels:
        in_set = layout.is_set[level.columns]
        column_in_set = np.where(in_set, level.values, 0)
        columns = layout.starts[level.columns] + column_in_set
        values = np.where(in_set, 0, level.values)
        # by columns, then by values
        order = np.lexsort((*values.T[::-1], *columns.T[::-1]))
        expanded = replace(level, columns=columns, values=values)
        levels.append(expanded.select(order))
    names: list[str] = []
    labels: list[tuple[str, ...]] = []
    for attribute, attribute_labels in zip(
        layout.attributes, aggregates.domain.labels, strict=True
    ):
        if attribute.is_set:
            names += [f"{attribute.name}={label}" for label in attribute_labels]
            labels += [(label,) for label in attribute_labels]
        else:
            names.append(attribute.name)
            labels.append(attribute_labels)
    domain = Domain(names=tuple(names), labels=tuple(labels))
    return replace(aggregates, domain=domain, levels=tuple(levels))


def join_sets(records: Records, layout: SetLayout, rng: np.random.Generator) -> tuple[Codes, ...]:
    """Return codes of each attribute from records over the expanded columns; a set has at most its public cap of values.

    Shapes (n,), and (n, width) for a set. DP: post-processing.
    """
    codes: list[Codes] = []
    ranges = pairwise(layout.starts)
    for attribute, size, (start, stop) in zip(layout.attributes, layout.sizes, ranges, strict=True):
        if attribute.is_set:
            owners, values, lengths = _cut(records, slice(start, stop), attribute.width, rng)
            codes.append(pad_sets(owners, values, lengths, attribute.width, size))
        else:
            codes.append(np.ascontiguousarray(records[:, start]))
    return tuple(codes)


def spread_values(
    records: Records,
    configuration: Configuration,
    masks: Sequence[StructuralZeros],
    rng: np.random.Generator,
) -> None:
    """Move values from records that have more of a set than its public cap to records that have fewer, in place.

    A model draws each value by itself, as often as it was measured, so cutting alone would leave each too rare. Here each stays
    as frequent as it is: a random value of a record goes to a record that lacks it, of some random ones to the one that is most
    alike in all columns. Where values have no place left, `cap_values` cuts them. No record comes to have a combination that
    `masks` forbid. `records` are as in `cap_values`. DP: post-processing.
    """
    for places, cap in _capped_sets(configuration):
        tied = [mask for mask in masks if not set(places).isdisjoint(mask.attributes)]
        for _ in range(_ROUNDS):
            lengths = (records[:, places] == 0).sum(axis=1)
            givers = np.flatnonzero(lengths > cap)
            takers = np.flatnonzero(lengths < cap)
            if not len(givers) or not len(takers):
                break
            givers = rng.permutation(givers)[:_MOST_GIVERS]
            _move_values(records, places, givers, takers, tied, rng)


def _move_values(
    records: Records,
    places: Sequence[int],
    givers: Integers,
    takers: Integers,
    masks: Sequence[StructuralZeros],
    rng: np.random.Generator,
) -> None:
    """Move a value of each giver to a taker, in place, where one of those that are tried can have it."""
    columns = np.array(places)
    has_value = records[np.ix_(givers, columns)] == 0
    chances = np.where(has_value, rng.random(has_value.shape), -1.0)
    values = columns[chances.argmax(axis=1)]
    partners = np.zeros_like(givers)
    most_alike = np.full(len(givers), -1)
    for _ in range(_TRIED):
        tried = rng.choice(takers, len(givers))
        alike = (records[tried] == records[givers]).sum(axis=1)
        is_better = (records[tried, values] == 1) & (alike > most_alike)
        partners[is_better] = tried[is_better]
        most_alike[is_better] = alike[is_better]
    found = np.flatnonzero(most_alike >= 0)
    _, firsts = np.unique(partners[found], return_index=True)  # a record takes one value at a time
    moved = found[firsts]
    givers = givers[moved]
    partners = partners[moved]
    values = values[moved]
    records[givers, values] = 1
    records[partners, values] = 0
    undone = broken_records(tuple(records[givers].T), masks)
    undone |= broken_records(tuple(records[partners].T), masks)
    records[givers[undone], values[undone]] = 0
    records[partners[undone], values[undone]] = 1


def cap_values(records: Records, configuration: Configuration, rng: np.random.Generator) -> None:
    """Remove values from records that have more of a set than its public cap, in place: a uniform choice of them stays.

    `records` has shape (n, attributes); of an attribute that is a value of a set (`Attribute.of_set`) code 0 has the value and
    1 lacks it. DP: post-processing.
    """
    for places, cap in _capped_sets(configuration):
        owners, values, _ = _cut(records, places, cap, rng)
        records[:, places] = 1
        records[owners, np.array(places)[values]] = 0


def _capped_sets(configuration: Configuration) -> Iterator[tuple[list[int], int]]:
    """Yield the attributes of each set whose values are attributes, and its cap; `join_sets` caps a set that is one."""
    for name, column in configuration.columns.items():
        places = []
        for j, attribute in enumerate(configuration.attributes):
            if attribute.of_set and attribute.column == name:
                places.append(j)
        if places:
            yield places, column.width


def _cut(
    records: Records,
    places: slice | list[int],
    cap: int,
    rng: np.random.Generator,
) -> tuple[Integers, Integers, Integers]:
    """Return at most `cap` values of a set for each record, as `cut_sets` returns them; code 0 at a place has its value."""
    has_value = records[:, places] == 0
    owners, values = np.nonzero(has_value)
    lengths = np.bincount(owners, minlength=len(records))
    return cut_sets(owners, values, lengths, cap, _Words(rng))


@dataclass(frozen=True)
class _Words:
    """A generator as a source of words; each call gives new ones."""

    rng: np.random.Generator

    def words_of(self, records: Integers, slots: Integers | int = 0) -> Words:  # noqa: ARG002
        """Return a word for each record."""
        return self.rng.integers(0, 2**64, len(records), dtype=np.uint64)
