"""Holds the distinct numbers of a column in order, in steps of their last decimal. Private, as the cells are. DP: none."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.base.arrays import Integers
from marginweave.base.arrow import compute as pc
from marginweave.base.arrow import to_numpy

Steps: TypeAlias = NDArray[Any]
"""Whole numbers of steps: of 64 bits where all have at most 18 digits, and else Python's, of any size."""
_PLAIN = r"^-?[0-9]+(\.[0-9]+)?$"
_DIGITS = 18
_WIDEST = _DIGITS + 2
"""Characters of a number of so many digits, with a sign and a point."""
_FINEST = 400
"""Decimals that are kept: what is closer to 0 than the smallest double, by far, is 0."""


@dataclass(frozen=True, eq=False)
class DistinctNumbers:
    """Distinct numbers, the least first: `steps` of 10^-`decimals`, which some number needs, and the `cells` of each."""

    steps: Steps
    cells: Integers
    decimals: int
    spelled: NDArray[np.integer]
    """Decimals that each has as it is first spelled, in the order of texts: 7.0 has one."""

    @classmethod
    def of(cls, texts: pa.Array, cells: Integers) -> DistinctNumbers:
        """Return the numbers that distinct texts spell, as configurations write numbers, with the cells of each text."""
        steps, spelled = _read_at_once(texts) or _read_each(texts)
        decimals = int(spelled.max(initial=0))
        order = np.argsort(steps, kind="stable")
        ordered = steps[order]
        are_first = np.ones(len(ordered), np.bool_)
        are_first[1:] = ordered[1:] != ordered[:-1]
        first = np.flatnonzero(are_first)
        if not len(first):
            return cls(steps, cells, 0, spelled)
        distinct = ordered[first]
        while decimals and not (distinct % 10).any():
            distinct = distinct // 10
            decimals -= 1
        sums = np.add.reduceat(cells[order], first)
        return cls(distinct, sums, decimals, spelled[order[first]])

    @classmethod
    def of_texts(cls, cells: Mapping[str, int]) -> DistinctNumbers:
        """Return the numbers of a few texts, each with its number of cells."""
        counts = np.array([*cells.values()], np.int64)
        return cls.of(pa.array([*cells], pa.string()), counts)

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, place: int) -> Decimal:
        """Return the number at a place of the order, exactly."""
        return Decimal(f"{self.steps[place]}e-{self.decimals}")

    @property
    def least(self) -> Decimal:
        """The least number."""
        return self[0]

    @property
    def most(self) -> Decimal:
        """The largest number."""
        return self[-1]

    def up_to(self, value: Decimal) -> int:
        """Return how many of the numbers are at most this value."""
        return bisect_right(range(len(self)), value, key=self.__getitem__)

    def below(self, value: Decimal) -> int:
        """Return how many of the numbers are less than this value."""
        return bisect_left(range(len(self)), value, key=self.__getitem__)

    def quantile(self, share: float) -> Decimal:
        """Return the least number that this share of the cells do not exceed: for .5 the lower median."""
        cells_up_to = np.cumsum(self.cells)
        return self[int(np.searchsorted(cells_up_to, cells_up_to[-1] * share))]

    def without(self, values: Sequence[Decimal]) -> DistinctNumbers:
        """Return all numbers but these, in the same steps."""
        places = [self.below(value) for value in values]
        kept = np.ones(len(self), np.bool_)
        kept[places] = False
        return _some(self, np.flatnonzero(kept))

    def sizes(self) -> DistinctNumbers:
        """Return the distances from 0 of all numbers but 0, in order; a distance on both sides of 0 is there twice."""
        sizes = np.abs(self.steps)
        order = np.argsort(sizes, kind="stable")
        return _some(replace(self, steps=sizes), order[sizes[order] != 0])


def _some(numbers: DistinctNumbers, places: Integers) -> DistinctNumbers:
    """Return the numbers at these places, in the same steps."""
    return replace(
        numbers,
        steps=numbers.steps[places],
        cells=numbers.cells[places],
        spelled=numbers.spelled[places],
    )


def _read_at_once(texts: pa.Array) -> tuple[Steps, NDArray[np.integer]] | None:
    """Return the steps of plain short numbers and the decimals that each is spelled with; None where one is another.

    A million numbers one by one take seconds.
    """
    lengths = pc.binary_length(texts)
    is_short = (pc.max(lengths).as_py() or 0) <= _WIDEST
    if not is_short or not pc.all(pc.match_substring_regex(texts, _PLAIN)).as_py():
        return None
    points = to_numpy(pc.find_substring(texts, "."))
    spelled = np.where(points < 0, 0, to_numpy(lengths) - points - 1)
    decimals = int(spelled.max(initial=0))
    try:
        numbers = pc.cast(texts, pa.decimal128(_DIGITS, decimals))
    except pa.ArrowInvalid:  # more digits, with those decimals
        return None
    # the lower half of 128 bits holds numbers of 18 digits
    halves = np.frombuffer(numbers.buffers()[1], np.int64, 2 * len(numbers))
    return halves[::2].copy(), spelled


def _read_each(texts: pa.Array) -> tuple[Steps, NDArray[np.integer]]:
    """Return what `_read_at_once` does, of any numbers."""
    parts = [Decimal(text).as_tuple() for text in texts.to_pylist()]
    spelled = np.array([max(0, -int(part.exponent)) for part in parts], np.int64)
    decimals = min(int(spelled.max(initial=0)), _FINEST)
    steps = np.empty(len(parts), object)
    for place, part in enumerate(parts):
        size = int("".join(map(str, part.digits)))
        shift = int(part.exponent) + decimals
        size = size * 10**shift if shift >= 0 else size // 10**-shift
        steps[place] = -size if part.sign else size
    return steps, np.minimum(spelled, decimals)
