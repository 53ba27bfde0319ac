"""Sets in synthesis: each released value becomes an attribute, present or absent; afterwards they are joined to one set."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.configuration.attributes import Attribute
from marginweave.schemas.released.aggregates import Aggregates, Domain, IntArray
from marginweave.tasks.columns.category import cut_sets, pad_sets


@dataclass(frozen=True, kw_only=True)
class SetLayout:
    """Where the attributes of a domain stand once sets are expanded: attribute j begins at column `starts[j]`.

    A set of s released values has s columns, each with one value, whose missing value says that the set lacks it.
    """

    attributes: tuple[Attribute, ...]
    sizes: tuple[int, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """How many columns each attribute has."""
        return tuple(s if a.is_set else 1 for a, s in zip(self.attributes, self.sizes, strict=True))

    @property
    def starts(self) -> IntArray:
        """First column of each attribute, and the number of columns; shape (attributes + 1,)."""
        return np.concatenate([[0], np.cumsum(self.widths)])

    @property
    def optional(self) -> tuple[bool, ...]:
        """For each column, whether a record can lack it."""
        return tuple(a.optional for a, width in zip(self.attributes, self.widths, strict=True) for _ in range(width))

    @property
    def sets(self) -> tuple[int, ...]:
        """For each column, the number of the set that it is a value of, or -1."""
        numbers = itertools.count()
        kinds = [next(numbers) if attribute.is_set else -1 for attribute in self.attributes]
        return tuple(kind for kind, width in zip(kinds, self.widths, strict=True) for _ in range(width))

    def place(self, attribute: int, value: int) -> tuple[int, int]:
        """Column and value of a value of an attribute."""
        start = int(self.starts[attribute])
        return (start + value, 0) if self.attributes[attribute].is_set else (start, value)


def expand_sets(aggregates: Aggregates, layout: SetLayout) -> Aggregates:
    """Released counts with the values of every set as columns of their own.

    A combination holds at most one value of a set, so no two columns of one set stand in a combination. DP: post-processing.
    """
    if not any(attribute.is_set for attribute in layout.attributes):
        return aggregates
    is_set = np.array([attribute.is_set for attribute in layout.attributes])
    starts, domain = layout.starts, aggregates.domain
    levels = []
    for level in aggregates.levels:
        sets = is_set[level.columns]
        columns = starts[level.columns] + np.where(sets, level.values, 0)
        values = np.where(sets, 0, level.values)
        order = np.lexsort((*values.T[::-1], *columns.T[::-1]))
        levels.append(replace(level, columns=columns[order], values=values[order], counts=level.counts[order]))
    names: list[str] = []
    labels: list[tuple[str, ...]] = []
    for attribute, known in zip(layout.attributes, domain.labels, strict=True):
        names += [f"{attribute.name}={label}" for label in known] if attribute.is_set else [attribute.name]
        labels += [(label,) for label in known] if attribute.is_set else [known]
    return replace(aggregates, domain=Domain(names=tuple(names), labels=tuple(labels)), levels=tuple(levels))


def expand_forbidden(
    forbidden: Iterable[Sequence[tuple[int, int]]], layout: SetLayout
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Forbidden combinations over the expanded columns."""
    return tuple(tuple(layout.place(*part) for part in combination) for combination in forbidden)


def join_sets(
    records: NDArray[np.int32], layout: SetLayout, rng: np.random.Generator
) -> tuple[NDArray[np.integer], ...]:
    """Codes of each attribute from records over the expanded columns; a set keeps at most its public cap of values.

    Shapes (n,), and (n, width) for a set. DP: post-processing.
    """
    found: list[NDArray[np.integer]] = []
    for j, attribute in enumerate(layout.attributes):
        start, stop = layout.starts[j : j + 2]
        if not attribute.is_set:
            found.append(np.ascontiguousarray(records[:, start]))
            continue
        owners, codes = np.nonzero(records[:, start:stop] == 0)
        lengths = np.bincount(owners, minlength=len(records))
        owners, codes, lengths = cut_sets(owners, codes, lengths, attribute.width, _Words(rng))
        found.append(pad_sets(owners, codes, lengths, attribute.width, layout.sizes[j]))
    return tuple(found)


def cap_values(
    records: NDArray[np.int32], attributes: Sequence[Attribute], caps: Mapping[str, int], rng: np.random.Generator
) -> None:
    """Take values out of records that hold more of a set than its public cap, in place: a uniform choice of them stays.

    `records` has shape (n, attributes); of an attribute that is a value of a set (`Attribute.of_set`) code 0 has the value and
    1 lacks it. `caps` has the cap of each set by column. DP: post-processing.
    """
    for name, cap in caps.items():
        places = [j for j, attribute in enumerate(attributes) if attribute.of_set and name in attribute.columns]
        if not places:  # the set is one attribute, which `join_sets` caps
            continue
        owners, values = np.nonzero(records[:, places] == 0)
        lengths = np.bincount(owners, minlength=len(records))
        owners, values, _ = cut_sets(owners, values, lengths, cap, _Words(rng))
        records[:, places] = 1
        records[owners, np.array(places)[values]] = 0


@dataclass(frozen=True)
class _Words:
    """A generator as words, fresh ones each time that they are asked for."""

    rng: np.random.Generator

    def words_of(self, records: NDArray[np.int64], slots: NDArray[np.int64] | int = 0) -> NDArray[np.uint64]:  # noqa: ARG002
        """A word for each record."""
        return self.rng.integers(0, 2**64, len(records), dtype=np.uint64)
