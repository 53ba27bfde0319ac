"""Noisy marginals between stages."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.base.budget import NoiseName
from marginweave.base.errors import InputError
from marginweave.domain.labels import Domain
from marginweave.domain.masks import Clique, check_attributes
from marginweave.observations.linked import LinkedObservation

Counts = Integers | Floats
Levels = tuple[Integers | None, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Observation:
    """A dense noisy marginal: signed, unthresholded counts over the attributes of a clique.

    `counts` has one axis for each of `attributes` (which increase); an attribute that can be missing has the missing value as
    its last code. `deviation` is the standard deviation of the noise of one cell, in records, `noise` its kind. `complete` is
    False where the contribution of a record was bounded across marginals, so that the sum of cells is less than the record
    count. `levels`, where there are any, has the code by which every code of an attribute is counted, where bins are joined or
    values merged, and None for an attribute whose codes are all separate. `chosen` is True, in tables that a reader of a
    release has, where the rows decided by what its attributes have in common that the marginal was measured. Raises InputError
    where these do not fit together.
    """

    attributes: Clique
    counts: Counts
    deviation: float
    complete: bool = True
    noise: NoiseName = "rounded-gaussian"
    levels: Levels = ()
    chosen: bool = False

    def __post_init__(self) -> None:
        check_attributes(self.attributes, self.counts.shape)
        if not 0 < self.deviation < math.inf:
            raise InputError(f"deviation ({self.deviation}) must be positive")
        if not self.levels:
            return
        for level, size in zip(self.levels, self.counts.shape, strict=True):
            if level is not None and int(level.max()) + 1 != size:
                raise InputError(
                    f"levels of attributes {self.attributes} must have the sizes of the counts"
                )

    @property
    def coarser(self) -> dict[int, Integers]:
        """Coarser code of every code, for each attribute that is counted by coarser codes."""
        if not self.levels:
            return {}
        levels = zip(self.attributes, self.levels, strict=True)
        return {attribute: level for attribute, level in levels if level is not None}

    @property
    def codes(self) -> tuple[Integers, ...]:
        """Code by which every code is counted, coarser or not, for each attribute."""
        levels = self.levels or (None,) * self.counts.ndim
        sizes = zip(levels, self.counts.shape, strict=True)
        return tuple(np.arange(size) if level is None else level for level, size in sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of codes of each attribute, at its finest."""
        coarser = self.coarser
        sizes = zip(self.attributes, self.counts.shape, strict=True)
        return tuple(len(coarser[a]) if a in coarser else size for a, size in sizes)

    @property
    def total(self) -> float:
        """Sum of all cells."""
        return float(self.counts.sum())

    def without_last(self, attributes: Collection[int]) -> Observation:
        """Return the marginal without the cells of the last code of some attributes."""
        counts = self.counts
        levels = list(self.levels)
        for axis, attribute in enumerate(self.attributes):
            if attribute not in attributes:
                continue
            level = levels[axis] if levels else None
            last = counts.shape[axis] - 1 if level is None else int(level[-1])
            counts = np.delete(counts, last, axis)
            if level is not None:
                shortened = level[:-1]
                levels[axis] = shortened - (shortened > last)
        return replace(self, counts=counts, levels=tuple(levels))

    def unmerged(self, codes: Sequence[Integers]) -> Observation:
        """Return the marginal by the codes before merging; `codes` has the merged code of every code, of all attributes."""
        levels: list[Integers | None] = []
        for attribute, counted, size in zip(
            self.attributes, self.codes, self.counts.shape, strict=True
        ):
            level = counted[codes[attribute]]
            levels.append(None if np.array_equal(level, np.arange(size)) else level)
        has_levels = any(level is not None for level in levels)
        return replace(self, levels=tuple(levels) if has_levels else ())

    def renumbered(self, attributes: Sequence[int]) -> Observation:
        """Return the marginal with these numbers of its attributes, in their order."""
        order = sorted(range(len(attributes)), key=attributes.__getitem__)
        levels: Levels = ()
        if self.levels:
            levels = tuple(self.levels[axis] for axis in order)
        return replace(
            self,
            attributes=tuple(attributes[axis] for axis in order),
            counts=self.counts.transpose(order),
            levels=levels,
        )

    def scale(self, total: float) -> float:
        """Return the factor of cells and deviation that gives an incomplete marginal `total` records; else 1."""
        if self.complete or self.total <= 0:
            return 1.0
        return total / self.total


@dataclass(frozen=True, kw_only=True, eq=False)
class CensoredObservation(Observation):
    """A noisy marginal in which only counts that reached a threshold are known.

    In the shape of `counts`: `released` cells have their count, `hidden` ones a count below `cut`, others were never counted.
    """

    released: Flags
    hidden: Flags
    cut: float


class ChosenMisfit(NamedTuple):
    """Distance of chosen sets from the model beyond their noise (`observations.means.chosen_misfit`, a TVD).

    For the quarter that was chosen `first`, and for the quarter that was chosen `last`.
    """

    first: float
    last: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Marginals:
    """A set of released marginals, as they were drawn.

    `one_way` has one marginal for each attribute, in order, over the codes of `domain`. The last code is the missing value,
    where there is one, or that of cells that are not as declared, which `consistent` marginals ignore where it is not kept.
    `larger` are over the codes that rare values were merged into (`selection.compress`). `consistent` are all of them over
    these codes, followed by known tables, after `make_consistent`; empty before.
    `pooled` are the drawn ones combined with those of earlier releases, over the codes of `one_way` and `larger` and in their
    order; empty without any. `coarse` are drawn marginals with columns at a coarser level, which are not in `larger` or others.
    `misfit` is how far the sets that rounds chose were from the model that chose them, beyond noise; None without rounds.
    With `is_combined` the draw of larger marginals measured single attributes again and chose pairs: there were few records.
    `linked` are the histograms of linked tables, as they were drawn.
    """

    domain: Domain
    one_way: tuple[Observation, ...]
    larger: tuple[Observation, ...]
    consistent: tuple[Observation, ...] = ()
    pooled: tuple[Observation, ...] = ()
    coarse: tuple[Observation, ...] = ()
    misfit: ChosenMisfit | None = None
    is_combined: bool = False
    linked: tuple[LinkedObservation, ...] = ()

    @property
    def drawn(self) -> tuple[Observation, ...]:
        """All drawn marginals, those at a coarser level last."""
        return (*self.one_way, *self.larger, *self.coarse)

    @property
    def measured(self) -> tuple[tuple[Observation, ...], tuple[Observation, ...]]:
        """Marginals of one attribute, and larger ones: as drawn, or pooled with those of earlier releases."""
        if not self.pooled:
            return self.one_way, self.larger
        single = len(self.one_way)
        return self.pooled[:single], self.pooled[single:]
