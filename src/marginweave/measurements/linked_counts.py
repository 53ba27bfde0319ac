"""Draws of a linked table: histograms of its rows, weighted so that a unit is at most one, or counted as rows.

A histogram is a sum over units of a vector u >= 0 of whole numbers, one for each cell. If the weights of the rows of a unit add
up to at most S, then |u|_2 <= |u|_1 <= S, however many rows it has and wherever they fall. S is the sensitivity of one
histogram where units come or go, sqrt(2) S where they are replaced (`Sensitivity.of_rows`).
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.base.budget import Stability
from marginweave.base.digests import counts_digest, fractions_digest, text_digest
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.columns.base import MISSING
from marginweave.configuration.linked import LinkedTable
from marginweave.configuration.release import Configuration
from marginweave.counts.marginals import AnyCodes, cells
from marginweave.counts.released_rows import recode
from marginweave.counts.weighted import add_weighted
from marginweave.domain.masks import Clique
from marginweave.measurements.base import (
    Drawn,
    Exact,
    Forecast,
    Measurement,
    PrivateRows,
    Terms,
)
from marginweave.measurements.marginal_rows import released_rows
from marginweave.measurements.private_values import released_labels
from marginweave.measurements.whole_marginals import MarginalCounts, public_sizes
from marginweave.mechanisms.base import Sensitivity
from marginweave.mechanisms.gaussian import RoundedGaussian, gaussian_sigma
from marginweave.mechanisms.randomness import DrawBits
from marginweave.observations.linked import CountOf, LinkedAxis, LinkedObservation
from marginweave.observations.payloads import (
    observation_bytes,
    pack_observations,
    unpack_observations,
)
from marginweave.observations.tables import Observation
from marginweave.prepare.nested import NestedCodes

MOST_CELLS = 1024
"""Cells of the largest pair that is measured: beyond, noise leaves little of a table."""
_MOST_STEPS = 1024
_MOST_GRID_SIGMA = 1 << 13
"""Largest standard deviation in steps of the grid: tables of noise are made in time proportional to it."""
_CELLS_BASE = 4
_SHARE_POWER = 2 / 3
_SINGLE_SHARE = 0.3
"""Part of a draw for columns of the table alone: how often rows have a value is in each answer, and in each pair of a model."""


@dataclass(frozen=True)
class LinkedColumns:
    """The columns that the histograms of a linked table are over, as public facts: those of the source, then its own.

    `attributes` are the places of the former among the attributes of the configuration.
    """

    configuration: Configuration
    name: str

    @cached_property
    def table(self) -> LinkedTable:
        """The table as it is declared."""
        return (self.configuration.tables or {})[self.name]

    @cached_property
    def place(self) -> int:
        """Place of the table among the counted ones."""
        return self.configuration.counted_tables.index(self.name)

    @cached_property
    def beside(self) -> tuple[Attribute, ...]:
        """Attributes of the source that the table's columns are counted beside."""
        possible = self.configuration.beside_attributes
        names = self.table.beside
        return tuple(a for a in possible if names is None or a.name in names)

    @cached_property
    def attributes(self) -> tuple[int, ...]:
        """Places of `beside` among the attributes of the configuration."""
        places = {a.name: place for place, a in enumerate(self.configuration.attributes)}
        return tuple(places[attribute.name] for attribute in self.beside)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each column by which noise is shared and pairs are chosen: cells without a value have one.

        Those that are not as declared have one more where tables are counted (`own_sizes`).
        """
        public = public_sizes(self.configuration)
        of_source = [public[place] for place in self.attributes]
        own = [len(column.labels) + 1 for column in self.table.columns.values()]
        return (*of_source, *own)

    @cached_property
    def own_attributes(self) -> tuple[Attribute, ...]:
        """What is counted of each column of the table."""
        usual = self.configuration.missing
        return tuple(self.table.attribute(name, usual) for name in self.table.columns)

    @property
    def own_sizes(self) -> tuple[int, ...]:
        """Number of codes that each column of the table is counted by."""
        return tuple(len(each.labels) + len(each.gaps) for each in self.own_attributes)

    @cached_property
    def cliques(self) -> tuple[Clique, ...]:
        """Each column alone, and those pairs with a column of the table that have at most `MOST_CELLS` cells."""
        kept = [pair for pair in self.pairs if cells(pair, self.sizes) <= MOST_CELLS]
        return (*((a,) for a in range(len(self.sizes))), *kept)

    @property
    def own(self) -> range:
        """Numbers of the columns of the table."""
        return range(len(self.attributes), len(self.sizes))

    @property
    def pairs(self) -> tuple[Clique, ...]:
        """All pairs of two columns of which one, at least, is of the table."""
        return tuple(sorted((a, b) for b in self.own for a in range(b)))

    @cached_property
    def left_out(self) -> tuple[tuple[str, str], ...]:
        """Names of the columns of each pair that is not measured, as it has too many cells."""
        names = (*(attribute.name for attribute in self.beside), *self.table.columns)
        return tuple((names[a], names[b]) for a, b in self.pairs if (a, b) not in self.cliques)

    @cached_property
    def own_cliques(self) -> tuple[Clique, ...]:
        """Those of `cliques` that are over columns of the table alone."""
        return tuple(c for c in self.cliques if c[0] >= len(self.attributes))

    def axes(self, drawn: Drawn) -> tuple[LinkedAxis, ...]:
        """Return the name of each column and the texts of its codes: None for a missing value. DP: post-processing."""
        labels = released_labels(drawn)
        counted = drawn.counted.attributes
        axes = []
        for place in self.attributes:
            texts = (*labels[place], *_texts_of_gaps(counted[place]))
            axes.append(LinkedAxis("", counted[place].name, texts))
        for attribute in self.own_attributes:
            texts = (*attribute.labels, *_texts_of_gaps(attribute))
            axes.append(LinkedAxis(self.name, attribute.name, texts))
        return tuple(axes)


def _texts_of_gaps(attribute: Attribute) -> Iterator[str | None]:
    """Yield the texts of the codes behind those of values: None of a missing one."""
    for gap in attribute.gaps:
        yield None if gap == MISSING else gap


class LinkedHistograms(Measurement[MarginalCounts]):
    """Histograms of the rows of one linked table, which share the noise of one draw.

    `place` has the number of the table among the counted ones, from 1. DP: (S / sigma)-GDP for each histogram of sensitivity S;
    their mu^2 add up to the price of the draw (`parts`).
    """

    share_key = "tables"
    heading = "linked tables"
    is_repeated = False
    count_of: ClassVar[CountOf]

    def columns(self, configuration: Configuration) -> LinkedColumns:
        """Return the columns of its table."""
        return LinkedColumns(configuration, configuration.counted_tables[self.place[0] - 1])

    @abstractmethod
    def cliques(self, configuration: Configuration) -> tuple[Clique, ...]:
        """Return the columns of each histogram. DP: from public facts."""

    @abstractmethod
    def unit_mass(self, configuration: Configuration) -> int:
        """Return S, the most that the weights of the rows of one unit add up to, in steps."""

    @abstractmethod
    def steps(self, configuration: Configuration) -> int:
        """Return how many steps are one unit, or one row."""

    @abstractmethod
    def weights(self, rows: NestedCodes, mass: int) -> Integers:
        """Return the weight of each row, at least 0, with a sum of at most `mass` over the rows of each unit; shape (rows,)."""

    def sensitivity(self, configuration: Configuration) -> Sensitivity:
        """Return the sensitivity of one histogram."""
        return self._sensitivity(
            self.view.stability(configuration),
            self.unit_mass(configuration),
            self.steps(configuration),
        )

    @staticmethod
    def _sensitivity(unit: Stability, mass: int, steps: int) -> Sensitivity:
        return Sensitivity.of_rows(unit, l1=mass, l2_squared=mass**2, steps=steps)

    def multipliers(self, configuration: Configuration) -> tuple[float, ...]:
        """Return the noise multiplier of each histogram: 1/m_i^2 add up to 1/m^2, m that of the draw.

        Columns of the table alone have `_SINGLE_SHARE` together, unless there are no others. Among them, and among the others,
        the share of a histogram with c cells is proportional to c^(2/3), as `budget_shares`, c rounded up to a power of 4: then
        few tables of noise are needed. DP: arithmetic on public numbers.
        """
        columns = self.columns(configuration)
        powers = []
        is_single = []
        for clique in self.cliques(configuration):
            rounded = math.ceil(math.log(cells(clique, columns.sizes), _CELLS_BASE) - 1e-9)
            powers.append(float(_CELLS_BASE) ** (rounded * _SHARE_POWER))
            is_single.append(len(clique) == 1 and clique[0] in columns.own)
        single = sum(itertools.compress(powers, is_single))
        others = sum(powers) - single
        share = _SINGLE_SHARE if others else 1.0
        shares = [
            power * (share / single if alone else (1 - share) / others)
            for power, alone in zip(powers, is_single, strict=True)
        ]
        return tuple(self.parameter / math.sqrt(each) for each in shares)

    def parts(self, configuration: Configuration) -> tuple[Fraction, ...]:
        """Return the standard deviation of the noise of each histogram, in steps. DP: arithmetic on public numbers."""
        sensitivity = self.sensitivity(configuration)
        return tuple(gaussian_sigma(m, sensitivity) for m in self.multipliers(configuration))

    def terms(self, configuration: Configuration) -> Terms:
        """Return the table, what is counted, the most of one unit in steps, and the digest of the noise of its histograms."""
        parts = self.parts(configuration)
        return {
            "linked": self.columns(configuration).name,
            "of": self.count_of,
            "unit_mass": self.unit_mass(configuration),
            "steps": self.steps(configuration),
            "marginals": len(parts),
            "noise": fractions_digest(parts),
        }

    def forecast(self, configuration: Configuration) -> Forecast:
        """Return the noise of a cell of each histogram, in units or rows."""
        steps = self.steps(configuration)
        return Forecast(
            sigmas=tuple(float(part / steps) for part in self.parts(configuration)), unit="cell"
        )

    def count(self, rows: PrivateRows, drawn: Drawn) -> Exact[MarginalCounts]:
        """Return the exact histograms, in steps. Private."""
        configuration = drawn.configuration
        columns = self.columns(configuration)
        cliques = self.cliques(configuration)
        released = released_rows(rows, drawn)
        sizes = (*(released.sizes[place] for place in columns.attributes), *columns.own_sizes)
        tables = [np.zeros([sizes[a] for a in clique], np.int64) for clique in cliques]
        mass = self.unit_mass(configuration)
        for block in rows.encoded():
            nested = block.nested[columns.place]
            owners = nested.owners
            source = recode(block, released.private).codes
            codes: list[AnyCodes] = [source[place][owners] for place in columns.attributes]
            codes += nested.codes
            add_weighted(codes, self.weights(nested, mass), cliques, tables)
        noise = RoundedGaussian(self.view.stability(configuration))
        parts = self.parts(configuration)
        used = {**noise.terms(parts), "unit_mass": mass, "noise": fractions_digest(parts)}
        return Exact(
            counts=MarginalCounts(noise=noise, cliques=cliques, parts=parts, tables=tables),
            digest=text_digest([str(cliques), counts_digest(tables)]),
            used=used,
            size=observation_bytes(tables),
        )

    def draw(self, exact: Exact[MarginalCounts], bits: DrawBits, sealed: bytes) -> bytes:  # noqa: ARG002 - none
        """Return every histogram with noise on all of its cells, in steps."""
        counts = exact.counts
        observed = []
        for table, part in enumerate(counts.parts):
            noisy = counts.noise.add(counts.tables[table], part, bits, table)
            observed.append(
                Observation(attributes=counts.cliques[table], counts=noisy, deviation=float(part))
            )
        return pack_observations(observed)

    def observed(self, drawn: Drawn) -> tuple[LinkedObservation, ...]:
        """Return the committed histograms, in units or rows. DP: post-processing."""
        configuration = drawn.configuration
        columns = self.columns(configuration)
        axes = columns.axes(drawn)
        steps = self.steps(configuration)
        return tuple(
            LinkedObservation(
                draw=self.name,
                table=columns.name,
                count_of=self.count_of,
                axes=tuple(axes[a] for a in observation.attributes),
                counts=observation.counts / steps,
                deviation=observation.deviation / steps,
                steps=steps,
            )
            for observation in unpack_observations(drawn.payload(self))
        )


class UnitHistograms(LinkedHistograms):
    """Histograms in which the rows of each unit weigh 1 together: what the rows of a unit are like, on average.

    Each of the n rows of a unit weighs 1/n on a grid of D steps: floor(D/n) steps, and one step more for the first D mod n rows
    in the secret order of the unit. So they add up to D steps exactly, and a row weighs D/n steps on average over that order.
    """

    template = "linked-units-{}"
    title = "rows of a linked table, by units"
    count_of = "units"

    def cliques(self, configuration: Configuration) -> tuple[Clique, ...]:
        """Return the table's columns alone, in pairs, and beside columns of the source."""
        return self.columns(configuration).cliques

    def unit_mass(self, configuration: Configuration) -> int:
        """Return D, as `steps`."""
        return self.steps(configuration)

    def steps(self, configuration: Configuration) -> int:
        """Return D: the largest power of two up to 1024 with which the noise has a standard deviation of at most 2^13 steps.

        1 where there is none. DP: arithmetic on public numbers.
        """
        unit = self.view.stability(configuration)
        largest = float(
            gaussian_sigma(max(self.multipliers(configuration)), self._sensitivity(unit, 1, 1))
        )
        steps = _MOST_STEPS
        while steps > 1 and steps * largest > _MOST_GRID_SIGMA:
            steps //= 2
        return steps

    def weights(self, rows: NestedCodes, mass: int) -> Integers:
        """Return floor(D/n) for each of the n rows of a unit, and 1 more for the first D mod n of them."""
        whole, rest = np.divmod(mass, np.maximum(rows.lengths, 1))
        owners = rows.owners
        weights: Integers = whole[owners] + (rows.ranks < rest[owners])
        return weights


class RowHistograms(LinkedHistograms):
    """Histograms of rows as people count them, of at most `at_most` rows of each unit, chosen by the unit's secret order."""

    template = "linked-rows-{}"
    title = "rows of a linked table"
    count_of = "rows"

    def cliques(self, configuration: Configuration) -> tuple[Clique, ...]:
        """Return the table's columns alone and in pairs."""
        return self.columns(configuration).own_cliques

    def unit_mass(self, configuration: Configuration) -> int:
        """Return m, the most rows of a unit that are counted."""
        return self.columns(configuration).table.at_most or 1

    def steps(self, configuration: Configuration) -> int:  # noqa: ARG002 - a row is one step
        """Return 1: rows are counted."""
        return 1

    def weights(self, rows: NestedCodes, mass: int) -> Integers:
        """Return 1 for the first m rows of each unit, else 0."""
        weights: Integers = (rows.ranks < mass).astype(np.int64)
        return weights


def linked_observations(drawn: Drawn) -> tuple[LinkedObservation, ...]:
    """Return all histograms of linked tables, in the order of their draws. DP: post-processing."""
    draws: Sequence[LinkedHistograms] = [
        draw for draw in drawn.plan.draws if isinstance(draw, LinkedHistograms)
    ]
    return tuple(observation for draw in draws for observation in draw.observed(drawn))
