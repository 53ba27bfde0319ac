"""Base classes of mechanisms: the name, the price, the noise and the words by which the rest of the program knows them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from marginweave.base.arrays import Floats, Integers
from marginweave.base.budget import (
    Cost,
    MechanismName,
    NoiseName,
    NoiseSetting,
    ParameterName,
    Stability,
)
from marginweave.base.errors import StageError
from marginweave.mechanisms.randomness import DrawBits


class DrawMechanism(ABC):
    """A way to draw. Other rooms use these attributes and methods, so that none of them knows a mechanism by name."""

    name: ClassVar[MechanismName]
    parameter: ClassVar[ParameterName]
    """Name of the parameter of a draw."""
    words: ClassVar[str]
    """Words for the registry of deployments, with a place for the parameter."""
    is_pure: ClassVar[bool] = False
    """Its price is epsilon alone, exactly: no delta, no table of ours, no cut tail. Says nothing of its tails."""

    @staticmethod
    @abstractmethod
    def price(parameter: float) -> Cost:
        """Return the cost of a draw. DP: arithmetic on public numbers."""


@dataclass(frozen=True)
class CountNoise(DrawMechanism):
    """Noise on all cells of the marginals of one draw, which share its parameter.

    Each marginal has a part, which sets its noise: a standard deviation or an epsilon, depending on the kind of noise.
    """

    stability: Stability

    name: ClassVar[NoiseName]  # pyright: ignore[reportIncompatibleVariableOverride] - narrower, and never assigned
    setting: ClassVar[NoiseSetting]
    """Its value of the key `aggregate.noise`."""
    title: ClassVar[str]
    """Its name for people."""
    share_power: ClassVar[float]
    """In the split of least error, a marginal's share of the budget is proportional to this power of its number of cells."""
    mean_error: ClassVar[float]
    """Mean of |x| at standard deviation 1."""
    kurtosis: ClassVar[float]
    """Mean of x^4 at standard deviation 1: 3 for normal noise, 6 for Laplace noise."""
    is_normal: ClassVar[bool] = False
    """Its tails, and those of sums of it, are normal; else `reach` has the tail of one cell."""
    rounding_variance: ClassVar[float] = 0.0
    """Variance that rounding to whole numbers adds to the variance `sigma`^2 of a cell."""
    most_cells: ClassVar[int]
    """Largest number of cells of all marginals of a draw: as many as fit into memory, or are drawn in time."""
    largest_part: ClassVar[float] = float("inf")
    """Largest part for which noise can be drawn; where a split by cells has a larger one, all parts are equal."""
    takes_no_key: ClassVar[bool] = False
    """A library draws it, all before the charge (`presample`), and not `add` from the bits of the draw."""

    @abstractmethod
    def parts(self, parameter: float, shares: Sequence[float]) -> tuple[Fraction, ...]:
        """Return the part of each marginal, whose shares of the budget add to 1. DP: arithmetic on public numbers."""

    @abstractmethod
    def sigma(self, part: Fraction) -> Fraction | float:
        """Return the standard deviation of the noise of a marginal. DP: arithmetic on public numbers."""

    @abstractmethod
    def cell_error(self, parameter: float) -> float:
        """Return the mean of |x| of a cell, where the draw has a single marginal. DP: arithmetic on public numbers."""

    def add(self, counts: Integers, part: Fraction, bits: DrawBits, table: int) -> Integers:  # noqa: ARG002 - for kinds that take a key
        """Return the counts of marginal number `table`, in their shape, each with noise from the bits, zero cells included."""
        raise StageError(f"{self.title} noise is drawn before the charge")

    def terms(self, parts: Sequence[Fraction]) -> Mapping[str, str | int]:  # noqa: ARG002 - most kinds have none
        """Return what the noise depends on apart from its seed and the parts; builds its tables, ahead of the draw."""
        return {}

    def presample(self, cells: Sequence[int], parts: Sequence[Fraction]) -> list[Integers]:  # noqa: ARG002 - for those that do not
        """Return the noise of all marginals, by their numbers of cells, for a kind that `takes_no_key`."""
        raise StageError(f"{self.title} noise is drawn after the charge")

    @staticmethod
    @abstractmethod
    def log_tail(sigma: float, least: Integers) -> Floats:
        """Return log P(x >= least) of the noise x of a cell, for whole numbers `least` of any shape."""

    @staticmethod
    @abstractmethod
    def reach(sigma: float, level: float) -> int:
        """Return the least whole h with P(|x| > h) <= 1 - level, x the noise of a cell."""


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """Largest move of an exact result by one unit of privacy, in steps of 1/`steps` of what is counted.

    `l1` is the sum of the distances that its entries move, `l2_squared` that of their squares; both count steps, so that
    they are whole numbers for weights on a grid. For a choice by scores, which adds no noise to entries, `l1` is the largest
    move of any one score.
    """

    l1: int
    l2_squared: int
    steps: int = 1

    @classmethod
    def of_rows(
        cls, stability: Stability, *, l1: int = 1, l2_squared: int = 1, steps: int = 1
    ) -> Sensitivity:
        """Return the sensitivity of a sum over the rows of a view.

        Each row adds a vector w >= 0 with |w|_1 <= l1, |w|_2^2 <= l2_squared.

        theta = stability.records rows of a unit that come or go add u >= 0 with |u|_1 <= theta l1 and |u|_2 <= theta |w|_2,
        both reached by rows that are alike. Rows that are replaced move the sum by u - v: |u - v|_1 <= |u|_1 + |v|_1 and
        |u - v|_2^2 <= |u|_2^2 + |v|_2^2, as u.v >= 0. A row that is counted once has l1 = l2_squared = 1, one that adds 1 to
        at most k counts has k.
        DP: arithmetic on public numbers.
        """
        sides = 2 if stability.neighbors == "replace-one" else 1
        theta = stability.records
        return cls(l1=sides * theta * l1, l2_squared=sides * theta**2 * l2_squared, steps=steps)


def l1_sensitivity(stability: Stability) -> int:
    """Return how far one unit moves a marginal in L1: theta under add-remove, 2 theta under replace-one.

    A record is in one cell of a marginal. theta = stability.records records that come or go move it by u >= 0 with
    |u|_1 <= theta; replaced ones by u - v, |u - v|_1 <= |u|_1 + |v|_1 <= 2 theta. Both are reached, by a unit whose records
    are alike. A number that no record moves by more than 1, as the mean count error, moves no further.
    DP: arithmetic on public numbers.
    """
    return Sensitivity.of_rows(stability).l1


def check_room(counts: Integers, largest: int) -> None:
    """Refuse counts that noise of at most `largest` could move out of 64 bits."""
    room = np.iinfo(np.int64).max - largest
    if counts.size and (int(counts.max()) > room or int(counts.min()) < -room):
        raise StageError("counts with noise must fit 64 bits")
