"""Differentially private counts between stages: domains, released combinations, and the noise they carry."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from marginweave.base.arrays import Flags, Integers

IntArray = Integers
MOST_COUNTED = 1 << 26  # candidates, or members of their superset, that are counted from length 3 on


@dataclass(frozen=True, kw_only=True)
class UndeclaredCells:
    """How many records have a cell of the attribute `name` that is not as declared: as counted, and what noise leaves of it.

    `deviation` is that of the noise of `count`, in records, `low` and `high` are an interval at 95 %. `found` says whether
    there are more than noise explains, `kept` whether estimates and records have the code of such cells; else what was counted
    there is ignored. `of_set`: `name` is a set, and such cells hold a value that is not declared, which is left out of records.
    """

    name: str
    count: int
    deviation: float
    low: int
    high: int
    found: bool
    kept: bool
    of_set: bool = False

    def words(self, records: float, called: str) -> str:
        """What share of so many records has such cells, for a reader."""
        count, low, high = (100 * min(one / max(records, 1.0), 1.0) for one in (self.count, self.low, self.high))
        digits = 0 if count >= 10 else 1
        low = math.floor(low * 10**digits) / 10**digits
        high = math.ceil(high * 10**digits) / 10**digits
        if not self.found:
            return f"Noise explains all that was counted of {called} outside the declared values: at most {high:.{digits}f} %"
        share = f"{count:.{digits}f} % ({low:.{digits}f} to {high:.{digits}f})"
        if self.of_set:
            return f"About {share} of records hold a value of {called} that was not declared, and that is left out"
        return f"About {share} of {called} were not among the declared values"


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Column names and, for each, the labels of its values; code v of a column is `labels[column][v]`.

    A missing value has the code one past the last label. Only public or released labels ever stand here. `undeclared` has
    each attribute a cell of which may not be as declared.
    """

    names: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    undeclared: tuple[UndeclaredCells, ...] = ()

    @property
    def with_undeclared(self) -> tuple[str, ...]:
        """The attributes whose missing code stands for cells that are not as declared."""
        return tuple(cells.name for cells in self.undeclared if cells.kept)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each column, the missing value not counted."""
        return tuple(len(values) for values in self.labels)


@dataclass(frozen=True, kw_only=True)
class Level:
    """All combinations of one length, in canonical order (by columns, then by values).

    `columns` and `values` have shape (n, length): row i is the combination columns[i, 0] = values[i, 0], …, with column
    numbers increasing along the row. `counts` has shape (n,).
    """

    length: int
    columns: Integers
    values: Integers
    counts: Integers

    def __post_init__(self) -> None:
        expected = (len(self.counts), self.length)
        if self.columns.shape != expected or self.values.shape != expected:
            raise ValueError(f"columns and values must have shape {expected}")

    def __len__(self) -> int:
        return len(self.counts)

    def by_columns(self) -> Iterator[tuple[tuple[int, ...], slice]]:
        """Each set of columns with the slice of rows that belong to it, in canonical order."""
        if not len(self):
            return
        change = np.any(self.columns[1:] != self.columns[:-1], axis=1)
        starts = np.concatenate(([0], np.flatnonzero(change) + 1, [len(self)]))
        for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            yield tuple(self.columns[start].tolist()), slice(start, stop)

    def select(self, rows: Flags | Integers) -> Level:
        """These rows: by flags, or by positions in the order that is wanted."""
        return replace(self, columns=self.columns[rows], values=self.values[rows], counts=self.counts[rows])

    def positive(self, counts: Integers) -> Level:
        """The same combinations with these counts, without those that are left with none."""
        return replace(self, counts=counts).select(counts > 0)

    @classmethod
    def join(cls, length: int, parts: Iterable[tuple[tuple[int, ...], Integers, Integers]]) -> Level:
        """The level of some sets of columns, each with its values, shape (n, length), and their counts, in this order."""
        none = np.zeros((0, length), np.int64)
        columns, values, counts = [none], [none], [np.zeros(0, np.int64)]
        for names, rows, numbers in parts:
            columns.append(np.broadcast_to(np.array(names, np.int64), rows.shape))
            values.append(rows)
            counts.append(numbers)
        return cls(
            length=length, columns=np.concatenate(columns), values=np.concatenate(values), counts=np.concatenate(counts)
        )

    @classmethod
    def empty(cls, length: int) -> Level:
        """A level without any combination."""
        return cls.join(length, ())


@dataclass(frozen=True, kw_only=True)
class LevelNoise:
    """The noise of one length: contribution bound Delta_k, standard deviation, and the threshold.

    A combination was kept when its noisy count was at least `threshold`; `private_threshold` is the larger integer T that
    values of private domains had to reach at length 1 (0 elsewhere). `candidates` is how many combinations were drawn for
    (an upper bound where it is not `exact`), or None at length 1 when a private domain is among them (their number is not
    public). `raised_from` is the threshold that was asked for, where it was raised
    because more combinations than `aggregate.max_combinations` might have been kept, or too many drawn to choose them from.
    """

    length: int
    contribution_bound: int
    deviation: float
    threshold: int
    private_threshold: int
    candidates: int | None
    raised_from: int | None = None

    @property
    def exact(self) -> bool:
        """Whether `candidates` is their number: from length 3 on, more than MOST_COUNTED are not counted."""
        return self.length <= 2 or self.candidates is None or self.candidates <= MOST_COUNTED


@dataclass(frozen=True, kw_only=True)
class Aggregates:
    """A whole set of released counts. `record_count` is the noisy number of records, never below 0.

    `measured` is None where all sets of columns were counted; from marginals it has those that were measured, or lie in one
    that was, with the standard deviation of the noise of a cell.
    """

    domain: Domain
    record_count: int
    record_deviation: float
    levels: tuple[Level, ...]
    noise: tuple[LevelNoise, ...]
    measured: Mapping[tuple[int, ...], float] | None = None

    @property
    def reporting_length(self) -> int:
        """R, the longest combination."""
        return len(self.levels)

    @property
    def bounds(self) -> dict[int, int]:
        """By length, of how many combinations a record was counted at most."""
        return {noise.length: noise.contribution_bound for noise in self.noise}
