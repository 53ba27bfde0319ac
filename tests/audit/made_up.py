"""Made-up tables: canaries, many independent trials in one draw, and two neighboring tables of a small release."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Floats, Integers
from marginweave.base.budget import Stability
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration
from marginweave.counts.candidates import CandidateSet, flat_keys
from marginweave.counts.count_runs import MemoryBudget
from marginweave.domain.combinations import Level
from marginweave.measurements.plan import Plan
from marginweave.measurements.split import plan_budget
from marginweave.mechanisms.gaussian import add_noise
from marginweave.mechanisms.randomness import fresh_bits
from marginweave.prepare.codes import EncodedBlocks, EncodedTable, code_type, pack_blocks

# Trials of one draw.
CANARIES = 2000
# Made-up tables are small: their counts are never set aside.
MEMORY = MemoryBudget(8 * 10**9, Path(tempfile.gettempdir()))


def table_of(columns: Sequence[Integers], sizes: Sequence[int]) -> EncodedTable:
    """An encoded table from columns of codes; its labels are the codes as text."""
    codes = tuple(
        column.astype(code_type(size)) for column, size in zip(columns, sizes, strict=True)
    )
    return EncodedTable(codes=codes, labels=tuple(tuple(map(str, range(size))) for size in sizes))


def noisy_number(sd: Fraction, trials: int) -> Callable[[Integers], Integers]:
    """What draws an exact number `trials` times with Gaussian noise."""
    return lambda exact: add_noise(np.repeat(exact, trials), sd, fresh_bits())[:, None]


def one_block(table: EncodedTable) -> EncodedBlocks:
    """The table as a stage gets it."""
    return EncodedBlocks(list(pack_blocks([table])))


@dataclass(frozen=True, kw_only=True)
class CanaryTable:
    """Units of full contributions over `columns` columns, each alone in all of its cells.

    Unit i has the value i + j in column j, so that no two columns have domains of one size. Under add-remove the first half of
    the places has units, the second half has none; under replace-one a trial is a pair of places, of which the unit is in the
    first (its table: present) or in the second (absent).
    """

    columns: int
    stability: Stability
    canaries: int = CANARIES

    @property
    def places(self) -> int:
        """Places for units, taken or not."""
        return self.canaries * (4 if self.stability.neighbors == "replace-one" else 2)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The size of every domain."""
        return tuple(self.places + j for j in range(self.columns))

    def encoded(self) -> EncodedBlocks:
        """The records, as many alike of every unit as a unit may have."""
        units = np.arange(self.canaries)
        if self.stability.neighbors == "replace-one":
            units = np.concatenate([units, units + 3 * self.canaries])
        units = np.repeat(units, self.stability.records)
        return one_block(table_of([units + j for j in range(self.columns)], self.sizes))

    def split(self, scores: Floats) -> tuple[Floats, Floats]:
        """Scores of trials with and without the canary, from those of all places; the last axis is that of places."""
        blocks = [scores[..., i : i + self.canaries] for i in range(0, self.places, self.canaries)]
        if len(blocks) == 2:
            return blocks[0].ravel(), blocks[1].ravel()
        return (blocks[0] - blocks[1]).ravel(), (blocks[2] - blocks[3]).ravel()


@dataclass(frozen=True, kw_only=True)
class Pinned(CandidateSet):
    """Candidates of which only the cells of the places are drawn: V_k is public, and these are what the audit scores."""

    places: int = field(default=0)

    @classmethod
    def of(cls, table: CanaryTable, length: int) -> Pinned:
        """The candidates of `length`."""
        return cls(length=length, sizes=table.sizes, places=table.places)

    def cells(self, columns: tuple[int, ...]) -> Iterator[Integers]:
        """The flat keys of the places, ascending."""
        yield flat_keys([np.arange(self.places) + j for j in columns], self.shape(columns))

    def contains(self, columns: tuple[int, ...], values: Integers) -> NDArray[np.bool_]:
        """Whether combinations are those of one place."""
        places = values - np.asarray(columns)
        alike: NDArray[np.bool_] = (places == places[:, :1]).all(axis=1) & (
            places[:, 0] < self.places
        )
        return alike

    def column_sets(self) -> Iterator[tuple[int, ...]]:
        """All sets of columns of this length."""
        yield from itertools.combinations(range(len(self.sizes)), self.length)


Codes = NDArray[np.int64]

# Rows in every combination of values: so many that no threshold hides what the unit adds to them.
_COPIES = 20
_SIZES = (2, 3)


@dataclass(frozen=True, kw_only=True)
class MadeUpRelease:
    """`present` has a unit more than `absent`, or another one; its rows are alike, lack nothing and are like those of others.

    `unit` and `other` are the texts of their values, the last ones and the first. What only the unit has, and the delta that
    pays for it, is audited by itself: here every value is in so many rows that it is released, and all of the unit counts.
    """

    configuration: Configuration
    plan: Plan
    present: EncodedBlocks
    absent: EncodedBlocks
    unit: tuple[str, ...]
    other: tuple[str, ...] | None
    shared: Codes

    @classmethod
    def of(cls, configuration: Configuration) -> MadeUpRelease:
        """Of few public columns, and one of a private domain where the configuration has any."""
        sizes = [
            _SIZES[j % 2]
            for j in range(3 if configuration.marginals else max(3, configuration.reporting_length))
        ]
        made_up = _configuration(configuration, sizes, private=bool(configuration.private_columns))
        everything = np.array(list(itertools.product(*map(range, sizes))))
        # rows whose values go together, so that there are pairs that are worth their noise
        together = np.array([[i % size for size in sizes] for i in range(max(sizes))])
        base = np.concatenate(
            [np.repeat(everything, _COPIES, axis=0), np.repeat(together, 5 * _COPIES, axis=0)]
        )
        last, first = np.array(sizes) - 1, np.zeros(len(sizes), np.int64)
        replaces = made_up.stability.neighbors == "replace-one"

        def blocks(unit: Codes | None) -> EncodedBlocks:
            rows = [base] if unit is None else [base, np.tile(unit, (made_up.stability.records, 1))]
            return one_block(table_of(list(np.concatenate(rows).T), sizes))

        return cls(
            configuration=made_up,
            plan=plan_budget(made_up),
            present=blocks(last),
            absent=blocks(first if replaces else None),
            unit=tuple(map(str, last.tolist())),
            other=tuple(map(str, first.tolist())) if replaces else None,
            shared=base,
        )

    def difference(
        self, level: Level, labels: tuple[tuple[str, ...], ...], values: tuple[str, ...], bound: int
    ) -> float:
        """How much larger the counts of combinations of `values` are than their means, of the rows that both tables share."""
        codes = [
            found.index(text) if text in found else -1
            for found, text in zip(labels, values, strict=True)
        ]
        matching = (level.values == np.array(codes)[level.columns]).all(axis=1)
        share = min(1.0, bound / self.configuration.contribution_cap(level.length))
        alike = self.shared == np.array([int(text) for text in values])
        means = [share * alike[:, row].all(axis=1).sum() for row in level.columns[matching]]
        return float((level.counts[matching] - np.array(means, np.float64)).sum())


def _configuration(
    configuration: Configuration, sizes: list[int], *, private: bool
) -> Configuration:
    """Privacy and shares as configured, over made-up columns."""
    columns: dict[str, Any] = {
        f"made-up-{j}": {
            "type": "category",
            "values": list(map(str, range(size))),
            "outside": "error",
        }
        for j, size in enumerate(sizes, 1)
    }
    if private:
        columns[f"made-up-{len(sizes)}"] = {"type": "category", "domain": "private"}
    aggregate = configuration.aggregate.model_dump(mode="json", exclude_unset=True)
    aggregate.pop("bounds_share", None)
    if configuration.marginals is None:
        aggregate["reporting_length"] = configuration.reporting_length
        aggregate["percentile"] = configuration.percentile or "none"
    elif configuration.marginals.cliques != "selected":
        aggregate["cliques"] = {"all": 2}
    return parse_configuration(
        {
            "dataset": "made-up",
            "source": "made-up.csv",
            "privacy": configuration.privacy.model_dump(mode="json", exclude_unset=True),
            "missing": [],
            "columns": columns,
            "aggregate": aggregate,
        }
    )
