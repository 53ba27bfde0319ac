"""Marginals of single columns, and all that follows from them: merged values, and cells that are not as declared."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from marginweave.configuration.bin_levels import BinLevels
from marginweave.configuration.marginals import MarginalSettings
from marginweave.configuration.release import Configuration
from marginweave.counts.marginals import all_cliques, count_marginals
from marginweave.domain.labels import Domain
from marginweave.domain.masks import Clique, StructuralZeros
from marginweave.domain.zeros import domain_sizes, one_way_sizes, structural_masks
from marginweave.measurements.base import Drawn, Exact, PrivateRows
from marginweave.measurements.marginal_rows import Level, Rows, released_rows
from marginweave.measurements.private_values import released_labels
from marginweave.measurements.whole_marginals import MarginalCounts, WholeMarginals, public_sizes
from marginweave.observations.compression import Compression
from marginweave.observations.payloads import unpack_observations
from marginweave.observations.tables import Observation
from marginweave.observations.undeclared import (
    declared_compression,
    ignored_attributes,
    measured_undeclared,
)


class OneWayMarginals(WholeMarginals):
    """The marginal of every attribute, and of the indicators of sets, over the released domain."""

    template = "one-way"
    title = "single columns"
    share_key = "aggregate.one_way_share"

    @classmethod
    def cliques(cls, configuration: Configuration) -> tuple[Clique, ...]:
        """Return every attribute by itself."""
        return all_cliques(public_sizes(configuration), 1)

    def parts(self, configuration: Configuration) -> tuple[Fraction, ...]:
        """Return the part of the noise of each attribute's marginal, and behind them those of the indicators of sets."""
        sizes = one_way_sizes(
            configuration, [attribute.labels for attribute in configuration.attributes]
        )
        return self.split(configuration, all_cliques(sizes, 1), sizes)

    def count(self, rows: PrivateRows, drawn: Drawn) -> Exact[MarginalCounts]:
        """Return the exact marginals. Private."""
        released = released_rows(rows, drawn)
        cliques = all_cliques(released.sizes, 1)
        exact = count_marginals(released, released.sizes, cliques)
        sizes = one_way_sizes(drawn.configuration, released_labels(drawn))
        return self.exact(drawn.configuration, cliques, sizes, exact)


@dataclass(frozen=True, kw_only=True, eq=False)
class OneWay:
    """The committed marginals of single attributes, the released domain, and what follows from both. DP: post-processing.

    `counted` is the configuration of tables, `configuration` that of estimates: the last code of attributes that are
    `ignored` is in tables and not in estimates (`UndeclaredCells`). Larger tables decide this again after they are drawn.
    `of_sets` are the marginals of `indicated_sets`.
    """

    measured: tuple[Observation, ...]
    of_sets: tuple[Observation, ...]
    domain: Domain
    counted: Configuration
    configuration: Configuration
    ignored: frozenset[int]

    @property
    def settings(self) -> MarginalSettings:
        """Settings of marginals."""
        return self.counted.marginal_settings

    @cached_property
    def estimated(self) -> tuple[Observation, ...]:
        """Marginals without the codes that estimates ignore."""
        return tuple(m.without_last(self.ignored) for m in self.measured)

    @cached_property
    def masks(self) -> tuple[StructuralZeros, ...]:
        """Structural zeros over the released domain as it is estimated."""
        return structural_masks(self.configuration, self.domain.labels)

    @cached_property
    def estimated_compression(self) -> Compression:
        """Rare values that are merged, without the codes that estimates ignore."""
        return self._declared.with_last(self._last_counts(self._coded - self.ignored))

    @cached_property
    def compression(self) -> Compression:
        """Rare values that are merged where larger tables are counted."""
        return self._declared.with_last(self._last_counts(self._coded))

    @cached_property
    def _declared(self) -> Compression:
        return declared_compression(self.counted, self.domain.labels, self.measured)

    @cached_property
    def _coded(self) -> frozenset[int]:
        """Attributes with a code for cells that are not as declared."""
        return ignored_attributes(
            self.counted.with_undeclared(()), self.domain.labels, self.measured
        )

    def _last_counts(self, attributes: Collection[int]) -> dict[int, float]:
        return {a: float(self.measured[a].counts[-1]) for a in attributes}

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """Levels that larger marginals are counted at (`BinLevels`), over merged codes."""
        return self._declared_levels.codes(self.compression.codes)

    @cached_property
    def estimated_levels(self) -> tuple[Level, ...]:
        """Levels without the codes that estimates ignore."""
        levels = list[Level]()
        for a, coarse in self.levels:
            kept = coarse[: self.estimated_sizes[a]]
            _, numbered = np.unique(kept, return_inverse=True)
            levels.append((a, numbered.astype(np.int64)))
        return tuple(levels)

    @cached_property
    def bin_levels(self) -> BinLevels:
        """Attributes and levels with `estimated_sizes`."""
        return replace(self._declared_levels, sizes=self.estimated_sizes)

    @cached_property
    def _declared_levels(self) -> BinLevels:
        attributes = self.counted.attributes
        return self.settings.levels(domain_sizes(attributes, self.domain.labels), attributes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each attribute with rare values merged, and of each level."""
        of_levels = [int(coarse.max()) + 1 for _, coarse in self.levels]
        return (*self.compression.sizes, *of_levels)

    @property
    def declared_sizes(self) -> tuple[int, ...]:
        """Sizes without codes of undeclared cells: sets are planned and chosen, and noise is shared, by these."""
        return self._sizes_without(self._coded)

    @property
    def estimated_sizes(self) -> tuple[int, ...]:
        """Sizes without the codes that estimates ignore."""
        return self._sizes_without(self.ignored)

    def _sizes_without(self, attributes: Collection[int]) -> tuple[int, ...]:
        attribute_of_level = [a for a, _ in self.levels]
        places = [*range(len(self.measured)), *attribute_of_level]
        sizes = zip(places, self.sizes, strict=True)
        return tuple(size - (a in attributes) for a, size in sizes)


def drawn_one_way(drawn: Drawn) -> OneWay:
    """Return the draw of single attributes, and what it says of cells that are not as declared. DP: post-processing."""
    return drawn.remember("one-way", lambda: _one_way(drawn))


def _one_way(drawn: Drawn) -> OneWay:
    return one_way_of(drawn, unpack_observations(drawn.payload(drawn.plan.draw(OneWayMarginals))))


def one_way_of(drawn: Drawn, observed: Sequence[Observation]) -> OneWay:
    """Return what follows from marginals of single attributes, behind which are those of the indicators of sets.

    DP: post-processing.
    """
    resolved = drawn.resolved
    labels = released_labels(drawn)
    measured = tuple(observed[: len(labels)])
    of_sets = tuple(observed[len(labels) :])
    domain = Domain(
        names=tuple(attribute.name for attribute in resolved.attributes),
        labels=labels,
        undeclared=measured_undeclared(resolved, observed),
    )
    estimated = resolved.with_undeclared(domain.with_undeclared)
    return OneWay(
        measured=measured,
        of_sets=of_sets,
        domain=domain,
        counted=drawn.counted,
        configuration=estimated,
        ignored=ignored_attributes(estimated, labels, measured),
    )


def compressed_rows(rows: PrivateRows, drawn: Drawn) -> Rows:
    """Return the rows with rare values merged, and at their levels."""
    single = drawn_one_way(drawn)
    released = released_rows(rows, drawn)
    return replace(
        released,
        compression=single.compression,
        sizes=single.sizes,
        levels=single.levels,
    )
