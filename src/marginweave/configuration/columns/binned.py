"""Properties that columns of numbers and of dates share: bins on a grid, values drawn inside them, and missing codes there."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, get_args

from pydantic import BeforeValidator, model_validator

from marginweave.base.errors import MustError
from marginweave.configuration.columns.base import Limits, MeasuredColumn
from marginweave.configuration.values import FrozenModel, Number, Positive
from marginweave.texts.sentences import counts_sentence

MAX_BINS = 100_000

Gap: TypeAlias = tuple[int, int]
"""First and last point of a grid that mean "no value"."""

PointRange: TypeAlias = tuple[int, int, int]
"""A bin, and the first and last of consecutive points of its grid."""


@dataclass(frozen=True, kw_only=True)
class ClampedEnd:
    """An end of a column's bounds: values beyond it count as `bound`, as it is written.

    `is_upper` is True for the upper end. `code` is that of the bin which such values are in, None where any bin may be wrong
    because of them: days of the week repeat.
    """

    bound: str
    is_upper: bool
    code: int | None


class BinSteps(FrozenModel):
    """Bins of one width: edges min, min + step, …, max; the last bin is narrower where max is no multiple away."""

    min: Number
    max: Number
    step: Positive

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.min < self.max:
            raise ValueError(
                f"has bins whose min ({self.min:g}) must be below their max ({self.max:g})"
            )
        if (self.max - self.min) / self.step > MAX_BINS:
            raise MustError(f"have at most {MAX_BINS} steps")
        return self

    @property
    def edges(self) -> tuple[float, ...]:
        """Edges of the bins, computed in decimals so that 0.1 + 2 * 0.1 is 0.3."""
        low, high, step = (Decimal(repr(value)) for value in (self.min, self.max, self.step))
        count = math.ceil((high - low) / step)
        return (*(float(low + i * step) for i in range(count)), self.max)


class Histogram(FrozenModel):
    """A public distribution from another source: `weights[i]` is spread evenly over [edges[i], edges[i+1]).

    Inside a bin a value is drawn in proportion to it; in a bin where it has no weight, evenly.
    """

    edges: tuple[Number, ...]
    weights: tuple[Number, ...]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.edges) != len(self.weights) + 1 or not self.weights:
            raise MustError("have one edge more than weights, and one weight at least")
        if any(low >= high for low, high in pairwise(self.edges)):
            raise MustError("have increasing edges")
        if min(self.weights) < 0 or sum(self.weights) <= 0:
            raise MustError("have weights that are not negative, and not all 0")
        return self


_NAMED = Literal["smooth", "uniform", "log-uniform", "midpoint"]


def _draw(value: Any) -> Any:
    if isinstance(value, Histogram) or value in (*get_args(_NAMED), None):
        return value
    if isinstance(value, dict):
        return Histogram.model_validate(value)
    names = ", ".join(get_args(_NAMED))
    raise MustError(f"be one of {names}, or a public distribution {{edges: …, weights: …}}")


Draw = Annotated[_NAMED | Histogram | None, BeforeValidator(_draw)]


class BinnedColumn(MeasuredColumn, frozen=True):
    """Numbers, dates and the like in bins; `draw` says how a synthetic value is chosen inside its bin."""

    is_clamped: ClassVar[bool] = True
    """True if a value beyond the bounds counts as the bound; a new kind may set it to False.

    `outside` is about other cells: those that are no value at all, such as a word among numbers.
    """
    beyond: ClassVar[Literal["numbers", "dates"]]
    """What lies beyond bounds, a part of the keys of its words."""
    draw: Draw = None
    outside: Literal["null", "error"] | None = None

    @cached_property
    def bin_labels(self) -> tuple[str, ...]:
        """Names of the bins."""
        return self.labels

    @property
    def bin_count(self) -> int:
        """Number of labels, from the first, that are bins."""
        return len(self.bin_labels)

    @property
    def span(self) -> Limits:
        """Least and largest value within public bounds, in the units of `label_limits`."""
        limits = [ends for ends in self.label_limits if ends is not None]
        least, _ = limits[0]
        _, largest = limits[-1]
        return least, largest

    @property
    @abstractmethod
    def clamp(self) -> tuple[float, float]:
        """Public range to which every value is clamped first; of dates and moments first and last day, or second."""

    @property
    @abstractmethod
    def clamp_texts(self) -> tuple[str, str]:
        """The ends of `clamp` as a configuration has them."""

    @property
    @abstractmethod
    def clamped_ends(self) -> tuple[ClampedEnd, ...]:
        """Ends of the bounds beyond which values count as the bound, the lower one first; none before bounds are bought."""

    def clamped_words(self, ends: Collection[ClampedEnd]) -> str:
        """Return what values beyond these ends count as, such as "numbers above 100 count as 100"; empty without ends."""
        if not ends:
            return ""
        bounds = {"high" if end.is_upper else "low": end.bound for end in ends}
        which = "both" if len(bounds) == 2 else "upper" if "high" in bounds else "lower"
        return str(counts_sentence(f"clamped.{self.beyond}-{which}", **bounds))

    @abstractmethod
    def runs(self, missing: Sequence[str]) -> tuple[PointRange, ...] | None:
        """Return the points of the bins without the missing codes, as runs.

        None if no missing code lies on the grid, so that there is nothing to remove.
        """

    def check_bins(self, missing: Sequence[str]) -> None:
        """Refuse a bin in which every value that could be drawn is a missing code; raises ValueError."""
        runs = self.runs(missing)
        if runs is None:
            return
        bins_with_values = {index for index, _, _ in runs}
        for index, label in enumerate(self.bin_labels):
            if index not in bins_with_values:
                raise ValueError(
                    f"has a bin, {label}, in which every value is also missing, or a special code; give the column its own "
                    "list, such as missing: [], or other bins"
                )


def open_runs(runs: Iterable[PointRange], gaps: Sequence[Gap]) -> tuple[PointRange, ...]:
    """Return the runs without the points of the gaps; a run whose points are all in gaps is left out."""
    ordered = sorted(gaps)
    return tuple(part for run in runs for part in _parts_between(run, ordered))


def _parts_between(run: PointRange, gaps: Sequence[Gap]) -> Iterable[PointRange]:
    """Yield the parts of a run between the gaps, which are in increasing order."""
    index, first, last = run
    for start, end in gaps:
        if end < first or start > last:
            continue
        if start > first:
            yield index, first, start - 1
        first = end + 1
    if first <= last:
        yield index, first, last


def longest_gap(gaps: Sequence[Gap]) -> int:
    """Return the largest number of consecutive points that all mean "no value"."""
    longest = 0
    start = 0
    stop = 0
    for first, last in sorted(gaps):
        # `stop` is past the gap before it: adjacent gaps count as one
        if longest and first <= stop:
            stop = max(stop, last + 1)
        else:
            start = first
            stop = last + 1
        longest = max(longest, stop - start)
    return longest
