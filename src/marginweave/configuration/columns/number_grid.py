"""Bins of a number: their edges, their names, and the grid of values inside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BeforeValidator

from marginweave.configuration.columns.binned import (
    BinnedColumn,
    BinSteps,
    ClampedEnd,
    PointRange,
    open_runs,
)
from marginweave.configuration.columns.number_parts import (
    gaps_on_grid,
    read_bins,
    read_bounds,
    read_codes,
    read_pair,
)
from marginweave.configuration.columns.scales import LogBins, log_edges, smallest_of, zero_bin
from marginweave.configuration.number_texts import NumberForm, NumberText
from marginweave.configuration.values import ValueMatcher, Whole


class NumberGrid(BinnedColumn, frozen=True):
    """A number column with its bins, and the grid of the values that lie inside them."""

    bounds: Annotated[
        tuple[float, float] | Literal["private"] | None, BeforeValidator(read_bounds)
    ] = None
    within: Annotated[tuple[float, float] | None, BeforeValidator(read_pair)] = None
    bins: Annotated[int | BinSteps | LogBins | tuple[float, ...], BeforeValidator(read_bins)]
    outer: Literal["clamp", "open"] | None = None
    decimals: Whole | None = None
    codes: Annotated[dict[str, str] | None, BeforeValidator(read_codes)] = None
    text: NumberText | None = None

    @cached_property
    def _inner(self) -> tuple[float, ...]:
        """Edges without those of the open bins."""
        if isinstance(self.bins, tuple):
            return self.bins
        if isinstance(self.bins, BinSteps):
            return self.bins.edges
        # _check refuses a count without bounds; private bounds have no edges yet
        assert isinstance(self.bounds, tuple)
        low, high = self.bounds
        if isinstance(self.bins, LogBins):
            smallest = smallest_of(self.bounds, self.bins.smallest, self.decimals)
            return log_edges(self.bounds, self.bins.log, smallest, self.decimals)
        edges = [low + (high - low) * i / self.bins for i in range(self.bins)]
        return (*edges, high)

    @property
    def _reach(self) -> tuple[float, float]:
        """Least and largest number that open bins reach to: the bounds, or the outermost edges without them."""
        return self.bounds if isinstance(self.bounds, tuple) else (self._inner[0], self._inner[-1])

    @cached_property
    def edges(self) -> tuple[float, ...]:
        """Increasing edges of the bins, open bins included; shape (bins + 1,). Not defined before bounds are bought.

        An open bin reaches to the bound, or, where that is not beyond the bins, it is as wide as its neighbor.
        """
        inner = self._inner
        if self.outer != "open":
            return inner
        low, high = self._reach
        below = low if low < inner[0] else 2 * inner[0] - inner[1]
        above = high if high > inner[-1] else 2 * inner[-1] - inner[-2]
        return (below, *inner, above)

    @cached_property
    def ends(self) -> tuple[tuple[float, float], ...]:
        """Limits of the numbers of each bin before they were clamped to its edges: an open bin is infinite on its open side.

        An open bin that reaches to bounds beyond the bins ends there: numbers outside of `bounds` count as the nearest bound.
        """
        below, *inner, above = self.edges
        if self.outer == "open":
            low, high = self._reach
            if low >= self._inner[0]:
                below = -math.inf
            if high <= self._inner[-1]:
                above = math.inf
        return tuple(pairwise((below, *inner, above)))

    @property
    def clamped_ends(self) -> tuple[ClampedEnd, ...]:
        """Ends of the bounds, without those of bins that are open; none before bounds are bought."""
        if self.bounds == "private":
            return ()
        low, _ = self.ends[0]
        _, high = self.ends[-1]
        last = self.bin_count - 1
        ends = [
            ClampedEnd(bound=f"{low:.12g}", is_upper=False, code=0),
            ClampedEnd(bound=f"{high:.12g}", is_upper=True, code=last),
        ]
        return tuple(end for end in ends if math.isfinite(float(end.bound)))

    @cached_property
    def number_limits(self) -> tuple[tuple[float, float], ...]:
        """Least and largest number that each bin holds: with the declared decimals, or its ends without `decimals`.

        With whole numbers the bin [0, 10) holds 0 to 9. The outermost ends do not change: numbers beyond them count as these.
        """
        if self.decimals is None:
            return self.ends
        scale = 10**self.decimals
        lows = list[float]()
        highs = list[float]()
        for index in range(len(self.bin_labels)):
            first, last = self.grid(index)
            lows.append(first / scale)
            highs.append(last / scale)
        lows[0] = self.ends[0][0]
        highs[-1] = self.ends[-1][1]
        return tuple(zip(lows, highs, strict=True))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names of the bins, and then of the codes."""
        return (*self.bin_labels, *(self.codes or {}).values())

    @cached_property
    def special(self) -> tuple[float, ...]:
        """Numbers that are special codes, in the order of their labels."""
        return tuple(map(float, self.codes or ()))

    def form_in(self, source: NumberForm) -> NumberForm:
        """Return how its cells spell numbers, in a source whose numbers are spelled as `source`."""
        return source if self.text is None else self.text.form(source)

    @property
    def explicit(self) -> tuple[str, ...]:
        """Texts of the special codes."""
        return tuple(self.codes or ())

    def code_of(self, text: str) -> int:
        """Return the position of the label that a text names, or of the special code that it spells, or -1."""
        place = ValueMatcher(self.explicit).index(text)
        return super().code_of(text) if place < 0 else len(self.bin_labels) + place

    @cached_property
    def bin_labels(self) -> tuple[str, ...]:
        """Names of the bins, such as `[0, 5)`; the last one is closed. Before the bounds are bought they are only numbered."""
        if self.bounds == "private":
            assert isinstance(self.bins, int)
            count = self.bins + 2 if self.outer == "open" else self.bins
            return tuple(f"bin {i + 1}" for i in range(count))
        texts = [format(edge, ".12g") for edge in self._inner]
        inner = [f"[{low}, {high})" for low, high in pairwise(texts)]
        if self.outer == "open":
            return (f"< {texts[0]}", *inner, f"≥ {texts[-1]}")
        return (*inner[:-1], f"{inner[-1][:-1]}]")

    @cached_property
    def zero(self) -> int | None:
        """Index of the bin that log bins have for 0; None for other bins."""
        if not isinstance(self.bins, LogBins) or not isinstance(self.bounds, tuple):
            return None
        return zero_bin(self.edges)

    @property
    def _outermost(self) -> tuple[float, float]:
        """First and last edge, or the range `within`; for log bins the bounds, as decimals decide where their edges are."""
        if self.within is not None:
            return self.within
        if isinstance(self.bins, LogBins) and isinstance(self.bounds, tuple):
            return self.bounds
        return self.edges[0], self.edges[-1]

    @cached_property
    def finest(self) -> int:
        """Largest number of decimals at which every multiple of 10^-decimals inside the edges is an exact double."""
        largest = max(1.0, *map(abs, self._outermost))
        return min(12, math.floor(math.log10(2**53 / largest)))

    @cached_property
    def resolution(self) -> int:
        """Decimals of a synthetic value: declared, or enough for about a thousand steps in the narrowest bin."""
        if self.decimals is not None:
            return self.decimals
        width = min(high - low for low, high in pairwise(self.edges))
        decimals = math.ceil(3 - math.log10(width))
        return min(self.finest, max(0, decimals))

    def grid(self, index: int, resolution: int | None = None) -> tuple[int, int]:
        """Return the first and last multiple of 10^-resolution inside bin `index`, as integers.

        `resolution` is the column's (`self.resolution`) unless it is given.
        """
        scale = 10 ** (self.resolution if resolution is None else resolution)
        low = self.edges[index]
        high = self.edges[index + 1]
        first = round(low * scale) - 1  # the product may be rounded past the edge
        while first / scale < low:
            first += 1
        is_closed = index == len(self.edges) - 2
        last = round(high * scale) + 1
        while last / scale > high or (not is_closed and last / scale >= high):
            last -= 1
        return first, last

    def runs(
        self, missing: Sequence[str], resolution: int | None = None
    ) -> tuple[PointRange, ...] | None:
        """Return the grids of the bins without missing and special codes; None where no code lies on a grid."""
        resolution = self.resolution if resolution is None else resolution
        gaps = gaps_on_grid((*missing, *self.explicit), self.edges[0], self.edges[-1], resolution)
        if not gaps:
            return None
        grids = ((index, *self.grid(index, resolution)) for index in range(len(self.bin_labels)))
        return open_runs(grids, gaps)
