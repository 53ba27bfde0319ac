"""Noisy marginals between stages."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginweave.base.budget import NoiseName
from marginweave.base.errors import InputError
from marginweave.domain.labels import Domain
from marginweave.domain.masks import Clique, check_attributes

Counts = NDArray[np.int64] | NDArray[np.float64]
Levels = tuple[NDArray[np.int64] | None, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Observation:
    """A dense noisy marginal: signed, unthresholded counts over the attributes of a clique.

    `counts` has one axis for each of `attributes` (which increase); an attribute that can be missing has the missing value as
    its last code. `deviation` is the standard deviation of the noise of one cell, in records, `noise` its kind. `complete` is
    False where the contribution of a record was bounded across marginals, so that the cells together fall short of the record
    count. `levels`, where there are any, has the code by which every code of an attribute is counted, where bins are joined or
    values merged, and None for an attribute whose codes are all told apart. Raises InputError where these do not fit together.
    """

    attributes: Clique
    counts: Counts
    deviation: float
    complete: bool = True
    noise: NoiseName = "rounded-gaussian"
    levels: Levels = ()

    def __post_init__(self) -> None:
        check_attributes(self.attributes, self.counts.shape)
        if not 0 < self.deviation < math.inf:
            raise InputError(f"deviation ({self.deviation}) must be positive")
        levels = zip(self.levels, self.counts.shape, strict=True) if self.levels else ()
        if any(level is not None and int(level.max()) + 1 != size for level, size in levels):
            raise InputError(f"levels of attributes {self.attributes} must have the sizes of the counts")

    @property
    def coarser(self) -> dict[int, NDArray[np.int64]]:
        """The coarser code of every code, of each attribute that is counted coarser."""
        levels = zip(self.attributes, self.levels, strict=True) if self.levels else ()
        return {attribute: level for attribute, level in levels if level is not None}

    @property
    def codes(self) -> tuple[NDArray[np.int64], ...]:
        """Of each attribute the code by which every code is counted, coarser or not."""
        levels = self.levels or (None,) * self.counts.ndim
        sizes = zip(levels, self.counts.shape, strict=True)
        return tuple(np.arange(size) if level is None else level for level, size in sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many codes each attribute has, at its finest."""
        coarser = self.coarser
        sizes = zip(self.attributes, self.counts.shape, strict=True)
        return tuple(len(coarser[a]) if a in coarser else size for a, size in sizes)

    @property
    def total(self) -> float:
        """Sum of all cells."""
        return float(self.counts.sum())

    def without_last(self, attributes: Collection[int]) -> Observation:
        """The same without the cells of the last code of some attributes."""
        counts, levels = self.counts, list(self.levels)
        for axis, attribute in enumerate(self.attributes):
            if attribute not in attributes:
                continue
            level = levels[axis] if levels else None
            last = counts.shape[axis] - 1 if level is None else int(level[-1])
            counts = np.delete(counts, last, axis)
            if level is not None:
                levels[axis] = level[:-1] - (level[:-1] > last)
        return replace(self, counts=counts, levels=tuple(levels))

    def unmerged(self, codes: Sequence[NDArray[np.int64]]) -> Observation:
        """The same by the codes that were merged into its own; `codes` has the new code of every code, of all attributes."""
        own = [counted[codes[a]] for a, counted in zip(self.attributes, self.codes, strict=True)]
        apart = (np.array_equal(new, np.arange(size)) for new, size in zip(own, self.counts.shape, strict=True))
        levels = tuple(None if same else new for same, new in zip(apart, own, strict=True))
        return replace(self, levels=levels if any(level is not None for level in levels) else ())

    def renumbered(self, attributes: Sequence[int]) -> Observation:
        """The same with these numbers of its attributes, in their order."""
        order = sorted(range(len(attributes)), key=attributes.__getitem__)
        return replace(
            self,
            attributes=tuple(attributes[axis] for axis in order),
            counts=self.counts.transpose(order),
            levels=tuple(self.levels[axis] for axis in order) if self.levels else (),
        )

    def scale(self, total: float) -> float:
        """What cells and deviation are multiplied by, so that an incomplete marginal is one of `total` records; else 1."""
        return total / self.total if not self.complete and self.total > 0 else 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class CensoredObservation(Observation):
    """A noisy marginal of which only counts that reached a threshold are known.

    Of the shape of `counts`: `released` cells have their count, `hidden` ones one below `cut`, the others were never counted.
    """

    released: NDArray[np.bool_]
    hidden: NDArray[np.bool_]
    cut: float


class ChosenMisfit(NamedTuple):
    """How far beyond their noise chosen sets were from the model (`counts.rounds.chosen_misfit`, a TVD).

    Of the quarter that was chosen `first`, and of the one that was chosen `last`.
    """

    first: float
    last: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Marginals:
    """A whole set of released marginals, as they were drawn.

    `one_way` has one marginal an attribute, in order, over the codes of `domain` (and the missing value, last, where there
    is one, or the code of cells that are not as declared, which `consistent` ones ignore where it is not kept).
    `larger` are over the codes that rare values were merged into (`selection.compress`). `consistent` are all of
    them over these codes, and behind them known tables, after `make_consistent`; empty before.
    `pooled` are the drawn ones together with those of earlier releases, over the codes of `one_way` and `larger` and in their
    order; empty without any. `coarse` are drawn marginals with columns at a coarser level, beside `larger`, in no other.
    `misfit` is how far beyond their noise the sets that rounds chose were from the model that chose them; None without rounds.
    """

    domain: Domain
    one_way: tuple[Observation, ...]
    larger: tuple[Observation, ...]
    consistent: tuple[Observation, ...] = ()
    pooled: tuple[Observation, ...] = ()
    coarse: tuple[Observation, ...] = ()
    misfit: ChosenMisfit | None = None

    @property
    def drawn(self) -> tuple[Observation, ...]:
        """All that were drawn, those at a coarser level last."""
        return (*self.one_way, *self.larger, *self.coarse)

    @property
    def measured(self) -> tuple[tuple[Observation, ...], tuple[Observation, ...]]:
        """Those of one attribute and the larger ones, each the drawn ones, or pooled with what earlier releases measured."""
        single = len(self.one_way)
        return (self.pooled[:single], self.pooled[single:]) if self.pooled else (self.one_way, self.larger)
