"""Candidates of rounds: sets of attributes at their finest, and the same sets in coarser bins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from marginweave.base.arrays import Flags, Integers
from marginweave.configuration.bin_levels import BinLevels
from marginweave.counts.marginals import merged_table
from marginweave.domain.masks import Clique
from marginweave.measurements.marginal_rows import Level
from marginweave.observations.means import expected_noise


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """Sets of attributes that rounds choose from, each at its finest and in coarser bins.

    A candidate is a clique of attributes and levels. `levels` has their numbers of codes, rare values merged, and `codes` the
    code at each level of every such code of an attribute. DP: post-processing of released sizes.
    """

    sets: tuple[Clique, ...]
    levels: BinLevels
    codes: tuple[Level, ...]

    @cached_property
    def of_set(self) -> Mapping[Clique, tuple[Clique, ...]]:
        """The candidates of each set: itself, then coarser and coarser."""
        return {clique: (clique, *self._coarser(clique)) for clique in self.sets}

    @cached_property
    def all(self) -> tuple[Clique, ...]:
        """All candidates, those of a set one after the other."""
        return tuple(itertools.chain.from_iterable(self.of_set.values()))

    @cached_property
    def columns(self) -> tuple[Clique, ...]:
        """The set of attributes of each candidate."""
        return tuple(clique for clique in self.sets for _ in self.of_set[clique])

    def worth_counting(self, sigma: float, records: float) -> Flags:
        """Return which candidates may be chosen where a cell has noise `sigma`, shape (candidates,).

        In coarser bins these are the sets whose finest table would have more noise than there are `records`: of any other, the
        finest table answers more questions. DP: post-processing.
        """
        allowed: list[bool] = []
        for clique, candidates in self.of_set.items():
            is_lost = expected_noise(sigma, self.levels.cells(clique)) > records
            allowed += [True, *[is_lost] * (len(candidates) - 1)]
        return np.array(allowed, np.bool_)

    def tables(self, clique: Clique, table: Integers) -> Iterator[Integers]:
        """Yield a table of the attributes of a set as each candidate of the set counts it, the finest first."""
        finest, *coarser = self.of_set[clique]
        assert finest == clique
        yield table
        for candidate in coarser:
            yield table_in_bins(table, candidate, self.levels.attributes, self.codes)

    def _coarser(self, clique: Clique) -> Iterator[Clique]:
        """Yield a set in coarser bins, where these have fewer cells and every attribute has several codes."""
        fewest = self.levels.cells(clique)
        for coarser in self.levels.coarser(clique):
            cells = self.levels.cells(coarser)
            if cells < fewest and min(self.levels.sizes[place] for place in coarser) > 1:
                fewest = cells
                yield coarser


def table_in_bins(
    table: Integers, candidate: Clique, attributes: int, levels: Sequence[Level]
) -> Integers:
    """Return a table of increasing attributes as a candidate counts it: cells that a level joins are added up.

    The numbers of a candidate from `attributes` on are `levels`, which come behind its attributes, and so do their axes. Each
    cell of the table is in one cell of the result, so that |result|_1 <= |table|_1. Private where the table is.
    """
    order: list[int] = []
    codes: list[Integers | None] = []
    for place in candidate:
        attribute, code = levels[place - attributes] if place >= attributes else (place, None)
        order.append(attribute)
        codes.append(code)
    increasing = sorted(order)
    ordered = table.transpose([increasing.index(attribute) for attribute in order])
    joined = [
        np.arange(size) if code is None else code
        for code, size in zip(codes, ordered.shape, strict=True)
    ]
    return merged_table(ordered, joined)
